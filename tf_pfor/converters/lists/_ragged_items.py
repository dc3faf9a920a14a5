"""Lists of items whose shape differs between rows, or of the shapes of such items.

An item is padded, [size, largest, ...], like any other item of a list of stacked elements. Its
size in each row is known beside the list (``Holds.items``), and is the same for all items. So an
item that is read has the same sizes as the item that was written, and operations on both need no
check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.lists._lists import cast, shape_input, size_of_rows, stack_list
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import (
    OF_SHAPES,
    OF_SIZES,
    ListRows,
    known_rows,
    list_with_rows,
    rows_of,
)
from tf_pfor.core.values import Shape, Value
from tf_pfor.layouts.packing import largest, pad
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSize, same_sizes, shape_value, size_value
from tf_pfor.layouts.row_sizes import RowSizes, Size

DIFFER = "the items of a list differ in shape, between iterations and from trip to trip"


def to_hold(call: Call, value: Value, sizes: Sequence[Size], numbers: str = "") -> Value:
    """A list to which nothing was written yet, as one of items of these sizes.

    A list of single sizes is stored as one of other numbers is: a trial may find that it is one.

    Raises:
      CannotVectorize: if it holds others, or may hold others.
    """
    value = stack_list(call, value)
    holds = known_rows(value).holds
    if holds.items:
        sizes = [_known(*pair) for pair in zip(holds.items, sizes)]
        if holds.numbers == numbers and same_sizes(holds.items, sizes):
            return value
        return _other_numbers(call, value)
    made = source(value.tensor).op.type
    if not (call.emit.is_trial or made in ("EmptyTensorList", "TensorListReserve")):
        if numbers == OF_SIZES:
            return value
        raise CannotVectorize(DIFFER)
    rows = rows_of(value) or ListRows(call.loop.length, is_even=True)
    held = rows.holding(items=tuple(sizes), numbers=numbers)
    return list_with_rows(value, held)


def _known(known: Size, made: Size) -> Size:
    """The known size in place of one that follows from the same sizes by the same rule."""
    if known is made or not (isinstance(known, RowSizes) and isinstance(made, RowSizes)):
        return made
    return known.follows(made)


def of_any_numbers(value: Value) -> Value:
    """A list whose numbers are not known as sizes; other lists stay as they are."""
    rows = known_rows(value)
    is_known = rows.holds.numbers == OF_SIZES
    return list_with_rows(value, rows.holding(items=(), numbers="")) if is_known else value


def _other_numbers(call: Call, value: Value) -> Value:
    """A list of which a trial finds that it does not hold the sizes that it was said to hold."""
    if known_rows(value).holds.numbers != OF_SIZES or not call.emit.is_trial:
        raise CannotVectorize(DIFFER)
    return of_any_numbers(value)


def to_hold_parts(call: Call, value: Value, parts: Sequence[Any]) -> Value:
    """A list to which nothing was written yet, as one of optionals that hold rows of these parts.

    Raises:
      CannotVectorize: if it holds others, or may hold others.
    """
    value = stack_list(call, value)
    held = known_rows(value).holds.parts
    if held:
        if len(held) != len(parts) or not all(
            a is b or (a and a.is_like(b)) for a, b in zip(held, parts)
        ):
            raise CannotVectorize(DIFFER)
        return value
    made = source(value.tensor).op.type
    known = all(p is None or not p.is_stored for p in parts)
    if not (known and (call.emit.is_trial or made in ("EmptyTensorList", "TensorListReserve"))):
        raise CannotVectorize(DIFFER)
    rows = rows_of(value) or ListRows(call.loop.length, is_even=True)
    return list_with_rows(value, rows.holding(parts=tuple(parts)))


def written(call: Call, target: Value, item: Value) -> tuple[Value, Value]:
    """A list as one that holds items like ``item``, and that in the form that is written."""
    if isinstance(item, RowShape):
        target = to_hold(call, target, item.sizes, OF_SHAPES)
        return target, Value.stacked(item.tensor)
    if isinstance(item, RowSize) and call.op_type == "TensorListPushBack":
        target = to_hold(call, target, [item.size], OF_SIZES)
        return target, Value.stacked(item.tensor)
    if not isinstance(item, Ragged):
        holds = known_rows(target).holds
        return _other_numbers(call, target) if holds.items else target, item
    rest = [-1 if d is None else d for d in item.tensor.shape[1:]]
    target = to_hold(call, target, [*item.sizes, *rest])
    room = _room(known_rows(target))[: item.n_leading]
    with call.emit.graph.as_default():
        return target, Value.stacked(pad(item.tensor, item.sizes, room))


def read(call: Call, source: Value, tensor: tf.Tensor, lead: Sequence[Size] = ()) -> Value:
    """The value read from a list: [n, *lead, ...]; ragged if the list holds ragged rows."""
    rows = known_rows(source)
    items = rows.holds.items
    if not items:
        return Value.stacked(tensor)
    if rows.holds.numbers == OF_SIZES:
        return size_value(call.emit, items[0], tensor.dtype)
    if rows.holds.numbers:
        return shape_value(call.emit, items, tensor.dtype)
    known = [size if isinstance(size, int) else None for size in items]
    tensor.set_shape([None, *[None] * len(lead), *known])  # a list in a list tells no rank
    return Ragged.from_padded(tensor, [*lead, *leading_sizes(rows)], call.op.outputs[-1])


def leading_sizes(rows: ListRows) -> list[Size]:
    """The sizes of an item up to the last axis along which items differ; nothing of others."""
    if rows.holds.numbers:
        return []
    items = rows.holds.items
    count = max((k + 1 for k, s in enumerate(items) if isinstance(s, RowSizes)), default=0)
    return list(items[:count])


def asked_shape(call: Call, source: Value, known: Shape = None) -> tf.Tensor:
    """int32: the shape [size, ...] of a stacked element, for an op that reads such."""
    rows = known_rows(source)
    if not rows.holds.items or rows.holds.numbers or call.attr("element_dtype") == tf.variant:
        return shape_input(call, "element_shape", size_of_rows(call, source), known=known)
    given = call.inputs["element_shape"]
    assert isinstance(given, Value)
    return cast(call, padded_shape(call, rows), given.dtype)


def padded_shape(call: Call, rows: ListRows) -> tf.Tensor:
    """int32: the shape [size, ...] of an element of a list of items of different shapes."""
    parts = [rows.size, *_room(rows)]
    with call.emit.graph.as_default():
        if all(isinstance(p, int) for p in parts):
            return tf.constant(parts, tf.int32)
        return tf.stack([tf.cast(p, tf.int32) for p in parts])


def _room(rows: ListRows) -> list[Any]:
    """The sizes of an item's axes in the padded form: enough for all rows that there are."""
    return [largest(s) for s in rows.holds.items]
