"""Gradients that a body takes of message passing: loop variables of as many elements as a row has.

The number of nodes is a size of the row, also where a trip reads it. So all trips give what they
make as many elements, and the lists of the gradient have items of one size.
"""

import tensorflow as tf

from tests.ways import errors_of, table_of

NODES = tf.ragged.constant([[0.3, -0.2, 0.5], [0.7], [0.1, 0.4]])
EDGES = tf.ragged.constant([[[0, 1], [1, 1], [2, 0]], [[0, 0]], [[1, 0], [0, 0]]], ragged_rank=1)
SOME = tf.ragged.constant([[0, 2, 2], [0], []], dtype=tf.int32)
S, M = tf.reduce_sum, tf.math


def trips(body):
    """The sum of a number of each node after three trips of ``body(numbers, x, ids, n)``."""

    def run(x, ids):
        n = tf.shape(x)[0]
        step = lambda t, h: (t + 1, tf.tanh(body(h, x, ids, n)))
        h = tf.while_loop(
            lambda t, h: t < 3,
            step,
            (0, tf.ones([n])),
            (tf.TensorShape([]), tf.TensorShape([None])),
        )[1]
        return S(h * x)

    return run


def by_edges(x, edges):
    """PageRank, with a weight of each edge."""
    n = tf.size(x)
    w = tf.exp(tf.gather(x, edges[:, 0]) * tf.gather(x, edges[:, 1]))
    p = tf.ones([n]) / tf.cast(n, tf.float32)
    for _ in tf.range(3):
        p = 0.2 + 0.8 * M.unsorted_segment_sum(tf.gather(p, edges[:, 0]) * w, edges[:, 1], n)
    return S(p * p * x)


BODIES = {
    "segments": trips(lambda h, x, ids, n: M.unsorted_segment_sum(h * x, tf.range(n), n)),
    "means": trips(lambda h, x, ids, n: h + M.unsorted_segment_mean(tf.gather(x, ids), ids, n)),
    "scattered": trips(
        lambda h, x, ids, n: h + tf.scatter_nd(ids[:, None], tf.gather(h, ids), [n])
    ),
    "one-hot": trips(lambda h, x, ids, n: h + tf.one_hot(0, n) * x),
    "reshaped": trips(
        lambda h, x, ids, n: tf.reshape(tf.reshape(h * x, [n, 1]), n[None]) + tf.zeros([n])
    ),
}

test_table_of_gradients = table_of(BODIES, NODES, SOME, ways=["inside"], eager=True)
test_table_of_edges = table_of(
    [by_edges],
    NODES,
    EDGES,
    ways=["inside, unknown n, no rows", "inside, around"],
    eager=True,
)


def number_of_segments(x, k):
    """A number out of a vector is no size of the row: it is checked."""
    return M.unsorted_segment_sum(x, tf.zeros_like(x, tf.int32) - 1, tf.stack([k, 3])[0])


test_numbers_that_are_no_sizes = errors_of(
    {"segments": number_of_segments}, NODES, tf.constant([1, -2, 3]), match="segments is negative"
)


def shapes(x):
    array = tf.TensorArray(tf.int32, 2, element_shape=[1])
    for i in tf.range(2):
        array = array.write(i, tf.shape(x))
    return array.stack()


def numbers(x):
    """Numbers of which none is the size of the row in all trips."""
    array = tf.TensorArray(tf.int32, 2, element_shape=[])
    for i in tf.range(2):
        array = array.write(i, tf.size(x[:i]))
    return array.stack()


test_table_of_arrays = table_of([shapes, numbers], NODES, ways=["eager"])
