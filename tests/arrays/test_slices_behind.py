"""Slices by numbers of the row, of axes that all rows share, of rows of different lengths."""

import tensorflow as tf

from tests.ways import errors_of, table_of

LENGTHS = tf.constant([2, 3, 1])
X = tf.random.stateless_normal([3, 3, 4], [1, 2])
RAGGED = tf.RaggedTensor.from_tensor(X, LENGTHS)
PLACES, COUNTS = tf.constant([-1, 2, 1]), tf.constant([1, 3, 0])
ROWS = (X, LENGTHS, PLACES, COUNTS)
ONE = tf.Variable(1)


def known_to_be_square(x, k):
    """The size of the row cuts the other axis, which has room for it."""
    cut = x[:k]
    square = cut[:, : tf.shape(cut)[0]]
    return square @ square


def best_path(scores):
    """Viterbi's path: back pointers [k - 1, 4] are read at the place of the row."""
    n, best = tf.shape(scores)[0], scores[0]
    back = tf.TensorArray(tf.int32, n - 1, element_shape=[4])
    for t in tf.range(1, n):
        each = best[:, None] + X[0, :1] * 0.5
        back = back.write(t - 1, tf.argmax(each, 0, output_type=tf.int32))
        best = tf.reduce_max(each, 0) + scores[t]
    pointers, at = back.stack(), tf.argmax(best, output_type=tf.int32)
    path = tf.TensorArray(tf.int32, n, element_shape=[]).write(n - 1, at)
    for t in tf.range(n - 2, -1, -1):
        at = pointers[t, at]
        path = path.write(t, at)
    return path.stack()


SLICES = {
    "column": lambda r, j, k: r[:, j],
    "element": lambda r, j, k: r[0, j],
    "column of all rows": lambda r, j, k: r[:, ONE],
    "element of the column": lambda r, j, k: r[-1, ONE],
    "first columns": lambda r, j, k: r[:, :k],
    "last columns": lambda r, j, k: r[:, k:],
    "window": lambda r, j, k: r[:, k : k + 1],
    "every other": lambda r, j, k: r[:, k::2],
    "part of the first": lambda r, j, k: r[0, :k],
    "part of the last": lambda r, j, k: r[-1:, k:],
    "both axes": lambda r, j, k: r[:k, :k],
    "new axis": lambda r, j, k: r[None, :, None, j],
    "two axes": lambda r, j, k: tf.reshape(r, [-1, 2, 2])[:, j % 2, :k],
    "in front": lambda r, j, k: tf.transpose(r)[j],
    "range in front": lambda r, j, k: tf.transpose(r)[:k, 1:],
}
CUT = {name: lambda x, k, j, c, f=f: f(x[:k], j, c) for name, f in SLICES.items()}
test_table_of_cut_rows = table_of(
    {**CUT, "square": (known_to_be_square, (X, LENGTHS))}, *ROWS,
    ways=["eager", "chunks", "around"], but={"eager": ["square"], "chunks": ["square"]},
    tolerance=(0.0, 0.0), slopes=(1e-6, 1e-12),
)  # fmt: skip
test_table_of_compiled_rows = table_of(
    {**CUT, "square": (known_to_be_square, (X, LENGTHS))}, *ROWS, ways=["compiled sum"],
    tolerance=(1e-5, 1e-6),
)  # fmt: skip
test_table_of_ragged_rows = table_of(
    {**SLICES, "best path": (best_path, RAGGED)}, RAGGED, PLACES, COUNTS,
    ways=["eager", "each twice"],
    # A range of a reshaped or turned row is a loop in a map of a map.
    but={"each twice": ["two axes", "range in front", "best path"]}, tolerance=(0.0, 0.0),
)  # fmt: skip
test_an_index_beyond_the_end_is_an_error = errors_of(
    {"column": SLICES["column"]}, RAGGED, PLACES + 3, COUNTS, match="an index is out of bounds"
)
