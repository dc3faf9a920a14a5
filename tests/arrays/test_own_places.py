"""Gathers, masks, segments, counts, scatters and sets at places that are each row's own."""

import tensorflow as tf

from tests.ways import errors_of, table_of

N, T, D = 4, 4, 5
X = tf.random.stateless_normal([N, T, D], [1, 2])
K = tf.constant([2, 4, 1, 3])
IDS = tf.ragged.constant([[0, 1, 1, 3], [2], [], [1, 0]], dtype=tf.int32, inner_shape=())
SQUARES = (tf.random.stateless_normal([N, T, T], [1, 3]), K)
TABLE = tf.random.stateless_normal([4, 6], [1, 4])
V = tf.Variable(tf.random.stateless_normal([4, 5], [1, 5]))


def square(x, k):
    return x[:k, :k]


def sorted_square(x, k):
    places = tf.argsort(tf.reduce_sum(square(x, k), 1))
    return tf.gather(tf.gather(square(x, k), places), places, axis=1)


# name -> (body of the parts of a row, the rows)
GATHERS = {
    "columns of a table": (lambda i: tf.gather(TABLE, i, axis=1), IDS),
    "columns of a variable": (lambda i: tf.gather(V, i, axis=1), IDS),
    "columns": (lambda x, i: tf.gather(x, i, axis=-1), (X, IDS)),
    "first columns": (lambda x, k: tf.gather(x, tf.range(k), axis=1), (X, K)),
    "columns of cut rows": (lambda x, k, i: tf.gather(x[:k], i, axis=1), (X, K, IDS)),
    "same columns of cut columns": (
        lambda x, k: tf.gather(x[:, : k + 1], [1, 0, 1], axis=1), (X, K)),
    "in two axes": (sorted_square, SQUARES),
    "reversed": (lambda x, k: tf.gather(square(x, k), tf.range(k)[::-1], axis=1), SQUARES),
    "one of each": (
        lambda x, k: tf.gather(x[:k], tf.argmax(x[:k], 1), axis=1, batch_dims=1), (X, K)),
    "some of each": (
        lambda x, k: tf.gather(x[:k], tf.argsort(x[:k, ::2], 1), batch_dims=1), (X, K)),
    "own number of each": (lambda x, i: tf.gather(x[:2], tf.stack([i, i]), batch_dims=1), (X, IDS)),
    "own number of each of a table": (
        lambda i: tf.gather(TABLE[:2], tf.stack([i, i + 1]), batch_dims=1), IDS),
    "along the first axis": (lambda x, k: tf.experimental.numpy.take_along_axis(x[:k],
        tf.argsort(x[:k], 0), 0), (X, K)),
    "along the last axis": (lambda x, k: tf.experimental.numpy.take_along_axis(x[:k],
        tf.argsort(x[:k], 1), 1), (X, K)),
    "a column of its own": (
        lambda x, k: tf.gather(x[:, :k], k - 1, axis=1) + tf.gather(x[:k], k, axis=1)[0], (X, K)),
    "masked columns": (lambda x: tf.boolean_mask(x, x[0] > 0.0, axis=1), X),
    "masked columns of cut rows": (lambda x, k: tf.boolean_mask(x[:k], x[0] > 0.0, axis=1), (X, K)),
    "masked columns of a square": (
        lambda x, k: tf.boolean_mask(square(x, k), square(x, k)[0] > 0.0, axis=1), SQUARES),
    "transitions": (lambda i: tf.gather_nd(V, tf.stack([i[:-1], i[1:]], 1)), IDS),
    "transitions, summed": (
        lambda i: tf.reduce_sum(tf.gather_nd(V, tf.stack([i[:-1], i[1:]], 1))), IDS),
}  # fmt: skip


def distances(x):
    return tf.abs(x[:, None] - x[None])


def near(x):
    pairs = tf.where(distances(x) < 1.0)
    return tf.reduce_sum(tf.gather(x, pairs[:, 0]) * tf.gather(x, pairs[:, 1]))


def placed(i, v, shape):
    return tf.scatter_nd(tf.stack([i, i], 1), v, shape)


