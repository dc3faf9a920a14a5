"""Branches that return rows of different shapes, against a loop over rows."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import (
    assert_rows,
    compare_around,
    compare_rows,
    flat,
    gradient_of,
    mapped,
    rows_of,
)

N, T, D = 5, 5, 3
X = tf.constant(np.random.default_rng(0).normal(size=[N, T, D]))
LENGTHS, CHOICES = tf.constant([5, 1, 3, 4, 2]), tf.constant([0, 1, 2, 5, 1])
WORDS = tf.constant(["a b c", "d", "", "e f", "g"])


def of_static_shapes(x, k, c):
    return tf.cond(k > 2, lambda: x[:2], lambda: x[:3] * 2.0)


def of_own_lengths(x, k, c):
    return tf.cond(c == 1, lambda: tf.sin(x[:k]), lambda: x[1:k])


def captured_from_outside(x, k, c):
    y = x[:k]
    z = tf.cond(c == 1, lambda: tf.sin(y), lambda: y * y)
    return z + y  # of the same sizes: packed


def by_an_if(x, k, c):
    if c == 1:
        y = x[:2]
    else:
        y = x
    return tf.nn.softmax(y, 0)


def one_of_three(x, k, c):
    return tf.switch_case(c, [lambda: x[:k], lambda: x[:1], lambda: tf.zeros([0, D], X.dtype)])


def case_of_two_axes(x, k, c):
    y = tf.case([(c == 0, lambda: x[:k, :2]), (c == 1, lambda: x[:2, : k + 1])], lambda: x)
    return tf.reduce_sum(y, 1), y


def branch_in_branch(x, k, c):
    def inner():
        return tf.cond(c == 1, lambda: x[:k], lambda: x[:2])

    return tf.cond(k > 2, inner, lambda: x)


def one_for_all_rows(x, k, c):
    return tf.cond(tf.size(X) > 3, lambda: x[:k], lambda: x) @ tf.ones([D, 2], X.dtype)


def dense_beside(x, k, c):
    y, s = tf.cond(c == 1, lambda: (x[:k], tf.size(x)), lambda: (x[:1], tf.constant(3)))
    return tf.reduce_sum(y, 0), s


BODIES = (
    of_static_shapes, of_own_lengths, captured_from_outside, by_an_if, one_of_three,
    case_of_two_axes, branch_in_branch, one_for_all_rows, dense_beside,
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_values(body):
    compare_rows(body, X, LENGTHS, CHOICES, rtol=1e-6, atol=0)


@pytest.mark.parametrize("body", [of_own_lengths, by_an_if, one_for_all_rows])
def test_few_rows_of_an_unknown_number(body):
    compare_rows(body, X, LENGTHS, CHOICES, unknown=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("body", [of_static_shapes, captured_from_outside, case_of_two_axes])
def test_gradients_around(body):
    compare_around(body, X, LENGTHS, CHOICES, rtol=1e-7, atol=1e-12)


def in_body(body):
    def gradient(x, k, c):
        return gradient_of(lambda: tf.reduce_sum(flat(body(x, k, c)) ** 3), x)

    return gradient


@pytest.mark.parametrize("body", [of_static_shapes, captured_from_outside, one_of_three])
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_gradients_in_the_body(body):
    """Gradients of variable-length slices that a branch makes in a loop over the rows."""
    compare_rows(in_body(body), X, LENGTHS, CHOICES, rtol=1e-6, atol=0, fallback="loop")


def test_a_map_in_a_map():
    def outer(e):
        return mapped(of_static_shapes, X[:2], e[0], e[1])

    pairs = tuple(tf.reshape(t[:4], [2, 2]) for t in (LENGTHS, CHOICES))
    found = tf_pfor.vectorized_map(outer, pairs, warn=False)
    for i in range(2):
        for j in range(2):
            want = of_static_shapes(X[j], pairs[0][i, j], pairs[1][i, j])
            np.testing.assert_allclose(found[i][j], want)


def test_texts():
    def body(text):
        words = tf.strings.split(text)
        return tf.cond(tf.size(words) > 1, lambda: words[1:], lambda: tf.constant(["x", "y"]))

    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        found = tf_pfor.vectorized_map(body, WORDS)
    assert found.to_list() == [[b"b", b"c"], [b"x", b"y"], [b"x", b"y"], [b"f"], [b"x", b"y"]]


@pytest.mark.parametrize("cut", [0, 1])
def test_elements_of_an_unknown_size(cut):
    """Sizes that are unknown, but the same in all rows: ragged only where a branch changes them."""

    def body(x, k):
        return tf.cond(k > 2, lambda: x[cut:], lambda: x * 2.0)

    specs = [tf.TensorSpec([None, None, D], X.dtype), tf.TensorSpec([None], tf.int32)]
    found = tf.function(lambda *e: mapped(body, *e), input_signature=specs)(X, LENGTHS)
    assert isinstance(found, tf.RaggedTensor) == bool(cut)
    assert_rows(found, rows_of(body, X, LENGTHS), rtol=1e-7, atol=0)


def test_sizes_of_which_nothing_is_known():
    def body(k, a, b):
        return tf.cond(k > 2, lambda: tf.zeros([a]), lambda: tf.ones([b]))

    def run(a, b):
        return tf_pfor.vectorized_map(lambda k: body(k, a, b), LENGTHS)

    run = tf.function(run, input_signature=[tf.TensorSpec([], tf.int32)] * 2)
    np.testing.assert_array_equal(run(2, 2)[:, 0], [0, 1, 0, 0, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="branches that rows choose between"):
        run(2, 3)


def test_refused_under_jit_compile():
    run = tf.function(lambda: mapped(of_static_shapes, X, LENGTHS, CHOICES), jit_compile=True)
    with pytest.raises(tf_pfor.NotVectorizableError, match="different shapes"):
        run()
