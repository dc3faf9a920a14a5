"""Lists and optionals that are kept in lists and optionals, as gradients of loops and branches do.

For its gradient, a loop around a loop keeps a list of the lists that the inner loop has left. A
loop around a branch keeps a list of optionals; a branch around a loop keeps an optional that holds
lists. A kept list may hold some rows only, and rows whose lists end at different places. So it is
kept as a *pack*, which is an optional. Its components are the handle, and the begin and end of each
row's list. A last component has the place of each row of the container among the rows of the handle
(-1: nowhere). All numbers are float64, since TensorFlow's gradient of an optional wants a gradient
of each component.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import pops, pops_only, source
from tf_pfor.converters.analysis._variant_types import ITEM, Path, item_shape, kind_of, uses
from tf_pfor.converters.lists._broadcast_lists import in_body, packed
from tf_pfor.converters.lists._list_rows import (
    from_zero,
    is_container,
    is_kept,
    lengths_of,
    row_ids,
    without_base,
)
from tf_pfor.converters.lists._lists import size_of_rows, stack_list
from tf_pfor.converters.lists._nested_lengths import has_ends, pushed, with_ends, with_own_rows
from tf_pfor.converters.lists._optional_values import SCALAR, item_at, kept_types, list_of, tell
from tf_pfor.converters.lists._ragged_items import DIFFER, padded_shape, to_hold, to_hold_parts
from tf_pfor.converters.lists._unpacked_lists import elements, keeps
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import (
    Holds,
    ListRows,
    PendingSum,
    StackedList,
    known_rows,
    list_with_rows,
    rows_of,
)
from tf_pfor.core.values import Cell, Value, dims, is_static
from tf_pfor.layouts.padded_lists import padded_stack

_PACK = [tf.variant, tf.float64, tf.float64, tf.float64]
_SHAPES = [[], [None], [None]]
_OF_OPTIONALS = "an optional of rows of different shapes is kept in a list or another one"
_UNEVEN = "a packed list whose rows differ in length"


def with_rows(call: Call, value: Value, k: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """A list that a branch has made, where the lists of its rows end, and the rows of the loop.

    Of an optional where they begin tells nothing.
    """
    is_optional = isinstance(kind_of(call, call.op.outputs[k]), tuple)
    value = stack_list(call, value) if is_optional else from_zero(call, value)
    return value.tensor, lengths_of(call, value), row_ids(call, value)


def put(call: Call, target: Value, value: Value) -> tuple[Value, tf.Tensor]:
    """The list of lists into which ``value`` is put, and the tensor that is put there.

    A list of all rows that are equally long is put there unchanged. Loops of one trip count for all
    rows leave such lists.
    """
    item, rows = stack_list(call, value), rows_of(target)
    bare = has_ends(call, call.op.inputs[0])
    target = _to_hold(call, target, item, bare=bare)
    rows = rows_of(target)
    is_own = call.loop.rows is None and (rows is None or rows.ids is None)
    if bare:
        item = with_own_rows(call, item, call.op.inputs[1])
    if not (is_own and _is_whole(item)):
        target = with_packs(call, target, call.op.inputs[0])
    if bare:
        if holds_packs(target):
            target = list_with_rows(target, pushed(call, target, item))
        return target, item.tensor
    if not holds_packs(target):
        return target, item.tensor
    return target, pack(call, item, call.op.inputs[-1], rows, parts_known=True)


def _to_hold(call: Call, target: Value, item: Value, *, bare: bool) -> Value:
    """The list of lists, which knows the sizes of the items of its lists."""
    held, known = known_rows(item).holds, known_rows(target).holds
    if held.parts or known.parts:
        if bare:
            raise CannotVectorize(_OF_OPTIONALS)
        return to_hold_parts(call, target, held.parts)
    if not (held.items or known.items):
        return target
    if bare or not held.items:
        raise CannotVectorize(DIFFER)
    return to_hold(call, target, held.items, numbers=held.numbers)


def taken(
    call: Call, source: Value, item: tf.Tensor, made: tf.Tensor, own: ListRows | None = None
) -> Value:
    """The list that ``put`` has put into a list of lists; the body calls it ``made``.

    Under XLA ``own`` are its rows, where they are known.
    """
    rows = rows_of(source)
    if own is not None:
        _tell(call, item, made, own.size)
        return StackedList.of(item, own)
    if holds_packs(source):
        return _holding(call, unpack(call, item, made, rows), source)
    rows = ListRows(rows.size, ids=rows.ids) if rows is not None and rows.ids is not None else None
    _tell(call, item, made, size_of_rows(call, source))
    return _holding(call, StackedList.of(item, rows), source)


def _holding(call: Call, item: Value, source: Value) -> Value:
    """A list out of a list of lists, which knows the sizes of the items."""
    known = known_rows(source).holds
    if not (known.items or known.parts):
        return item
    rows = rows_of(item) or ListRows(call.loop.length, is_even=True)
    held = rows.holding(items=known.items, numbers=known.numbers, parts=known.parts)
    return list_with_rows(item, held)


def holds_packs(value: Value) -> bool:
    """Whether a list of lists holds packs."""
    return known_rows(value).holds.packs


def _is_whole(item: Value) -> bool:
    """Whether a list has the rows of the loop, equally long, and so has all that is in it."""
    rows = rows_of(item)
    return rows is None or (
        rows.ids is None
        and rows.lengths is None
        and rows.starts is None
        and not (rows.holds.packs or isinstance(item, PendingSum))
    )


def with_packs(call: Call, value: Value, made: tf.Tensor) -> Value:
    """A list of lists, ``made`` in the body, with packs in it or XLA's substitute for packs."""
    if has_ends(call, made):
        return with_ends(call, value, made)
    return _with_packs(call, value)


