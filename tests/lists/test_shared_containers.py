"""Gradients in the body of loops and branches that all rows share, inside of others of some rows.

The tensors that they keep are shared, too. They stand in containers beside the tensors that each
row keeps.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.control_flow.test_nested_loops import (
    assert_differentiated,
    assert_right,
    cell,
    gradients,
    mapped,
)


def equal_loops(s):
    """Equally many trips for all rows, of two loops in each other."""

    def inner(t, s):
        return t + 1, tf.sin(cell(s))

    def outer(t, s):
        return t + 1, tf.while_loop(lambda t, s: t < 2, inner, (0, s))[1] + s

    return tf.while_loop(lambda t, s: t < 2, outer, (0, s))[1]


def with_array(k, s):
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))

    def body(t, s, array):
        return t + 1, cell(s), array.write(t, s * 0.5)

    _, s, array = tf.while_loop(lambda t, *_: t < k, body, (0, s, array))
    return s + tf.reduce_sum(array.stack(), 0)


def in_a_branch(k, m, x):
    """A list of lists."""
    return tf.cond(k > m, lambda: equal_loops(x), lambda: tf.cos(x))


def in_a_loop(k, m, x):
    return tf.while_loop(lambda t, s: t < k, lambda t, s: (t + 1, equal_loops(s)), (0, x))[1]


def branch_in_branch(k, m, x):
    """Optionals that hold lists, of which the two branches keep different ones."""
    inner = tf.constant(1) + tf.size(x)
    return tf.cond(
        k > m,
        lambda: tf.cond(inner > 2, lambda: with_array(m, x), lambda: equal_loops(x)),
        lambda: tf.cos(x),
    )


def branch_in_loop(k, m, x):
    """Another branch in each trip, the same for all rows, and lists of it."""

    def body(t, s):
        s = tf.cond(t > 0, lambda: with_array(m, s), lambda: equal_loops(s))
        return t + 1, s

    return tf.while_loop(lambda t, s: t < k - 1, body, (0, x))[1]


MODELS = [in_a_branch, in_a_loop, branch_in_branch, branch_in_loop]


def test_gradient_in_a_branch():
    one = gradients(in_a_branch)
    assert_right(mapped(one), one)


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("model", MODELS)
def test_gradient_in_the_body(model, strategy):
    one = gradients(model)
    assert_right(mapped(one, while_strategy=strategy), one)


@pytest.mark.parametrize("model", MODELS)
def test_few_rows(model):
    one = gradients(model)
    assert_right(mapped(one, 1), one, 1)
    assert [t.shape for t in mapped(one, 0)] == [(0, 3), (0, 3, 3)]


@pytest.mark.parametrize("model", MODELS)
def test_differentiated_from_outside(model):
    assert_differentiated(model)


@pytest.mark.parametrize(
    "step",
    [
        lambda s, i, j: tf.tanh(tf.tensor_scatter_nd_update(s, [[j], [i]], s[:2] * s[1:])),
        lambda s, i, j: tf.pow(tf.abs(s) + 0.5, tf.cast(i + j, tf.float64) * 0.3),
    ],
)
def test_items_that_all_rows_share_keep_their_shape(step):
    """They are popped from lists that were popped from lists, of which nothing is said."""

    def loop(k, body, s):
        return tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, body(t, s)), (0, s))[1]

    def one(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(3, lambda i, s: loop(2, lambda j, s: step(s, i, j), s), x)
        return tape.gradient(y, x)

    x = tf.constant(np.random.default_rng(0).normal(size=[4, 3]))
    expected = tf.stack([tf.function(one)(row) for row in x])
    found = tf_pfor.vectorized_map(one, x, fallback_to_while_loop=False)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["of a table", "of the trip"])
def test_three_loops_of_equal_trips(name):
    """Their gradients keep lists of lists of what all rows share: an error when it ran."""
    table = tf.constant([[0.5, -1.0, 2.0], [1.5, 0.3, -0.2]])

    def loop(count, body, s):
        return tf.while_loop(lambda t, _: t < count, lambda t, s: (t + 1, body(t, s)), (0, s))[1]

    def inner(j, t, s):
        return s * table[j] if name == "of a table" else s * tf.cast(t + 1, s.dtype)

    def one(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            s = loop(
                3, lambda _, s: loop(2, lambda j, s: loop(2, lambda t, s: inner(j, t, s), s), s), x
            )
            total = tf.reduce_sum(s)
        return tape.gradient(total, x)

    rows = tf.reshape(tf.range(12.0), [4, 3])
    found = tf.function(
        lambda x: tf_pfor.vectorized_map(one, x, fallback_to_while_loop=False), autograph=False
    )(rows)
    np.testing.assert_allclose(found, [tf.function(one)(x) for x in rows], rtol=1e-6)
