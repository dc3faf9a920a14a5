"""Gathers, scatters, one-hot vectors and permutations."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import (
    as_dtype,
    column,
    loop_offset,
    row_numbers,
    window,
    with_row,
)
from tf_pfor.converters.arrays._updates import updated
from tf_pfor.converters.math._axis_by_row import cube_rank, own_axis, to_front, to_place
from tf_pfor.converters.math._families import with_n
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, leading, move_axis, transpose, unfold
from tf_pfor.core.values import Value, folded_form
from tf_pfor.layouts.row_reads import INDEX_DEPTH

# ---------------------------------------------------------------------------
# Gather
# ---------------------------------------------------------------------------


def _axes(call: Call, params: Value, indices: Value) -> tuple[int, int]:
    """Axis and number of batch dimensions, from the front; the axis of unknown ranks as it is."""
    if call.op_type == "Gather":
        return 0, 0
    if not isinstance(call.inputs["axis"], Value) or call.inputs["axis"].is_stacked:
        raise CannotVectorize("the axis differs between iterations")
    axis, batch = int(call.constant("axis")), call.attr("batch_dims")
    if axis < 0 and (batch or params.inner_rank is not None):
        axis += call.require_rank(params, "'params'")
    if batch < 0:
        batch += call.require_rank(indices, "'indices'")
    return axis, batch


def _from_behind(call: Call, params: Value, indices: Value, axis: int) -> tf.Tensor:
    """Along an axis that is counted from behind, of a shared table of unknown rank."""
    with call.emit.graph.as_default():
        made: Any = tf.gather(params.tensor, indices.tensor, axis=axis)  # [..., n, k..., ...]
        before = tf.rank(params.tensor) + axis
        places = [[before], tf.range(before), tf.range(before + 1, tf.rank(made))]
        order: Any = tf.concat(places, 0)
        return tf.transpose(made, order)


def _gather(call: Call, params: object, indices: object, axis: int, batch: int) -> tf.Tensor:
    return call.emit("GatherV2", params, indices, np.int32(axis), batch_dims=batch)


@RegisterPFor("Gather", ("indices",), attrs=("validate_indices",))
@RegisterPFor("GatherV2", ("indices",), attrs=("batch_dims",))
def gather_from_shared(call: Call, params: Value, indices: Value, axis: Value | None = None) -> Any:
    """One gather from the shared table; n stands where the indices stand, and moves to the front.

    A table indexed by the number of the iteration is the table, or its first n rows.
    """
    where, batch = _axes(call, params, indices)
    if where < 0:
        return _from_behind(call, params, indices, where)
    if indices.inner_rank == 0:
        rows = _by_iteration(call, params, where)
        if rows is not None:
            return move_axis(call, rows, where, 0)
    form = folded_form(indices)
    if batch == 0 and where == 0 and form is not None:
        made = _gather(call, params.tensor, form.tensor, 0, 0)
        return unfold(call, made, indices, form.axes)
    at = indices.tensor
    if batch:  # [n, batch..., k...] -> [batch..., n, k...]
        at = move_axis(call, at, 0, batch)
    made = _gather(call, params.tensor, at, where, batch)  # [..., n, k..., ...]
    return move_axis(call, made, where, 0) if where else made


def _by_iteration(call: Call, params: Value, axis: int) -> tf.Tensor | None:
    first = loop_offset(call, call.op.inputs[1])
    return None if first is None else window(call, params.tensor, axis, first)


@RegisterPFor("Gather", ("params",), attrs=("validate_indices",))
@RegisterPFor("GatherV2", ("params",), attrs=("batch_dims",))
def gather_same_places(call: Call, params: Value, indices: Value, axis: Value | None = None) -> Any:
    """The same places of every row: the axis moves by one."""
    where, batch = _axes(call, params, indices)
    if batch:
        raise CannotVectorize("batch dimensions need indices for every row")  # they are tiled
    if where < 0:
        return _gather(call, params.tensor, indices.tensor, where, 0)
    form = leading(call, [params], where)
    return form.result(_gather(call, form.tensors[0], indices.tensor, form.axis(where), 0))


@RegisterPFor("Gather", ("indices", "params"), attrs=("validate_indices",))
@RegisterPFor("GatherV2", ("indices", "params"), attrs=("batch_dims",))
def gather_by_row(call: Call, params: Value, indices: Value, axis: Value | None = None) -> Any:
    """The loop is one more batch dimension."""
    where, batch = _axes(call, params, indices)
    return _gather(call, params.tensor, indices.tensor, where + (where >= 0), batch + 1)


@RegisterPFor("GatherV2", ("axis",), attrs=("batch_dims",))
@RegisterPFor("GatherV2", ("axis", "indices"), attrs=("batch_dims",))
@RegisterPFor("GatherV2", ("axis", "params"), attrs=("batch_dims",))
@RegisterPFor("GatherV2", ("axis", "indices", "params"), attrs=("batch_dims",))
def gather_along_own_axis(call: Call, params: Value, indices: Value, axis: Value) -> Any:
    """Along an axis of the row, moved to the front; and back, where as much is taken as there is.

    One index takes the axis away: nothing moves back.
    """
    rank = cube_rank(call, params)
    if call.attr("batch_dims") or call.require_rank(indices, "'indices'") > 1:
        raise CannotVectorize("an axis that differs, with several axes of indices")
    if indices.inner_rank and indices.inner_shape != (params.inner_shape or ())[:1] and rank > 1:
        raise CannotVectorize("the axis, and so the shape, may differ between iterations")
    own = own_axis(call, axis, rank)
    moved = to_front(call, call.stacked(params), own, rank)
    made = _gather(call, moved, indices.tensor, 1, int(indices.is_stacked))
    return to_place(call, made, own, rank) if indices.inner_rank else made


@RegisterPFor("GatherNd", ("indices",), attrs=("bad_indices_policy",))
def gather_nd_from_shared(call: Call, params: Value, indices: Value) -> Any:
    """One GatherNd from the shared tensor."""
    return call.rebuild()


@RegisterPFor("GatherNd", ("indices", "params"), attrs=("bad_indices_policy",))
def gather_nd_by_row(call: Call, params: Value, indices: Value) -> Any:
    """The row comes first in every index: [n, ..., m] -> [n, ..., 1 + m]."""
    return call.rebuild(indices=_with_row(call, indices, params.inner_rank))


def _with_row(call: Call, indices: Value, rank: int | None = None) -> tf.Tensor:
    """Index vectors with the number of the row in front: [n, ..., m] -> [n, ..., 1 + m].

    An unknown m is at most ``rank``, the rank of the tensor that is indexed.
    """
    call.require_rank(indices, "'indices'")
    shape = indices.inner_shape
    assert shape is not None
    most = rank if shape[-1] is None else shape[-1]
    if most is None or most >= INDEX_DEPTH:
        raise CannotVectorize(f"the kernel indexes {INDEX_DEPTH} axes, the loop included")
    return with_row(call, indices)


# ---------------------------------------------------------------------------
# Scatter
# ---------------------------------------------------------------------------


@RegisterPFor("ScatterNd", ("indices", "updates"), attrs=("bad_indices_policy",))
def scatter_nd(call: Call, indices: Value, updates: Value, shape: Value) -> Any:
    """The row comes first in every index, and n in the shape."""
    full = with_n(call, shape, "shape")
    return call.rebuild(indices=_with_row(call, indices), updates=updates.tensor, shape=full)


@RegisterPFor(
    "ScatterNdNonAliasingAdd TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub "
    "TensorScatterUpdate",
    ANY,
    attrs=("bad_indices_policy",),
)
def scatter_into(call: Call, tensor: Value, indices: Value, updates: Value) -> Any:
    """The row comes first in every index."""
    first = next(iter(call.inputs))  # "tensor", or "input"
    places, new = _with_row(call, indices, tensor.inner_rank), call.stacked(updates)

    def write(whole: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        return call.rebuild(**{first: whole}, indices=places, updates=new)

    return updated(call, tensor, places, new, write)


_IN_PLACE = {
    "InplaceAdd": "TensorScatterAdd",
    "InplaceSub": "TensorScatterSub",
    "InplaceUpdate": "TensorScatterUpdate",
}


@RegisterPFor("InplaceAdd InplaceSub InplaceUpdate", ANY)
def in_place(call: Call, x: Value, i: Value, v: Value) -> Any:
    """Places of the first axis with the row in front, of a tensor that nobody else sees."""
    rows = call.emit("ExpandDims", call.stacked(i), np.int32(-1))  # [n, k, 1]
    places = with_row(call, Value.stacked(rows))
    kind = _IN_PLACE[call.op_type]
    write = lambda whole, new: call.emit(kind, whole, places, new)  # noqa: E731
    return updated(call, x, places, call.stacked(v), write)


# ---------------------------------------------------------------------------
# Stitching and partitions
# ---------------------------------------------------------------------------


@RegisterPFor("DynamicPartition", ("data",), attrs=("num_partitions",))
def dynamic_partition(call: Call, data: Value, partitions: Value) -> Any:
    """The loop moves behind the axes of the partitions: [n, k..., rest] -> [k..., n, rest]."""
    moved = move_axis(call, data.tensor, 0, call.require_rank(partitions, "'partitions'"))
    made = call.rebuild(data=moved)  # [size, n, rest] each
    parts = made if isinstance(made, list) else [made]
    return [move_axis(call, part, 1, 0) for part in parts]


@RegisterPFor("DynamicStitch ParallelDynamicStitch", ("data",))
def dynamic_stitch(call: Call, indices: list[Value], data: list[Value]) -> Any:
    """The loop moves behind the axes of the indices: [n, k..., rest] -> [k..., n, rest]."""
    moved = [
        move_axis(call, d.tensor, 0, call.require_rank(i, "'indices'"))
        for i, d in zip(indices, data)
    ]
    return move_axis(call, call.rebuild(data=moved), 1, 0)  # [size, n, rest] -> [n, size, rest]


# ---------------------------------------------------------------------------
# One-hot vectors and permutations
# ---------------------------------------------------------------------------


@RegisterPFor("OneHot", ("indices",), attrs=("axis",))
def one_hot(call: Call, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Any:
    """The axis moves by one, unless it is the last."""
    axis = call.attr("axis")
    form = folded_form(indices)
    if axis == -1 and form is not None:
        made = call.rebuild(indices=form.tensor)
        return unfold(call, made, indices, form.axes)
    return call.rebuild(axis=axis if axis < 0 else axis + 1)


@RegisterPFor("OneHot", ANY, attrs=("axis",))
def one_hot_with_values(
    call: Call, indices: Value, depth: Value, on_value: Value, off_value: Value
) -> Any:
    """One-hot booleans, then each row's two values."""
    if depth.is_stacked:
        raise CannotVectorize("the depth, and so the shape, may differ between iterations")
    axis, emit = call.attr("axis"), call.emit
    rank = call.require_rank(indices, "'indices'") + 1
    is_on = emit(
        "OneHot",
        indices.tensor,
        depth.tensor,
        emit.constant(np.True_),
        emit.constant(np.False_),
        axis=axis if axis < 0 or not indices.is_stacked else axis + 1,
    )
    return emit("SelectV2", is_on, column(call, on_value, rank), column(call, off_value, rank))


