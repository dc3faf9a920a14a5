"""Lists and optionals that all rows share, made again with a copy for each row.

This is done only where their making cannot be seen (``_lists.stack_list``): they come out of a
function, a loop or a container. Everything in them is repeated; containers hold packs then
(``_row_packs``). Lists of lists of all rows hold packs, too, once they get a list of some rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.analysis._variant_types import ITEM, Kind, Path, kind_of
from tf_pfor.converters.lists._list_lengths import is_full, list_length
from tf_pfor.converters.lists._optional_values import as_kept, item_at, list_of
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.stacked_lists import Holds, ListRows, StackedList, known_rows, rows_of
from tf_pfor.core.values import Value
from tf_pfor.layouts.padded_lists import padded_stack, unpadded


def repeated(call: Call, handle: tf.Tensor) -> Value:
    """The list or optional ``handle`` with all that is in it repeated: [n, ...]."""
    if handle.shape.rank not in (0, None):
        raise CannotVectorize("a tensor of lists that all rows share is changed by some rows")
    emit, found, tensor = call.emit, _tf.list_element(handle), in_body(call, handle)
    kind = kind_of(call, tensor)
    if found is not None and kind is None and found[0] != tf.variant:
        kind = found[0]
    if emit.is_trial:  # only the layout is asked for
        is_list = kind == tf.variant and not _tf.in_xla_context(emit.graph)
        rows = ListRows(call.loop.length, holds=Holds(packs=True)) if is_list else None
        return StackedList.of(emit("Placeholder", dtype=tf.variant, shape=[]), rows)
    if not isinstance(kind, tf.DType) or kind == tf.variant:
        return _container(call, handle, tensor, kind)
    if found is not None and found[0] == kind and found[1].is_fully_defined():
        return _repeated_items(call, handle, kind, found[1])
    return _of_unknown_shape(call, handle, kind)


# ---------------------------------------------------------------------------
# Lists of tensors
# ---------------------------------------------------------------------------


def _repeated_items(
    call: Call, handle: tf.Tensor, dtype: tf.DType, element: tf.TensorShape
) -> Value:
    """Items of one static shape: [T, ...] -> [T, n, ...] -> list."""
    emit, size = call.emit, call.loop.length
    shape: list[Any] = element.as_list()
    length = None if is_full(handle, emit) else list_length(call, handle)
    dense = padded_stack(emit, handle, np.asarray(shape, np.int32), dtype)  # [T, ...]
    target = emit.shape_vector([emit.dim(dense, 0), size, *shape])
    spread = emit("BroadcastTo", emit("ExpandDims", dense, np.int32(1)), target)  # [T, n, ...]
    stacked = emit.shape_vector([size, *shape])
    if length is not None:
        return StackedList.of(_pushed_again(call, handle, spread, stacked, length))
    made = emit("TensorListFromTensor", spread, stacked)
    return StackedList.of(unpadded(emit, made, handle))


def _pushed_again(
    call: Call, handle: tf.Tensor, items: tf.Tensor, element: tf.Tensor, length: tf.Tensor
) -> tf.Tensor:
    """A list with the room of ``handle``, to which the first ``length`` items are pushed."""
    emit = call.emit
    room = emit("TensorListLength", handle)
    empty = emit("EmptyTensorList", element, room, element_dtype=items.dtype)
    if _tf.static_value(length) == 0:
        return empty

    def push(i: tf.Tensor, made: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, tf.raw_ops.TensorListPushBack(input_handle=made, tensor=items[i])

    with emit.graph.as_default():
        return tf.while_loop(
            lambda i, _: i < length, push, (tf.constant(0), empty), maximum_iterations=room
        )[1]


def _of_unknown_shape(call: Call, handle: tf.Tensor, dtype: tf.DType) -> Value:
    """Items of one shape that is not known; an empty list of them cannot be stacked.

    XLA knows the shape, of an empty list too.
    """
    emit, size = call.emit, call.loop.length
    length = None if is_full(handle, emit) else list_length(call, handle)
    with emit.graph.as_default():
        if not _tf.in_xla_context(emit.graph):
            return StackedList.of(_spread(handle, dtype, size))
        if length is None:
            return StackedList.of(_spread_full(handle, dtype, size))
        items = _items(handle, dtype, size)
    return StackedList.of(_pushed_again(call, handle, items, emit.constant(np.int32(-1)), length))


def is_zeros(handle: tf.Tensor) -> bool:
    """Whether a list outside of the body is ZerosLike of another one.

    A tape has a function make such zeros, which stand for the gradient of a list that nobody read.
    """
    if not tf.is_symbolic_tensor(handle):
        return False
    made = source(handle)
    if made.op.type in _tf.CALLS:
        made = source(_tf.functions_of(made.op)[0].outputs[made.value_index])
    return made.op.type == "ZerosLike"


def _items(handle: tf.Tensor, dtype: tf.DType, size: Dim) -> tf.Tensor:
    """The items [T, size, ...] of a list that is not empty, in the current graph."""
    dense = padded_stack(Emitter(), handle, np.int32(-1), dtype)  # [T, ...]
    shape = tf.shape(dense)
    return tf.broadcast_to(tf.expand_dims(dense, 1), tf.concat([shape[:1], [size], shape[1:]], 0))


def _spread_full(handle: tf.Tensor, dtype: tf.DType, size: Dim) -> tf.Tensor:
    """The list of items [size, ...] of a list that is not empty, in the current graph."""
    made = tf.raw_ops.TensorListFromTensor(tensor=_items(handle, dtype, size), element_shape=-1)
    return unpadded(Emitter(), made, handle)


def _spread(handle: tf.Tensor, dtype: tf.DType, size: Dim) -> tf.Tensor:
    """The list of [size, ...] of a list whose items may differ in shape, in the current graph."""
    raw = tf.raw_ops
    count = raw.TensorListLength(input_handle=handle)
    made = raw.TensorListReserve(element_shape=-1, num_elements=count, element_dtype=dtype)

    def step(t: tf.Tensor, made: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        item = raw.TensorListGetItem(
            input_handle=handle, index=t, element_shape=-1, element_dtype=dtype
        )
        return t + 1, raw.TensorListSetItem(input_handle=made, index=t, item=_many(item, size))

    return tf.while_loop(lambda t, _: t < count, step, (0, made), maximum_iterations=count)[1]


# ---------------------------------------------------------------------------
# Containers
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Container:
    """A container that is to be made for rows, with everything in it.

    Attributes:
      call: any op of the body.
      tensor: the container in the body.
      size: the number of rows that its content shall have.
      is_stacked: whether its tensors are [size, ...] already.
    """

    call: Call
    tensor: tf.Tensor
    size: Dim
    is_stacked: bool

    def made(self, handle: tf.Tensor, path: Path = ()) -> tuple[tf.Tensor, tf.Tensor]:
        """A list or an optional in the current graph, and where the list ends (its alternative)."""
        kind = kind_of(self.call, self.tensor, path)
        if kind is None:
            raise CannotVectorize("some rows change a list of which it is not known what it holds")
        if isinstance(kind, tuple):
            return self._optional(handle, kind, path)
        count = tf.raw_ops.TensorListLength(input_handle=handle)
        if kind != tf.variant:
            return handle if self.is_stacked else _spread(handle, kind, self.size), count

        def step(t: tf.Tensor, made: tf.Tensor) -> Any:
            item = self._pack(item_at(handle, t), (*path, ITEM))
            return t + 1, tf.raw_ops.TensorListPushBack(input_handle=made, tensor=item)

        return tf.while_loop(lambda t, _: t < count, step, (0, list_of([])))[1], count

    def _optional(
        self, handle: tf.Tensor, kind: Sequence[Sequence[tf.DType]], path: Path
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The list of all alternatives, and which of them this is."""
        like = [self._structure(types, path, b) for b, types in enumerate(kind)]
        some = [b for b, types in enumerate(kind) if types]
        number = tf.constant(some[0] if some else 0)
        if any(like[b] != like[some[0]] for b in some[1:]):
            number = None if path else _branch_taken(handle, len(kind))
            if number is None:
                raise CannotVectorize(
                    "a loop that all rows share keeps a conditional, of which some rows change "
                    "the gradient"
                )
        else:
            some = some[:1]
        made = [tf.raw_ops.OptionalNone() for _ in kind]
        for b in some:
            is_here = tf.raw_ops.OptionalHasValue(optional=handle)
            made[b] = tf.cond(
                tf.logical_and(is_here, tf.equal(number, b)),
                functools.partial(self._values, handle, kind[b], path, b),
                tf.raw_ops.OptionalNone,
            )
        return list_of(made), number

    def _values(
        self, handle: tf.Tensor, types: Sequence[tf.DType], path: Path, branch: int
    ) -> tf.Tensor:
        """An optional of this alternative."""
        given = tf.raw_ops.OptionalGetValue(
            optional=handle, output_types=list(types), output_shapes=[None] * len(types)
        )
        made = [
            self._pack(v, (*path, (branch, k)))
            if v.dtype == tf.variant
            else as_kept(_many(v, self.size))
            for k, v in enumerate(given)
        ]
        return tf.raw_ops.OptionalFromValue(components=made)

    def _structure(self, types: Sequence[tf.DType], path: Path, branch: int) -> Any:
        """The content of an alternative of an optional, down to the tensors."""

        def of(path: Path) -> Any:
            kind = kind_of(self.call, self.tensor, path)
            if isinstance(kind, tuple):
                return tuple(self._structure(types, path, b) for b, types in enumerate(kind))
            return [of((*path, ITEM))] if kind == tf.variant else kind

        return [
            of((*path, (branch, k))) if d == tf.variant else ("tensor", d)
            for k, d in enumerate(types)
        ]

    def _pack(self, handle: tf.Tensor, path: Path) -> tf.Tensor:
        made, end = self.made(handle, path)
        ends = tf.fill([self.size], tf.cast(end, tf.float64))
        places = tf.cast(tf.range(self.size), tf.float64)
        return tf.raw_ops.OptionalFromValue(components=[made, tf.zeros_like(ends), ends, places])


