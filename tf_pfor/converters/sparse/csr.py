"""Sparse matrices in compressed rows (``CSRSparseMatrix``): one batch of all rows' matrices.

The kernels take a batch [n, r, c] as they take one matrix. A matrix of the body that is a batch
already runs row by row. See ``layouts/csr_rows.py``.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import Entries, by_row, emitting, shared, sparse_rule
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.values import Value
from tf_pfor.layouts.csr_rows import CsrRows, check_readers
from tf_pfor.layouts.ragged import Ragged

# ---------------------------------------------------------------------------
# The batch
# ---------------------------------------------------------------------------


def _is_never_empty(call: Call) -> bool:
    return bool(call.loop.static_length)


def _size(call: Call) -> Any:
    """The number of matrices in the batch: n, and 1 where n is 0."""
    n = call.loop.length
    return max(n, 1) if isinstance(n, int) else tf.maximum(n, 1)


def _with_one(call: Call, tensor: tf.Tensor, fill: tf.Tensor | None = None) -> tf.Tensor:
    """[n, ...] -> [size, ...], with zeros or ``fill`` where there is no row."""
    if _is_never_empty(call):
        return tensor
    count = tf.convert_to_tensor(_size(call) - call.loop.length)
    if fill is None:
        amounts = tf.pad([[0, count]], [[0, tf.rank(tensor) - 1], [0, 0]])
        made = tf.pad(tensor, amounts)
    else:
        made = tf.concat([tensor, tf.repeat(fill[None], count, 0)], 0)
    made.set_shape([None, *tensor.shape[1:]])
    return made


def _of_rows(call: Call, tensor: tf.Tensor) -> Any:
    """[size, ...] -> [n, ...]."""
    return tensor if _is_never_empty(call) else tensor[: call.loop.length]


def _matrices(call: Call, matrix: Value, dtype: tf.DType) -> tf.Tensor:
    """The handle of the batch; a loop-invariant matrix is repeated.

    Args:
      call: the call.
      matrix: the matrix, or what each row has of it.
      dtype: the dtype of its elements.
    """
    if isinstance(matrix, CsrRows):
        return matrix.tensor
    if matrix.is_stacked:
        raise CannotVectorize("a loop made the sparse matrix (CSR) of each row")
    one = tf.raw_ops.CSRSparseMatrixToSparseTensor(sparse_matrix=matrix.tensor, type=dtype)
    size, count = _size(call), tf.shape(one.values)[0]
    rows = tf.repeat(tf.range(tf.cast(size, tf.int64)), count)
    indices = tf.concat([rows[:, None], tf.tile(one.indices, [size, 1])], 1)
    indices = tf.reshape(indices, [-1, 3])  # see of_sparse
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=indices,
        values=tf.tile(one.values, [size]),
        dense_shape=tf.concat([[tf.cast(size, tf.int64)], one.dense_shape], 0),
    )


def _require_batch(call: Call) -> None:
    """Raises unless a matrix of the op is one of the batch: else it runs as it would."""
    if not any(isinstance(v, CsrRows) for v in call.flat_inputs()):
        raise CannotVectorize("a loop made the sparse matrix (CSR) of each row")


# ---------------------------------------------------------------------------
# Made of tensors
# ---------------------------------------------------------------------------


def _require_readers(call: Call) -> None:
    check_readers(call.op, call.walker.is_asked)


def _require_width(call: Call, indices: Value) -> None:
    shape = indices.inner_shape
    if shape is None or len(shape) != 2 or shape[1] not in (2, None):
        raise CannotVectorize("the sparse matrix (CSR) is a batch already")


@sparse_rule("DenseToCSRSparseMatrix")
def of_dense(call: Call, dense_input: Value, indices: Value) -> Any:
    """The number of the row stands in front of each index."""
    _require_readers(call)
    if isinstance(dense_input, Ragged):
        raise CannotVectorize("the matrices of the rows differ in shape")
    if call.require_rank(dense_input, "'dense_input'") != 2:
        raise CannotVectorize("the sparse matrix (CSR) is a batch already")
    _require_width(call, indices)
    entries = Entries(call, indices)
    dense = _with_one(call, call.stacked(dense_input))
    return CsrRows.of(call.rebuild(dense_input=dense, indices=entries.places))


@sparse_rule("SparseTensorToCSRSparseMatrix")
def of_sparse(call: Call, indices: Value, values: Value, dense_shape: Value) -> Any:
    """The number of the row stands in front of each index, n in front of the shape."""
    _require_readers(call)
    _require_width(call, indices)
    if dense_shape.inner_shape != (2,):
        raise CannotVectorize("the number of axes of the sparse matrix (CSR) is unknown")
    shape = shared(dense_shape, "dense_shape")
    entries = Entries(call, indices, values)
    # A reshape, as TensorFlow infers shapes again when it runs, and must know the columns then.
    places, lead = tf.reshape(entries.places, [-1, 3]), tf.cast(_size(call), tf.int64)
    made = call.rebuild(
        indices=places, values=entries.flat[1], dense_shape=tf.concat([[lead], shape], 0)
    )
    return CsrRows.of(made)


# ---------------------------------------------------------------------------
# Made into tensors
# ---------------------------------------------------------------------------


@RegisterPFor("CSRSparseMatrixToDense SparseMatrixNNZ SparseMatrixOrderingAMD", ANY)
@emitting
def of_each_matrix(call: Call, matrix: Value) -> Any:
    """A dense matrix, a number or a permutation for each matrix of the batch."""
    _require_batch(call)
    return _of_rows(call, call.rebuild())


@RegisterPFor("CSRSparseMatrixToSparseTensor", ANY)
@emitting
def to_sparse(call: Call, sparse_matrix: Value) -> Any:
    """The entries of all rows in order, as many as each row has."""
    _require_batch(call)
    indices, values, shape = call.rebuild()
    rows, own = indices[:, 0], indices[:, 1:]
    own.set_shape([None, 2])
    return [*by_row(call, rows, [own, values]), Value.unstacked(shape[1:])]


@RegisterPFor("CSRSparseMatrixComponents", ANY, attrs=("type",))
@emitting
def components(call: Call, csr_sparse_matrix: Value, index: Value) -> Any:
    """The ends of a matrix's rows, columns and values, from the sparse tensor of all rows."""
    _require_batch(call)
    at = call.stacked(index)
    indices, values, shape = tf.raw_ops.CSRSparseMatrixToSparseTensor(
        sparse_matrix=csr_sparse_matrix.tensor, type=call.attr("type")
    )
    text = "the index of a matrix that is no batch must be 0. They are"
    shape = call.after_check(at == 0, text, [at], shape)
    number, count = indices[:, 0], tf.cast(shape[1], tf.int32)
    n = call.loop.length
    line = tf.cast(number, tf.int32) * count + tf.cast(indices[:, 1], tf.int32)
    total = n * count
    counts = tf.math.bincount(line, minlength=total, maxlength=total)
    ends = tf.cumsum(tf.reshape(counts, tf.stack([n, count])), 1)
    pointers = tf.pad(ends, [[0, 0], [1, 0]])
    columns = tf.cast(indices[:, 2], tf.int32)
    return [Value.stacked(pointers), *by_row(call, number, [columns, values])]


