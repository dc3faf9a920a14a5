"""Derivatives of what is broadcast to the size of the row, of which some rows have one element."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_around, compare_rows, gradient_of

LENGTHS = [2, 1, 3, 1]
FLAT = tf.random.stateless_uniform([7, 4], [1, 2], -1.0, 1.0)
ROWS = tf.RaggedTensor.from_row_lengths(FLAT, LENGTHS)


def first_everywhere(x):
    return tf.broadcast_to(x[:1], tf.shape(x))


def pullbacks(x):
    """A map in the body."""

    def of(d):
        return gradient_of(lambda: first_everywhere(x), x, output_gradients=d)

    return tf_pfor.vectorized_map(of, tf.stack([x, x * 2.0]))


def summed(x):
    """Axes that a row was broadcast along, read by a sum alone."""
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=tf.shape(x[:1])).r1
    return tf.reduce_sum(x, axes, keepdims=True)


def largest(x):
    """The same axes, of another number in each row, read by what runs in a loop."""
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=tf.shape(x[:1])).r1
    return tf.reduce_max(x, axes, keepdims=True)


BODIES = {
    "jacobian": tf_pfor.jacrev(first_everywhere),
    "jacobian of a product": tf_pfor.jacrev(lambda x: first_everywhere(x) * x),
    "pullbacks": pullbacks,
    "sum": summed,
    "largest": largest,
}


@pytest.mark.parametrize("name", BODIES)
def test_as_a_loop(name):
    compare_rows(BODIES[name], ROWS, rtol=1e-5, atol=0, fallback="loop", warn=False)


# ---------------------------------------------------------------------------
# Second derivatives
# ---------------------------------------------------------------------------

TWICE = {
    "square": lambda x: tf.square(first_everywhere(x)),
    "product": lambda x: first_everywhere(x) * x**2,
    "mean": lambda x: tf.broadcast_to(tf.reduce_mean(x, 0, keepdims=True), tf.shape(x)) ** 3,
    "two axes": lambda x: x[:, None] * x[None] * first_everywhere(x),
}


def gradient(of):
    def one(x):
        return gradient_of(lambda: tf.reduce_sum(of(x)), x)

    return one


def loss_of_gradient(of):
    return lambda x: tf.reduce_sum(gradient(of)(x) ** 2)


@pytest.mark.parametrize("empty", [False, True], ids=["", "with an empty row"])
@pytest.mark.parametrize("name", TWICE)
def test_two_tapes_in_the_body(name, empty):
    rows = tf.RaggedTensor.from_row_lengths(FLAT, [2, 0, 4, 1] if empty else LENGTHS)
    one = gradient(loss_of_gradient(TWICE[name]))
    compare_rows(one, rows, rtol=1e-4, atol=1e-6, fallback="loop", warn=False)


@pytest.mark.parametrize("name", TWICE)
def test_a_tape_in_and_one_around(name):
    one = loss_of_gradient(TWICE[name])
    compare_around(one, ROWS, rtol=1e-4, atol=1e-6, fallback="loop", warn=False)


def test_second_derivatives_need_no_loop():
    compare_rows(gradient(loss_of_gradient(TWICE["product"])), ROWS, rtol=1e-4, atol=1e-6)
