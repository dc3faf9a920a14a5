"""Samples of tf_pfor/converters/sparse/csr.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, normal, sample
from tests.samples.sparse.sparse import places

raw = tf.raw_ops
F = tf.float32


def _csr(at, values, shape=(3, 4)):
    return raw.SparseTensorToCSRSparseMatrix(
        indices=at, values=values, dense_shape=tf.constant(shape, tf.int64)
    )


def _masked(dense):
    """The positive elements of a matrix: their number differs per row."""
    return raw.DenseToCSRSparseMatrix(dense_input=dense, indices=tf.where(tf.math.real(dense) > 0))


def _dense(matrix, dtype=F):
    return raw.CSRSparseMatrixToDense(sparse_input=matrix, type=dtype)


def _of_dense(dense, at):
    return _dense(raw.DenseToCSRSparseMatrix(dense_input=dense, indices=at), dense.dtype)


def _sum_of_entries(dense):
    made = raw.CSRSparseMatrixToSparseTensor(sparse_matrix=_masked(dense), type=F)
    weights = tf.cast(made.indices[:, 1] + 5 * made.indices[:, 0], F)
    return tf.reduce_sum(weights * made.values), made.dense_shape


def _components(at, x, index):
    made = raw.CSRSparseMatrixComponents(csr_sparse_matrix=_csr(at, x), index=index, type=F)
    columns = tf.cast(made.col_inds, F)
    return made.row_ptrs, tf.reduce_sum(columns * made.values)


def _matmul(shape=(3, 4), **options):
    return lambda at, x, b: raw.SparseMatrixMatMul(a=_csr(at, x, shape), b=b, **options)


def _product(shapes, **options):
    def fn(at, x, at_right, y):
        a, b = _csr(at, x, shapes[0]), _csr(at_right, y, shapes[1])
        made = raw.SparseMatrixSparseMatMul(a=a, b=b, type=x.dtype, **options)
        return _dense(made, x.dtype)

    return fn


def _definite(rng):
    x = rng.normal(size=(4, 4)) * (rng.random((4, 4)) < 0.4)
    return (x @ x.T + 3 * np.eye(4)).astype(np.float32)


def _all_of(dense):
    return raw.DenseToCSRSparseMatrix(dense_input=dense, indices=tf.where(tf.ones([4, 4]) > 0))


def _factor(dense, order):
    made = raw.SparseMatrixSparseCholesky(input=_all_of(dense), permutation=order, type=F)
    return _dense(made)


_AT, _WIDE = places(5, 3, 4), places(6, 4, 3)
_C64 = np.complex64
_OPTIONS = {"xla": False, "max_ops": 130}  # XLA compiles none of these ops
_PLAIN = {**_OPTIONS, "grad": False}  # TensorFlow has no gradient, or one of static shapes only

SAMPLES = [
    sample("CSRSparseMatrixComponents", _components, _AT, normal(5), fixed(np.int32(0)), **_PLAIN),
    sample("CSRSparseMatrixToDense", lambda x: _dense(_masked(x)), normal(3, 4), **_OPTIONS),
    sample("CSRSparseMatrixToSparseTensor", _sum_of_entries, normal(3, 4), **_OPTIONS),
    sample("DenseToCSRSparseMatrix", _of_dense, normal(3, 4), _AT, **_OPTIONS),
    sample("DenseToCSRSparseMatrix", _of_dense, normal(3, 4, dtype=_C64), _AT, label="complex",
           **_OPTIONS),
    sample("SparseMatrixMatMul", _matmul(), _AT, normal(5), normal(4, 2), **_OPTIONS),
    sample("SparseMatrixMatMul", _matmul(transpose_a=True, transpose_output=True), _AT, normal(5),
           normal(3, 2), label="transposed", **_OPTIONS),
    sample("SparseMatrixMatMul", _matmul(transpose_b=True, conjugate_output=True), _AT,
           normal(5, dtype=_C64), normal(2, 4, dtype=_C64), label="conjugate", **_PLAIN),
    sample("SparseMatrixMatMul", _matmul(adjoint_a=True, adjoint_b=True), _AT,
           normal(5, dtype=_C64), normal(2, 3, dtype=_C64), label="adjoint", **_PLAIN),
    sample("SparseMatrixMatMul", _matmul(adjoint_b=True, transpose_output=True), _AT,
           normal(5, dtype=_C64), normal(2, 4, dtype=_C64), label="adjoint-output", **_PLAIN),
    sample("SparseMatrixNNZ", lambda x: raw.SparseMatrixNNZ(sparse_matrix=_masked(x)),
           normal(3, 4), **_PLAIN),
    sample("SparseMatrixOrderingAMD", lambda x: raw.SparseMatrixOrderingAMD(input=_masked(
        x + tf.transpose(x))), normal(4, 4), **_PLAIN),
    sample("SparseMatrixSparseCholesky", _factor, drawn((4, 4), _definite),
           drawn((4,), lambda r: r.permutation(4).astype(np.int32)), **_PLAIN),
    sample("SparseMatrixSparseMatMul", _product([(3, 4), (4, 3)]), _AT, normal(5), _WIDE,
           normal(6), **_PLAIN),
    sample("SparseMatrixSparseMatMul", _product([(3, 4), (3, 4)], transpose_b=True), _AT,
           normal(5), _AT, normal(5), label="transposed", **_PLAIN),
    sample("SparseMatrixSparseMatMul", _product([(3, 4), (3, 4)], adjoint_a=True), _AT,
           normal(5, dtype=_C64), _AT, normal(5, dtype=_C64), label="adjoint", **_PLAIN),
    sample("SparseMatrixTranspose", lambda at, x: _dense(
        raw.SparseMatrixTranspose(input=_csr(at, x), type=F)), _AT, normal(5), **_OPTIONS),
    sample("SparseMatrixTranspose", lambda at, x: _dense(
        raw.SparseMatrixTranspose(input=_csr(at, x), type=x.dtype, conjugate=True), x.dtype),
        _AT, normal(5, dtype=_C64), label="conjugate", **_PLAIN),
    sample("SparseTensorToCSRSparseMatrix", lambda at, x, shape: _dense(
        raw.SparseTensorToCSRSparseMatrix(indices=at, values=x, dense_shape=shape)),
        _AT, normal(5), fixed(np.int64([3, 4])), **_PLAIN),
]  # fmt: skip
