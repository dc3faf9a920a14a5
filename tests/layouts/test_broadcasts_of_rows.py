"""Derivatives of what is broadcast to the size of the row, of which some rows have one element."""

import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tests.ways import slopes_of, table_of

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
TWICE = {
    "square": lambda x: tf.square(first_everywhere(x)),
    "product": lambda x: first_everywhere(x) * x**2,
    "mean": lambda x: tf.broadcast_to(tf.reduce_mean(x, 0, keepdims=True), tf.shape(x)) ** 3,
    "two axes": lambda x: x[:, None] * x[None] * first_everywhere(x),
}
ONCE = {f"slope of {name}": slopes_of(f, None) for name, f in TWICE.items()}
SECOND = {f"slope of {name}": slopes_of(one, None) for name, one in ONCE.items()}
WITH_EMPTY = tf.RaggedTensor.from_row_lengths(FLAT, [2, 0, 4, 1])
test_table_of_broadcasts = table_of(
    {
        **ONCE,
        **SECOND,
        **{f"{name}, with an empty row": (one, WITH_EMPTY) for name, one in SECOND.items()},
    },
    ROWS, ways=["eager", "around"], only={"around": ONCE},
    looped=["eager", "around"],
    tolerance=(1e-4, 1e-6),
)  # fmt: skip
test_table_of_bodies = table_of(
    BODIES, ROWS, ways=["eager"], looped=["eager"], tolerance=(1e-5, 0.0)
)
test_table_of_second_derivatives_without_a_loop = table_of(
    {"product": SECOND["slope of slope of product"]}, ROWS, ways=["eager"], tolerance=(1e-4, 1e-6)
)
