"""Loop variables that grow or shrink, and end in each row with a shape of its own."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

X = tf.constant(np.random.default_rng(0).normal(size=[4, 5, 2]))
K = tf.constant([2, 0, 4, 2])
_SHAPE = tf.TensorShape


def _loop(k, body, start):
    shapes = (_SHAPE([]), _SHAPE([None, *start.shape[1:]]))
    return tf.while_loop(
        lambda t, _: t < k, lambda t, y: (t + 1, body(t, y)), (0, start), shape_invariants=shapes
    )[1]


def appended(x, k):
    return _loop(k, lambda t, y: tf.concat([y, y[-1:] * x[t : t + 1]], 0), x[:1])


def counted(x, k):
    """Nothing in it differs between rows, but how long it is."""
    return _loop(k, lambda t, y: tf.concat([y, [t]], 0), tf.zeros([0], tf.int32))


def cut(x, k):
    return _loop(k, lambda t, y: tf.sin(y[1:]), x)


def appended_by_autograph(x, k):
    y = tf.zeros([0], tf.float64)
    for t in tf.range(k):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(y, _SHAPE([None]))])
        y = tf.concat([y, x[t, :1]], 0)
    return y


def total(x, k):
    return tf.reduce_sum(appended(x, k) ** 2, 0)


BODIES = (appended, counted, cut, appended_by_autograph, total)


def mapped(body, *elems, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        return tf_pfor.vectorized_map(lambda e: body(*e), elems, **options)


def assert_rows(found, body, n=4):
    one = tf.function(body)
    for i in range(n):
        np.testing.assert_allclose(found[i], one(X[i], K[i]))


@pytest.mark.parametrize("body", BODIES)
def test_values(body):
    assert_rows(mapped(body, X, K), body)


@pytest.mark.parametrize("body", [appended, counted])
def test_few_rows_of_an_unknown_number(body):
    specs = [tf.TensorSpec([None, 5, 2], X.dtype), tf.TensorSpec([None], tf.int32)]
    run = tf.function(lambda *e: mapped(body, *e), input_signature=specs)
    for n in (0, 1, 4):
        found = run(X[:n], K[:n])
        assert found.nrows() == n
        assert_rows(found, body, n)


@pytest.mark.parametrize("body", [appended, cut])
def test_gradients_around(body):
    one, found = tf.function(body), []
    for run in (
        lambda: mapped(body, X, K).flat_values,
        lambda: tf.concat([one(X[i], K[i]) for i in range(4)], 0),
    ):
        with tf.GradientTape() as tape:
            tape.watch(X)
            result = tf.reduce_sum(run() ** 3)
        found.append(tf.convert_to_tensor(tape.gradient(result, X)))
    np.testing.assert_allclose(*found)


@pytest.mark.parametrize("body", [appended, cut])
def test_gradients_in_the_body(body):
    def gradient(x, k):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = tf.reduce_sum(body(x, k) ** 3)
        return tf.ensure_shape(tape.gradient(result, x), [5, 2])

    with pytest.warns(tf_pfor.FallbackWarning, match="a loop variable whose shape differs"):
        found = tf_pfor.vectorized_map(lambda e: gradient(*e), (X, K))
    assert_rows(found, gradient)


def appended_by_some(x, k):
    """A trip appends in some rows only."""
    return _loop(5, lambda t, y: tf.cond(t < k, lambda: tf.concat([y, [t]], 0), lambda: y), _NONE)


def smoothed(x, k):
    """What is carried is ragged from the start, and of the same shape in all trips."""
    y = x[: k + 1]
    for _ in tf.range(3):
        y = tf.tanh(y) * 0.5 + tf.reduce_mean(y, 0)
    return y


_NONE = tf.zeros([0], tf.int32)


@pytest.mark.parametrize("body", [appended_by_some, smoothed])
def test_ragged_rows_that_are_carried(body):
    found = tf_pfor.vectorized_map(lambda e: body(*e), (X, K), warn=False)
    assert isinstance(found, tf.RaggedTensor)
    assert_rows(found, body)
