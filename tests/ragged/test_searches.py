"""``tf.searchsorted`` of sorted numbers, or of what is searched for, of lengths of the row."""

import keras
import numpy as np
import tensorflow as tf

from tests.ways import errors_of, table_of

X = tf.random.stateless_normal([4, 6], [1, 2])
SORTED = tf.sort(tf.random.stateless_normal([4, 5], [1, 3]), -1)
KEPT, LENGTHS = tf.constant([2, 0, 6, 1]), tf.constant([5, 3, 0, 1])
EDGES = tf.constant([-1.0, 0.0, 0.5])
INFINITE = tf.constant([[np.inf, -np.inf], [np.inf, 0.0]])

SEARCHES = {
    "shared": lambda x, s, k, m, side: tf.searchsorted(EDGES, x[:k], side),
    "of the row": lambda x, s, k, m, side: tf.searchsorted(s, x[:k], side),
    "own lengths": lambda x, s, k, m, side: tf.searchsorted(s[:m], x, side),
    "both": lambda x, s, k, m, side: tf.searchsorted(s[:m], tf.concat([x[:k], s[:k]], 0), side),
    "integers": lambda x, s, k, m, side: tf.searchsorted(tf.range(m), tf.range(k), side),
}


def inverse(dtype):
    return lambda x, k: tf.math.invert_permutation(tf.cast(tf.argsort(x[:k]), dtype))


test_table_of_searches = table_of(
    {
        **{
            f"{name}, {side}": lambda *row, body=body, side=side: body(*row, side)
            for name, body in SEARCHES.items()
            for side in ("left", "right")
        },
        "infinite numbers": (
            lambda x, s, m: tf.searchsorted(s[:m], x, "right"),
            (INFINITE, SORTED[:2], LENGTHS[:2])),
        "histogram of own range": (lambda x: keras.ops.histogram(x, 4), X),
        "inverse permutations": (inverse(tf.int32), (X, KEPT)),
        "long inverse permutations": (inverse(tf.int64), (X, KEPT)),
    },
    X, SORTED, KEPT, LENGTHS, ways=["eager, few rows"],
)  # fmt: skip

# Each row is checked: all rows together may be one permutation.
WRONG = [[1, 0, 3, 2], [0, 0, 0, 1], [-1, 0, 0, 1], [2, 1, 0, 1]]
test_no_permutations = errors_of({
    str(wrong): (
        tf.math.invert_permutation,
        tf.RaggedTensor.from_row_lengths(tf.constant(wrong), [2, 0, 2]))
    for wrong in WRONG
})  # fmt: skip