def _with_packs(call: Call, value: Value) -> Value:
    value = stack_list(call, value)
    if holds_packs(value):
        return value
    rows = (rows_of(value) or ListRows(call.loop.length)).holding(packs=True)
    made_by = source(value.tensor).op.type
    if call.emit.is_trial or made_by in ("EmptyTensorList", "TensorListReserve"):
        return list_with_rows(value, rows)
    packs = Cell(packed(call, value))
    return StackedList(packs, value.inner_shape, value.dtype, rows)


def pack(
    call: Call,
    value: Value,
    made: tf.Tensor,
    container: ListRows | None = None,
    *,
    parts_known: bool = False,
) -> tf.Tensor:
    """The tensor that is put into a container for a list or an optional, ``made`` in the body.

    The rows of the container are None if it has the rows of the loop. ``parts_known`` says whether
    the container knows the parts of what it holds.
    """
    item = stack_list(call, value)
    if known_rows(item).holds.parts and not parts_known:
        raise CannotVectorize(_OF_OPTIONALS)
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("a list is kept in an optional, which XLA has not")
    if not is_container(item):
        item = from_zero(call, item)
    elif not is_kept(item) and _tf.list_element(item.tensor) is not None:  # bare lists
        item = _with_packs(call, item)
    emit = call.emit
    _note_lengths(call, item, made)
    ends = emit("Cast", lengths_of(call, item), DstT=tf.float64)  # [m]
    begins = known_rows(item).starts
    starts = emit("ZerosLike", ends) if begins is None else emit("Cast", begins, DstT=tf.float64)
    places = row_ids(call, item)  # [n]
    if container is not None and container.ids is not None:
        with emit.graph.as_default():
            numbers = places + 1
            if call.loop.real is not None:  # others stand in for one of these
                numbers = tf.where(call.loop.real, numbers, 0)
            at = tf.expand_dims(container.ids, 1)
            places = tf.scatter_nd(at, numbers, [container.size]) - 1
    places = emit("Cast", places, DstT=tf.float64)
    return emit("OptionalFromValue", [item.tensor, starts, ends, places])


def _note_lengths(call: Call, item: Value, made: tf.Tensor) -> None:
    """Notes that the rows of a list of the body differ in length, for those who unpack it."""
    rows = known_rows(item)
    if rows.lengths is not None and not (rows.is_even or rows.may_agree):
        call.memo[_UNEVEN, made.op, made.value_index] = True


def _differ(call: Call, made: tf.Tensor) -> bool:
    """Whether the rows of a list of the body were seen to differ in length when it was packed."""
    return any((_UNEVEN, t.op, t.value_index) in call.memo for _, t in uses(call, made))


def unpack(call: Call, packed: tf.Tensor, made: tf.Tensor, container: ListRows | None) -> Value:
    """The list or optional, ``made`` in the body, that ``pack`` has put into a container.

    Where the number of the container's rows is a tensor, nobody looks at it.
    """
    emit = call.emit
    size = call.loop.length if container is None else container.size
    shapes = [*_SHAPES, [size if isinstance(size, int) else None]]
    handle, starts, ends, places = emit(
        "OptionalGetValue", packed, output_types=_PACK, output_shapes=shapes
    )
    ends, ids = emit("Cast", ends, DstT=tf.int32), emit("Cast", places, DstT=tf.int32)
    dtype = kind_of(call, made)
    starts = emit("Cast", starts, DstT=tf.int32) if dtype == tf.variant else None
    _tell(call, handle, made)
    if container is not None and container.ids is not None:
        ids = emit("GatherV2", ids, container.ids, np.int32(0))
    ids.set_shape([call.loop.static_length])
    rows = ListRows(
        emit.dim(ends, 0),
        ids=ids,
        lengths=ends,
        starts=starts,
        may_agree=not _differ(call, made),
        holds=Holds(packs=dtype == tf.variant),
    )
    return StackedList.of(handle, rows)


