"""The graph of a vectorized CNN is the hand-batched one."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

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
    """How often each op type stands in the graph of ``fn``, called functions included."""
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


@pytest.mark.parametrize(("kernel", "strides"), [(1, 1), (3, 1), (3, 2), (5, 1)])
def test_per_example_filter_gradients_have_no_loop(kernel, strides):
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[4, 9, 8, 3]), tf.float64)
    f = tf.constant(rng.normal(size=[kernel, kernel, 3, 5]), tf.float64)

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
        with tf.GradientTape() as tape:
            tape.watch([x, f])
            norms = tf.reduce_sum(tf.square(rows(x, f)))
        return tape.gradient(norms, [x, f])

    found = total(lambda x, f: tf_pfor.vectorized_map(lambda e: gradient(e, f), x))
    expected = total(lambda x, f: tf.stack([gradient(x[i], f) for i in range(3)]))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
