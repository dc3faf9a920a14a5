"""Derivatives of what is broadcast to the size of the row, of which some rows have one element."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

LENGTHS = [2, 1, 3, 1]
FLAT = tf.random.stateless_uniform([7, 4], [1, 2], -1.0, 1.0)
ROWS = tf.RaggedTensor.from_row_lengths(FLAT, LENGTHS)


def first_everywhere(x):
    return tf.broadcast_to(x[:1], tf.shape(x))


def pullbacks(x):
    """A map in the body."""

    def of(d):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = first_everywhere(x)
        return tape.gradient(y, x, d)

    return tf_pfor.vectorized_map(of, tf.stack([x, x * 2.0]))


def summed(x):
    """Axes that a row was broadcast along, read by a sum alone."""
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=tf.shape(x[:1])).r1
    return tf.reduce_sum(x, axes, keepdims=True)


BODIES = {
    "jacobian": tf_pfor.jacrev(first_everywhere),
    "jacobian of a product": tf_pfor.jacrev(lambda x: first_everywhere(x) * x),
    "pullbacks": pullbacks,
    "sum": summed,
}


@pytest.mark.parametrize("name", BODIES)
def test_as_a_loop(name):
    found = tf_pfor.vectorized_map(BODIES[name], ROWS, warn=False)
    for got, row in zip(found, ROWS):
        got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(got, BODIES[name](row), rtol=1e-5)
