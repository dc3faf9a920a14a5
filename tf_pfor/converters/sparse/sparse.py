"""Sparse tensors: indices [k, m], values [k] and a dense shape [m].

All rows together are one sparse tensor with one axis more (``_entries``). Rules by ``sparse_rule``
take any number of entries, the others as many in all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype, column, moved_ids, times_n, with_row
from tf_pfor.converters.ragged._entries import (
    Entries,
    for_all_rows,
    room_for_all,
    room_of,
    sparse_results,
    sparse_rule,
    width_of,
    with_n,
)
from tf_pfor.converters.ragged._forms import row_sizes
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.converters.sparse._joint_rows import by_columns
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank, fold, inner_dims
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes, same_sizes, shape_value
from tf_pfor.layouts.row_sizes import as_number, at_rows

_BROADCAST_RANK = 5
"""The kernels that read a dense tensor beside a sparse one take no higher rank."""

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
    emit, shape = call.emit, with_n(call, output_shape)
    rank = call.require_rank(sparse_indices, "'sparse_indices'")
    at = sparse_indices
    if rank == 1:  # [k] stands for [k, 1]
        tensor = emit("ExpandDims", call.stacked(at), np.int32(-1))
        at = Value.stacked(tensor)
    elif rank == 0:  # one entry
        at = Value.stacked(emit.reshape(call.stacked(at), [call.loop.length, 1, 1]))
    entries = Entries(call, at, may_be_equal=True).places
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
    width = width_of(at)
    return emit("SelectV2", is_set, made, column(call, default_value, width))


@RegisterPFor("SparseReduceMax SparseReduceSum", ANY, attrs=("keep_dims",))
def sparse_reduce(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value, reduction_axes: Value
) -> Any:
    """The axes move by one. What is outside of the shape must not be in the next row."""
    rank, emit = width_of(input_indices), call.emit
    shape = with_n(call, input_shape)
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
        input_indices=emit("Reshape", places, np.asarray([-1, rank + 1], np.int32)),
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
        return call.like(by_columns(call, b))
    emit, out = call.emit, int(call.attr("adjoint_a"))
    width_of(a_indices)
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


def _matrix_shape(call: Call, shape: Value) -> list[Dim]:
    """The two sizes, int64 scalars where they are unknown."""
    found = call.maybe_constant("a_shape")
    if found is not None:
        return [int(d) for d in found]
    return [
        call.emit("StridedSlice", shape.tensor, [i], [i + 1], [1], shrink_axis_mask=1)
        for i in (0, 1)
    ]


# ---------------------------------------------------------------------------
# Any number of entries
# ---------------------------------------------------------------------------


def _check_rank(rank: int) -> None:
    if rank >= _BROADCAST_RANK:
        raise CannotVectorize(f"the kernel takes {_BROADCAST_RANK} axes, the loop included")


def _require_dense(value: Value) -> None:
    if isinstance(value, Ragged):
        raise CannotVectorize("the dense tensor differs in shape between iterations")


@sparse_rule("SparseTensorDenseAdd")
def sparse_dense_add(
    call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value
) -> Any:
    """One sum of tensors with one axis more."""
    _check_rank(width_of(a_indices))
    _require_dense(b)
    names = ("a_indices a_values",)
    inputs = for_all_rows(call, *names, shapes="a_shape", may_be_equal=True)[1]
    return call.rebuild(**inputs, b=call.stacked(b))


@sparse_rule("SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul")
def sparse_dense_cwise(
    call: Call, sp_indices: Value, sp_values: Value, sp_shape: Value, dense: Value
) -> Any:
    """The kernel broadcasts the dense side: [n, 1, ..., inner], or what all rows share."""
    rank = width_of(sp_indices)
    _check_rank(rank)
    _require_dense(dense)
    names = ("sp_indices sp_values",)
    (entries, *_), inputs = for_all_rows(call, *names, shapes="sp_shape", may_be_equal=True)
    wide = expand_to_rank(call, dense, rank) if dense.is_stacked else dense.tensor
    return entries.back(call.rebuild(**inputs, dense=wide), 0)


@sparse_rule("SparseSoftmax", of_shapes=True)
def sparse_softmax(call: Call, sp_indices: Value, sp_values: Value, sp_shape: Value) -> Any:
    """The kernel has batch dimensions."""
    entries = Entries(call, sp_indices, sp_values, may_be_equal=True)
    shape = room_for_all(call, sp_shape, entries)
    made = call.rebuild(sp_indices=entries.places, sp_values=entries.flat[1], sp_shape=shape)
    return entries.back(made, 0)


@sparse_rule("SparseReorder")
def sparse_reorder(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value
) -> Any:
    """Sorted by row, then as the entries of each row are sorted: as many as before."""
    entries = Entries(call, input_indices, input_values, may_be_equal=True)
    shape = room_of(call, input_shape)  # the kernel reads the indices only
    indices, values = call.rebuild(
        input_indices=entries.places, input_values=entries.flat[1], input_shape=shape
    )
    return [entries.back(call.emit("Slice", indices, [0, 1], [-1, -1]), 0), entries.back(values, 1)]


@sparse_rule("SparseReshape", of_shapes=True)
def sparse_reshape(call: Call, input_indices: Value, input_shape: Value, new_shape: Value) -> Any:
    """Each index alone: [total, m] -> [total, m']."""
    if input_shape.is_stacked or new_shape.is_stacked:
        return _reshaped(call, input_indices, input_shape, new_shape)
    entries = Entries(call, input_indices, may_be_equal=True)
    indices, shape = call.rebuild(input_indices=entries.flat[0])
    return [entries.back(indices, 0), Value.unstacked(shape)]


def _reshaped(call: Call, indices: Value, input_shape: Value, new_shape: Value) -> list[Value]:
    """The same by shapes of the row: the place in the row, and its coordinates in the new shape."""
    call.require_packed()
    own, new = (_own_sizes(call, s, i) for i, s in enumerate((input_shape, new_shape), 1))
    total = _product(own)
    unknown = [k for k, s in enumerate(new) if isinstance(s, int) and s == -1]
    rest = _product([s for k, s in enumerate(new) if k not in unknown])
    if unknown:
        left = tf.cast(total // tf.maximum(rest, 1), tf.int32)
        left = tf.broadcast_to(left, tf.stack([call.loop.length]))
        new = [row_sizes(call, left) if k in unknown else s for k, s in enumerate(new)]
    entries = Entries(call, indices, may_be_equal=True)
    at = tf.cast(entries.flat[0], tf.int64)
    if not same_sizes(own, new):
        text = "the new shape of a sparse tensor has another number of places in some iterations."
        at = call.after_check(tf.equal(_product(new), total), text, [total, _product(new)], at)
        place, columns = tf.zeros_like(at[:, 0]), list[tf.Tensor]()
        for k, size in enumerate(own):
            place = place * at_rows(size, entries.rows, tf.int64) + at[:, k]
        for size in reversed(new[1:]):
            room = tf.maximum(at_rows(size, entries.rows, tf.int64), 1)
            columns.insert(0, place % room)
            place = place // room
        at = tf.stack([place, *columns], 1)
    return [entries.back(at, 0), shape_value(call.emit, new, call.output_dtype(1))]


def _own_sizes(call: Call, shape: Value, at: int) -> list[Any]:
    """The sizes that a shape, input ``at``, says: of each row, ints, or int32 scalars."""
    if shape.is_stacked or call.maybe_constant(list(call.inputs)[at]) is not None:
        return target_sizes(call, shape, at)
    if not shape.inner_shape or shape.inner_shape[0] is None:
        raise CannotVectorize("the rank of the sparse tensor is not known")
    return tf.unstack(tf.cast(shape.tensor, tf.int32), num=shape.inner_shape[0])


def _product(sizes: list[Any]) -> tf.Tensor:
    """int64, of each row or of all: the number of places."""
    made = tf.ones([], tf.int64)
    for size in sizes:
        made *= tf.cast(as_number(size), tf.int64)
    return made


@sparse_rule("SparseConcat", attrs=("concat_dim",))
def sparse_concat(
    call: Call, indices: list[Value], values: list[Value], shapes: list[Value]
) -> Any:
    """The axis moves by one; the kernel sorts what it joins, by row first."""
    axis, full = call.attr("concat_dim"), [with_n(call, s) for s in shapes]
    parts = [Entries(call, *pair, may_be_equal=True) for pair in zip(indices, values)]
    at, x, shape = call.rebuild(
        indices=[p.places for p in parts],
        values=[p.flat[1] for p in parts],
        shapes=full,
        concat_dim=axis if axis < 0 else axis + 1,
    )
    own = Value.unstacked(call.emit("Slice", shape, [1], [-1]))
    count: Dim = 0
    for part in parts:
        (size,) = part.sizes
        if isinstance(size, RowSizes):
            return [*sparse_results(call, at, x), own]
        count = call.emit.dim_math("AddV2", count, size)
    lead, at = [call.loop.length, count], call.emit("Slice", at, [0, 1], [-1, -1])
    places = call.emit.reshape(at, [*lead, width_of(indices[0])])
    return [Value.stacked(places), Value.stacked(call.emit.reshape(x, lead)), own]