@RegisterPFor("InvertPermutation", ANY)
def invert_permutation(call: Call, x: Value) -> Any:
    """x_i + i*k is one permutation of n*k; what is out of range stays so."""
    emit, dtype = call.emit, x.dtype
    size = as_dtype(call, inner_dims(call, x)[0], dtype)
    first = emit("Mul", row_numbers(call, dtype, 2), size)  # [n, 1]
    is_good = emit(
        "LogicalAnd",
        emit("GreaterEqual", x.tensor, emit.constant(0, dtype)),
        emit("Less", x.tensor, size),
    )
    moved = emit("SelectV2", is_good, emit("AddV2", x.tensor, first), emit.constant(-1, dtype))
    flat = emit("InvertPermutation", emit("Reshape", moved, [-1]))
    return emit("Sub", emit("Reshape", flat, emit.shape_of(x.tensor)), first)


@RegisterPFor("UnravelIndex", ("indices",))
def unravel_index(call: Call, indices: Value, dims: Value) -> Any:
    """[n, k] flat -> [rank, n*k] -> [n, rank, k]."""
    rank = call.op.inputs[1].shape[0]
    if rank is None:
        raise CannotVectorize("the number of dimensions is unknown")
    parts = inner_dims(call, indices)
    flat = call.emit("Reshape", indices.tensor, [-1])
    # The kernel takes no empty indices: one more, which is cut off again.
    more = call.emit("ConcatV2", [flat, call.emit.constant([0], flat.dtype)], 0)
    total = call.emit.shape_vector([rank, call.emit.dim(flat, 0)])
    made = call.emit("Slice", call.rebuild(indices=more), [0, 0], total)  # [rank, n*k]
    split = call.emit.reshape(made, [rank, call.loop.length, *parts])
    return transpose(call, split, [1, 0, *range(2, 2 + len(parts))])


