"""Arrays and lists that are read and written one item at a time, at places that differ by row.

A loop that builds a tree in an array reads and writes item t_i of row i. As one tensor [n, T, ...]
the array would be copied in every trip, and again in every trip of the gradient. Here it is a
TensorList of n * T items, the items of row 0 first (``Layout.BY_ROW``). A read gathers n items, a
write replaces n items in place. A read passes the list on, so that its gradient adds n items to the
gradient of the list, in place. TensorFlow's gradient makes a list of zeros with n items set, and
adds up lists.

``accesses`` says whether a loop variable is used in this way only. ``convert`` vectorizes the ops
that may stand there. ``RowMajorList.standard`` turns such a value into a layout that all converters
know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.loop import Loop
from tf_pfor.core.pending import Packed
from tf_pfor.core.stacked_lists import ListRows, StackedList
from tf_pfor.core.values import (
    Cell,
    Gather,
    Hold,
    Layout,
    Rows,
    Shape,
    Value,
    capturing,
    dims,
    is_static,
    known_dims,
)
from tf_pfor.layouts import repeated
from tf_pfor.layouts.row_reads import as_int32, item_read


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The items of such a list: ``count`` items of one dtype and static shape in each row.

    The count is an int, or a scalar int32 tensor.
    """

    dtype: tf.DType
    shape: tuple[int, ...]
    count: Dim


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowMajorList(Value):
    """A TensorList of the items of row 0, then the items of row 1 ...

    Attributes:
      rows: the rows whose items they are.
      items: the number of items of each row, and their shape.
    """

    layout = Layout.BY_ROW
    is_standard = False

    rows: ListRows
    items: Items

    def standard(self, emit: Emitter) -> Value:
        """The array as a stacked tensor, the list as one of stacked elements."""
        rows, items = self.rows, self.items
        item = np.asarray(items.shape, np.int32)
        flat = emit("TensorListStack", self.tensor, item, element_dtype=items.dtype)
        whole = emit.reshape(flat, [rows.size, items.count, *items.shape])  # [size, T, ...]
        if self.dtype != tf.variant:
            if rows.ids is not None:
                whole = emit("GatherV2", whole, rows.ids, np.int32(0))
            return Value.stacked(whole).with_inner_shape(self.inner_shape)
        rank = len(items.shape) + 2
        turned = emit("Transpose", whole, np.asarray([1, 0, *range(2, rank)], np.int32))
        handle = emit("TensorListFromTensor", turned, emit.shape_vector([rows.size, *items.shape]))
        return StackedList.of(handle, None if rows.ids is None else rows)

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The whole list; which of its rows are meant stands beside it."""
        rows = loop.rows_of_list(self.rows)
        assert rows is not None
        return dataclasses.replace(self, rows=rows)

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """Captured, with what is known of its rows and items."""
        see = capturing(graph, home)
        return RowMajorList(
            self.cell.seen_from(graph, see),
            self.inner_shape,
            self.dtype,
            self.rows.seen_from(graph, home),
            dataclasses.replace(self.items, count=see(self.items.count)),
        )


# More places than this in one read are better read from one tensor.
_MOST = 4

_OUTSIDE = (
    "A loop writes an item that a tensor or a TensorArray does not have, at a place that differs "
    "between iterations: an index is negative or too large (such arrays do not grow)."
)

_LIST_READS = ("TensorListGather", "TensorListGetItem")
_GRADIENT = "TfPforReadByRow"


# ---------------------------------------------------------------------------
# Which loop variables
# ---------------------------------------------------------------------------


def accesses(graph: tf.Graph, position: int) -> list[tf.Tensor] | None:
    """The places at which a loop's body reads and writes a variable, item by item.

    Args:
      graph: the graph of the body.
      position: the position of the variable among inputs and outputs.

    Returns:
      The index tensors, constants left out; None if the body does anything else with it, or
      nothing at all.
    """
    found: list[tf.Tensor] = []
    seen = {_key(graph.inputs[position])}
    todo = [graph.inputs[position]]
    while todo:
        tensor = todo.pop()
        for op in _tf.consumers(tensor):
            if sum(t is tensor for t in op.inputs) != 1 or op.inputs[0] is not tensor:
                return None
            if op.type == "Identity" or _is_write(op):
                seen.add(_key(op.outputs[0]))
                todo.append(op.outputs[0])
            if op.type == "Identity":
                continue
            index = op.inputs[1] if _is_write(op) else _read_index(op)
            if index is None:
                return None
            if isinstance(index, tf.Tensor):
                found.append(index)
    at = [i for i, t in enumerate(graph.outputs) if _key(t) in seen]
    return found if at == [position] and len(seen) > 1 else None


def _key(tensor: tf.Tensor) -> Any:
    return (tensor.op, tensor.value_index)


def _is_write(op: tf.Operation) -> bool:
    if op.type == "TensorListSetItem":
        return not op.get_attr("resize_if_index_out_of_bounds")
    if op.type == "TensorScatterUpdate":
        shape = dims(op.inputs[1])
        return is_static(shape) and len(shape) in (1, 2) and shape[-1] == 1
    return op.type == "TensorListScatterIntoExistingList"


def _read_index(op: tf.Operation) -> Any:
    """The index of a read of a few items; True if it is a constant; None if it is no such read."""
    if op.type == "StridedSlice":
        read = item_read(op)
        if read is None:
            return None
        return read.index if isinstance(read.index, tf.Tensor) else True
    is_gather = (
        op.type == "GatherV2"
        and op.get_attr("batch_dims") == 0
        and _tf.static_value(op.inputs[2]) == 0
    )
    if not is_gather and op.type not in _LIST_READS:
        return None
    shape = dims(op.inputs[1])
    few = shape == () or (is_static(shape) and len(shape) == 1 and shape[0] <= _MOST)
    return op.inputs[1] if few else None


# ---------------------------------------------------------------------------
# From other layouts
# ---------------------------------------------------------------------------


def of_array(value: Value, loop: Loop, emit: Emitter) -> RowMajorList:
    """A stacked tensor [n, T, ...] with static inner shape as n * T items."""
    shape: Any = value.inner_shape
    items = Items(value.dtype, shape[1:], shape[0])
    return _listed(value, value.tensor, items, loop, emit)


def of_items(value: Value, items: tf.Tensor, count: Dim, loop: Loop, emit: Emitter) -> RowMajorList:
    """The stacked list ``value``, whose items are [n, T, ...] of a static shape."""
    shape: Any = dims(items)
    return _listed(value, items, Items(items.dtype, shape[2:], count), loop, emit)


def _listed(
    value: Value, whole: tf.Tensor, items: Items, loop: Loop, emit: Emitter
) -> RowMajorList:
    item = np.asarray(items.shape, np.int32)
    flat = emit.reshape_to(whole, [None, *items.shape])  # [n * T, ...]
    handle = emit("TensorListFromTensor", flat, item)
    rows = ListRows(loop.length)
    return RowMajorList(Cell(handle), value.inner_shape, value.dtype, rows, items)


def in_halves(value: RowMajorList, first: int, emit: Emitter) -> list[tf.Tensor]:
    """A value just made, twice: with the items of the ``first`` rows only, and with the others."""
    items = value.items
    flat, item = value.tensor.op.inputs
    count = emit.dim_math("Mul", first, items.count)
    sizes = emit.shape_vector([count, -1])
    one, other = emit("SplitV", flat, sizes, np.int32(0), num_split=2)
    unset = emit("TensorListReserve", item, emit.as_tensor(count), element_dtype=items.dtype)
    rest = emit("TensorListFromTensor", other, item)
    both = emit("TensorListConcatLists", unset, rest, element_dtype=items.dtype)
    return [emit("TensorListFromTensor", one, item), both]


def of_halves(first: tf.Tensor, rest: tf.Tensor, emit: Emitter) -> tf.Tensor:
    """The whole of what ``in_halves`` has made: what is set in either of them."""
    length = emit("TensorListLength", rest)
    return emit("AddN", [emit("TensorListResize", first, length), rest])


# ---------------------------------------------------------------------------
# Reads and writes
# ---------------------------------------------------------------------------


def convert(call: Call) -> list[Value] | None:
    """The results of an op whose first input is stored by row; None if it needs ``standard``."""
    op, emit = call.op, call.emit
    inputs: Mapping[str, Any] = call.inputs
    found = repeated.convert(call)
    x, *others = [*inputs.values()] or [None]
    if found is not None or not isinstance(x, RowMajorList):
        return found
    if any(isinstance(v, (list, RowMajorList)) for v in others):
        return None
    if op.type == "Identity":
        return [x]
    if op.type == "TensorListLength":
        return [Value.unstacked(emit.as_tensor(x.items.count))]
    access = _Access(x, call.loop, emit)
    index = inputs.get("index", inputs.get("indices"))
    if _is_write(op):
        item = inputs.get("item", inputs.get("updates", inputs.get("tensor")))
        item = call.walker.tile(item)
        return [access.write(index, item, is_column=op.type == "TensorScatterUpdate")]
    if _read_index(op) is None:
        return None
    if op.type != "StridedSlice":
        return [access.read(index, dims(op.outputs[0]))]
    wanted = item_read(op)
    assert wanted is not None
    if isinstance(wanted.index, tf.Tensor):
        index = call.value_of(wanted.index)
    else:
        constant = np.asarray(wanted.index, np.int32)
        index = Value.unstacked(emit.constant(constant), constant=constant)
    if index is None:
        return None
    items = access.read(index, None, from_end=True)
    return [Value.stacked(wanted.cut(items.tensor, emit)).with_inner_shape(dims(op.outputs[0]))]


class _Access:
    """Reads and writes of the items of one value."""

    def __init__(self, value: RowMajorList, loop: Loop, emit: Emitter):
        self.value, self.loop, self.emit = value, loop, emit
        self.rows, self.items = value.rows, value.items
        self._item = np.asarray(self.items.shape, np.int32)

    def read(self, index: Value, inner: Shape, *, from_end: bool = False) -> Value:
        """Item t_i of row i: [n, ...]; or k of them: [n, k, ...]."""
        if index.inner_shape == ():
            made = self._gather(self._refused(*self._places(index.tensor, from_end)))
            return Value.stacked(made).with_inner_shape(inner)
        # One gather for each: the gradient of one that reads an item twice forgets one of them.
        count = known_dims(index.inner_shape)[0]
        each = self.emit("Unpack", index.tensor, num=count, axis=int(index.is_stacked))
        each = each if isinstance(each, list) else [each]
        parts = tuple(self._gather(self._refused(*self._places(t, from_end))) for t in each)

        def pack() -> tf.Tensor:
            if parts:
                return self.emit("Pack", parts, axis=1)
            shape = self.emit.shape_vector([self.loop.length, 0, *self.items.shape])
            return self.emit("Fill", shape, np.zeros((), self.items.dtype.as_numpy_dtype))

        return Packed.deferred(pack, inner, self.items.dtype, parts=parts)

    def _gather(self, places: tf.Tensor) -> tf.Tensor:
        emit, handle = self.emit, self.value.tensor
        items = emit("TensorListGather", handle, places, self._item, element_dtype=self.items.dtype)
        is_here = handle.graph is emit.graph and not _tf.in_body(emit.graph)
        if not is_here or not _tf.may_record_gradients():
            return items
        items, passed, _ = emit.identities([items, handle, places], _GRADIENT)
        _tf.copy_handle_data(handle, passed)
        self.value.cell.pass_on(passed)
        return items

    def write(self, index: Value, item: Value, *, is_column: bool) -> Value:
        """Replaces item t_i of row i, or k of them."""
        emit, at, new = self.emit, index.tensor, item.tensor
        if is_column:  # [n, k, 1] or [n, 1]
            at = emit("Squeeze", at, squeeze_dims=[-1])
        if at.shape.rank != int(index.is_stacked):  # [n, k]: k writes for each row
            at = emit.reshape(self._inside(*self._places(at, many=True)), [-1])
            new = emit.reshape_to(new, [None, *self.items.shape])
        else:
            at = self._inside(*self._places(at))
        made = emit("TensorListScatterIntoExistingList", self.value.tensor, new, at)
        return dataclasses.replace(self.value, cell=Cell(made))

    def _places(
        self, index: tf.Tensor, from_end: bool = False, *, many: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """int32 [n] (or [n, k]): where in the list item ``index`` of each row is.

        And whether the row has this item: the place may be one of another row else.
        """
        emit, index = self.emit, as_int32(index, self.emit)
        count = emit.as_tensor(self.items.count)
        if from_end:
            is_negative = emit("Less", index, np.int32(0))
            index = emit("SelectV2", is_negative, emit("AddV2", index, count), index)
        ids = self.rows.ids
        if ids is None:
            ids = emit("Range", np.int32(0), self.loop.length_tensor, np.int32(1))
        if many:
            ids = emit("ExpandDims", ids, np.int32(1))
        place = emit("AddV2", emit("Mul", ids, count), index)
        is_inside = emit(
            "LogicalAnd",
            emit("GreaterEqual", index, np.int32(0)),
            emit("Less", index, count),
        )
        return place, is_inside

    def _refused(self, place: tf.Tensor, is_inside: tf.Tensor) -> tf.Tensor:
        """The places to read: the kernel refuses -1."""
        return self.emit("SelectV2", is_inside, place, np.int32(-1))

    def _inside(self, place: tf.Tensor, is_inside: tf.Tensor) -> tf.Tensor:
        """The places to write, after a check: the kernel looks at none, and -1 ends the process."""
        with self.emit.graph.as_default():
            check = tf.debugging.Assert(tf.reduce_all(is_inside), [_OUTSIDE])
            with tf.control_dependencies([check]):
                return tf.identity(place)


@tf.RegisterGradient(_GRADIENT)
def _read_gradient(
    op: tf.Operation, items: tf.Tensor, passed: tf.Tensor, _: object
) -> tuple[None, tf.Tensor, None]:
    """The gradient of the list: the gradient ``passed`` of the list passed on, plus ``items``.

    The gradient of the items is [n, ...].
    """
    handle, places = op.inputs[1:]
    of_items = {"element_shape": items.shape[1:], "element_dtype": items.dtype}
    if passed.op.type == "ZerosLike":  # nobody reads on
        length = tf.raw_ops.TensorListLength(input_handle=handle)
        passed = tf.raw_ops.TensorListReserve(num_elements=length, **of_items)
    else:
        items += tf.raw_ops.TensorListGather(input_handle=passed, indices=places, **of_items)
    made = tf.raw_ops.TensorListScatterIntoExistingList(
        input_handle=passed, tensor=items, indices=places
    )
    return None, made, None
