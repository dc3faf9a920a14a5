"""tf.dynamic_stitch of rows whose number differs: also of rows of an inner map that branch."""

import tensorflow as tf

from tests.comparisons import mapped
from tests.ways import errors_of, table_of

ROWS = tf.ragged.constant([[0.3, -0.2, 0.5], [-0.7], [], [0.1, 0.4]])
DENSE = tf.constant([[0.3, -0.2, 0.5], [-0.7, 0.2, 0.1]])


def of_two_parts(x):
    """The gradient of the partition is a stitch, too."""
    sides = tf.cast(x > 0.0, tf.int32)
    places, parts = (tf.dynamic_partition(v, sides, 2) for v in (tf.range(tf.size(x)), x))
    return tf.dynamic_stitch(places, [parts[0] ** 2, -parts[1]])


def with_a_later_one(x):
    """A later element replaces an earlier one."""
    return tf.dynamic_stitch([tf.range(tf.size(x)), [0]], [x, [9.0]])


def at_own_place(x, k):
    """The last of three is put somewhere else in each row."""
    return tf.dynamic_stitch([[0, 1], tf.stack([2, k])], [x[:2], [x[2], 7.0]])


def at_own_place_if_right(x, k):
    put = lambda: tf.reduce_sum(at_own_place(x, k))  # noqa: E731
    return tf.cond(k >= 0, put, lambda: 0.0)


def first_selected(x, k):
    y = tf.boolean_mask(x, x > k)
    return tf.cond(tf.size(y) > 0, lambda: y[:1], lambda: tf.zeros([1]))


def of_pairs(x):
    """An inner map whose results have one size here, but are not known to."""
    return mapped(lambda k: first_selected(x, k), tf.constant([0.0, 0.2, 3.0]))


test_table_of_stitches = table_of([of_two_parts, with_a_later_one], ROWS, ways=["eager", "inside"])
test_table_of_maps = table_of([of_pairs], DENSE, ways=["eager", "around"])
OWN_PLACES = {
    "own places": (at_own_place, (DENSE, tf.constant([3, 0]))),
    "if right": (at_own_place_if_right, (DENSE, tf.constant([3, -1]))),
}
test_table_of_own_places = table_of(OWN_PLACES, ways=["eager", "unknown n", "around"])
test_negative_places = errors_of(
    {
        "stitch": (lambda x: tf.dynamic_stitch([tf.range(tf.size(x)) - 1], [x]), ROWS),
        "own places": (at_own_place, (DENSE, tf.constant([3, -1]))),
        "own places of shared parts": (
            lambda k: tf.dynamic_stitch([[0, 1], tf.stack([2, k])], [[1, 2], [3, 4]]),
            tf.constant([3, 1, -1])),
    },
    match="a place is negative",
)  # fmt: skip