@RegisterPFor("UnravelIndex", ("dims",))
@RegisterPFor("UnravelIndex", ("dims", "indices"))
def unravel_by_row(call: Call, indices: Value, dims: Value) -> Any:
    """(index // stride) % size along each axis of the row: [n, rank, k]."""
    emit, dtype = call.emit, indices.dtype
    rank, parts = inner_dims(call, dims)[0], inner_dims(call, indices)
    if len(parts) > 1:
        raise CannotVectorize("indices of several axes")
    sizes, at = dims.tensor, call.stacked(indices)
    last = np.int32(1)
    strides = emit("Cumprod", sizes, last, exclusive=True, reverse=True)  # [n, rank]
    total = emit.reshape(emit("Prod", sizes, last), [call.loop.length, *[1] * len(parts)])
    is_in = emit(
        "LogicalAnd", emit("GreaterEqual", at, emit.constant(0, dtype)), emit("Less", at, total)
    )
    inside = emit("All", is_in, np.arange(1, len(parts) + 1, dtype=np.int32))
    text = "an index is out of bounds of the sizes in some iterations. They are"
    sizes = call.after_check(inside, text, [sizes], sizes, by_row=True)
    wide = emit("ExpandDims", at, np.int32(1))  # [n, 1, k]
    shape = [call.loop.length, rank, *[1] * len(parts)]
    steps, sizes = emit.reshape(strides, shape), emit.reshape(sizes, shape)
    return emit("FloorMod", emit("FloorDiv", wide, steps), sizes)


@RegisterPFor("DataFormatVecPermute", ANY, attrs=("dst_format", "src_format"))
def data_format_vec_permute(call: Call, x: Value) -> Any:
    """A gather along the first inner axis."""
    source, target = call.attr("src_format"), call.attr("dst_format")
    shape = x.inner_shape
    if shape is None or shape[0] not in (len(source), len(source) - 2):
        raise CannotVectorize("the size of the vector is unknown")
    if shape[0] == len(source) - 2:  # spatial dimensions only
        source, target = (f.replace("N", "").replace("C", "") for f in (source, target))
    order = np.asarray([source.index(c) for c in target], np.int32)
    return call.emit("GatherV2", x.tensor, order, np.int32(1))
