"""tf.slice: so many elements from a place on, which must be there."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import after_check, size_at, size_when_run, uses_packed
from tf_pfor.converters.ragged._windows import Moved
from tf_pfor.converters.ragged.slices import Item, bound, cut, of_items
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.linear import Form, forms
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, shape_value
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import Size


@source("Slice")
def sliced_by_size(call: Call, input: Value, begin: Value, size: Value) -> Any:
    """tf.slice with begins or sizes that differ."""
    begins, sizes = (forms(t) for t in call.op.inputs[1:3])
    if begins is None or sizes is None:
        raise CannotVectorize("how many axes the slice has is not known")
    items: list[Item] = []
    left = call.output_shape() or (None,) * len(sizes)
    for p, (b, s) in enumerate(zip(begins, sizes)):
        first, one = bound(begin, b, p), left[p]
        s = s if one is None or s.known is not None else Form(frozenset(), one)
        if s.known == -1:
            is_all = isinstance(first, int) and first == 0
            items.append(Item("all") if is_all else Item("range", first, None, 1, (b, None, 1)))
        else:
            known = input.inner_shape and input.inner_shape[p]
            room = tf.shape(input.tensor)[p + int(input.is_stacked)]
            many = bound(size, s, p)
            if not (isinstance(first, int) and isinstance(many, int)):
                many = _checked_size(call, first, many, room if known is None else known)
            items.append(Item("range", first, first + many, 1, (b, b.plus(s, 1), 1)))
    if all(i.is_static for i in items):
        raise CannotVectorize("nothing differs between iterations")
    lead = [slice(None)] if input.is_stacked else []
    whole = input.tensor[tuple([*lead, *[i.python for i in items]])]
    return cut(call, whole, items, is_stacked=input.is_stacked)


def _checked_size(call: Call, first: Any, many: Any, room: Any) -> Any:
    """The size that a tf.slice takes, which must be there; all the rest for -1."""
    many = many if isinstance(many, int) else tf.where(tf.equal(many, -1), room - first, many)
    if not uses_packed(call):
        raise CannotVectorize("a size of the row, which cannot be checked under jit_compile")
    first = tf.convert_to_tensor(first)
    fits = (first >= 0) & (many >= 0) & (first + many <= room)
    text = "it reaches out of the tensor in some iterations. Begins and sizes are"
    return after_check(call, fits, text, [first, many], many)


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
    items = list[Item]()
    for axis, (b, s) in enumerate(zip(_numbers(begin, first), _numbers(size, many))):
        own = size_at(input, axis)
        if _is(b, 0) and (s is own or _is(s, -1) or _is(s, own)):
            items.append(Item("all"))
        elif not (isinstance(b, int) and isinstance(s, int)) or (
            axis < input.n_leading and s != -1
        ):
            items.append(Item("part"))
        else:
            end = None if s == -1 else b + s
            name = (Form(frozenset(), b), None if end is None else Form(frozenset(), end), 1)
            items.append(Item("range", b, end, 1, name))
    if not any(item.kind == "part" for item in items):
        return of_items(call, input, items)
    return _part(call, input, _numbers(begin, first), _numbers(size, many))


def _is(size: Size, number: object) -> bool:
    return isinstance(size, int) and isinstance(number, int) and size == number


def _numbers(value: Value, known: Any) -> list[Any]:
    """The numbers of a begin or a size: ints, or ``RowSizes`` where they differ per row."""
    if isinstance(value, RowShape):
        return [*value.sizes]
    if known is not None:
        return known.tolist()
    if not value.is_stacked or not is_static(value.inner_shape):
        raise CannotVectorize("where the slice begins, or how long it is, is not known")
    return [RowSizes.of(t) for t in tf.unstack(tf.cast(value.tensor, tf.int32), axis=1)]


def _part(call: Call, x: Ragged, begins: list[Any], sizes: list[Any]) -> Value:
    """Elements of a row from a place on, as many along each axis as the size says."""
    starts, made, checked = list[Any](), list[Any](), list[Any]()
    for axis, (first, many) in enumerate(zip(begins, sizes)):
        own = size_when_run(x, axis)
        room, start = (s.tensor if isinstance(s, RowSizes) else s for s in (own, first))
        starts.append(start)
        if _is(many, -1):
            many = own if _is(first, 0) else RowSizes.of(room - start)
        if not (_is(first, 0) and many is own):
            count = many.tensor if isinstance(many, RowSizes) else many
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
    return _is(start, 0) and axis >= x.n_leading and _is(sizes[axis], size_at(x, axis))
