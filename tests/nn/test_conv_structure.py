"""The graph of a vectorized CNN is the hand-batched one."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped, rows_of
from tests.ways import How, assert_same_rows, check, slopes_of, table_of

HEAVY = ("AvgPool", "BiasAdd", "Conv2D", "MatMul", "MaxPool", "Relu", "Softmax", "While")


def small_cnn():
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input([8, 8, 1]),
            keras.layers.Conv2D(4, 3, activation="relu", padding="same"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(6, 3, activation="relu"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(5, activation="softmax"),
        ]
    )


def op_types(fn, spec):
    """The number of ops of each type in the graph of ``fn``, called functions included."""
    graph = tf.function(fn, autograph=False).get_concrete_function(spec).graph.as_graph_def()
    nodes = [*graph.node, *[n for f in graph.library.function for n in f.node_def]]
    return collections.Counter(n.op for n in nodes)


def test_a_cnn_becomes_the_hand_batched_one():
    model = small_cnn()
    spec = tf.TensorSpec([7, 8, 8, 1], tf.float32)
    found = op_types(lambda x: tf_pfor.vectorized_map(lambda e: model(e[None])[0], x), spec)
    expected = op_types(model, spec)
    for op_type in HEAVY:
        assert found[op_type] == expected[op_type], op_type
    assert found["Reshape"] <= expected["Reshape"]
    assert found["Transpose"] == 0


def test_no_reshape_between_the_kernels():
    model = small_cnn()

    @tf.function(autograph=False)
    def run(x):
        return tf_pfor.vectorized_map(lambda e: model(e[None])[0], x)

    graph = run.get_concrete_function(tf.TensorSpec([7, 8, 8, 1], tf.float32)).graph
    for op in graph.get_operations():
        if op.type in ("BiasAdd", "Relu", "MaxPool", "AvgPool"):
            assert op.inputs[0].op.type in HEAVY, f"{op.inputs[0].op.type} feeds {op.type}"


RNG = np.random.default_rng(0)
LOOPS = {"While", "StatelessWhile", "MapDefun"}


def normal(*shape, dtype=tf.float64):
    return tf.constant(RNG.normal(size=shape), dtype)


def gradient(image, filters, strides=1):
    made = lambda: tf.nn.conv2d(image[None], filters, strides, "SAME")  # noqa: E731
    return gradient_of(lambda: tf.reduce_sum(made() ** 3), filters)


@pytest.mark.parametrize(("channels", "features"), [(3, 5), (1, 2), (1, 5), (17, 2)])
@pytest.mark.parametrize(("kernel", "strides"), [(1, 1), (3, 1), (3, 2), (5, 1)])
def test_per_example_filter_gradients_have_no_loop(kernel, strides, channels, features):
    x, f = normal(4, 9, 8, channels), normal(kernel, kernel, channels, features)
    one = lambda e: gradient(e, f, strides)  # noqa: E731
    types = op_types(lambda x: mapped(one, x), tf.TensorSpec(x.shape, x.dtype))
    assert not LOOPS & set(types)
    few = channels == 1 and features <= 4  # decision 0003
    assert types["DepthwiseConv2dNativeBackpropFilter"] == few
    check("eager", one, (x,), How((1e-11, 1e-11)))


def test_second_order_through_filter_gradients():
    f = normal(3, 3, 2, 2)
    how = How((1e-11, 1e-11), by=(f,))
    check("around", lambda e: gradient(e, f, 2), (normal(3, 5, 5, 2),), how)


@pytest.mark.parametrize("size", [(9, 8), (10, 7), (5, 5)])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [(1, 1, "SAME"), (3, 1, "VALID"), (3, 2, "SAME"), (5, 3, "SAME"), (2, 2, "VALID"),
     (3, 2, [[0, 0], [1, 2], [0, 1], [0, 0]])],
)  # fmt: skip
def test_the_image_size_may_be_unknown(kernel, strides, padding, size):
    """Values, filter gradients and input gradients with a filter for each row; no loop."""
    rows = (normal(4, 2, *size, 3), normal(4, kernel, kernel, 3, 5))
    specs = (
        tf.TensorSpec([None, None, None, None, 3], tf.float64),
        tf.TensorSpec([None, *rows[1].shape[1:]], tf.float64),
    )
    one = lambda image, filters: tf.nn.conv2d(image, filters, strides, padding)  # noqa: E731
    graph = tf.function(lambda *rows: mapped(slopes_of(one, None), *rows), autograph=False)
    types = {op.type for op in graph.get_concrete_function(*specs).graph.get_operations()}
    assert not {*LOOPS, "StatefulPartitionedCall"} & types
    for way in ("unknown sizes", "unknown sizes, inside"):
        check(way, one, rows, How((1e-11, 1e-11), specs=specs))


@pytest.mark.parametrize(("strides", "padding"), [(1, "SAME"), (2, "SAME"), (2, "VALID")])
def test_channels_first(strides, padding):
    """XLA has these kernels on every device; the reference is the channels-last loop."""
    x, f = normal(3, 2, 4, 7, 6, dtype=tf.float32), normal(3, 3, 3, 4, 5, dtype=tf.float32)

    def first(image, filters):
        return tf.nn.conv2d(image, filters, strides, padding, data_format="NCHW")

    def last(image, filters):
        made = tf.nn.conv2d(tf.transpose(image, [0, 2, 3, 1]), filters, strides, padding)
        return tf.transpose(made, [0, 3, 1, 2])

    for of_first, of_last in ((first, last), (slopes_of(first, None), slopes_of(last, None))):
        found = tf.function(lambda *rows, f=of_first: mapped(f, *rows), jit_compile=True)(x, f)
        assert_same_rows(found, rows_of(of_last, x, f), 1e-4, 1e-4)


IMAGES, FILTERS = normal(3, 2, 7, 6, 4, dtype=tf.bfloat16), normal(3, 3, 3, 4, 5, dtype=tf.bfloat16)
test_table_of_bfloat16 = table_of(
    {"convolution": lambda x, f: tf.nn.conv2d(x, f, 2, "SAME")}, IMAGES, FILTERS, ways=["eager"],
    tolerance=(2e-2, 1e-1),  # it has 8 bits: sums of 36 products in another order
)  # fmt: skip


def of_filter(x, dy):
    return tf.raw_ops.Conv2DBackpropFilter(
        input=x, filter_sizes=[3, 3, 1, 2], out_backprop=dy, strides=[1] * 4, padding="SAME"
    )


def of_input(f, dy):
    """Sizes of an image are height and width: batch and channels are known from other inputs."""
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[5, 7], filter=f, out_backprop=dy, strides=[1, 2, 2, 1], padding="SAME"
    )


test_table_of_gradients = table_of(
    {
        # One depthwise convolution has all rows as its channels; each row has two images.
        "of filters": (of_filter, (normal(3, 2, 5, 6, 1), normal(3, 2, 5, 6, 2))),
        "of images": (of_input, (normal(3, 3, 3, 3, 4), normal(3, 2, 3, 4, 4))),
    },
    ways=["eager"], tolerance=(1e-11, 1e-11),
)  # fmt: skip


def test_the_batch_of_an_image_must_be_known():
    specs = [tf.TensorSpec(shape, tf.float64) for shape in ([3, 3, 3, 3, 4], [3, None, 3, 4, 4])]
    with pytest.raises(tf_pfor.NotVectorizableError, match="'input_sizes' has a part of it"):
        tf.function(lambda *rows: mapped(of_input, *rows)).get_concrete_function(*specs)
