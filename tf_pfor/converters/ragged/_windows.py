"""Ranges whose begin and size differ per row, gathered into the packed form, and elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    coordinates,
    of_elements,
    rank_of,
    row_ids,
    row_starts,
    size_when_run,
    uses_packed,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.pieces import in_one, ranges
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_parts import packed_to, row_counts
from tf_pfor.layouts.row_sizes import Size


def packed_range(
    whole: tf.Tensor, start: Any, lengths: RowSizes, stride: int, *, is_stacked: bool
) -> tf.Tensor:
    """The elements of ranges of axis 0, one row behind the other: one copy, or one gather."""
    if is_stacked and stride == 1:
        flat, begins = in_one(whole)
        return ranges(flat, begins if start is None else begins + start, lengths.tensor)
    shape = tf.shape(whole)
    if is_stacked:
        rest = whole.shape[2:]
        flat = tf.reshape(whole, tf.concat([shape[:1] * shape[1], shape[2:]], 0))
        flat.set_shape([None, *rest])
        whole = flat
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
    all_places = tf.reduce_prod(shape[: count + lead], keepdims=True)
    flat = tf.reshape(whole, tf.concat([all_places, shape[count + lead :]], 0))
    flat.set_shape([None, *whole.shape[count + lead :]])
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
        self.count = rank_of(x) - behind
        if not uses_packed(call):
            raise CannotVectorize("sizes of the row, under jit_compile")
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
        own = size.tensor if isinstance(size, RowSizes) else size
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
    numbers = [x.tensor if isinstance(x, RowSizes) else x for x in parts]
    bounds = [x.most if isinstance(x, RowSizes) else x for x in parts]
    made = function(*numbers)
    if made.shape.rank == 0:
        return made
    known = all(isinstance(x, int) for x in bounds)
    return RowSizes.of(made, function(*bounds) if known else None)
