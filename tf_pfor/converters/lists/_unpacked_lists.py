"""Lists of optionals that are not made (``_unpacked_optionals``): a list for each of the tensors in
them.

All lists are pushed to and popped together, so that all have the same rows. The first is the handle
of the list, the others are its ``Holds.beside``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.lists._list_rows import (
    dense,
    is_partial,
    last_places,
    pick,
    push,
    row_items,
)
from tf_pfor.converters.lists._optional_values import tell
from tf_pfor.converters.lists._unpacked_optionals import (
    Listed,
    alternatives,
    flat,
    from_tensors,
    kept_in,
    tensors_of,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import Kept, ListRows, StackedList, known_rows, rows_of
from tf_pfor.core.values import Cell, Shape, Value, known_dims
from tf_pfor.layouts.padded_lists import padded_stack


def keeps(value: Value) -> tuple[Kept, ...]:
    """The content of the unmade optionals in a list; empty for other lists."""
    return known_rows(value).holds.keeps


def to_keep(call: Call, value: Value, kept: Sequence[Kept]) -> Value:
    """An empty list as a list of unmade optionals with the content ``kept``."""
    if keeps(value) == tuple(kept):
        return value
    made, room = source(value.tensor).op, np.int32(-1)
    if made.type == "EmptyTensorList":
        room = made.inputs[1]
    elif not call.emit.is_trial:
        raise CannotVectorize("what conditionals keep is put into a list that others fill as well")
    rows = rows_of(value) or ListRows(call.loop.length)
    handles = [
        call.emit("EmptyTensorList", _element(call, rows, shape), room, element_dtype=dtype)
        for dtype, shape in flat(kept)
    ]
    return _list(handles, rows.holding(keeps=tuple(kept)))


def pushed(call: Call, target: Value, item: Value) -> Value:
    """The list with an optional that is not made at its end."""
    held = [kept_in(values) for values in alternatives(item)]
    if any(isinstance(shape, Listed) for _, shape in flat(held)):
        raise CannotVectorize(
            "a loop around a conditional around a loop keeps lists for a gradient in the body of a "
            "map in a map: take the gradient around the maps"
        )
    target = to_keep(call, target, keeps(target) or [kept for kept in held if kept])
    given = tensors_of(call, item, [(), *keeps(target)])
    made = [
        push(call, alone, Value.stacked(t).with_inner_shape(shape))
        for alone, t, (_, shape) in zip(_alone(target), given, flat(keeps(target)))
    ]
    rows = rows_of(made[0]) or rows_of(target)
    assert rows is not None
    return _list([v.tensor for v in made], rows.holding(keeps=keeps(target)))


def popped(call: Call, target: Value) -> tuple[Value, Value]:
    """The list without its last item, and that: an optional that is not made."""
    rows, emit = rows_of(target), call.emit
    assert rows is not None
    items, handles, specs = list[tf.Tensor](), _handles(target), flat(keeps(target))
    if rows.lengths is None and (rows.is_even or not is_partial(target)):
        both = [
            emit("TensorListPopBack", handle, _element(call, rows, shape), element_dtype=dtype)
            for handle, (dtype, shape) in zip(handles, specs)
        ]
        handles = [handle for handle, _ in both]
        items = [pick(call, target, item) for _, item in both]
    else:
        last, at = last_places(call, target)
        wholes = rows.whole or [
            Cell(dense(call, alone, _element(call, rows, shape)))
            for alone, (_, shape) in zip(_alone(target), specs)
        ]
        items = [row_items(call, target, whole.get(), at) for whole in wholes]
        rows = dataclasses.replace(rows, lengths=last)
    return _list(handles, rows), from_tensors(call, iter(items), keeps(target))


def elements(call: Call, target: Value) -> list[Cell]:
    """[T, size, ...] of each: all items, for a loop that only pops them."""
    rows = rows_of(target)
    assert rows is not None

    def whole(handle: tf.Tensor, dtype: tf.DType, shape: Shape) -> Cell:
        return Cell(
            None, lambda: padded_stack(call.emit, handle, _element(call, rows, shape), dtype)
        )

    return [whole(h, *each) for h, each in zip(_handles(target), flat(keeps(target)))]


def _element(call: Call, rows: ListRows, shape: Shape) -> tf.Tensor:
    return call.emit.shape_vector([rows.size, *known_dims(shape)])


def _handles(value: Value) -> list[tf.Tensor]:
    return [value.tensor, *known_rows(value).holds.beside]


def _alone(value: Value) -> list[Value]:
    """Each of the lists as a separate list; TensorFlow knows the items of each."""
    rows = rows_of(value)
    assert rows is not None
    rows = dataclasses.replace(rows.holding(keeps=(), beside=()), whole=None)
    size = rows.size if isinstance(rows.size, int) else -1
    is_whole = rows.ids is None and rows.mask is None and rows.lengths is None
    handles = _handles(value)
    for handle, (dtype, shape) in zip(handles, flat(keeps(value))):
        if _tf.list_element(handle) is None:
            tell(handle, dtype, [size, *shape])
    return [
        StackedList.of(handle, None if is_whole and not rows.is_even else rows)
        for handle in handles
    ]


def _list(handles: Sequence[tf.Tensor], rows: ListRows) -> Value:
    return StackedList.of(handles[0], rows.holding(beside=tuple(handles[1:])))
