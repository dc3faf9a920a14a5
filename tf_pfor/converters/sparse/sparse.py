"""Sparse tensors: indices [k, m], values [k] and a dense shape [m], as many entries in all rows.

All rows together are one sparse tensor with one axis more. The number of the row stands in front of
every index, n in front of the shape. Sorted entries stay sorted, and indices out of range stay out
of range. Where the number of entries of a result depends on the data, the op runs row by row
(``uneven_regions``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype, column, moved_ids, times_n, with_row
from tf_pfor.converters.math._families import with_n
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank, fold, inner_dims, transpose, unfold
from tf_pfor.core.values import Shape, Value

_BROADCAST_RANK = 5
"""The kernels that read a dense tensor beside a sparse one take no higher rank."""

# ---------------------------------------------------------------------------
# All rows as one sparse tensor
# ---------------------------------------------------------------------------


def _rank(indices: Value) -> int:
    """The number of axes of one row's sparse tensor."""
    shape = indices.inner_shape
    if shape is None or len(shape) != 2 or shape[1] is None:
        raise CannotVectorize("the number of axes of the sparse tensor is unknown")
    return shape[1]


def _entries(call: Call, indices: Value) -> tf.Tensor:
    """[n, k, m] -> [n*k, 1 + m]."""
    return _joined(call, with_row(call, indices), _rank(indices) + 1)


def _joined(call: Call, indices: tf.Tensor, width: int) -> tf.Tensor:
    """[n, k, width] -> [n*k, width]."""
    return call.emit("Reshape", indices, np.asarray([-1, width], np.int32))


def _full_shape(call: Call, name: str) -> tf.Tensor:
    """The dense shape with n in front."""
    shape = call.inputs[name]
    assert isinstance(shape, Value)
    if shape.is_stacked:
        raise CannotVectorize(f"'{name}' may differ between iterations")
    return with_n(call, shape, name)


def _without_row(call: Call, indices: tf.Tensor, like: Value, inner_shape: Shape) -> Value:
    """[n*k, 1 + m] -> [n, k, m]."""
    own = call.emit("Slice", indices, [0, 1], [-1, -1])
    return unfold(call, own, like, inner_shape=inner_shape)


def _like(*values: Value) -> Value:
    """A stacked one of them: it knows n and k."""
    return next(v for v in values if v.is_stacked)


# ---------------------------------------------------------------------------
# To dense tensors
# ---------------------------------------------------------------------------


@RegisterPFor("SparseToDense", ANY, attrs=("validate_indices",))
def sparse_to_dense(
    call: Call,
    sparse_indices: Value,
    output_shape: Value,
    sparse_values: Value,
    default_value: Value,
) -> Any:
    """One dense tensor [n, ...]. Where the default differs between rows it is put in afterwards."""
    emit, shape = call.emit, _full_shape(call, "output_shape")
    rank = call.require_rank(sparse_indices, "'sparse_indices'")
    at = sparse_indices
    if rank == 1:  # [k] stands for [k, 1]
        tensor = emit("ExpandDims", call.stacked(at), np.int32(-1))
        at = Value.stacked(tensor)
    elif rank == 0:  # one entry
        at = Value.stacked(emit.reshape(call.stacked(at), [call.loop.length, 1, 1]))
    entries = _entries(call, at)
    values = sparse_values.tensor
    if call.require_rank(sparse_values, "'sparse_values'") == 1:
        values = fold(call, sparse_values)
    elif sparse_values.is_stacked:  # one value for all entries of a row
        count = inner_dims(call, at)[0]
        spread = emit.shape_vector([call.loop.length, count])
        values = emit("BroadcastTo", column(call, sparse_values, 1), spread)
        values = emit("Reshape", values, [-1])
    changes = {"sparse_indices": entries, "output_shape": shape}
    if not default_value.is_stacked:
        return call.rebuild(**changes, sparse_values=values)
    is_set = emit(
        "SparseToDense",
        entries,
        shape,
        np.True_,
        np.False_,
        validate_indices=call.attr("validate_indices"),
    )
    zero = emit.constant("" if values.dtype == tf.string else 0, values.dtype)
    made = call.rebuild(**changes, sparse_values=values, default_value=zero)
    width = _rank(at)
    return emit("SelectV2", is_set, made, column(call, default_value, width))


