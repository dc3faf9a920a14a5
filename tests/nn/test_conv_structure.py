"""The graph of a vectorized CNN is the hand-batched one."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, gradient_of

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


@pytest.mark.parametrize(("channels", "features"), [(3, 5), (1, 2), (1, 5), (17, 2)])
@pytest.mark.parametrize(("kernel", "strides"), [(1, 1), (3, 1), (3, 2), (5, 1)])
def test_per_example_filter_gradients_have_no_loop(kernel, strides, channels, features):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[4, 9, 8, channels]), tf.float64)
    f = tf.constant(rng.normal(size=[kernel, kernel, channels, features]), tf.float64)

    def gradient(e):
        with tf.GradientTape() as tape:
            tape.watch(f)
            y = tf.nn.conv2d(e[None], f, strides, "SAME")
            loss = tf.reduce_sum(tf.square(y))
        return tape.gradient(loss, f)

    types = op_types(
        lambda x: tf_pfor.vectorized_map(gradient, x, fallback_to_while_loop=False),
        tf.TensorSpec(x.shape, x.dtype),
    )
    assert not {"While", "StatelessWhile", "MapDefun"} & set(types)
    few = channels == 1 and features <= 4  # decision 0003
    assert types["DepthwiseConv2dNativeBackpropFilter"] == few
    found = tf_pfor.vectorized_map(gradient, x, fallback_to_while_loop=False)
    np.testing.assert_allclose(found, [gradient(e) for e in x], rtol=1e-11, atol=1e-11)


def test_second_order_through_filter_gradients():
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[3, 5, 5, 2]), tf.float64)
    f = tf.constant(rng.normal(size=[3, 3, 2, 2]), tf.float64)

    def gradient(e, f):
        with tf.GradientTape() as tape:
            tape.watch(f)
            y = tf.nn.conv2d(e[None], f, 2, "SAME")
            loss = tf.reduce_sum(y * y * y)
        return tape.gradient(loss, f)

    def total(rows):
        return gradient_of(lambda: tf.reduce_sum(tf.square(rows(x, f))), [x, f])

    found = total(lambda x, f: tf_pfor.vectorized_map(lambda e: gradient(e, f), x))
    expected = total(lambda x, f: tf.stack([gradient(x[i], f) for i in range(3)]))
    assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [(9, 8), (10, 7), (5, 5)])
@pytest.mark.parametrize(
    ("kernel", "strides", "padding"),
    [(1, 1, "SAME"), (3, 1, "VALID"), (3, 2, "SAME"), (5, 3, "SAME"), (2, 2, "VALID"),
     (3, 2, [[0, 0], [1, 2], [0, 1], [0, 0]])],
)  # fmt: skip
def test_the_image_size_may_be_unknown(kernel, strides, padding, size):
    """Values, filter gradients and input gradients with a filter for each row; no loop."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[4, 2, *size, 3]), tf.float64)
    f = tf.constant(rng.normal(size=[4, kernel, kernel, 3, 5]), tf.float64)

    def both(args):
        image, filters = args
        with tf.GradientTape() as tape:
            tape.watch([image, filters])
            y = tf.nn.conv2d(image, filters, strides, padding)
            loss = tf.reduce_sum(tf.sin(y))
        return y, *tape.gradient(loss, [image, filters])

    def run(x, f):
        return tf_pfor.vectorized_map(both, (x, f), fallback_to_while_loop=False)

    unknown = tf.TensorSpec([None, None, None, None, 3], tf.float64)
    graph = tf.function(run, autograph=False).get_concrete_function(
        unknown, tf.TensorSpec([None, *f.shape[1:]], f.dtype)
    )
    types = {op.type for op in graph.graph.get_operations()}
    assert not {"While", "StatelessWhile", "MapDefun", "StatefulPartitionedCall"} & types
    expected = [both((x[i], f[i])) for i in range(4)]
    for found, wanted in zip(graph(x, f), zip(*expected), strict=True):
        np.testing.assert_allclose(found, tf.stack(wanted), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("strides", "padding"), [(1, "SAME"), (2, "SAME"), (2, "VALID")])
