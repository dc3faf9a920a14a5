"""The sparse tensors of all rows as one sparse tensor.

The number of the row stands in front of each index, and n in front of the shape. The entries of a
result are the entries of all rows, one behind the other. Their row numbers say how many entries
each row has. Sorted entries stay sorted, and indices out of range stay out of range.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import row_numbers, with_row
from tf_pfor.converters.math import _families
from tf_pfor.converters.ragged._forms import all_packed, row_ids, row_sizes
from tf_pfor.converters.ragged._windows import size_plus
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, unfold
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, Size, same_sizes, shape_value
from tf_pfor.layouts.ragged_rules import Rule, ragged_rule


def emitting(rule: Rule) -> Rule:
    """A decorator: the rule calls functions of TensorFlow, in the graph that is made."""

    @functools.wraps(rule)
    def run(call: Call, *values: Value) -> Any:
        with call.emit.as_default():
            made = rule(call, *values)
        return made

    return run


def sparse_rule(
    op_types: str, *, attrs: Iterable[str] = (), of_shapes: bool = False
) -> Callable[[Rule], Rule]:
    """A decorator: one rule for as many entries in each row, and for a number of the row.

    Args:
      op_types: one or more, with spaces between.
      attrs: the attributes that the rule reads, or that stay the same.
      of_shapes: whether the rule takes shapes of ragged rows.
    """

    def register(rule: Rule) -> Rule:
        run = emitting(rule)
        for op_type in op_types.split():
            RegisterPFor(op_type, ANY, attrs=attrs)(run)
        return ragged_rule(op_types, of_shapes=of_shapes)(rule)

    return register


def shared(value: Value, name: str) -> tf.Tensor:
    """An input that must be the same in all rows."""
    if isinstance(value, RowShape) or value.is_stacked or not value.is_tensor:
        raise CannotVectorize(f"'{name}' may differ between iterations")
    return value.tensor


def width_of(indices: Value) -> int:
    """The number of axes of one row's sparse tensor."""
    shape = indices.inner_shape
    if shape is None or len(shape) != 2 or shape[1] is None:
        raise CannotVectorize("the number of axes of the sparse tensor is unknown")
    return shape[1]


class Entries:
    """Values that belong together, an entry for each place along their first inner axis.

    Args:
      call: the call.
      values: values that share one first inner axis.
      may_be_equal: whether as many entries in all rows make as many in the result. Then no size is
        known only when it runs.

    Attributes:
      flat: the values, [total, ...] each.
      sizes: the number of entries of each row.
    """

    def __init__(self, call: Call, *values: Value, may_be_equal: bool = False):
        ragged = [v for v in values if isinstance(v, Ragged)]
        if ragged or not may_be_equal:
            call.require_packed()
        if ragged and (len(ragged) < len(values) or any(v.n_leading != 1 for v in ragged)):
            raise CannotVectorize("indices and values are not known to have as many entries")
        self.call = call
        self.flat = [v.tensor if isinstance(v, Ragged) else fold(call, v) for v in values]
        for value in ragged[1:]:
            self._check(ragged[0], value)
        first = next((v for v in values if v.is_stacked), values[0])
        self._first, self._given = first, (values[0], self.flat[0])
        self.sizes: tuple[Size, ...] = ragged[0].sizes if ragged else (inner_dims(call, first)[0],)

    @functools.cached_property
    def rows(self) -> tf.Tensor:
        """int64 [total]: of which row each entry is."""
        (size,) = self.sizes
        if isinstance(size, RowSizes):
            return tf.cast(row_ids(self.sizes), tf.int64)
        numbers, emit = row_numbers(self.call, tf.int64, 2), self.call.emit
        shape = emit.shape_vector([self.call.loop.length, size])
        return emit("Reshape", emit("BroadcastTo", numbers, shape), [-1])

    def _check(self, first: Ragged, other: Ragged) -> None:
        """A check that rows have as many entries of one value as of another."""
        a, b = first.sizes[0], other.sizes[0]
        if same_sizes([a], [b]):
            return
        if not isinstance(a, RowSizes) or not isinstance(b, RowSizes):
            raise CannotVectorize("indices and values are not known to have as many entries")
        text, sizes = "indices and values differ in number. They are", [a.tensor, b.tensor]
        is_right = tf.equal(a.tensor, b.tensor)
        self.flat[0] = self.call.after_check(is_right, text, sizes, self.flat[0])

    @property
    def places(self) -> tf.Tensor:
        """The first of the values, indices [total, m], with the row in front: [total, 1 + m]."""
        indices, folded = self._given
        at = self.flat[0]
        if at is folded and not isinstance(indices, Ragged):
            size = np.asarray([-1, width_of(indices) + 1], np.int32)
            return self.call.emit("Reshape", with_row(self.call, indices), size)
        rank = at.shape[-1]
        made = tf.concat([tf.cast(self.rows, at.dtype)[:, None], at], 1)
        made.set_shape([None, None if rank is None else rank + 1])
        return made

    def back(self, tensor: tf.Tensor, index: int) -> Value:
        """An output [total, ...] with as many entries as these have."""
        if isinstance(self.sizes[0], RowSizes):
            return Ragged.packed(tensor, self.sizes)
        first = self._first
        if not first.is_stacked:
            first = Value.stacked(self.call.stacked(first)).with_inner_shape(first.inner_shape)
        return unfold(self.call, tensor, first, inner_shape=self.call.output_shape(index))