LINES = tf.RaggedTensor.from_row_splits(X[0, 0], [0, 3, 3, 4, 5])
VALUES = IDS.with_flat_values(tf.random.stateless_normal([7], [1, 6]))
FULL_LINES = tf.RaggedTensor.from_row_lengths(X[0, 0], [2, 1, 1, 1])
SCATTERS = {
    "pairs": (lambda x: tf.where(distances(x) < 1.0), LINES),
    "neighbours": (near, LINES),
    "masked pairs": (lambda x: tf.boolean_mask(distances(x), distances(x) < 1.0), LINES),
    "places in a batch of squares": (
        lambda x, k: tf.where(tf.stack([square(x, k), -square(x, k)]) > 0.0), SQUARES),
    "square of a sparse tensor": (
        lambda x: tf.sparse.to_dense(tf.sparse.from_dense(distances(x))), LINES),
    "sums of a sparse square": (
        lambda x: tf.sparse.reduce_sum(tf.sparse.from_dense(distances(x)), 0), FULL_LINES),
    "a sparse square by a line": (lambda x:
        tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(distances(x)), x[:, None]), LINES),
    "a sparse square, turned, by a shared matrix": (
        lambda x, k: tf.sparse.sparse_dense_matmul(
            tf.sparse.from_dense(x[:, :k]), TABLE, adjoint_a=True), (X, K)),
    "a sparse part by the row, turned": (lambda x, k:
        tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(x[:k]), x, adjoint_b=True), (X, K)),
    "softmax of a sparse square": (
        lambda x: tf.sparse.softmax(tf.sparse.from_dense(distances(x))).values, FULL_LINES),
    "placed in a square": (lambda i, v: placed(i, v, [tf.size(i) + 3, 4]), (IDS, VALUES)),
    "placed in columns": (lambda i, v: placed(i, v, [4, tf.size(i) + 3]), (IDS, VALUES)),
    "placed in both": (lambda i, v: placed(i, v, [tf.size(i) + 3, tf.size(i) + 3]), (IDS, VALUES)),
    "rows that are placed": (
        lambda x, k: tf.scatter_nd(tf.range(k)[:, None] * 2, x[:k], [2 * k, D]), (X, K)),
    "one in a square": (lambda k: tf.scatter_nd([[0, 0]], [1.0], [k, k]), K),
    "set in its row": (lambda x, i: tf.tensor_scatter_nd_update(x,
        tf.range(tf.size(x))[:, None][:1], x[:1] * 3), (LINES, IDS)),
    "added to its row": (
        lambda v: tf.tensor_scatter_nd_add(v, tf.range(tf.size(v))[:, None], v), VALUES),
    "added to a square": (lambda x, k: tf.tensor_scatter_nd_add(square(x, k),
        tf.stack([tf.range(k), tf.range(k)], 1), tf.ones([k])), SQUARES),
}  # fmt: skip
IDS_IN_ORDER = tf.ragged.constant([[0, 0, 2, 3], [1], [], [0, 1]], dtype=tf.int32)
WIDE = tf.RaggedTensor.from_row_splits(tf.random.stateless_normal([7, 3], [1, 7]), IDS.row_splits)
segment = tf.math
SEGMENTS = {
    "sums in order": (segment.segment_sum, (VALUES, IDS_IN_ORDER)),
    "means in order": (segment.segment_mean, (WIDE, IDS_IN_ORDER)),
    "largest in order": (segment.segment_max, (WIDE, IDS_IN_ORDER)),
    "products in order": (segment.segment_prod, (VALUES, IDS_IN_ORDER)),
    "sums in order of cut rows": (
        lambda x, k: segment.segment_sum(x[:k], tf.constant([0, 0, 1, 3])[:k]), None),
    "sums in order of cut columns": (
        lambda x, k: segment.segment_sum(x[:, :k], tf.range(4) * k // 4), None),
    "sums of cut columns": (
        lambda x, k: segment.unsorted_segment_sum(x[:, :k], [0, 1, 1, 3], 4), None),
    "means of squares": (
        lambda x, k: segment.unsorted_segment_mean(square(x, k), tf.range(k) // 2, 3), None),
    "as many sums of cut columns as the row says": (
        lambda x, k: segment.unsorted_segment_max(x[:, :k], tf.range(4) % k, k), None),
    "bins": (lambda i, _: tf.math.bincount(i), (IDS, VALUES)),
    "bins, cut": (lambda i, _: tf.math.bincount(i, maxlength=tf.size(i)), (IDS, VALUES)),
    "bins of its length": (lambda i, _: tf.math.bincount(i, minlength=tf.size(i),
        maxlength=tf.size(i)), (IDS, VALUES)),
}  # fmt: skip
SEGMENT_RUNS = {name: (f, rows or (X, K)) for name, (f, rows) in SEGMENTS.items()}
COUNTS = {
    "weights": (
        lambda i, v: tf.math.bincount(i, v, minlength=tf.size(i), maxlength=tf.size(i)),
        (IDS, VALUES)),
}  # fmt: skip
SETS = {
    "common": (lambda i, j: tf.sparse.to_dense(tf.sets.intersection(i[None], j[None])), "pair"),
    "all of both": (lambda i, j: tf.sets.union(i[None], j[None]).values, "pair"),
    "left over": (lambda i, _: tf.sets.difference(i[None], [[1, 2]]).indices, "pair"),
    "of sparse and dense": (
        lambda i, _: tf.sets.intersection(i[None], tf.sparse.from_dense([[1, 2]])).values, "pair"),
    "sizes": (lambda i, _: tf.sets.size(tf.sparse.from_dense(i[None] + 1)), "pair"),
    "decoded": (lambda x, k: decoded(x[:, None], [4]), "frames"),
    "decoded, cut": (lambda x, k: decoded(x[:k, None], k[None]), "frames"),
    "counts": (lambda i, _: tf.sparse.to_dense(tf.sparse.bincount(i)), "pair"),
}  # fmt: skip
_PARTS = {
    "pair": (IDS, tf.ragged.constant([[1, 3], [0, 2], [1], []], dtype=tf.int32)),
    "frames": (X, K),
}


def decoded(x, lengths):
    return tf.sparse.to_dense(tf.nn.ctc_greedy_decoder(x, lengths)[0][0])


BODIES = {
    **GATHERS,
    **SCATTERS,
    **SEGMENT_RUNS,
    **COUNTS,
    **{name: (f, _PARTS[kind]) for name, (f, kind) in SETS.items()},
}
SITES = ["eager", "unknown n", "one row", "no rows", "chunks", "in a map"]
OF_FLOATS = [
    name
    for name, (_, rows) in BODIES.items()
    if isinstance(rows, tuple) and name not in (*SETS, *COUNTS)
]
test_table_of_places = table_of(
    BODIES, ways=[*SITES, "around", "inside"], only={"inside": OF_FLOATS},
    # Looped, and its rank is not known when it is traced.
    but={"in a map": ["sums of a sparse square"], "around": COUNTS},
    looped=["in a map", "inside"], tolerance=(1e-4, 1e-5), slopes=(1e-3, 1e-4), by=(TABLE, V),
)  # fmt: skip
BEYOND = {
    "placed outside": lambda x, k: tf.scatter_nd([[1, 1]], [1.0], [k, k]),
    "matrices that do not fit": lambda x, k: tf.sparse.sparse_dense_matmul(
        tf.sparse.from_dense(x[:k, :k]), x[:2]
    ),
    "set outside": lambda x, k: tf.tensor_scatter_nd_update(x[:k, 0], [[1]], [1.0]),
    "frames that are not there": lambda x, k: decoded(x[:k, None], [2]),
    "a column": lambda x, k: tf.gather(x[:, :k], [2], axis=1),
    "a column of its own": lambda x, k: tf.gather(x[:, :k], tf.range(3) - k, axis=1),
    "axes that do not fit": lambda x, k: tf.gather(x[:k], tf.range(k - 1), batch_dims=1),
}
test_what_a_row_refuses_is_an_error = errors_of(BEYOND, X, K, match=r"test_own_places.py:\d+")
