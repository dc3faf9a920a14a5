"""Sets, counts and distances of sparse and ragged tensors with as many entries in all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype, moved_ids, row_numbers, times_n, with_row
from tf_pfor.converters.math._families import with_n
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims
from tf_pfor.core.values import Value


def _rank(indices: Value) -> int:
    shape = indices.inner_shape
    if shape is None or len(shape) != 2 or shape[1] is None:
        raise CannotVectorize("the number of axes of the sparse tensor is unknown")
    return shape[1]


def _places(call: Call, indices: Value) -> tf.Tensor:
    """[n, k, m] -> [n*k, 1 + m], with the row in front."""
    width = np.asarray([-1, _rank(indices) + 1], np.int32)
    return call.emit("Reshape", with_row(call, indices), width)


def _full(call: Call, name: str) -> tf.Tensor:
    """The dense shape with n in front."""
    shape = call.inputs[name]
    assert isinstance(shape, Value)
    if shape.is_stacked:
        raise CannotVectorize(f"'{name}' may differ between iterations")
    return with_n(call, shape, name)


@RegisterPFor("SetSize", ANY, attrs=("validate_indices",))
def set_size(call: Call, set_indices: Value, set_values: Value, set_shape: Value) -> Any:
    """One more leading axis."""
    made = call.rebuild(
        set_indices=_places(call, set_indices),
        set_values=fold(call, set_values),
        set_shape=_full(call, "set_shape"),
    )
    known = call.maybe_constant("set_shape")  # the shape function of the op knows no rank
    inner = [None] * (_rank(set_indices) - 1) if known is None else known[:-1].tolist()
    made.set_shape([call.loop.static_length, *inner])
    return made


@RegisterPFor("EditDistance", ANY, attrs=("normalize",))
def edit_distance(
    call: Call,
    hypothesis_indices: Value,
    hypothesis_values: Value,
    hypothesis_shape: Value,
    truth_indices: Value,
    truth_values: Value,
    truth_shape: Value,
) -> Any:
    """One more leading axis."""
    emit, rank = call.emit, _rank(hypothesis_indices)
    more = emit.constant(np.asarray([1, *[0] * rank], np.int64))  # it refuses to have no rows
    made = call.rebuild(
        hypothesis_indices=_places(call, hypothesis_indices),
        hypothesis_values=fold(call, hypothesis_values),
        hypothesis_shape=emit("AddV2", _full(call, "hypothesis_shape"), more),
        truth_indices=_places(call, truth_indices),
        truth_values=fold(call, truth_values),
        truth_shape=emit("AddV2", _full(call, "truth_shape"), more),
    )
    size = emit.shape_vector([call.loop.length, *[-1] * (rank - 1)])
    return call.like(emit("Slice", made, np.zeros([rank], np.int32), size))


def _weights(call: Call, weights: Value) -> tf.Tensor:
    """A weight for each entry of all rows, or none at all."""
    if weights.inner_shape is None or None in weights.inner_shape:
        raise CannotVectorize("the shape of the weights is unknown")
    if 0 in weights.inner_shape:
        return call.emit.constant(np.zeros([0]), weights.dtype)
    return fold(call, weights)


@RegisterPFor("SparseBincount", ANY, attrs=("binary_output",))
def sparse_bincount(
    call: Call, indices: Value, values: Value, dense_shape: Value, size: Value, weights: Value
) -> Any:
    """The kernel counts the rows of a matrix apart: [n, k], or [n*b, k]."""
    if size.is_stacked or dense_shape.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    emit, rank = call.emit, _rank(indices)
    changes: dict[str, Any] = {"values": fold(call, values), "weights": _weights(call, weights)}
    if rank == 1:
        full = with_n(call, dense_shape, "dense_shape")
        return call.rebuild(indices=_places(call, indices), dense_shape=full, **changes)
    at = Value.stacked(call.stacked(indices)).with_inner_shape(indices.inner_shape)
    parts = [
        emit("StridedSlice", dense_shape.tensor, [k], [k + 1], [1], shrink_axis_mask=1)
        for k in (0, 1)
    ]
    rows, columns = (
        emit(
            "StridedSlice",
            at.tensor,
            [0, 0, k],
            [0, 0, k + 1],
            [1, 1, 1],
            begin_mask=3,
            end_mask=3,
            shrink_axis_mask=4,
        )
        for k in (0, 1)
    )
    moved = moved_ids(call, Value.stacked(rows), parts[0])
    places = emit("Reshape", emit("Pack", [moved, columns], axis=-1), np.asarray([-1, 2], np.int32))
    total = times_n(call, parts[0], tf.int64)
    made = call.rebuild(
        indices=places, dense_shape=emit("Pack", [total, parts[1]], axis=0), **changes
    )
    inner = [as_dtype(call, p, tf.int32) for p in (parts[0], size.tensor)]
    return call.like(emit.reshape(made, [call.loop.length, *inner]))


@RegisterPFor("RaggedBincount", ANY, attrs=("binary_output",))
def ragged_bincount(call: Call, splits: Value, values: Value, size: Value, weights: Value) -> Any:
    """The ragged rows of all rows, one behind the other: [n*b, bins]."""
    if size.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    emit = call.emit
    (count,), (many,) = inner_dims(call, values), inner_dims(call, splits)
    first = emit("Mul", row_numbers(call, tf.int64, 2), as_dtype(call, count, tf.int64))
    ends = emit("AddV2", call.stacked(splits), first)  # [n, b + 1]
    ends = emit("Reshape", emit("Slice", ends, [0, 1], [-1, -1]), [-1])
    zero = emit.constant(np.zeros([1], np.int64))
    made = call.rebuild(
        splits=emit("ConcatV2", [zero, ends], np.int32(0)),
        values=fold(call, values),
        weights=_weights(call, weights),
    )
    rows = emit.dim_math("Sub", many, 1)
    bins = as_dtype(call, size.tensor, tf.int32)
    return call.like(emit.reshape(made, [call.loop.length, rows, bins]))
