"""Sparse matrices times dense ones, where rows have matrices of different sizes."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.arrays.own_rows import parts
from tests.comparisons import compare_around, compare_rows, strict_map

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


@pytest.mark.parametrize("kind", ["eager", "unknown n", "no rows"])
@pytest.mark.parametrize("name", _PRODUCTS)
def test_products(name, kind):
    body, rows = _PRODUCTS[name]
    args = [x[: 0 if kind == "no rows" else None] for x in parts(rows)]
    compare_rows(body, *args, unknown=kind == "unknown n", rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", ["rows", "rows and columns", "what is summed over", "graphs"])
def test_gradients(name):
    body, rows = _PRODUCTS[name]
    compare_around(body, *parts(rows), rtol=1e-3, atol=1e-4)


def test_matrices_that_do_not_fit_are_an_error():
    others = tf.RaggedTensor.from_row_lengths(WIDE.values, [2, 3, 2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vectorized_map(lambda a: product(a[0], a[1], adjoint_a=True), (WIDE, others))


def test_an_entry_outside_of_the_matrix_of_its_row_is_an_error():
    def body(k):
        a = tf.SparseTensor([[0, 2]], [1.0], tf.cast([k, k], tf.int64))
        return tf.sparse.sparse_dense_matmul(a, TABLE[:k])

    with pytest.raises(tf.errors.InvalidArgumentError):
        strict_map(body, tf.constant([2, 3, 4]))