def _many(tensor: tf.Tensor, size: Dim) -> tf.Tensor:
    """[size, ...]: the same for all."""
    return tf.broadcast_to(tensor, tf.concat([[size], tf.shape(tensor)], 0))


def _branch_taken(handle: tf.Tensor, count: int) -> tf.Tensor | None:
    """The number of the branch, of ``count``, that has made a tensor; None if not known."""
    op = _origin(handle).op
    if op.type not in _tf.BRANCHES or len(_tf.functions_of(op)) != count:
        return None
    index = op.inputs[0]
    if "Case" not in op.type:
        return tf.cast(tf.cast(index, tf.bool), tf.int32)
    return tf.where((index >= 0) & (index < count), index, count - 1)


def _container(call: Call, handle: tf.Tensor, tensor: tf.Tensor, kind: Kind | None) -> Value:
    if kind is None:
        raise CannotVectorize("some rows change a list of which it is not known what it holds")
    if _tf.in_xla_context(call.emit.graph):
        raise Refused(
            "under jit_compile, some rows change a list of lists that all rows share: leave out "
            "jit_compile"
        )
    size = call.loop.length
    with call.emit.graph.as_default():
        made, end = _Container(call, tensor, size, is_stacked=False).made(handle)
        if isinstance(kind, tf.DType):
            return StackedList.of(made, ListRows(size, holds=Holds(packs=True)))
        lengths = tf.fill([size], end)
    return StackedList.of(made, ListRows(size, lengths=lengths))


def packed(call: Call, value: Value) -> tf.Tensor:
    """A list of lists of all rows, with packs in it."""
    tensor = in_body(call, value.tensor)
    size = call.loop.length if rows_of(value) is None else known_rows(value).size
    with call.emit.graph.as_default():
        return _Container(call, tensor, size, is_stacked=True).made(value.tensor)[0]


def in_body(call: Call, handle: tf.Tensor) -> tf.Tensor:
    """The tensor of the body that became this one; itself if that is not found."""
    walker, made = call.walker, _origin(handle)
    while walker is not None:
        for graph in (walker.graph, call.op.graph):
            for op in () if graph is None else graph.get_operations():
                for tensor in op.outputs:
                    value = walker.value_of(tensor) if tensor.dtype == tf.variant else None
                    if value is not None and value.cell.is_made and _origin(value.tensor) is made:
                        return tensor
        walker = walker.parent
    return handle


def _origin(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor that a tensor passes on, also out of functions that have captured it."""
    while True:
        tensor = source(tensor)
        captures = getattr(tensor.graph, "captures", ())
        outside = next((a for a, b in captures if b is tensor), None)
        if outside is None or not tf.is_symbolic_tensor(outside):
            return tensor
        tensor = outside
