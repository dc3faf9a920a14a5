"""Loop variables that grow or shrink, and end with a shape that differs per row."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_around, compare_rows, gradient_of, mapped

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


@pytest.mark.parametrize("body", BODIES)
def test_values(body):
    compare_rows(body, X, K, rtol=1e-7, atol=0)


@pytest.mark.parametrize("body", [appended, counted])
def test_few_rows_of_an_unknown_number(body):
    compare_rows(body, X, K, unknown=True, rtol=1e-7, atol=0)


@pytest.mark.parametrize("body", [appended, cut])
def test_gradients_around(body):
    compare_around(body, X, K, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("body", [appended, cut])
def test_gradients_in_the_body(body):
    def gradient(x, k):
        return tf.ensure_shape(gradient_of(lambda: tf.reduce_sum(body(x, k) ** 3), x), [5, 2])

    with pytest.warns(tf_pfor.FallbackWarning, match="run in a sequential loop"):
        compare_rows(gradient, X, K, rtol=1e-7, atol=0, fallback="loop")


def appended_by_some(x, k):
    """A trip appends in some rows only."""
    return _loop(5, lambda t, y: tf.cond(t < k, lambda: tf.concat([y, [t]], 0), lambda: y), _NONE)


def smoothed(x, k):
    """The variable is ragged from the start, and of the same shape in all trips."""
    y = x[: k + 1]
    for _ in tf.range(3):
        y = tf.tanh(y) * 0.5 + tf.reduce_mean(y, 0)
    return y


def smoothed_for_a_while(x, k):
    y = x[: k + 1]
    for _ in tf.range(k):
        y = tf.tanh(y) * 0.5 + tf.reduce_mean(y, 0)
    return y


def sinkhorn(x, k):
    """A matrix whose size differs per row, until its columns sum to one."""
    p = tf.exp(tf.matmul(x[: k + 1], x[: k + 1], transpose_b=True))
    error = tf.constant(1.0, p.dtype)
    while error > 1e-3:
        p = p / tf.reduce_sum(p, 0, keepdims=True)
        p = p / tf.reduce_sum(p, 1, keepdims=True)
        error = tf.reduce_max(tf.abs(tf.reduce_sum(p, 0) - 1.0))
    return p


def pagerank(x, k):
    """Sizes that no trip changes, but of which that is not known before running."""
    n = k + 1
    links = tf.exp(tf.matmul(x[:n], x[:n], transpose_b=True))
    links = links / tf.reduce_sum(links, 0, keepdims=True)
    rank = tf.ones([n], x.dtype) / tf.cast(n, x.dtype)
    for _ in tf.range(4):
        rank = 0.85 * tf.linalg.matvec(links, rank) + 0.15 / tf.cast(n, x.dtype)
    return rank


def farthest_points(x, k):
    rows = x[: k + 1]
    distance = tf.reduce_sum((rows - rows[0]) ** 2, 1)
    found = tf.TensorArray(tf.int32, 3)
    for t in tf.range(3):
        i = tf.argmax(distance, output_type=tf.int32)
        found = found.write(t, i)
        distance = tf.minimum(distance, tf.reduce_sum((rows - rows[i]) ** 2, 1))
    return tf.gather(rows, found.stack())


def in_a_branch(x, k):
    y = x[: k + 1]
    if k > 1:
        for i in tf.range(k):
            if i % 2 == 0:
                y = y * 0.5 + 1.0
            else:
                y = tf.sin(y)
    return y


def in_a_loop(x, k):
    y = x[: k + 1]
    for i in tf.range(k):
        for _ in tf.range(i):
            y = y * 0.5 + tf.reduce_max(y)
    return tf.reduce_sum(y, 0)


def grown(x, k):
    """Each row begins with a length that differs, and grows by one in each trip."""
    y = x[: k + 1]
    for _ in tf.range(k):
        tf.autograph.experimental.set_loop_options(shape_invariants=[(y, _SHAPE([None, 2]))])
        y = tf.concat([y, y[:1] * 0.5], 0)
    return y


_NONE = tf.zeros([0], tf.int32)
CARRIED = [
    smoothed, smoothed_for_a_while, sinkhorn, pagerank, farthest_points, in_a_branch, in_a_loop,
    grown,
]  # fmt: skip


@pytest.mark.parametrize("body", [*CARRIED, appended_by_some])
def test_ragged_rows_that_are_carried(body):
    compare_rows(body, X, K, rtol=1e-7, atol=0)


@pytest.mark.parametrize("body", CARRIED)
def test_gradients_around_ragged_rows_that_are_carried(body):
    compare_around(body, X, K, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("strategy", ["compact", "mask"])
def test_strategies(strategy):
    for body in (smoothed, smoothed_for_a_while):
        compare_rows(body, X, K, rtol=1e-7, atol=0, while_strategy=strategy)


def test_compiled():
    def total(x, k):
        return tf.reduce_sum(in_a_loop(x, k))

    run = tf.function(lambda: mapped(total, X, K), jit_compile=True)
    np.testing.assert_allclose(run(), [total(X[i], K[i]) for i in range(4)])
