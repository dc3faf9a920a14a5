"""Sparse matrices times dense ones, where rows have matrices of different sizes."""

import tensorflow as tf

from tests.ways import errors_of, table_of

LENGTHS = [2, 3, 1, 4]
TABLE = tf.random.stateless_normal([5, 4], [1, 2])
SHARED = tf.sparse.from_dense([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
WIDE = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([10, 3], [1, 5]), LENGTHS)
SQUARE = tf.ragged.stack([tf.random.stateless_normal([k, k], [3, k]) for k in LENGTHS])
COUNTS = tf.constant([1, 0, 3, 2])


def product(a, b, **options):
    return tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(a), b, **options)


def reversal(k):
    places = tf.cast(tf.stack([tf.range(k), tf.range(k)[::-1]], 1), tf.int64)
    return tf.SparseTensor(
        places, tf.range(1.0, tf.cast(k, tf.float32) + 1), tf.cast([k, k], "int64")
    )


_PRODUCTS = {
    "rows": (lambda r: product(r, TABLE[:3]), WIDE),
    "rows and columns": (lambda r: product(r, r, adjoint_b=True), WIDE),
    "what is summed over": (lambda r: product(tf.transpose(r), r), WIDE),
    "what is summed over, adjoint": (lambda r: product(r, r, adjoint_a=True), WIDE),
    "the dense one": (lambda r: tf.sparse.sparse_dense_matmul(SHARED, tf.transpose(r)), WIDE),
    "the dense one, adjoint": (
        lambda r: tf.sparse.sparse_dense_matmul(SHARED, r, adjoint_b=True),
        WIDE,
    ),
    "graphs": (lambda a, b: product(a.to_tensor(), b), (SQUARE, WIDE)),
    "a prefix": (lambda k: product(TABLE[:k], tf.transpose(TABLE)), COUNTS),
    "an adjacency": (lambda k: tf.sparse.sparse_dense_matmul(reversal(k), TABLE[:k]), COUNTS),
}
test_table_of_products = table_of(
    _PRODUCTS, ways=["eager", "unknown n, few rows", "no rows", "around"],
    only={"around": ["rows", "rows and columns", "what is summed over", "graphs"]},
    tolerance=(1e-4, 1e-6), slopes=(1e-3, 1e-4),
)  # fmt: skip


def of_entry_outside(k):
    a = tf.SparseTensor([[0, 2]], [1.0], tf.cast([k, k], tf.int64))
    return tf.sparse.sparse_dense_matmul(a, TABLE[:k])


test_errors = errors_of({
    "matrices that do not fit": (
        lambda a, b: product(a, b, adjoint_a=True),
        (WIDE, tf.RaggedTensor.from_row_lengths(WIDE.values, [2, 3, 2, 3]))),
    "an entry outside of the matrix": (of_entry_outside, tf.constant([2, 3, 4])),
})  # fmt: skip