@RegisterPFor("SparseReduceMax", ANY, attrs=("keep_dims",))
@RegisterPFor("SparseReduceSum", ANY, attrs=("keep_dims",))
def sparse_reduce(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value, reduction_axes: Value
) -> Any:
    """The axes move by one. What is outside of the shape must not be in the next row."""
    rank, emit = _rank(input_indices), call.emit
    shape = _full_shape(call, "input_shape")
    axes = call.constant("reduction_axes")
    axes = np.where(axes < 0, axes + rank, axes).astype(axes.dtype)
    at = call.stacked(input_indices)
    below = emit("Less", at, emit.constant(0, tf.int64))
    is_out = emit("LogicalOr", below, emit("GreaterEqual", at, input_shape.tensor))
    kept = np.asarray([d not in axes.reshape([-1]) for d in range(rank)])  # the others do not count
    is_out = emit("LogicalAnd", is_out, emit.constant(kept))
    is_out = emit("Any", is_out, np.int32(-1), keep_dims=True)  # [n, k, 1]
    n = emit("Reshape", as_dtype(call, call.loop.length, tf.int64), [1])
    outside = emit("ConcatV2", [n, emit.constant(np.zeros([rank], np.int64))], 0)
    places = emit("SelectV2", is_out, outside, with_row(call, input_indices))  # [n, k, 1 + m]
    return call.rebuild(
        input_indices=_joined(call, places, rank + 1),
        input_values=fold(call, input_values),
        input_shape=shape,
        reduction_axes=(axes + 1).astype(axes.dtype),
    )


# ---------------------------------------------------------------------------
# With dense tensors
# ---------------------------------------------------------------------------


@RegisterPFor("SparseTensorDenseMatMul", ANY, attrs=("adjoint_a", "adjoint_b"))
def sparse_dense_matmul(
    call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value
) -> Any:
    """An invariant ``a``: the columns of all b side by side. Else ``a`` in blocks.

    The blocks stand on the diagonal, or one below the other where all share ``b``.
    """
    if a_shape.is_stacked:
        raise CannotVectorize("'a_shape' may differ between iterations")
    if not (a_indices.is_stacked or a_values.is_stacked):
        return _by_columns(call, b)
    emit, out = call.emit, int(call.attr("adjoint_a"))
    _rank(a_indices)
    sizes = _matrix_shape(call, a_shape)
    at = call.stacked(a_indices)  # [n, k, 2]
    places: list[Any] = [None, None]
    totals: list[Any] = [None, None]
    for axis in (0, 1):
        part = emit(
            "StridedSlice",
            at,
            [0, 0, axis],
            [0, 0, axis + 1],
            [1, 1, 1],
            begin_mask=3,
            end_mask=3,
            shrink_axis_mask=4,
        )
        moves = axis == out or b.is_stacked
        places[axis] = moved_ids(call, Value.stacked(part), sizes[axis]) if moves else part
        totals[axis] = (
            times_n(call, sizes[axis], tf.int64) if moves else as_dtype(call, sizes[axis], tf.int64)
        )
    pairs = emit("Pack", places, axis=-1)
    right, adjoint_b = b.tensor, call.attr("adjoint_b")
    if b.is_stacked:
        if adjoint_b:
            turn = "ConjugateTranspose" if b.dtype.is_complex else "Transpose"
            b = Value.stacked(emit(turn, b.tensor, np.asarray([0, 2, 1], np.int32)))
        right, adjoint_b = fold(call, b), False  # [n * inner, q]
    made = call.rebuild(
        a_indices=emit("Reshape", pairs, np.asarray([-1, 2], np.int32)),
        a_values=fold(call, a_values),
        a_shape=emit("Pack", totals, axis=0),
        b=right,
        adjoint_b=adjoint_b,
    )  # [n * out, q]
    rows = sizes[out]
    rows = rows if isinstance(rows, int) else emit("Cast", rows, DstT=tf.int32)
    columns = emit.dim(made, 1)
    return call.like(emit.reshape(made, [call.loop.length, rows, columns]))


def _by_columns(call: Call, b: Value) -> Any:
    """b [n, p, q] -> [p, n*q]; with ``adjoint_b`` [n, q, p] -> [n*q, p]. Back: [m, n*q]."""
    parts = inner_dims(call, b)
    if call.attr("adjoint_b"):
        columns, right = parts[0], fold(call, b)
    else:
        columns = parts[1]
        side = transpose(call, b.tensor, [1, 0, 2])
        right = call.emit(
            "Reshape", side, call.emit.shape_vector([parts[0], _times(call, columns)])
        )
    made = call.rebuild(b=right)  # [m, n*q]
    split = call.emit.reshape(made, [call.emit.dim(made, 0), call.loop.length, columns])
    return call.like(transpose(call, split, [1, 0, 2]))


def _times(call: Call, size: Dim) -> Dim:
    return call.emit.dim_math("Mul", call.loop.length, size)


def _matrix_shape(call: Call, shape: Value) -> list[Dim]:
    """The two sizes, int64 scalars where they are unknown."""
    found = call.maybe_constant("a_shape")
    if found is not None:
        return [int(d) for d in found]
    return [
        call.emit("StridedSlice", shape.tensor, [i], [i + 1], [1], shrink_axis_mask=1)
        for i in (0, 1)
    ]


