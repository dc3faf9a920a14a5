"""Branches and loops that read ragged rows from outside, against a loop over rows."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_around, compare_rows, mapped

N, T, D = 6, 5, 3
X = tf.constant(np.random.default_rng(0).normal(size=[N, T, D]))
LENGTHS, CHOICES = tf.constant([5, 0, 3, 1, 4, 2]), tf.constant([0, 1, 2, 0, 1, 2])
ZERO = tf.zeros([D], tf.float64)


def in_a_branch(x, k, c):
    y = x[:k]
    return tf.cond(c == 0, lambda: tf.reduce_sum(y, 0), lambda: tf.reduce_sum(tf.sin(y) * 2.0, 0))


def in_one_of_three(x, k, c):
    y = x[:k]
    one = tf.constant(1.0, tf.float64)
    return tf.switch_case(c, [lambda: tf.reduce_sum(y), lambda: tf.reduce_sum(y * y), lambda: one])


def two_of_one_size(x, k, c):
    y = x[:k]
    z = tf.cos(y)
    return tf.cond(c == 0, lambda: tf.reduce_sum(y * z, 0), lambda: tf.reduce_sum(y + z, 0))


def predicate_of_all(x, k, c):
    y = x[:k]
    return tf.cond(tf.size(X) > 3, lambda: tf.reduce_sum(y, 0), lambda: ZERO)


def early_return(x, k, c):
    if k == 0:
        return tf.constant(0.0, tf.float64)
    return tf.reduce_mean(x[:k])


def called(x, k, c):
    return tf.function(lambda a: tf.reduce_sum(a, 0))(x[:k])


def branch_in_branch(x, k, c):
    y = x[:k]

    def inner():
        return tf.cond(c == 1, lambda: tf.reduce_sum(y, 0), lambda: tf.reduce_sum(-y, 0))

    return tf.cond(k > 1, inner, lambda: ZERO)


def sizes(x, k, c):
    y = x[:k]
    return tf.cond(c == 0, lambda: tf.shape(y)[0], lambda: -tf.size(y))


def sum_in_a_loop(x, k, c):
    y, s = x[:k], ZERO
    for t in tf.range(c):
        s += tf.reduce_sum(y, 0) * tf.cast(t, tf.float64)
    return s


def element_in_a_loop(x, k, c):
    y, s = x[:k], ZERO
    for t in tf.range(tf.shape(y)[0]):
        s = 0.7 * s + 0.3 * y[t]
    return s


def until_a_bound(x, k, c):
    y, s, t = tf.sin(x[:k]), ZERO, 0
    while t < tf.shape(y)[0] and tf.reduce_sum(s) < 1.0:
        s += y[t] * tf.reduce_sum(y)
        t += 1
    return s


def gathered_in_a_loop(x, k, c):
    y, s = x[:k], ZERO
    for t in tf.range(c + 1):
        if t < k:
            s += tf.gather(y, t)
    return s


BODIES = (
    in_a_branch, in_one_of_three, two_of_one_size, predicate_of_all, early_return, called,
    branch_in_branch, sizes, sum_in_a_loop, element_in_a_loop, until_a_bound, gathered_in_a_loop,
)  # fmt: skip


def rows(body, x=X):
    one = tf.function(body)
    return tf.stack([one(x[i], LENGTHS[i], CHOICES[i]) for i in range(N)])


@pytest.mark.parametrize("site", ["eager", "unknown", "nested", "no rows", "one row"])
@pytest.mark.parametrize("body", BODIES)
def test_values(body, site):
    expected = rows(body)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        if site == "eager":
            found = mapped(body, X, LENGTHS, CHOICES)
        elif site == "unknown":
            specs = [tf.TensorSpec([None, None, D], tf.float64)]
            specs += [tf.TensorSpec([None], tf.int32)] * 2
            run = tf.function(lambda *e: mapped(body, *e), input_signature=specs)
            found = run(X, LENGTHS, CHOICES)
        elif site == "nested":
            pairs = tuple(tf.reshape(t, [2, 3, *t.shape[1:]]) for t in (X, LENGTHS, CHOICES))
            found = tf_pfor.vectorized_map(lambda e: mapped(body, *e), pairs)
            found = tf.reshape(found, expected.shape)
        else:
            n = 1 if site == "one row" else 0
            found, expected = mapped(body, X[:n], LENGTHS[:n], CHOICES[:n]), expected[:n]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("body", [b for b in BODIES if b is not sizes])
def test_gradients_around(body):
    compare_around(body, X, LENGTHS, CHOICES, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    "body", [b for b in BODIES if b not in (element_in_a_loop, gathered_in_a_loop)]
)
def test_compiled(body):
    """All but a loop without a bound over the ragged axis, and a gather of it."""
    run = tf.function(lambda *e: mapped(body, *e), jit_compile=True)
    np.testing.assert_allclose(run(X, LENGTHS, CHOICES), rows(body))


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_a_branch_that_returns_rows():
    def body(x, k, c):
        y = x[:k]
        return tf.cond(c == 0, lambda: y * 2.0, lambda: y + 1.0)

    compare_rows(body, X, LENGTHS, CHOICES, rtol=1e-7, atol=0)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_scans_of_ragged_rows(kind):
    given = [[1.0, 2.0, 4.0], [3.0], [2.0, 2.0]]
    ragged = tf.ragged.constant(given, row_splits_dtype=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        found = tf_pfor.vectorized_map(
            lambda x: tf.scan(lambda a, b: 0.7 * a + 0.3 * b, x)[-1], ragged
        )
        total = tf_pfor.vectorized_map(lambda x: tf.foldl(lambda a, b: a + b * b, x), ragged)
    np.testing.assert_allclose(found, [2.11, 3.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(total, [1 + 4 + 16, 3, 2 + 4])