def _tell(call: Call, handle: tf.Tensor, made: tf.Tensor, size: object = None) -> None:
    """Tells TensorFlow the items of a list that was taken out of a list or an optional.

    Elements have ``size`` rows, if that is known.
    """
    dtype = kind_of(call, made)
    if dtype is None:
        return
    if not isinstance(dtype, tf.DType):  # optionals are in a list here
        dtype = tf.variant
    shape = SCALAR
    if dtype != tf.variant:
        item, rows = item_shape(call, made), size if isinstance(size, int) else -1
        shape = -1
        if item.rank is not None:
            shape = [rows, *(-1 if d is None else d for d in item.as_list())]
    tell(handle, dtype, shape)


def zeros_of(call: Call, value: Value) -> Value:
    """ZerosLike of a list or an optional, with the same rows."""
    if isinstance(value, PendingSum):
        value = value.terms[0]
    if known_rows(value).holds.parts:
        raise CannotVectorize("zeros like an optional of rows of different shapes")
    rows, like = without_base(rows_of(value)), call.op.inputs[0]
    if like.graph is not call.walker.graph:  # made again, of what all rows share
        like = in_body(call, like)
    if not is_kept(value) or has_ends(call, like):
        return StackedList.of(call.rebuild(), rows)

    def make() -> tf.Tensor:  # hardly ever read
        with call.emit.graph.as_default():
            return _Zeros(call, like).of(tf.stop_gradient(value.tensor))

    cell = Cell(None, make)
    call.memo["zeros", cell] = True  # see ``sum_of_lists``
    return StackedList(cell, value.inner_shape, value.dtype, rows)


@dataclasses.dataclass(frozen=True, slots=True)
class _Zeros:
    """Zeros in place of all tensors in a container, except the numbers of rows in packs.

    Attributes:
      call: a ZerosLike.
      tensor: its input in the body.
    """

    call: Call
    tensor: tf.Tensor

    def of(self, handle: tf.Tensor, path: Path = ()) -> tf.Tensor:
        """Zeros in the current graph."""
        raw, kind = tf.raw_ops, kind_of(self.call, self.tensor, path)
        if kind is None:
            raise CannotVectorize("zeros like what nobody is seen to read")
        if isinstance(kind, tf.DType) and kind != tf.variant:
            return tf.zeros_like(handle)
        if isinstance(kind, tuple) and not any(tf.variant in types for types in kind):
            return raw.ZerosLike(x=handle)
        if isinstance(kind, tuple):  # a list of optionals, one of each branch
            each = enumerate(kind)
            return list_of([self._optional(item_at(handle, b), t, path, b) for b, t in each])

        def step(t: tf.Tensor, made: tf.Tensor) -> Any:
            item = self._pack(item_at(handle, t), (*path, ITEM))
            return t + 1, raw.TensorListPushBack(input_handle=made, tensor=item)

        count = raw.TensorListLength(input_handle=handle)
        return tf.while_loop(lambda t, _: t < count, step, (0, list_of([])))[1]

    def _optional(
        self, handle: tf.Tensor, types: Sequence[tf.DType], path: Path, branch: int
    ) -> tf.Tensor:
        raw = tf.raw_ops

        def full() -> tf.Tensor:
            values = raw.OptionalGetValue(
                optional=handle, output_types=kept_types(types), output_shapes=[None] * len(types)
            )
            zeros = [
                self._pack(v, (*path, (branch, k))) if v.dtype == tf.variant else tf.zeros_like(v)
                for k, v in enumerate(values)
            ]
            return raw.OptionalFromValue(components=zeros)

        if not types:
            return handle
        return tf.cond(raw.OptionalHasValue(optional=handle), full, raw.OptionalNone)

    def _pack(self, packed: tf.Tensor, path: Path) -> tf.Tensor:
        inner, *rest = tf.raw_ops.OptionalGetValue(
            optional=packed, output_types=_PACK, output_shapes=[*_SHAPES, [None]]
        )
        return tf.raw_ops.OptionalFromValue(components=[self.of(inner, path), *rest])


def popped_elements(
    call: Call, graph: tf.Graph, position: int, handle: Value
) -> Cell | list[Cell] | None:
    """[T, size, ...]: all elements of a list that a loop only pops; None of other lists.

    Several, if it is one of optionals that are not made.
    """
    if not pops_only(graph, position):
        return None
    if keeps(handle):
        return elements(call, handle)
    given, emit = graph.inputs[position], call.emit
    popped = next(o for o in graph.get_operations() if pops(o, given))
    dtype, shape = popped.outputs[1].dtype, dims(popped.outputs[1])
    rows = known_rows(handle)
    if rows.holds.items and not rows.holds.numbers and dtype != tf.variant:
        size = padded_shape(call, rows)
        return Cell(None, lambda: padded_stack(emit, handle.tensor, size, dtype))
    if dtype == tf.variant or not is_static(shape):
        return None
    whole = emit.shape_vector([size_of_rows(call, handle), *shape])
    return Cell(None, lambda: padded_stack(emit, handle.tensor, whole, dtype))
