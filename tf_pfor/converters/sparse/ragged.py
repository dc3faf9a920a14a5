"""Ragged tensors that become dense ones of a given shape.

Where the shape depends on the data the op runs row by row (``uneven_regions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, product
from tf_pfor.core.values import Value


@RegisterPFor("RaggedTensorToTensor", ANY, attrs=("row_partition_types",))
def ragged_to_tensor(
    call: Call,
    shape: Value,
    values: Value,
    default_value: Value,
    row_partition_tensors: list[Value],
) -> Any:
    """A gather from the values; the default stands behind them, for items that a row lacks.

    Level by level the splits say where the items of row r begin and end. Item c of row r is at
    splits[r] + c, if this is below splits[r + 1].
    """
    if any(kind != "ROW_SPLITS" for kind in call.attr("row_partition_types")):
        raise CannotVectorize("the rows are given by the numbers of their values")
    if values.inner_shape is None:
        raise CannotVectorize("the rank of the values is unknown")
    sizes = _sizes(call, row_partition_tensors)
    count, *rest = inner_dims(call, values)
    levels = _checked(call, row_partition_tensors, count)
    at = _places(call, levels, sizes, count)  # [n, s0, ..., sL], or without n
    source = _with_default(call, values, default_value, count, rest)  # [n, k + 1, ...]
    total: list[Dim] = [product(call, sizes)]
    flat = at.tensor
    flat = call.emit.reshape(flat, [call.loop.length, *total] if at.is_stacked else total)
    if source.is_stacked:
        batch = int(at.is_stacked)
        made = call.emit("GatherV2", source.tensor, flat, np.int32(1), batch_dims=batch)
    else:
        made = call.emit("GatherV2", source.tensor, flat, np.int32(0))
    return call.like(call.emit.reshape(made, [call.loop.length, *sizes, *rest]))


def _sizes(call: Call, levels: Sequence[Value]) -> list[int]:
    """The dense sizes of the ragged dimensions."""
    found = call.maybe_constant("shape")
    if found is None or found.ndim == 0 or len(found) <= len(levels):
        raise CannotVectorize("the shape is not given, and the longest rows may differ")
    sizes = [int(d) for d in found[: len(levels) + 1]]
    if sizes[0] < 0:
        rows = levels[0].inner_shape
        if rows is None or rows[0] is None:
            raise CannotVectorize("the number of rows is unknown")
        sizes[0] = rows[0] - 1
    if any(d < 0 for d in sizes):
        raise CannotVectorize("the shape is not given, and the longest rows may differ")
    return sizes


def _checked(call: Call, levels: Sequence[Value], count: Dim) -> list[Value]:
    """The splits, which must begin with 0 and not decrease, as the kernel demands.

    Nor may they end behind what they split: there the kernel would read what lies in memory.
    """
    out: list[Value] = []
    emit = call.emit
    limits = [emit.dim_math("Sub", inner_dims(call, x)[0], 1) for x in levels[1:]]
    for splits, limit in zip(levels, [*limits, count]):
        tensor: Any = splits.tensor  # the stubs know no ...
        end = as_dtype(call, limit, splits.dtype)
        with emit.graph.as_default():
            bad = [tensor[..., 1:] < tensor[..., :-1], tensor[..., :1] != 0, tensor[..., -1:] > end]
            is_good = tf.logical_not(tf.reduce_any(tf.concat(bad, -1)))
            check = tf.debugging.Assert(is_good, ["Invalid row splits", tensor])
            with tf.control_dependencies([] if check is None else [check]):
                tensor = tf.identity(tensor)
        new = Value.stacked(tensor) if splits.is_stacked else Value.unstacked(tensor)
        out.append(new.with_inner_shape(splits.inner_shape))
    return out


def _places(call: Call, levels: Sequence[Value], sizes: Sequence[int], count: Dim) -> Value:
    """The positions among the values, [n, s0, ..., sL]; ``count``, behind them, for none."""
    emit, dtype = call.emit, levels[0].dtype
    rows = as_dtype(call, inner_dims(call, levels[0])[0], dtype)
    at = emit.constant(np.arange(sizes[0]), dtype)  # [s0]
    is_there = emit("Less", at, emit("Sub", rows, emit.constant(1, dtype)))
    place, stacked = at, False
    for splits, size in zip(levels, sizes[1:]):
        place = emit("SelectV2", is_there, place, emit.constant(0, dtype))
        ends = _padded(call, splits)  # [n, r + 2]
        after = emit("AddV2", place, emit.constant(1, dtype))
        start, end = (_read(call, ends, x, stacked, splits.is_stacked) for x in (place, after))
        stacked = stacked or splits.is_stacked
        start, end, is_there = (emit("ExpandDims", x, np.int32(-1)) for x in (start, end, is_there))
        place = emit("AddV2", start, emit.constant(np.arange(size), dtype))
        is_there = emit("LogicalAnd", is_there, emit("Less", place, end))
    limit = as_dtype(call, count, dtype)
    is_there = emit("LogicalAnd", is_there, emit("Less", place, limit))
    place = emit("SelectV2", is_there, place, limit)
    return Value.stacked(place) if stacked else Value.unstacked(place)


def _padded(call: Call, splits: Value) -> tf.Tensor:
    """The splits and a zero: two entries also where there is no row."""
    lead: list[Dim] = [call.loop.length] if splits.is_stacked else []
    zero = call.emit(
        "Fill", call.emit.shape_vector([*lead, 1]), call.emit.constant(0, splits.dtype)
    )
    return call.emit("ConcatV2", [splits.tensor, zero], -1)


def _read(
    call: Call, splits: tf.Tensor, at: tf.Tensor, at_stacked: bool, splits_stacked: bool
) -> tf.Tensor:
    axis, batch = int(splits_stacked), int(at_stacked and splits_stacked)
    return call.emit("GatherV2", splits, at, np.int32(axis), batch_dims=batch)


def _with_default(
    call: Call, values: Value, default: Value, count: Dim, rest: Sequence[Dim]
) -> Value:
    """The values, and the default behind them: [n, k + 1, ...]."""
    stacked = values.is_stacked or default.is_stacked
    whole = call.stacked(values) if stacked else values.tensor
    lead: list[Dim] = [call.loop.length] if stacked else []
    last = default.tensor
    if default.is_stacked:  # [n, d...] -> [n, 1, ..., d...]
        inner, rank = inner_dims(call, default), call.require_rank(default)
        last = call.emit.reshape(last, [*lead, *[1] * (1 + len(rest) - rank), *inner])
    last = call.emit("BroadcastTo", last, call.emit.shape_vector([*lead, 1, *rest]))
    made = call.emit("ConcatV2", [whole, last], len(lead))
    return Value.stacked(made) if stacked else Value.unstacked(made)
