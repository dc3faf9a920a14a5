"""Sparse tensors whose rows have different numbers of entries, as one sparse tensor of all rows.

The number of the row stands in front of each index, and n in front of the shape. The entries of a
result are the entries of all rows, one behind the other. Their row numbers say how many entries
each row has.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_pfor.converters.ragged._forms import after_check, row_ids, uses_packed
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, Size, same_sizes


def require_packed(call: Call) -> None:
    """Raises where tensors whose size is known only when it runs may not be used."""
    if not uses_packed(call):
        raise CannotVectorize("entries of their own number, under jit_compile or in another map")


def shared(value: Value, name: str) -> tf.Tensor:
    """An input that must be the same in all rows."""
    if isinstance(value, RowShape) or value.is_stacked or not value.is_tensor:
        raise CannotVectorize(f"'{name}' may differ between iterations")
    return value.tensor


class Entries:
    """Values that belong together, an entry for each place along their first inner axis.

    Args:
      call: the call.
      values: values that share one first inner axis.

    Attributes:
      flat: the values, [total, ...] each.
      rows: int64 [total]: of which row each entry is.
      sizes: the number of entries of each row.
    """

    def __init__(self, call: Call, *values: Value):
        require_packed(call)
        ragged = [v for v in values if isinstance(v, Ragged)]
        if ragged and (len(ragged) < len(values) or any(v.n_leading != 1 for v in ragged)):
            raise CannotVectorize("indices and values are not known to have as many entries")
        self.call = call
        self.flat: list[tf.Tensor] = []
        for value in values:
            tensor = value.tensor if isinstance(value, Ragged) else _joined(call.stacked(value))
            self.flat.append(tensor)
        for value in ragged[1:]:
            self._check(ragged[0], value)
        if ragged:
            self.sizes: tuple[Size, ...] = ragged[0].sizes
            self.rows = tf.cast(row_ids(self.sizes), tf.int64)
        else:
            shape = tf.shape(call.stacked(values[0]))
            known = (values[0].inner_shape or (None,))[0]
            self.sizes = (shape[1] if known is None else known,)
            self.rows = tf.repeat(tf.range(tf.cast(shape[0], tf.int64)), shape[1])

    def _check(self, first: Ragged, other: Ragged) -> None:
        """A check that rows have as many entries of one value as of another."""
        a, b = first.sizes[0], other.sizes[0]
        if same_sizes([a], [b]):
            return
        if not isinstance(a, RowSizes) or not isinstance(b, RowSizes):
            raise CannotVectorize("indices and values are not known to have as many entries")
        text, sizes = "indices and values differ in number. They are", [a.tensor, b.tensor]
        is_right = tf.equal(a.tensor, b.tensor)
        self.flat[0] = after_check(self.call, is_right, text, sizes, self.flat[0])

    @property
    def places(self) -> tf.Tensor:
        """The first of the values, indices [total, m], with the row in front: [total, 1 + m]."""
        at = self.flat[0]
        rank = at.shape[-1]
        made = tf.concat([tf.cast(self.rows, at.dtype)[:, None], at], 1)
        made.set_shape([None, None if rank is None else rank + 1])
        return made

    def back(self, tensor: tf.Tensor, index: int) -> Value:
        """An output [total, ...] with as many entries as these have."""
        origin = self.call.op.outputs[index]
        if isinstance(self.sizes[0], RowSizes):
            return Ragged.packed(tensor, self.sizes, origin)
        shape = tf.shape(tensor)
        n = self.call.loop.length
        made = tf.reshape(tensor, tf.concat([[n], [self.sizes[0]], shape[1:]], 0))
        return Value.stacked(made).with_inner_shape(tuple(origin.shape.as_list()))


def _joined(tensor: tf.Tensor) -> tf.Tensor:
    """[n, k, ...] -> [n*k, ...]."""
    shape, rest = tf.shape(tensor), tensor.shape[2:]
    made = tf.reshape(tensor, tf.concat([shape[:1] * shape[1:2], shape[2:]], 0))
    made.set_shape([None, *rest])
    return made


def with_n(call: Call, shape: tf.Tensor) -> tf.Tensor:
    """A shape with n in front."""
    n = call.loop.length
    return tf.concat([[tf.cast(n, shape.dtype)], shape], 0)


def room_for_all(call: Call, shape: Value, entries: Entries) -> tf.Tensor:
    """[1 + m]: a shape with room for all rows, n in front.

    Where the shape differs per row, entries are checked to be inside of the shape of their row.
    """
    if not shape.is_stacked:
        return with_n(call, shape.tensor)
    own, at = call.stacked(shape), entries.flat[0]
    inside = (at >= 0) & (at < tf.cast(tf.gather(own, entries.rows), at.dtype))
    text = "an index of a sparse tensor is out of bounds in some iterations. The shapes are"
    entries.flat[0] = after_check(call, inside, text, [own], at)
    return with_n(call, tf.reduce_max(tf.pad(own, [[0, 1], [0, 0]]), 0))


def sizes_by(call: Call, rows: tf.Tensor) -> RowSizes:
    """The number of entries of each row, from the row number of each entry."""
    n = call.loop.length
    made = tf.math.bincount(tf.cast(rows, tf.int32), minlength=n, maxlength=n, dtype=tf.int32)
    made.set_shape([call.loop.static_length])
    return RowSizes.of(made)


def by_row(
    call: Call, rows: tf.Tensor, outputs: Sequence[tf.Tensor], first: int = 0
) -> list[Value]:
    """Ragged outputs, [total, ...] each, of entries in the order of their rows.

    Args:
      call: the call.
      rows: the row of each entry.
      outputs: the outputs of the op, beginning with output number ``first``.
      first: see above.
    """
    sizes = sizes_by(call, rows)
    return [
        Ragged.packed(tensor, [sizes], call.op.outputs[first + i])
        for i, tensor in enumerate(outputs)
    ]


def sparse_results(
    call: Call, indices: tf.Tensor, values: tf.Tensor, width: int | None = None
) -> list[Value]:
    """Indices with the row in front, and values, as indices and values of each row.

    Args:
      call: the call.
      indices: [total, 1 + m].
      values: [total].
      width: m, where it is known.
    """
    indices.set_shape([None, None])
    values.set_shape([None])
    own = indices[:, 1:]
    own.set_shape([None, width])
    return by_row(call, indices[:, 0], [own, values])


def own_ends(call: Call, rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """[n]: in each row the largest of ``places`` plus one, 0 where it has none."""
    n = call.loop.length
    found = tf.math.unsorted_segment_max(places, tf.cast(rows, tf.int32), n) + 1
    return tf.maximum(found, 0)


class FirstAxis:
    """The row merged with the first axis of indices, for kernels whose first axis is a batch.

    Args:
      call: the call.
      size: the length of the axis in each row, an integer scalar.
    """

    def __init__(self, call: Call, size: tf.Tensor):
        self.call, self.size = call, tf.cast(size, tf.int64)

    @property
    def total(self) -> tf.Tensor:
        """The length of the merged axis."""
        n = self.call.loop.length
        return tf.cast(n, tf.int64) * self.size

    def merged(self, entries: Entries) -> tf.Tensor:
        """Indices [total, m] of all rows; what is out of bounds stays so."""
        at = tf.cast(entries.flat[0], tf.int64)
        first = at[:, 0]
        is_in = (first >= 0) & (first < self.size)
        moved = tf.where(is_in, first + entries.rows * self.size, self.total)
        return tf.concat([moved[:, None], at[:, 1:]], 1)

    def split(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The row of each index [total, m], and the index in that row."""
        size = tf.maximum(self.size, 1)
        rows = indices[:, 0] // size
        own = indices[:, 0] - rows * size
        return rows, tf.concat([own[:, None], indices[:, 1:]], 1)
