"""Ranges whose begin and size differ per row, gathered into the packed form, and elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf._strided_slices import Item
from tf_pfor.converters.arrays._indexing import Index, form_of
from tf_pfor.converters.ragged._forms import (
    coordinates,
    of_elements,
    row_ids,
    row_starts,
    size_when_run,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.known_ranges import KnownRange, Ranges, known_ranges
from tf_pfor.layouts.linear import Form
from tf_pfor.layouts.pieces import in_one, ranges
from tf_pfor.layouts.ragged import Ragged, RowSize, RowSizes
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.row_sizes import Size, as_number, row_counts


def name_of(item: Item) -> tuple[Form | None, Form | None, int]:
    """Equal for ranges of an axis that have the same bounds."""
    begin, end = (None if x is None else form_of(x) for x in (item.begin, item.end))
    return begin, end, item.stride


def number_of(index: int | Index) -> Any:
    """An int where it is known before running, else int32 [n], or [] for all rows."""
    return index if isinstance(index, int) else tf.cast(index.value.tensor, tf.int32)


def range_in(call: Call, item: Item, room: Size) -> tuple[tf.Tensor | None, RowSizes]:
    """The begin of a range in each row (None: 0), and its length; equal ranges share them.

    Args:
      call: the call.
      item: a range of positive stride.
      room: the size of its axis.
    """
    memo = known_ranges(call.memo, call.loop)
    key = None if isinstance(room, tf.Tensor) else (name_of(item), room)
    if key in memo:
        return memo[key].both
    size = item.end.value if isinstance(item.end, Index) else None
    if _is_first(item) and isinstance(size, RowSize) and _fits(size.size, room):
        return None, size.size
    found = _shorter(item, room, memo) if isinstance(room, RowSizes) else None
    found = found or _clamped(call, item, room)
    if key is not None:
        memo[key] = found
    return found.both


def _shorter(item: Item, room: RowSizes, memo: Ranges) -> KnownRange | None:
    """A range of ragged rows from which a number is cut off: x[1:] is as long as x[:-1]."""
    if not item.is_static or item.stride != 1 or item.end == 0:
        return None
    first, last = item.begin or 0, item.end or 0
    if not first >= 0 >= last:
        return None
    shorter = ("shorter", first - last), room
    if shorter not in memo:
        most = None if room.most is None else max(room.most - first + last, 0)
        length = RowSizes.of(tf.maximum(room.tensor - (first - last), 0), most)
        memo[shorter] = KnownRange(None, length)
    begin = Cell(tf.minimum(first, room.tensor)) if first else None
    return KnownRange(begin, memo[shorter].length)


def _clamped(call: Call, item: Item, room: Size) -> KnownRange:
    """A range whose bounds are counted from the end where they are negative, and kept inside."""
    is_own, most = isinstance(room, RowSizes), room.most if isinstance(room, RowSizes) else room
    size = room.tensor if isinstance(room, RowSizes) else tf.convert_to_tensor(room, tf.int32)
    most = -(-most // item.stride) if isinstance(most, int) else None

    def clamped(index: int | Index) -> Any:
        at = tf.convert_to_tensor(number_of(index), tf.int32)
        return tf.clip_by_value(tf.where(at < 0, at + size, at), 0, size)

    def of_rows(numbers: tf.Tensor) -> tf.Tensor:
        is_shared = numbers.shape.rank == 0
        return tf.broadcast_to(numbers, tf.stack([call.loop.length])) if is_shared else numbers

    begin = None if item.begin is None else of_rows(clamped(item.begin))
    many = size if item.end is None else clamped(item.end)
    many = many if begin is None else many - begin
    many = many if item.stride == 1 else (many + (item.stride - 1)) // item.stride
    length = of_rows(many if begin is None and item.stride == 1 else tf.maximum(many, 0))
    length.set_shape([call.loop.static_length])
    full = None
    if not is_own and item.begin is not None and item.end is not None:
        span = form_of(item.end).plus(form_of(item.begin), -1).known
        if span is not None and span > 0:
            full = -(-span // item.stride)
            most = full if most is None else min(most, full)
    return KnownRange(None if begin is None else Cell(begin), RowSizes.of(length, most, full))


def _fits(size: Size, room: Size) -> bool:
    """Whether an axis is known to have so many elements."""
    if size is room:
        return True
    if not isinstance(size, RowSizes) or size.is_number or not isinstance(room, int):
        return False
    return size.most is not None and size.most <= room


def _is_first(item: Item) -> bool:
    """Whether a range has the first elements."""
    return item.begin in (None, 0) and item.stride == 1


def place_of(call: Call, item: Item, size: Size) -> tf.Tensor:
    """int32 [n]: where an index is in each row, which must have it; clamped under XLA, as there."""
    own = size.tensor if isinstance(size, RowSizes) else tf.fill([call.loop.length], size)
    at = tf.convert_to_tensor(number_of(item.begin), tf.int32)
    at = tf.broadcast_to(tf.where(at < 0, at + own, at), tf.shape(own))
    if not call.uses_packed:
        return tf.clip_by_value(at, 0, tf.maximum(own - 1, 0))
    text = "an index is out of bounds in some iterations. The sizes are"
    return call.after_check((at >= 0) & (at < own), text, [own], at)


def packed_range(
    whole: tf.Tensor, start: Any, lengths: RowSizes, stride: int, *, is_stacked: bool
) -> tf.Tensor:
    """The elements of ranges of axis 0, one row behind the other: one copy, or one gather."""
    if is_stacked and stride == 1:
        flat, begins = in_one(whole)
        return ranges(flat, begins if start is None else begins + start, lengths.tensor)
    shape = tf.shape(whole)
    whole = packed_to(whole, 1) if is_stacked else whole
    rows = lengths.rows
    at = tf.range(tf.shape(rows)[0]) - tf.gather(lengths.starts, rows)
    at = at * stride if stride != 1 else at
    if start is not None:
        at += tf.gather(start, rows)
    return tf.gather(whole, at + rows * shape[1] if is_stacked else at)


def packed_window(
    whole: tf.Tensor,
    starts: Sequence[Any],
    sizes: Sequence[Any],
    strides: Sequence[int],
    *,
    is_stacked: bool,
) -> tf.Tensor:
    """The elements of ranges of several axes, one row behind the other: one gather."""
    count, lead = len(sizes), int(is_stacked)
    shape = tf.shape(whole)
    flat = packed_to(whole, count + lead - 1)
    rows = row_ids(sizes)
    left = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts(sizes), rows)  # in the row
    place = 0
    room = 1
    for axis in reversed(range(count)):
        at = left
        if axis:
            size = sizes[axis]
            own = tf.gather(size.tensor, rows) if isinstance(size, RowSizes) else size
            left = at // own  # no row without elements is among them
            at -= left * own
        at = at * strides[axis] if strides[axis] != 1 else at
        if starts[axis] is not None:
            at += tf.gather(starts[axis], rows)
        place += at * room
        room *= shape[axis + lead]
    return tf.gather(flat, place + rows * room if is_stacked else place)


class Moved:
    """A result whose elements are some of an input's, at other places, in the packed form.

    Args:
      call: the call.
      x: the input.
      sizes: the sizes of all axes of the result.
      behind: the number of last axes that are the input's.

    Attributes:
      rows: int32 [total], of which row each element is.
      places: for each axis in front of those, int32 [total], where it is.
    """

    def __init__(self, call: Call, x: Value, sizes: Sequence[Any], behind: int):
        self.call, self.x, self.sizes = call, x, list(sizes)
        self.count = x.rank - behind
        call.require_packed("sizes of the row")
        if isinstance(x, Ragged) and x.n_leading > self.count:
            raise CannotVectorize("the axes behind differ in size")
        lead = self.sizes[: len(self.sizes) - behind]
        if not any(isinstance(s, RowSizes) for s in lead):
            n = call.loop.length
            lead[0] = RowSizes.of(tf.fill(tf.stack([n]), lead[0]))
        total = tf.reduce_sum(row_counts(lead))
        self.rows, self.places = coordinates(lead, tf.range(total))

    def of(self, size: Size) -> Any:
        """A size, or a number, int32 [n], of the row of each element; one of all as it is."""
        own = as_number(size)
        is_own = isinstance(own, tf.Tensor) and own.shape.rank == 1
        return tf.gather(own, self.rows) if is_own else own

    def size(self, axis: int) -> Any:
        """The size of an axis of the input, for each element."""
        return self.of(size_when_run(self.x, axis))

    def read(self, places: Sequence[Any], is_there: Any = None, fill: Any = None) -> Value:
        """The result.

        Args:
          places: for each axis of the input in front, int32 [total], where elements come from.
          is_there: bool [total], which come from there; None for all.
          fill: the value of other elements, a scalar or [n]; None for zero.
        """
        x, at = self.x, tf.zeros([], tf.int32)
        for axis, place in enumerate(places):
            at = at * self.size(axis) + place
        if isinstance(x, Ragged):
            table = packed_to(x, self.count)
            sizes = [*x.sizes, *[size_when_run(x, k) for k in range(x.n_leading, self.count)]]
            at += tf.gather(row_starts(sizes), self.rows)
        else:
            lead = self.count + int(x.is_stacked)
            shape = tf.shape(x.tensor)
            table = tf.reshape(x.tensor, tf.concat([[-1], shape[lead:]], 0))
            table.set_shape([None, *x.tensor.shape[lead:]])
            if x.is_stacked:
                at += self.rows * tf.reduce_prod(shape[1:lead])
        at = tf.broadcast_to(at, tf.shape(self.rows))
        if is_there is not None:  # behind all elements there is a zero
            at = tf.where(is_there, at, tf.shape(table)[0])
            more = tf.zeros(tf.concat([[1], tf.shape(table)[1:]], 0), table.dtype)
            table = tf.concat([table, more], 0)
        made = tf.gather(table, at)
        if is_there is not None and fill is not None:
            wide: Any = [tf.newaxis] * (len(made.shape) - 1)
            own = self.of(fill)
            own = own[(slice(None), *wide)] if own.shape.rank else own
            made = tf.where(is_there[(slice(None), *wide)], made, own)
        return of_elements(self.call, made, self.sizes)


def size_times(a: Size, b: Size) -> Any:
    """The product of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    return _size_of([a, b], lambda x, y: x * y)


def size_plus(a: Any, *others: Any) -> Any:
    """The sum of a size, and of numbers: ints, scalars, or int32 [n]."""
    if all(isinstance(x, int) for x in (a, *others)):
        return a + sum(others)
    if all(isinstance(x, int) and x == 0 for x in others):
        return a
    return _size_of([a, *others], lambda *xs: sum(xs))


def _size_of(parts: Sequence[Any], function: Callable[..., Any]) -> Any:
    numbers = [*map(as_number, parts)]
    bounds = [x.most if isinstance(x, RowSizes) else x for x in parts]
    made = function(*numbers)
    if made.shape.rank == 0:
        return made
    known = all(isinstance(x, int) for x in bounds)
    return RowSizes.of(made, function(*bounds) if known else None)
