"""Reads of one element of a value whose rows are gathered lazily: ``x[t]`` in a branch or a loop.

Gathering the rows of x first would copy all of x in each trip of a loop. Instead ``x[t]`` becomes
one ``gather_nd(x, [rows, t])``. If t is the same for all rows and x may be differentiated, it
becomes a read of a list of the x[:, t]. The gradient of a slice is as large as x in every trip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._strided_slices import Item, items, spec_of
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.pending import Packed
from tf_pfor.core.values import Cell, RowSource, Stacked, Unstacked, Value, dims

_GRADIENT = "TfPforReadOfRows"
INDEX_DEPTH = 7
"""The kernels of GatherNd and ScatterNd index this many axes."""


def has_policy(call: Call) -> bool:
    """Whether a gather or scatter says what indices out of bounds do (``bad_indices_policy``)."""
    policy = call.attrs.get("bad_indices_policy")
    return policy is not None and policy.s not in (b"", b"DEFAULT")


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


def fuse(call: Call) -> Value | None:
    """A read of one element of a lazily gathered value; None for any other op."""
    op, emit, inputs = call.op, call.emit, call.inputs
    x = inputs.get("input") if op.type == "StridedSlice" else inputs.get("params")
    if not isinstance(x, Stacked):
        return None
    if isinstance(x, Packed) and not x.cell.is_made:
        return _of_parts(op, x.parts, emit)
    if x.source is None:
        return None
    if (x.cell.is_made and x.source.rows is not None) or not x.inner_shape:
        return None
    if x.source.variable is not None and op.type != "StridedSlice":
        return _of_variable(call, x, x.source)
    wanted = item_read(op) if op.type == "StridedSlice" else None
    index = _gather_index(op, inputs) if wanted is None else _index_value(wanted, call)
    if index is None or index.inner_shape != () or not index.is_tensor:
        return None
    if x.source.rows is None and (index.is_stacked or x.source.steps is None):
        return None
    at = as_int32(index.tensor, emit) if wanted is None else _wrapped(x.source, index, emit)
    read = _read(x, x.source, index, at, emit)
    if wanted is not None:
        read = wanted.cut(read, emit)
    return Value.stacked(read).with_inner_shape(dims(op.outputs[0]))


def _of_variable(call: Call, x: Stacked, source: RowSource) -> Value | None:
    """Some items of a loop variable that is updated in place: one GatherNd for all of them."""
    op, emit, index = call.op, call.emit, call.value("indices")
    shape, is_nd = index.inner_shape, op.type == "GatherNd"
    if is_nd and (shape is None or (shape[-1] or INDEX_DEPTH) >= INDEX_DEPTH or has_policy(call)):
        return None
    if shape is None or not (is_nd or _gather_index(op, call.inputs) is index):
        return None
    at, rows = as_int32(call.walker.tile(index).tensor, emit), source.rows
    if not is_nd:
        at = emit("ExpandDims", at, np.int32(-1))
    assert rows is not None
    ids = emit.reshape(rows.get(), [call.loop.length, *[1] * (at.shape.rank - 1)])
    sizes = [call.loop.length, *(emit.dim(at, i) for i in range(1, at.shape.rank - 1)), 1]
    ids = emit("BroadcastTo", ids, emit.shape_vector(sizes))
    read = _gathered(source, emit("ConcatV2", [ids, at], np.int32(-1)), emit)
    return Value.stacked(read).with_inner_shape(dims(op.outputs[0]))


def _gathered(source: RowSource, places: tf.Tensor, emit: Emitter) -> tf.Tensor:
    """The items at ``places``, [n, ..., m].

    Where a tape may record it, later readers get the array that the read passes on. Then the
    gradient of the items is added to the array's in place.
    """
    whole = source.whole.get()
    items = emit("GatherNd", whole, places)
    is_here = whole.graph is emit.graph and not _tf.in_body(emit.graph)
    if source.variable is None or not is_here or not _tf.may_record_gradients():
        return items
    items, passed, _ = emit.identities([items, whole, places], _GRADIENT)
    source.whole.pass_on(passed)
    return items


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, items: tf.Tensor, passed: tf.Tensor, _: object) -> list[Any]:
    """The gradient of the array passed on, with the gradient of the items added."""
    return [None, tf.tensor_scatter_nd_add(passed, op.inputs[2], items), None]


def _of_parts(op: tf.Operation, parts: tuple[tf.Tensor, ...], emit: Emitter) -> Value | None:
    """``x[k]`` of a value of which each x[k] was computed alone: that, and nothing is packed."""
    read = item_read(op) if op.type == "StridedSlice" else None
    if read is None or isinstance(read.index, tf.Tensor):
        return None
    if not -len(parts) <= read.index < len(parts):
        return None
    return Value.stacked(read.cut(parts[read.index], emit)).with_inner_shape(dims(op.outputs[0]))


def _read(x: Value, source: RowSource, index: Value, at: tf.Tensor, emit: Emitter) -> tf.Tensor:
    rows = source.rows
    if index.is_stacked or source.steps is None:
        assert rows is not None
        ids = rows.get()
        if not index.is_stacked:
            at = emit("BroadcastTo", at, emit.shape_of(ids))
        return _gathered(source, emit("Pack", [ids, at], axis=1), emit)
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


def _wrapped(source: RowSource, index: Value, emit: Emitter) -> tf.Tensor:
    """The index as int32, negative ones counted from the end."""
    size = emit.dim(source.whole.get(), 1)
    if index.constant is not None:
        known = int(index.constant)
        if known >= 0 or isinstance(size, int):
            return emit.constant(np.int32(known if known >= 0 else known + size))
        return emit("AddV2", size, np.int32(known))
    at, size = as_int32(index.tensor, emit), emit.as_tensor(size)
    is_negative = emit("Less", at, np.int32(0))
    return emit("SelectV2", is_negative, emit("AddV2", at, size), at)


def as_int32(index: tf.Tensor, emit: Emitter) -> tf.Tensor:
    """An index as int32; one that int32 does not hold stays one that no array has."""
    if index.dtype == tf.int64:
        most = np.iinfo(np.int32)
        index = emit("ClipByValue", index, np.int64(most.min), np.int64(most.max))
    return index if index.dtype == tf.int32 else emit("Cast", index, DstT=tf.int32)


def _gather_index(op: tf.Operation, inputs: Mapping[str, Any]) -> Value | None:
    if op.type != "GatherV2" or op.get_attr("batch_dims") != 0:
        return None
    axis = _tf.static_value(op.inputs[2])
    return inputs["indices"] if axis is not None and int(axis) == 0 else None


def _index_value(read: ItemRead, call: Call) -> Value | None:
    if isinstance(read.index, tf.Tensor):
        return call.value_of(read.index)
    dtype = call.op.inputs[1].dtype
    return Unstacked(Cell(None), (), dtype, np.asarray(read.index, dtype.as_numpy_dtype))


@dataclasses.dataclass(frozen=True, slots=True)
class ItemRead:
    """``x[t]`` or ``x[t, rest]``.

    Attributes:
      index: t: its value if known, else the tensor of the body.
      rest: begin, end, strides and masks of a StridedSlice of all items [n, ...]; None if the whole
        items are asked for.
    """

    index: int | tf.Tensor
    rest: tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]] | None

    def cut(self, items: tf.Tensor, emit: Emitter) -> tf.Tensor:
        """The slice of ``items`` [n, ...] that is asked for."""
        if self.rest is None:
            return items
        begin, end, strides, masks = self.rest
        return emit("StridedSlice", items, begin, end, strides, **masks)


def item_read(op: tf.Operation) -> ItemRead | None:
    """The read of a StridedSlice of one item along the first axis; None if it reads otherwise."""
    strides, rank = _tf.static_value(op.inputs[3]), op.inputs[0].shape.rank
    begin, end = map(_entries, op.inputs[1:3])
    if strides is None or begin is None or end is None or not rank:
        return None
    first, *rest = items(op.get_attr, begin.__getitem__, end.__getitem__, strides, rank)
    if first.kind != "index" or not all(item.is_static for item in rest):
        return None
    if isinstance(first.begin, tf.Tensor) and first.begin.shape.rank != 0:
        return None
    is_whole = all(item.kind == "all" for item in rest)
    return ItemRead(first.begin, None if is_whole else spec_of([Item("all"), *rest]))


def _entries(vector: tf.Tensor) -> list[int | tf.Tensor] | None:
    """The entries of a vector: their values where they are known, else the tensors."""
    known = _tf.static_value(vector)
    if known is not None:
        return known.tolist()
    if vector.op.type != "Pack":
        return None
    values = [_tf.static_value(t) for t in vector.op.inputs]
    return [t if v is None else int(v) for t, v in zip(vector.op.inputs, values)]
