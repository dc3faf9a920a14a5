"""XLA's own ops that move elements: pads, slices, gathers, scatters, hints.

They exist only under ``tf.function(jit_compile=True)``: TensorFlow has no other kernels for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.arrays._indexing import row_numbers
from tf_pfor.converters.math._families import shifted_axes, with_n
from tf_pfor.converters.math._xla import (
    in_front,
    message,
    numbers_of,
    of_shape,
    renumber,
    require_invariant,
)
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, stacked_dims
from tf_pfor.core.values import Value


@RegisterPFor("XlaPad", ANY)
def xla_pad(call: Call, input: Value, padding_value: Value, *amounts: Value) -> Any:
    """No padding along the loop. Values of the row are filled in where the padding is."""
    names = ("padding_low", "padding_high", "padding_interior")
    require_invariant(call, *names)
    emit, rank = call.emit, call.require_rank(input)
    behind = {name: in_front(call, name, 0) for name in names}
    if not padding_value.is_stacked:
        return call.rebuild(**behind)
    zero = emit.constant(0, input.dtype)
    numbers = behind if input.is_stacked else {}
    padded = call.rebuild(padding_value=zero, **numbers)
    if not input.is_stacked:
        padded = emit("ExpandDims", padded, np.int32(0))
    ones = emit("Fill", emit.shape_vector([1, *inner_dims(call, input)]), emit.constant(True))
    inside = call.rebuild(input=ones, padding_value=emit.constant(False), **behind)
    values = emit.reshape(padding_value.tensor, [call.loop.length, *[1] * rank])
    return emit("SelectV2", inside, padded, values)


@RegisterPFor("XlaBroadcastHelper", ANY)
def xla_broadcast_helper(call: Call, lhs: Value, rhs: Value, broadcast_dims: Value) -> Any:
    """The side of fewer axes gets axes of size one; behind the loop these are the same."""
    axes = [int(axis) for axis in call.constant("broadcast_dims")]
    ranks = [call.require_rank(side) for side in (lhs, rhs)]
    if not axes or ranks[0] == ranks[1]:
        return [lhs, rhs]
    if axes != sorted(axes) or len(axes) != min(ranks):
        raise CannotVectorize(f"'broadcast_dims' {axes} are not for axes in order")
    small = lhs if ranks[0] < ranks[1] else rhs
    parts: list[Dim] = [1] * max(ranks)
    for axis, size in zip(axes, inner_dims(call, small)):
        parts[axis] = size
    if small.is_stacked:
        made = Value.stacked(call.emit.reshape(small.tensor, [call.loop.length, *parts]))
    else:
        made = Value.unstacked(call.emit.reshape(small.tensor, parts))
    return [made, rhs] if small is lhs else [lhs, made]


# ---------------------------------------------------------------------------
# Gathers and scatters
# ---------------------------------------------------------------------------


@RegisterPFor("XlaDynamicSlice", ANY)
def xla_dynamic_slice(call: Call, input: Value, start_indices: Value, size_indices: Value) -> Any:
    """Slices of all rows at one place are one slice, at places of the row a gather of slices.

    Both ops of XLA move slices that reach over the end.
    """
    require_invariant(call, "size_indices")
    rank = call.require_rank(input)
    if not start_indices.is_stacked:
        sizes = with_n(call, size_indices, "size_indices")
        return call.rebuild(start_indices=in_front(call, "start_indices", 0), size_indices=sizes)
    numbers = message("GatherDimensionNumbers", b"")
    numbers.offset_dims[:] = range(1, rank + 1)
    numbers.index_vector_dim = 1
    lead = 1 if input.is_stacked else 0
    numbers.start_index_map[:] = range(rank + lead)
    begin, sizes = start_indices.tensor, size_indices.tensor
    if input.is_stacked:
        numbers.collapsed_slice_dims[:] = [0]
        begin = call.emit("ConcatV2", [row_numbers(call, begin.dtype, 2), begin], np.int32(1))
        sizes = in_front(call, "size_indices", _one_row(call))
    return call.emit(
        "XlaGather",
        input.tensor,
        begin,
        sizes,
        dimension_numbers=numbers.SerializeToString(),
        indices_are_sorted=False,
    )


@RegisterPFor("XlaGather", ANY, attrs=("dimension_numbers", "indices_are_sorted"))
def xla_gather(call: Call, operand: Value, start_indices: Value, slice_sizes: Value) -> Any:
    """The loop is an axis of the slices, or one of the indices; else rows are gathered from.

    Indices that are sorted in each row are not sorted as a whole.
    """
    require_invariant(call, "slice_sizes")
    axes = numbers_of(call, "GatherDimensionNumbers")
    if operand.is_stacked:
        renumber(axes.start_index_map)
        renumber(axes.collapsed_slice_dims)
        _renumber_batch(axes, "operand_batching_dims")
    if not start_indices.is_stacked:
        renumber(axes.offset_dims, before=[0])
        sizes = with_n(call, slice_sizes, "slice_sizes")
        return call.rebuild(slice_sizes=sizes, dimension_numbers=axes.SerializeToString())
    renumber(axes.offset_dims)
    _renumber_batch(axes, "start_indices_batching_dims")
    changes: dict[str, Any] = {"indices_are_sorted": False}
    if operand.is_stacked:
        axes.collapsed_slice_dims.insert(0, 0)
        axes.start_index_map.insert(0, 0)
        changes["slice_sizes"] = in_front(call, "slice_sizes", _one_row(call))
        changes["start_indices"] = _with_rows(call, start_indices, axes.index_vector_dim)
    axes.index_vector_dim += 1
    return call.rebuild(dimension_numbers=axes.SerializeToString(), **changes)


@RegisterPFor(
    "XlaScatter", ANY, attrs=("update_computation", "dimension_numbers", "indices_are_sorted")
)
def xla_scatter(call: Call, operand: Value, scatter_indices: Value, updates: Value) -> Any:
    """The loop is an axis of the windows; where indices are stacked, rows are scattered to."""
    axes = numbers_of(call, "ScatterDimensionNumbers")
    renumber(axes.scatter_dims_to_operand_dims)
    renumber(axes.inserted_window_dims)
    _renumber_batch(axes, "input_batching_dims")
    changes: dict[str, Any] = {}
    if scatter_indices.is_stacked:
        changes["scatter_indices"] = _with_rows(call, scatter_indices, axes.index_vector_dim)
        changes["indices_are_sorted"] = False
        renumber(axes.update_window_dims)
        _renumber_batch(axes, "scatter_indices_batching_dims")
        axes.scatter_dims_to_operand_dims.insert(0, 0)
        axes.inserted_window_dims.insert(0, 0)
        axes.index_vector_dim += 1
    else:
        renumber(axes.update_window_dims, before=[0])
    numbers = axes.SerializeToString()
    whole, new = call.stacked(operand), call.stacked(updates)
    return call.rebuild(operand=whole, updates=new, dimension_numbers=numbers, **changes)


def _one_row(call: Call) -> int:
    """The number of rows of a slice of one row: 0 if there are no rows."""
    return 0 if call.loop.static_length == 0 else 1


def _renumber_batch(axes: Sequence[int], name: str) -> None:
    """Batch axes of gathers and scatters, which older versions of XLA do not have."""
    if hasattr(axes, name):
        renumber(getattr(axes, name))


def _with_rows(call: Call, indices: Value, axis: int) -> tf.Tensor:
    """The stacked indices with the number of the row in front of each.

    Args:
      call: the call.
      indices: [n, ..., k, ...], or [n, ...] where the axis of a single number is left out.
      axis: the inner axis of the numbers that are one index; the rank where it is left out.
    """
    rank = call.require_rank(indices, "the indices")
    tensor, parts = indices.tensor, stacked_dims(call, indices)
    if axis == rank:
        parts = [*parts, 1]
        tensor = call.emit.reshape(tensor, parts)
    parts[axis + 1] = 1
    rows = row_numbers(call, indices.dtype, len(parts))
    rows = call.emit("BroadcastTo", rows, call.emit.shape_vector(parts))
    return call.emit("ConcatV2", [rows, tensor], np.int32(axis + 1))


# ---------------------------------------------------------------------------
# Hints
# ---------------------------------------------------------------------------


@RegisterPFor("XlaOptimizationBarrier", ANY, attrs=("T",))
def xla_optimization_barrier(call: Call, input: list[Value]) -> Any:
    """Each tensor as it is."""
    made = call.rebuild()
    outputs = made if isinstance(made, list) else [made]
    return [
        Value.stacked(t) if value.is_stacked else Value.unstacked(t)
        for t, value in zip(outputs, input, strict=True)
    ]


@RegisterPFor("XlaSetBound", ANY)
def xla_set_bound(call: Call, input: Value, bound: Value) -> Any:
    """The same number: the bound helps XLA with shapes, and no shape has numbers of the rows."""
    return input


@RegisterPFor("XlaRemoveDynamicDimensionSize XlaSetDynamicDimensionSize", ("input",))
def xla_dynamic_dimension_size(call: Call, input: Value, dim_index: Value, *size: Value) -> Any:
    """The same axis behind the loop: of one size for all rows."""
    shape, axis = input.inner_shape, call.maybe_constant("dim_index")
    made = call.rebuild(dim_index=shifted_axes(call, input, "dim_index"))
    if shape is None or axis is None:
        return made
    return of_shape(call, made, tuple(None if i == axis else d for i, d in enumerate(shape)))


_SHARDING = "_XlaSharding"


@RegisterPFor("XlaSharding", ("input",), attrs=("sharding", "unspecified_dims"))
def xla_sharding(call: Call, input: Value) -> Any:
    """The loop is not divided between devices, the other axes as before."""
    protos: dict[str, Any] = {k: v for k, v in call.attrs.items() if k in call.schema.attr_types}
    for name in {"sharding", _SHARDING}.intersection(call.attrs):
        protos[name] = _tf.attr_value("string", _behind_the_loop(call.attrs[name].s))
    axes = [axis + 1 for axis in call.attr("unspecified_dims")]
    protos["unspecified_dims"] = _tf.attr_value("list(int)", axes)
    return call.emit.create("XlaSharding", [input.tensor], protos, call.op.name).outputs[0]


def _behind_the_loop(text: bytes) -> bytes:
    sharding = message("OpSharding", text)
    if sharding.type in (sharding.REPLICATED, sharding.MAXIMAL, sharding.MANUAL):
        return text
    if sharding.type != sharding.OTHER:
        raise CannotVectorize("the sharding is none of tiles")
    sharding.tile_assignment_dimensions.insert(0, 1)
    return sharding.SerializeToString()