@RegisterPFor("SparseDenseCwiseAdd", ANY)
@RegisterPFor("SparseDenseCwiseDiv", ANY)
@RegisterPFor("SparseDenseCwiseMul", ANY)
def sparse_dense_cwise(
    call: Call, sp_indices: Value, sp_values: Value, sp_shape: Value, dense: Value
) -> Any:
    """The kernel broadcasts the dense side: [n, 1, ..., inner], or what all rows share."""
    rank, shape = _rank(sp_indices), _full_shape(call, "sp_shape")
    _check_rank(rank)
    right = expand_to_rank(call, dense, rank) if dense.is_stacked else dense.tensor
    made = call.rebuild(
        sp_indices=_entries(call, sp_indices),
        sp_values=fold(call, sp_values),
        sp_shape=shape,
        dense=right,
    )
    return _per_entry(call, made, sp_indices, sp_values)


def _per_entry(call: Call, made: tf.Tensor, indices: Value, values: Value) -> Value:
    """[n*k] -> [n, k]."""
    if not (indices.is_stacked or values.is_stacked):
        values = Value.stacked(call.stacked(values)).with_inner_shape(values.inner_shape)
    return unfold(call, made, _like(values, indices))


def _check_rank(rank: int) -> None:
    if rank >= _BROADCAST_RANK:
        raise CannotVectorize(f"the kernel takes {_BROADCAST_RANK} axes, the loop included")


@RegisterPFor("SparseTensorDenseAdd", ANY)
def sparse_dense_add(
    call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value
) -> Any:
    """One sum of tensors with one axis more."""
    _check_rank(_rank(a_indices))
    return call.rebuild(
        a_indices=_entries(call, a_indices),
        a_values=fold(call, a_values),
        a_shape=_full_shape(call, "a_shape"),
        b=call.stacked(b),
    )


# ---------------------------------------------------------------------------
# To sparse tensors with as many entries
# ---------------------------------------------------------------------------


@RegisterPFor("SparseSoftmax", ANY)
def sparse_softmax(call: Call, sp_indices: Value, sp_values: Value, sp_shape: Value) -> Any:
    """The kernel has batch dimensions."""
    made = call.rebuild(
        sp_indices=_entries(call, sp_indices),
        sp_values=fold(call, sp_values),
        sp_shape=_full_shape(call, "sp_shape"),
    )
    return _per_entry(call, made, sp_indices, sp_values)


@RegisterPFor("SparseReorder", ANY)
def sparse_reorder(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value
) -> Any:
    """Sorted by row, then as the entries of each row are sorted."""
    like = _like(input_indices, input_values)
    indices, values = call.rebuild(
        input_indices=_entries(call, input_indices),
        input_values=fold(call, input_values),
        input_shape=_full_shape(call, "input_shape"),
    )
    return [
        _without_row(call, indices, like, call.output_shape(0)),
        unfold(call, values, like, inner_shape=call.output_shape(1)),
    ]


@RegisterPFor("SparseReshape", ("input_indices",))
def sparse_reshape(call: Call, input_indices: Value, input_shape: Value, new_shape: Value) -> Any:
    """Each index alone: [n*k, m] -> [n*k, m']."""
    indices, shape = call.rebuild(input_indices=fold(call, input_indices))
    return [
        unfold(call, indices, input_indices, inner_shape=call.output_shape(0)),
        Value.unstacked(shape),
    ]


@RegisterPFor("SparseConcat", ANY, attrs=("concat_dim",))
def sparse_concat(
    call: Call, indices: list[Value], values: list[Value], shapes: list[Value]
) -> Any:
    """The axis moves by one; the kernel sorts what it joins, by row first."""
    emit, axis = call.emit, call.attr("concat_dim")
    if any(s.is_stacked for s in shapes):
        raise CannotVectorize("the dense shapes may differ between iterations")
    _rank(indices[0])
    n = as_dtype(call, call.loop.length, tf.int64)
    head = emit("ExpandDims", n, np.int32(0))
    joined, total, shape = call.rebuild(
        indices=[_entries(call, x) for x in indices],
        values=[fold(call, x) for x in values],
        shapes=[emit("ConcatV2", [head, s.tensor], 0) for s in shapes],
        concat_dim=axis if axis < 0 else axis + 1,
    )
    counts: list[Dim] = [inner_dims(call, x)[0] for x in values]
    count: Dim = 0
    for part in counts:
        count = emit.dim_math("AddV2", count, part)
    lead: list[Dim] = [call.loop.length, count]
    places = emit.reshape(emit("Slice", joined, [0, 1], [-1, -1]), [*lead, _rank(indices[0])])
    return [
        Value.stacked(places),
        Value.stacked(emit.reshape(total, lead)),
        Value.unstacked(emit("Slice", shape, [1], [-1])),
    ]
