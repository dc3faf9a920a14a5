"""A handful of things that must work on every version of TensorFlow: ``make test-oldest``."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tf_pfor import _tf
from tf_pfor._tf import _graphs


def test_versions():
    major, minor = (int(x) for x in tf.__version__.split(".")[:2])
    assert (2, 16) <= (major, minor) <= (2, 21)
    assert tf.keras.__version__.startswith("3.")


def test_every_private_symbol_is_there():
    assert _tf.schema("MatMul").op_type == "MatMul"
    assert _tf.registered_gradient("Tanh") is not None
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2])
        made = _graphs.create_op(graph, "Neg", [x], {"T": _tf.attr_value("type", tf.float32)})
        assert made.outputs[0].shape == [2]
        assert "test_smoke.py" in _tf.user_line(made)


def test_pfor():
    assert tf_pfor.pfor(lambda i: i * i, 4).numpy().tolist() == [0, 1, 4, 9]


def test_map_and_its_gradient():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    w = tf.Variable([[1.0, 0.5], [0.0, 2.0]])

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf_pfor.vectorized_map(lambda r: tf.tanh(tf.linalg.matvec(w, r)), x)
            loss = tf.reduce_sum(y)
        return y, *tape.gradient(loss, [x, w])

    y, dx, dw = run()
    expected = np.tanh(x.numpy() @ w.numpy().T)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    slope = 1 - expected**2
    np.testing.assert_allclose(dx, slope @ w.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dw, slope.T @ x.numpy(), rtol=1e-4, atol=1e-5)


def test_per_example_gradients_of_a_keras_model():
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input([4]), layers.Dense(3, "relu"), layers.Dense(2)])
    x = np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32)

    def one(row):
        return gradient_of(lambda: tf.reduce_sum(model(row[None]) ** 2), model.trainable_variables)

    found = tf_pfor.vectorized_map(one, tf.constant(x), fallback_to_while_loop=False)
    for r in range(5):
        for f, e in zip(found, one(tf.constant(x[r]))):
            np.testing.assert_allclose(f[r], e, rtol=1e-4, atol=1e-5)


def test_an_autographed_body():
    def body(x):
        total = tf.constant(0.0)
        for i in range(3):
            total += x * float(i)
        return total

    found = tf_pfor.vectorized_map(body, tf.constant([1.0, 2.0]))
    assert found.numpy().tolist() == [3.0, 6.0]


def test_an_error():
    with pytest.raises(tf_pfor.ArgumentError, match="holds no tensor"):
        tf_pfor.vectorized_map(lambda x: x, None)


def test_xla():
    run = tf.function(
        lambda x: tf_pfor.vectorized_map(lambda r: tf.reduce_sum(tf.exp(r)), x), jit_compile=True
    )
    x = np.ones([3, 2], np.float32)
    np.testing.assert_allclose(run(x), np.exp(x).sum(1), rtol=1e-5)
