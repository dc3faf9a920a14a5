"""Lists that hold the same loop-invariant tensor in all places (``Layout.REPEATED``).

The gradient of a loop keeps the tensors that each trip read, also a weight that no trip changes.
Such a list is the tensor and a count. ``convert`` vectorizes the ops that need no more; for all
other ops ``RepeatedList.standard`` makes the list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.stacked_lists import ListRows, StackedList
from tf_pfor.core.values import Cell, Gather, Hold, Layout, Rows, Value, dims, is_static

# Marks the ops of ``first_item``: a map around may see such a list once more.
_FIRST = "_pfor_first_item"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RepeatedList(Value):
    """A TensorList that holds ``item``, loop-invariant, in each of ``count`` places; no tensor.

    The count is an int32 scalar, stacked where the lists of the rows differ in length.
    """

    layout = Layout.REPEATED
    is_standard = False

    item: Value
    count: Value

    @classmethod
    def of(cls, item: Value, count: Value) -> RepeatedList:
        """``count`` times ``item``."""
        return cls(Cell(None), (), tf.variant, item, count)

    def standard(self, emit: Emitter) -> Value:
        """The list itself: unstacked where it has one length, else of stacked elements."""
        item, count = self.item.tensor, self.count.tensor
        shape = dims(item)
        known = np.asarray(shape, np.int32) if is_static(shape) else emit.shape_of(item)
        if not self.count.is_stacked:
            whole = _repeated(item, known, [count], emit)  # [T, ...]
            return Value.unstacked(emit("TensorListFromTensor", whole, known))
        n = emit.dim(count, 0)
        none = emit("Sub", np.int32(1), emit("Minimum", emit.as_tensor(n), np.int32(1)))
        lengths = emit("ConcatV2", [count, emit.shape_vector([none])], np.int32(0))
        longest = emit("Max", lengths, np.asarray([0], np.int32))  # 1 where there is no row
        whole = _repeated(item, known, [longest, n], emit)  # [T, n, ...]
        element = emit("ConcatV2", [emit.shape_vector([n]), known], np.int32(0))
        made = emit("TensorListFromTensor", whole, element)
        return StackedList.of(made, ListRows(n, lengths=count))

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The same item, as often as the rows of ``loop`` have it."""
        return RepeatedList.of(self.item.select(loop), self.count.select(loop))

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """The same item, seen from there."""
        return RepeatedList.of(self.item.seen_from(graph), self.count.seen_from(graph))


def convert(call: Call) -> list[Value] | None:
    """The results of an op that reads such a list; None if it needs ``standard``."""
    op, emit = call.op, call.emit
    given = next(iter(call.inputs.values()), None)
    if not isinstance(given, RepeatedList):
        return None
    if op.type == "Identity":
        return [given]
    if op.type in ("TensorListResize", "TensorListGetItem") and _FIRST in _tf.attr_map(op):
        return [given if op.type == "TensorListResize" else given.item]
    if op.type == "TensorListLength":
        return [given.count]
    if op.type == "TensorListPopBack":
        return [RepeatedList.of(given.item, added(given.count, -1, emit)), given.item]
    if op.type == "TensorListElementShape" and is_static(given.item.inner_shape):
        shape = np.asarray(given.item.inner_shape, op.outputs[0].dtype.as_numpy_dtype)
        return [Value.unstacked(emit.constant(shape), constant=shape)]
    return None


def first_item(
    handle: tf.Tensor, count: tf.Tensor, shape: Sequence[int], dtype: tf.DType, emit: Emitter
) -> tf.Tensor:
    """The item of a list of one tensor, which is not copied; zeros where the list is empty.

    Only a loop that makes as many trips as the list is long may read it.
    """
    marked = _tf.attr_value("bool", True)
    types = {"element_dtype": emit.type_attr(dtype), _FIRST: marked}
    room = emit("Maximum", count, emit.constant(np.int32(1)))
    some = emit.create("TensorListResize", [handle, room], {_FIRST: marked}).outputs[0]
    where = [emit.constant(np.int32(0)), emit.constant(np.asarray(shape, np.int32))]
    return emit.create("TensorListGetItem", [some, *where], types).outputs[0]


def added(count: Value, step: int, emit: Emitter) -> Value:
    """``count`` plus ``step``."""
    tensor = emit("AddV2", count.tensor, np.int32(step))
    return Value.stacked(tensor) if count.is_stacked else Value.unstacked(tensor)


def _repeated(item: tf.Tensor, shape: Any, lead: list[Any], emit: Emitter) -> tf.Tensor:
    return emit(
        "BroadcastTo", item, emit("ConcatV2", [emit.shape_vector(lead), shape], np.int32(0))
    )