def test_channels_first(strides, padding):
    """XLA has these kernels on every device; the reference is the channels-last loop."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[3, 2, 4, 7, 6]), tf.float32)
    f = tf.constant(rng.normal(size=[3, 3, 3, 4, 5]), tf.float32)
    attrs = {"strides": strides, "padding": padding}

    def first(args):
        image, filters = args
        with tf.GradientTape() as tape:
            tape.watch([image, filters])
            y = tf.nn.conv2d(image, filters, data_format="NCHW", **attrs)
            loss = tf.reduce_sum(tf.sin(y))
        return y, *tape.gradient(loss, [image, filters])

    def last(image, filters):
        image = tf.transpose(image, [0, 2, 3, 1])
        with tf.GradientTape() as tape:
            tape.watch([image, filters])
            y = tf.nn.conv2d(image, filters, **attrs)
            loss = tf.reduce_sum(tf.sin(y))
        dx, df = tape.gradient(loss, [image, filters])
        return tf.transpose(y, [0, 3, 1, 2]), tf.transpose(dx, [0, 3, 1, 2]), df

    def run(x, f):
        return tf_pfor.vectorized_map(first, (x, f), fallback_to_while_loop=False)

    found = tf.function(run, jit_compile=True)(x, f)
    expected = [last(x[i], f[i]) for i in range(3)]
    for a, b in zip(found, zip(*expected), strict=True):
        np.testing.assert_allclose(a, tf.stack(b), rtol=1e-4, atol=1e-4)


def test_bfloat16():
    rng = np.random.default_rng(0)
    x = tf.cast(rng.normal(size=[3, 2, 7, 6, 4]), tf.bfloat16)
    f = tf.cast(rng.normal(size=[3, 3, 3, 4, 5]), tf.bfloat16)

    def one(args):
        return tf.nn.conv2d(*args, 2, "SAME")

    found = tf_pfor.vectorized_map(one, (x, f), fallback_to_while_loop=False)
    expected = tf.stack([one((x[i], f[i])) for i in range(3)])
    # bfloat16 has 8 bits: sums of 36 products in another order.
    np.testing.assert_allclose(
        tf.cast(found, tf.float32), tf.cast(expected, tf.float32), rtol=2e-2, atol=1e-1
    )


def test_filter_gradients_of_several_images_from_one_channel():
    """One depthwise convolution has all rows as its channels; each row has two images."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[3, 2, 5, 6, 1]), tf.float64)
    dy = tf.constant(rng.normal(size=[3, 2, 5, 6, 2]), tf.float64)

    def body(e):
        return tf.raw_ops.Conv2DBackpropFilter(
            input=e[0], filter_sizes=[3, 3, 1, 2], out_backprop=e[1], strides=[1] * 4,
            padding="SAME",
        )  # fmt: skip

    found = tf_pfor.vectorized_map(body, (x, dy), fallback_to_while_loop=False)
    wanted = [body((x[i], dy[i])) for i in range(3)]
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_the_sizes_of_an_image_may_be_height_and_width():
    """The other inputs have its batch and its channels, and these must be known."""
    rng = np.random.default_rng(0)
    f = tf.constant(rng.normal(size=[3, 3, 3, 3, 4]), tf.float64)
    dy = tf.constant(rng.normal(size=[3, 2, 3, 4, 4]), tf.float64)

    def body(e):
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=[5, 7], filter=e[0], out_backprop=e[1], strides=[1, 2, 2, 1],
            padding="SAME",
        )  # fmt: skip

    def run(f, dy):
        return tf_pfor.vectorized_map(body, (f, dy), fallback_to_while_loop=False)

    wanted = [body((f[i], dy[i])) for i in range(3)]
    np.testing.assert_allclose(run(f, dy), wanted, rtol=1e-11, atol=1e-11)
    unknown = tf.TensorSpec([3, None, 3, 4, 4], tf.float64)
    with pytest.raises(tf_pfor.NotVectorizableError, match="'input_sizes' has a part of it"):
        tf.function(run).get_concrete_function(f, unknown)
