"""Segment reductions and bincounts: n times as many segments, the ids of row i moved by i*k.

An id that is out of range must stay out of range: moved, it would be a segment of another row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import moved_ids, times_n
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.pending import Reshaped
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, unfold
from tf_pfor.core.values import Value, dims

# ---------------------------------------------------------------------------
# Moving ids
# ---------------------------------------------------------------------------


def _count(call: Call, name: str) -> Dim:
    """The scalar input ``name``: a number of segments or bins, the same in all iterations."""
    value = call.value(name)
    if value.is_stacked:
        raise CannotVectorize(f"'{name}', and so the shape, may differ between iterations")
    found = call.maybe_constant(name)
    if found is not None:
        return int(found)
    if value.dtype == tf.int32:
        return value.tensor
    return call.emit("Cast", value.tensor, DstT=tf.int32)


def _moved(call: Call, name: str, count: Dim) -> tf.Tensor:
    """The ids ``name``, flat: [n * k]; ids of row i are in [i*count, (i+1)*count).

    Negative ids become -1 and ids from ``count`` on become n*count, the first id that no row has.

    Args:
      call: the call.
      name: an integer input of any shape, stacked or not.
      count: the number of different ids of a row.
    """
    ids, emit = call.value(name), call.emit
    dtype, rank, n = ids.dtype, call.require_rank(ids, f"'{name}'"), call.loop.static_length
    found = call.maybe_constant(name)
    if found is not None and n is not None and isinstance(count, int):
        rows = np.arange(n).reshape([n, *[1] * rank])
        moved = np.where(found < 0, -1, np.where(found >= count, n * count, found + rows * count))
        return emit.constant(moved.reshape([-1]), dtype)
    return emit("Reshape", moved_ids(call, ids, count), [-1])


def _split(call: Call, tensor: tf.Tensor, count: Dim) -> Value:
    """[n*count, rest] -> [n, count, rest], the Reshape made when needed."""
    rest = dims(tensor)
    if rest is None:
        raise CannotVectorize("the rank of the data is unknown")
    static = count if isinstance(count, int) else None
    inner = (static, *rest[1:])

    def make() -> tf.Tensor:
        tail: list[Dim] = [
            call.emit.dim(tensor, i + 1) if d is None else d for i, d in enumerate(rest[1:])
        ]
        return call.emit.reshape(tensor, [call.loop.length, count, *tail])

    return Reshaped.deferred(make, inner, tensor.dtype, elements=tensor)


# ---------------------------------------------------------------------------
# Unsorted and sorted segments
# ---------------------------------------------------------------------------


@RegisterPFor(
    "SegmentMaxV2 SegmentMinV2 SegmentProdV2 SegmentSumV2 UnsortedSegmentMax UnsortedSegmentMin "
    "UnsortedSegmentProd UnsortedSegmentSum",
    ANY,
)
@RegisterPFor("UnsortedSegmentJoin", ANY, attrs=("separator",))
def segment_of_number(call: Call, data: Value, segment_ids: Value, num_segments: Value) -> Any:
    """[n*k..., rest] by moved ids into n*num segments. A negative id drops its entry.

    Sorted ids stay sorted. For texts an id that is out of range is an error of the kernel.
    """
    count, (name, *_) = _count(call, "num_segments"), call.inputs
    flat = fold(call, data, call.require_rank(segment_ids, "'segment_ids'"))
    made = call.rebuild(
        **{name: flat},
        segment_ids=_moved(call, "segment_ids", count),
        num_segments=times_n(call, count, num_segments.dtype),
    )
    return _split(call, made, count)


def _sorted_count(call: Call) -> Dim:
    """The number of segments of sorted, loop-invariant ids: the last one plus one."""
    ids = call.value("segment_ids")
    if ids.is_stacked:
        raise CannotVectorize("the number of segments may differ between iterations")
    found = call.maybe_constant("segment_ids")
    if found is not None:
        return int(found[-1]) + 1 if len(found) else 0
    shape = call.output_shape()
    if shape is not None and shape[0] is not None:
        return shape[0]
    emit = call.emit
    last = emit("Max", ids.tensor, np.int32(0))  # the lowest integer when there are none
    last = emit("Maximum", last, emit.constant(-1, ids.dtype))
    if ids.dtype != tf.int32:
        last = emit("Cast", last, DstT=tf.int32)
    return emit("AddV2", last, emit.constant(1, tf.int32))


@RegisterPFor("SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum", ANY)
def sorted_segment(call: Call, data: Value, segment_ids: Value) -> Any:
    """[n*k, rest] by moved ids, which are still sorted."""
    count = _sorted_count(call)
    made = call.rebuild(data=fold(call, data), segment_ids=_moved(call, "segment_ids", count))
    return _split(call, made, count)


# ---------------------------------------------------------------------------
# Sparse segments
# ---------------------------------------------------------------------------


@RegisterPFor(
    "SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN "
    "SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments",
    ANY,
    attrs=("sparse_gradient",),
)
def sparse_segment(
    call: Call, data: Value, indices: Value, segment_ids: Value, number: Value | None = None
) -> Any:
    """Rows of [n*r, rest] by moved indices, into segments by moved ids."""
    count = _sorted_count(call) if number is None else _count(call, "num_segments")
    if data.is_stacked:
        at = _moved(call, "indices", inner_dims(call, data)[0])
        changes = {"data": fold(call, data), "indices": at}
    else:
        changes = {"indices": call.emit("Reshape", call.stacked(indices), [-1])}
    if number is not None:
        changes["num_segments"] = times_n(call, count, number.dtype)
    made = call.rebuild(**changes, segment_ids=_moved(call, "segment_ids", count))
    return _split(call, made, count)


@RegisterPFor("SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGrad", ANY)
def sparse_segment_grad(
    call: Call, grad: Value, indices: Value, segment_ids: Value, output_dim0: Value
) -> Any:
    """The gradient of the table [n*r, rest]: moved indices, moved ids."""
    count = _count(call, "output_dim0")
    segments = inner_dims(call, grad)[0]
    made = call.rebuild(
        grad=fold(call, grad),
        indices=_moved(call, "indices", count),
        segment_ids=_moved(call, "segment_ids", segments),
        output_dim0=times_n(call, count, output_dim0.dtype),
    )
    return _split(call, made, count)


# ---------------------------------------------------------------------------
# Counting
# ---------------------------------------------------------------------------


def _rows(call: Call, value: Value) -> tf.Tensor:
    """[n, ...] -> [n, all the rest]."""
    parts = inner_dims(call, value)
    total: Dim = 1
    for p in parts:
        if isinstance(total, int) and isinstance(p, int):
            total *= p
        else:
            total = call.emit("Mul", call.emit.as_tensor(total), call.emit.as_tensor(p))
    if not value.is_stacked:
        value = Value.stacked(call.stacked(value))
    return call.emit.reshape(value.any_form, [call.loop.length, total])


def _weights(call: Call, weights: Value) -> Any:
    """Weights for every entry as [n, k], or none at all."""
    if weights.inner_shape is None or None in weights.inner_shape:
        raise CannotVectorize("the shape of the weights is unknown")
    if 0 in weights.inner_shape:
        return call.emit.constant(np.zeros([0]), weights.dtype)
    return _rows(call, weights)


@RegisterPFor("Bincount", ANY)
def bincount(call: Call, arr: Value, size: Value, weights: Value) -> Any:
    """DenseBincount counts the rows of a matrix apart."""
    if size.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    return call.emit("DenseBincount", _rows(call, arr), size.tensor, _weights(call, weights))


@RegisterPFor("DenseBincount", ANY, attrs=("binary_output",))
def dense_bincount(call: Call, input: Value, size: Value, weights: Value) -> Any:
    """The kernel counts the rows of a matrix apart: [n, k], or [n*b, k]."""
    if size.is_stacked:
        known = call.walker.bounds.constant(call.op.inputs[1])
        if known is None:
            raise CannotVectorize("the number of bins, and so the shape, may differ")
        inputs = {**call.inputs, "size": Value.unstacked(call.emit.constant(known))}
        return dense_bincount(call.again(call.op, inputs), input, inputs["size"], weights)
    rank = call.require_rank(input)
    if rank == 1:
        return call.rebuild(input=_rows(call, input), weights=_weights(call, weights))
    if not input.is_stacked:
        input = Value.stacked(call.stacked(input)).with_inner_shape(input.inner_shape)
    flat = _weights(call, weights)
    if flat.shape.rank == 2:
        flat = fold(call, Value.stacked(call.stacked(weights)))
    return unfold(call, call.rebuild(input=fold(call, input), weights=flat), input)


@RegisterPFor("HistogramFixedWidth", ANY, attrs=("dtype",))
def histogram_fixed_width(call: Call, values: Value, value_range: Value, nbins: Value) -> Any:
    """The kernel's arithmetic, in float64, and DenseBincount. An empty range makes a NaN bin."""
    emit, dtype, wide = call.emit, values.dtype, tf.float64
    if nbins.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    x = _rows(call, values) if values.is_stacked else emit("Reshape", values.tensor, [-1])
    lead = 1 if value_range.is_stacked else 0
    low, high = (
        emit(
            "StridedSlice",
            value_range.tensor,
            [0, i][1 - lead :],
            [0, i + 1][1 - lead :],
            [1] * (1 + lead),
            begin_mask=lead,
            end_mask=lead,
        )
        for i in (0, 1)
    )
    bins = emit("Cast", nbins.tensor, DstT=wide)
    span = emit("Sub", high, low)
    nothing = emit.constant(np.nan, wide)
    is_range = emit("Greater", span, emit.constant(0, dtype))
    step = emit("SelectV2", is_range, emit("RealDiv", emit("Cast", span, DstT=wide), bins), nothing)
    above = emit("Sub", emit("Maximum", x, low), low)
    place = emit("RealDiv", emit("Cast", above, DstT=wide), step)
    last = emit("Sub", bins, emit.constant(1, wide))
    at = emit("Cast", emit("Minimum", place, last), DstT=tf.int32)
    none = emit.constant(np.zeros([0]), call.output_dtype())
    return emit("DenseBincount", at, nbins.tensor, none)