# ---------------------------------------------------------------------------
# Products
# ---------------------------------------------------------------------------

_TRANSPOSES = ("transpose_a", "transpose_b", "adjoint_a", "adjoint_b")


@RegisterPFor(
    "SparseMatrixMatMul", ANY, attrs=(*_TRANSPOSES, "transpose_output", "conjugate_output")
)
@emitting
def times_dense(call: Call, a: Value, b: Value) -> Any:
    """A batch of products; the loop goes into the columns of ``b`` where ``a`` is invariant."""
    if call.require_rank(b, "'b'") != 2:
        raise CannotVectorize("the sparse matrix (CSR) is a batch already")
    if not a.is_stacked:
        return _of_joined_columns(call, b.tensor)
    _require_batch(call)
    dense = _with_one(call, call.stacked(b))
    return _of_rows(call, call.rebuild(b=dense))


def _of_joined_columns(call: Call, b: tf.Tensor) -> Any:
    """The same matrix times [k, n*m], or the matrix times the columns of all rows."""
    is_turned = call.attr("transpose_b") or call.attr("adjoint_b")
    if call.attr("adjoint_b"):
        b = tf.math.conj(b)
    first = tf.transpose(b, [2, 0, 1] if is_turned else [1, 0, 2])  # [k, n, m]
    shape = tf.shape(first)
    n, m = shape[1], shape[2]
    made = call.rebuild(
        b=tf.reshape(first, tf.stack([shape[0], n * m])),
        transpose_b=False,
        adjoint_b=False,
        transpose_output=False,
    )  # [r, n*m]
    made = tf.reshape(made, tf.stack([tf.shape(made)[0], n, m]))
    return tf.transpose(made, [1, 2, 0] if call.attr("transpose_output") else [1, 0, 2])


@RegisterPFor("SparseMatrixSparseMatMul", ANY, attrs=("type", *_TRANSPOSES))
@emitting
def times_sparse(call: Call, a: Value, b: Value) -> Any:
    """A batch of products; an invariant matrix is repeated."""
    _require_batch(call)
    left, right = (_matrices(call, v, call.attr("type")) for v in (a, b))
    return CsrRows.of(call.rebuild(a=left, b=right))


@RegisterPFor("SparseMatrixTranspose", ANY, attrs=("conjugate",))
@emitting
def transposed(call: Call, input: Value) -> Any:
    """Each matrix of the batch."""
    _require_batch(call)
    return CsrRows.of(call.rebuild())


# ---------------------------------------------------------------------------
# Factors
# ---------------------------------------------------------------------------


@RegisterPFor("SparseMatrixSparseCholesky", ANY, attrs=("type",))
@emitting
def cholesky(call: Call, input: Value, permutation: Value) -> Any:
    """A factor for each matrix of the batch; where there is none, of the unit matrix."""
    if isinstance(permutation, Ragged):
        raise CannotVectorize("the permutations differ in size")
    matrices, order = _matrices(call, input, call.attr("type")), call.stacked(permutation)
    if not _is_never_empty(call):
        matrices = _with_unit(call, matrices, call.attr("type"))
        order = _with_one(call, order, tf.range(tf.shape(order)[1]))
    return CsrRows.of(call.rebuild(input=matrices, permutation=order))


def _with_unit(call: Call, matrices: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The batch, of the unit matrix where there is no row."""
    indices, values, shape = tf.raw_ops.CSRSparseMatrixToSparseTensor(
        sparse_matrix=matrices, type=dtype
    )
    count = shape[1] * tf.cast(_size(call) - call.loop.length, tf.int64)
    places = tf.range(count)
    unit = tf.stack([tf.zeros_like(places), places, places], 1)
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=tf.concat([indices, unit], 0),
        values=tf.concat([values, tf.ones(tf.cast(count[None], tf.int32), dtype)], 0),
        dense_shape=shape,
    )
