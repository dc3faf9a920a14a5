"""tf.slice: so many elements from a place on, which must be there."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor._tf._strided_slices import Item
from tf_pfor.converters.arrays._indexing import Index, elements, form_of
from tf_pfor.converters.ragged._forms import (
    size_when_run,
)
from tf_pfor.converters.ragged._windows import Moved, number_of
from tf_pfor.converters.ragged.slices import cut, of_items, without_known
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, shape_value
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import Size, as_number


@source("Slice")
def sliced_by_size(call: Call, input: Value, begin: Value, size: Value) -> Any:
    """tf.slice with begins or sizes that differ."""
    items: list[Item] = []
    left = call.output_shape() or (None,) * call.require_rank(input)
    for axis, (first, many) in enumerate(zip(elements(call, "begin"), elements(call, "size"))):
        known, one = input.inner_shape and input.inner_shape[axis], left[axis]
        room = tf.shape(input.tensor)[axis + int(input.is_stacked)] if known is None else known
        many = many if one is None or isinstance(many, int) else one
        end = None if isinstance(many, int) and many == -1 else _end(call, first, many, room)
        is_all = end is None and isinstance(first, int) and first == 0
        items.append(Item("all", axis) if is_all else Item("range", axis, first, end))
    if all(i.is_static for i in items):
        raise CannotVectorize("nothing differs between iterations")
    return cut(call, without_known(input, items), items, is_stacked=input.is_stacked)


def _end(call: Call, first: int | Index, many: int | Index, room: Any) -> int | Index:
    """The end of a range, which must be inside of the axis."""
    if isinstance(first, int) and isinstance(many, int):
        return first + many
    begin = number_of(first)
    end = begin + _checked_size(call, begin, number_of(many), room)
    value = Value.stacked(end) if end.shape.rank else Value.unstacked(end)
    return Index(value, form_of(first).plus(form_of(many), 1))


def _checked_size(call: Call, first: Any, many: Any, room: Any) -> Any:
    """The size that a tf.slice takes, which must be there; all the rest for -1."""
    many = many if isinstance(many, int) else tf.where(tf.equal(many, -1), room - first, many)
    call.require_packed("a size of the row, which cannot be checked")
    first = tf.convert_to_tensor(first)
    fits = (first >= 0) & (many >= 0) & (first + many <= room)
    text = "it reaches out of the tensor in some iterations. Begins and sizes are"
    return call.after_check(fits, text, [first, many], many)


@ragged_rule("Slice", of_shapes=True, of_one_axis=True)
def sized_slice_of_ragged(call: Call, input: Value, begin: Value, size: Value) -> Any:
    """A range of indices from each begin on."""
    first, many = call.maybe_constant("begin"), call.maybe_constant("size")
    if isinstance(input, RowShape) and first is not None and many is not None:
        (b,), (s,) = first.tolist(), many.tolist()
        end = len(input.sizes) if s == -1 else b + s
        return shape_value(call.emit, input.sizes[b:end], input.dtype)
    if not isinstance(input, Ragged):
        raise CannotVectorize("numbers of one shape")
    begins, sizes = _numbers(begin, first), _numbers(size, many)
    items = list[Item]()
    for axis, (b, s) in enumerate(zip(begins, sizes)):
        own = input.size_at(axis)
        if _is(b, 0) and (s is own or _is(s, -1) or _is(s, own)):
            items.append(Item("all", axis))
        elif not (isinstance(b, int) and isinstance(s, int)) or (
            axis < input.n_leading and s != -1
        ):
            return _part(call, input, begins, sizes)
        else:
            items.append(Item("range", axis, b, None if s == -1 else b + s))
    return of_items(call, input, items)


def _is(size: Size, number: object) -> bool:
    return isinstance(size, int) and isinstance(number, int) and size == number


def _numbers(value: Value, known: Any) -> list[Any]:
    """The numbers of a begin or a size: ints, or ``RowSizes`` where they differ per row."""
    if isinstance(value, RowShape):
        return [*value.sizes]
    if known is not None:
        return known.tolist()
    if not is_static(value.inner_shape):
        raise CannotVectorize("where the slice begins, or how long it is, is not known")
    if not value.is_stacked:
        return tf.unstack(tf.cast(value.tensor, tf.int32))
    return [RowSizes.of(t) for t in tf.unstack(tf.cast(value.tensor, tf.int32), axis=1)]


def _part(call: Call, x: Ragged, begins: list[Any], sizes: list[Any]) -> Value:
    """Elements of a row from a place on, as many along each axis as the size says."""
    starts, made, checked = list[Any](), list[Any](), list[Any]()
    for axis, (first, many) in enumerate(zip(begins, sizes)):
        own = size_when_run(x, axis)
        room, start = (as_number(s) for s in (own, first))
        starts.append(start)
        if _is(many, -1):
            many = own if _is(first, 0) else RowSizes.of(room - start)
        if not (_is(first, 0) and many is own):
            count = as_number(many)
            checked.append(_checked_size(call, start, count, room))
            many = RowSizes.of(checked[-1]) if isinstance(many, RowSizes) else many
        made.append(many)
    last = max(i for i, start in enumerate(starts) if not _is_all(x, made, start, i))
    moved = Moved(call, x, made, len(made) - 1 - last)
    places = [at + moved.of(start) for at, start in zip(moved.places, starts)]
    with tf.control_dependencies(checked):
        places[0] = tf.identity(places[0])
    return moved.read(places)


def _is_all(x: Ragged, sizes: list[Any], start: tf.Tensor, axis: int) -> bool:
    """Whether all of an axis is taken, which all rows share."""
    return _is(start, 0) and axis >= x.n_leading and _is(sizes[axis], x.size_at(axis))
