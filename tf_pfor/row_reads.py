"""Reads of one element of a value whose rows are gathered lazily: ``x[t]`` in a branch or a loop.

Gathering the rows of x first would copy all of x in each trip of a loop. Instead ``x[t]`` becomes
one ``gather_nd(x, [rows, t])``; and where t is the same for all rows and x may be differentiated,
a read of a list of the x[:, t], since the gradient of a slice is as large as x in every trip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.emit import Emitter
from tf_pfor.values import Cell, Layout, RowSource, Value, dims, is_static

Find = Callable[[tf.Tensor], Value | None]


def steps_of(value: Value, emit: Emitter) -> Cell | None:
    """The list of the ``x[:, t]`` of a stacked value, made when first read."""
    shape = value.inner_shape
    if shape is None or not shape or not (value.dtype.is_floating or value.dtype.is_complex):
        return None

    def make() -> tf.Tensor:
        whole = value.tensor  # [n, T, ...]
        rank = len(shape) + 1
        turned = emit("Transpose", whole, np.asarray([1, 0, *range(2, rank)], np.int32))
        return emit("TensorListFromTensor", turned, _element_shape(whole))

    return Cell(None, make)


def fuse(op: tf.Operation, inputs: Mapping[str, Any], emit: Emitter, find: Find) -> Value | None:
    """The read ``op`` of one element of a lazily gathered value, or None if it is none."""
    x = inputs.get("input") if op.type == "StridedSlice" else inputs.get("params")
    if not isinstance(x, Value) or x.source is None or x.layout is not Layout.STACKED:
        return None
    if (x.cell.is_made and x.source.rows is not None) or not x.inner_shape:
        return None
    index = _slice_value(op, find) if op.type == "StridedSlice" else _gather_index(op, inputs)
    if index is None or index.inner_shape != () or index.layout not in (
        Layout.STACKED, Layout.UNSTACKED,
    ):  # fmt: skip
        return None
    read = _read(x, x.source, index, emit)
    return None if read is None else Value.stacked(read).with_inner_shape(x.inner_shape[1:])


def _read(x: Value, source: RowSource, index: Value, emit: Emitter) -> tf.Tensor | None:
    rows = source.rows
    if index.is_stacked or source.steps is None:
        if rows is None:
            return None
        at = _wrapped(x, index, emit)
        ids = rows.get()
        if not index.is_stacked:
            at = emit("BroadcastTo", at, emit.shape_of(ids))
        whole = source.whole.get()
        return emit("GatherNd", whole, emit("Pack", [ids, at], axis=1))
    at = _wrapped(x, index, emit)
    element = emit(
        "TensorListGetItem",
        source.steps.get(),
        at,
        _element_shape(source.whole.get()),
        element_dtype=x.dtype,
    )  # [N, ...]
    if dims(element) is None and x.inner_shape is not None:
        shape = dims(source.whole.get())
        element.set_shape([None if shape is None else shape[0], *x.inner_shape[1:]])
    return element if rows is None else emit("GatherV2", element, rows.get(), np.int32(0))


def _element_shape(whole: tf.Tensor) -> tf.Tensor | np.ndarray:
    shape = dims(whole)
    if shape is None:
        return np.asarray(-1, np.int32)
    return np.asarray([-1 if d is None else d for i, d in enumerate(shape) if i != 1], np.int32)


def _wrapped(x: Value, index: Value, emit: Emitter) -> tf.Tensor:
    """The index as int32, negative ones counted from the end."""
    if index.constant is not None and int(index.constant) >= 0:
        return emit.constant(np.int32(index.constant))
    at = index.tensor
    if at.dtype != tf.int32:
        at = emit("Cast", at, DstT=tf.int32)
    assert x.source is not None
    size = emit.as_tensor(emit.dim(x.source.whole.get(), 1))
    is_negative = emit("Less", at, np.int32(0))
    return emit("SelectV2", is_negative, emit("AddV2", at, size), at)


def _gather_index(op: tf.Operation, inputs: Mapping[str, Any]) -> Value | None:
    if op.type != "GatherV2" or op.get_attr("batch_dims") != 0:
        return None
    axis = _tf.static_value(op.inputs[2])
    return inputs["indices"] if axis is not None and int(axis) == 0 else None


def _slice_value(op: tf.Operation, find: Find) -> Value | None:
    found = slice_index(op)
    if isinstance(found, np.ndarray):
        return Value(Layout.UNSTACKED, Cell(None), (), op.inputs[1].dtype, constant=found)
    return None if found is None else find(found)


def slice_index(op: tf.Operation) -> np.ndarray | tf.Tensor | None:
    """t, where the op is ``x[t]``, ``x[t, :]``, ``x[t, ...]``: its value if known, else the tensor.

    Args:
      op: a StridedSlice of the body.
    """
    length = dims(op.inputs[1])
    strides = _tf.static_value(op.inputs[3])
    if not is_static(length) or strides is None or strides[0] != 1:
        return None
    count = length[0]  # type: ignore[index]
    shrink, new = op.get_attr("shrink_axis_mask"), op.get_attr("new_axis_mask")
    begin, end, dots = (op.get_attr(f"{k}_mask") for k in ("begin", "end", "ellipsis"))
    if not shrink & 1 or (begin | end | dots) & 1 or shrink >> 1 or new:
        return None
    for k in range(1, count):  # type: ignore[arg-type]
        bit = 1 << k
        if not dots & bit and not (begin & end & bit and strides[k] == 1):
            return None
    starts = op.inputs[1]
    known = _tf.static_value(starts)
    if known is not None:
        return np.asarray(known[0])
    if starts.op.type == "Pack" and starts.op.inputs[0].shape.rank == 0:
        return starts.op.inputs[0]
    return None