def for_all_rows(
    call: Call, *names: str, shapes: str = "", may_be_equal: bool = False
) -> tuple[list[Entries], dict[str, Any]]:
    """Inputs of the op for all rows: the row in front of indices, n in front of shapes.

    Args:
      call: the call.
      names: names of inputs that have an entry each, indices first, with spaces between.
      shapes: names of shapes that all rows share, with spaces between.
      may_be_equal: as for ``Entries``.

    Returns:
      The entries of each of ``names``, and the inputs by name.
    """
    changes: dict[str, Any] = {name: with_n(call, call.value(name)) for name in shapes.split()}
    found: list[Entries] = []
    for first, *others in map(str.split, names):
        values = map(call.value, [first, *others])
        entries = Entries(call, *values, may_be_equal=may_be_equal)
        changes |= {first: entries.places, **dict(zip(others, entries.flat[1:]))}
        found.append(entries)
    return found, changes


def with_n(call: Call, shape: Value) -> tf.Tensor:
    """A shape that all rows share, an input of the call or one of a list, with n in front."""
    given = call.inputs.items()
    name = next(k for k, v in given if v is shape or (isinstance(v, list) and shape in v))
    shared(shape, name)
    if call.inputs[name] is shape:
        return _families.with_n(call, shape, name)
    return _families.behind_n(call, shape.tensor)


def room_of(call: Call, shape: Value) -> tf.Tensor:
    """[1 + m]: a shape that holds every row, with n in front."""
    if not shape.is_stacked:
        return with_n(call, shape)
    call.require_packed()
    if isinstance(shape, RowShape):  # sizes that all rows share are known without rows too
        sizes = [call.loop.length, *map(largest, shape.sizes)]
        return tf.stack([tf.cast(size, shape.dtype) for size in sizes])
    most = tf.reduce_max(tf.pad(shape.tensor, [[0, 1], [0, 0]]), 0)
    return tf.concat([[tf.cast(call.loop.length, most.dtype)], most], 0)


def room_for_all(call: Call, shape: Value, entries: Entries) -> tf.Tensor:
    """The same; where the shape differs, entries are checked to be inside of their row's."""
    room = room_of(call, shape)
    if shape.is_stacked:
        own, at = shape.tensor, entries.flat[0]
        inside = (at >= 0) & (at < tf.cast(tf.gather(own, entries.rows), at.dtype))
        text = "an index of a sparse tensor is out of bounds in some iterations. The shapes are"
        entries.flat[0] = call.after_check(inside, text, [own], at)
    return room


def sizes_by(call: Call, rows: tf.Tensor) -> RowSizes:
    """The number of entries of each row, from the row number of each entry, in order."""
    rows, none = tf.cast(rows, tf.int32), tf.zeros([0], tf.int32)
    counts = tf.raw_ops.DenseBincount(input=rows, size=call.loop.length, weights=none)
    counts.set_shape([call.loop.static_length])
    return RowSizes(Cell(counts), rows=rows)


def by_row(call: Call, rows: tf.Tensor, outputs: Sequence[tf.Tensor]) -> list[Value]:
    """Ragged outputs, [total, ...] each, of entries in the order of their rows.

    Args:
      call: the call.
      rows: the row of each entry.
      outputs: the outputs of the op.
    """
    return all_packed(outputs, [sizes_by(call, rows)])


def sparse_results(
    call: Call,
    indices: tf.Tensor,
    values: tf.Tensor,
    shape: tf.Tensor | None = None,
    width: int | None = None,
) -> list[Value]:
    """Indices with the row in front, and values, as indices and values of each row.

    Args:
      call: the call.
      indices: [total, 1 + m].
      values: [total].
      shape: [1 + m], with n in front: its rest is the third result.
      width: m, where it is known.
    """
    indices.set_shape([None, None])
    values.set_shape([None])
    own = indices[:, 1:]
    own.set_shape([None, width])
    made = by_row(call, indices[:, 0], [own, values])
    return made if shape is None else [*made, Value.unstacked(shape[1:])]


def own_ends(call: Call, rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """[n]: in each row the largest of ``places`` plus one, 0 where it has none."""
    n = call.loop.length
    found = tf.math.unsorted_segment_max(places, tf.cast(rows, tf.int32), n) + 1
    return tf.maximum(found, 0)


def numbers_of_rows(call: Call, many: Size) -> tf.Tensor:
    """int32 [total]: the row of each part of all rows."""
    return many.rows if isinstance(many, RowSizes) else tf.repeat(tf.range(call.loop.length), many)


def longest(call: Call, lengths: tf.Tensor, many: Size) -> RowSizes:
    """The length of the longest part in each row, 0 where it has none."""
    rows, n = numbers_of_rows(call, many), call.loop.length
    most = tf.math.unsorted_segment_max(tf.cast(lengths, tf.int32), rows, n)
    return row_sizes(call, tf.maximum(most, 0))


def own_splits(
    call: Call, splits: tf.Tensor, many: Size, sizes: RowSizes | None = None
) -> tuple[Value, RowSizes]:
    """Row splits of all rows as splits of each row, which begin with 0; and their last entries.

    Args:
      call: the call.
      splits: [total + 1].
      many: the number of parts of each row.
      sizes: one more than ``many``, where there is such an object.
    """
    n = call.loop.length
    if isinstance(many, int) and many == 1:
        sizes = RowSizes.of(tf.cast(splits[1:] - splits[:-1], tf.int32))
        return shape_value(call.emit, [0, sizes], splits.dtype), sizes
    if isinstance(many, RowSizes):
        more: RowSizes = sizes or size_plus(many, 1)
        at = tf.range(tf.shape(more.rows)[0]) - more.rows  # a row has one more than it has parts
        first = tf.gather(splits, many.starts)
        last = tf.gather(splits, many.starts + many.tensor)
        own = tf.gather(splits, at) - tf.gather(first, more.rows)
        made: Value = Ragged.packed(own, [more])
    else:
        at = tf.range(n)[:, None] * many + tf.range(many + 1)[None]
        wide = tf.gather(splits, at)
        first, last = wide[:, 0], wide[:, -1]
        made = Value.stacked(wide - first[:, None])
    return made, row_sizes(call, tf.cast(last - first, tf.int32))


class FirstAxis:
    """The row merged with the first axis of indices, for kernels whose first axis is a batch.

    Args:
      call: the call.
      size: the length of the axis in each row: an integer scalar, or ``RowSizes``.
    """

    def __init__(self, call: Call, size: Size):
        self.call = call
        self.size: Size = size if isinstance(size, RowSizes) else tf.cast(size, tf.int64)

    @property
    def total(self) -> tf.Tensor:
        """The length of the merged axis."""
        if isinstance(self.size, RowSizes):
            return tf.reduce_sum(tf.cast(self.size.tensor, tf.int64))
        return tf.cast(self.call.loop.length, tf.int64) * self.size

    def _begins(self, rows: tf.Tensor) -> tf.Tensor:
        """The begin of each of some rows in the merged axis."""
        if isinstance(self.size, RowSizes):
            return tf.cast(tf.gather(self.size.starts, rows), tf.int64)
        return rows * self.size

    def merged(self, entries: Entries) -> tf.Tensor:
        """Indices [total, m] of all rows; what is out of bounds stays so."""
        rows, size = entries.rows, self.size
        if isinstance(size, RowSizes):
            size = tf.cast(tf.gather(size.tensor, rows)[:, None], tf.int64)
        first, behind = tf.split(tf.cast(entries.flat[0], tf.int64), [1, -1], 1)
        is_in = (first >= 0) & (first < size)
        moved = tf.where(is_in, first + tf.expand_dims(self._begins(rows), 1), self.total)
        return tf.concat([moved, behind], 1)

    def shapes(self, last: tf.Tensor) -> Value:
        """[n, 2]: the shape of each row's matrix, whose last size differs."""
        return Value.stacked(tf.stack([tf.fill(tf.shape(last), self.size), last], 1))

    def split(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The row of each index [total, m], and the index in that row."""
        at = indices[:, 0]
        if isinstance(self.size, RowSizes):
            rows = tf.cast(tf.gather(self.size.rows, at), tf.int64)
        else:
            rows = at // tf.maximum(self.size, 1)
        own = at - self._begins(rows)
        return rows, tf.concat([own[:, None], indices[:, 1:]], 1)
