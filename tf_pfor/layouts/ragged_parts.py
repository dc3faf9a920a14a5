"""Rows of different shapes handed on as tensors, and put together of parts of the rows.

What the rows hold lies one behind the other (*packed*), with the sizes of the axes that differ
beside it. Parts, each of some of the rows, are brought into their order by one ``DynamicStitch``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.values import Shape
from tf_pfor.layouts.ragged import Ragged, RowSizes, Size
from tf_pfor.layouts.row_sizes import row_counts


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """The form in which variable-length rows are handed on.

    Attributes:
      sizes: the sizes of the axes up to the last axis that differs: an int, or None where a tensor
        int32 [n] has the sizes.
      rest: the static shape behind these axes.
    """

    sizes: tuple[int | None, ...]
    rest: tuple[int | None, ...]

    @classmethod
    def of(cls, inner: tuple[int | None, ...]) -> Form:
        """The form of rows of this static shape; unknown sizes differ per row."""
        count = max(i for i, size in enumerate(inner) if size is None) + 1
        return cls(inner[:count], inner[count:])

    @property
    def n_sizes(self) -> int:
        """The number of tensors of sizes."""
        return self.sizes.count(None)

    @property
    def inner(self) -> Shape:
        """The static shape of a row."""
        return (*self.sizes, *self.rest)

    def shapes(self, length: int | None = None) -> list[tf.TensorShape]:
        """The static shapes of its tensors, for so many rows."""
        return [tf.TensorShape([None, *self.rest]), *[tf.TensorShape([length])] * self.n_sizes]

    def tensors(self, value: Ragged | tf.Tensor) -> list[tf.Tensor]:
        """The packed form of rows (or of a tensor [n, ...]), and their sizes."""
        packed = packed_to(value, len(self.sizes))
        n = tf.shape(value)[0] if isinstance(value, tf.Tensor) else _count(value)
        found = [packed]
        for size, known in zip(sizes_of(value, len(self.sizes)), self.sizes):
            if known is None:
                found.append(size.tensor if isinstance(size, RowSizes) else tf.fill([n], size))
        return found

    def value(
        self,
        tensors: Sequence[tf.Tensor],
        same: Sequence[RowSizes | None],
        origin: tf.Tensor,
    ) -> Ragged:
        """The rows of which these are the tensors.

        Args:
          tensors: as ``tensors`` gives them.
          same: for each axis sizes that are known to be the same, None where none are.
          origin: the tensor of the body that it is.
        """
        packed, *own = tensors
        return Ragged.packed(packed, self.all_sizes(own, same), origin)

    def all_sizes(self, own: Sequence[tf.Tensor], same: Sequence[RowSizes | None]) -> list[Size]:
        """The sizes of the rows, of which the tensors are given, or others that are the same."""
        supply = iter(own)
        sizes: list[Size] = []
        for known, other in zip(self.sizes, same, strict=True):
            if known is not None:
                sizes.append(known)
                continue
            tensor = next(supply)
            sizes.append(RowSizes.of(tensor) if other is None else other)
        return sizes


def sizes_of(value: Ragged | tf.Tensor, count: int) -> list[Size]:
    """The sizes of so many leading axes of ragged rows, or of a tensor [n, ...]."""
    is_dense = isinstance(value, tf.Tensor)
    own: list[Size] = [] if is_dense else list(value.sizes)
    tensor = value if is_dense else value.tensor
    return own + [_dim(tensor, axis) for axis in range(1, count - len(own) + 1)]


def packed_to(value: Ragged | tf.Tensor, count: int) -> tf.Tensor:
    """The packed form in which so many axes are merged, of ragged rows or of a tensor [n, ...]."""
    is_dense = isinstance(value, tf.Tensor)
    tensor, more = (value, count) if is_dense else (value.tensor, count - value.n_leading)
    if not more:
        return tensor
    rank = tensor.shape.rank
    assert rank is not None
    known = tensor.shape[more + 1 :]
    if known.is_fully_defined() and 0 not in known:
        return tf.reshape(tensor, [-1, *known])
    total = 1
    for axis in range(more + 1):
        total = total * _dim(tensor, axis)
    rest = [_dim(tensor, axis) for axis in range(more + 1, rank)]
    made = tf.reshape(tensor, tf.stack([total, *rest]))
    made.set_shape([total if isinstance(total, int) else None, *known])
    return made


def in_order(
    form: Form,
    rows: Sequence[tf.Tensor],
    parts: Sequence[Sequence[tf.Tensor]],
    same: Sequence[RowSizes | None],
    stitched: Any,
    length: int | None,
    origin: tf.Tensor,
) -> Ragged:
    """The rows of several parts in their order.

    Args:
      form: the form of all parts.
      rows: int32 [k] for each part, which rows it has.
      parts: the tensors of each.
      same: for each axis sizes of all rows that are known to be the same, None where none are.
      stitched: puts pieces in their places, ``stitched(places, pieces, shape)``.
      length: the number of rows, None if it is not known before running.
      origin: the tensor of the body that it is.
    """
    pieces, *own = zip(*parts)
    others = [other for other, size in zip(same, form.sizes) if size is None]
    whole = [
        stitched(rows, size, tf.TensorShape([length])) if other is None else other.tensor
        for size, other in zip(own, others, strict=True)
    ]
    sizes = form.all_sizes(whole, same)
    counts = row_counts(sizes)
    starts = tf.cumsum(counts, exclusive=True)
    places: list[tf.Tensor] = []
    for part in rows:
        each = tf.gather(counts, part)
        first = tf.gather(starts, part) - tf.cumsum(each, exclusive=True)
        places.append(tf.repeat(first, each) + tf.range(tf.reduce_sum(each)))
    pieces = of_one_inner_shape(list(pieces), tf.TensorShape(form.rest), origin)
    packed = stitched(places, pieces, tf.TensorShape([None, *form.rest]))
    return Ragged.packed(packed, sizes, origin)


def of_one_inner_shape(
    pieces: list[tf.Tensor], inner: tf.TensorShape, origin: tf.Tensor, *, is_read: bool = True
) -> list[tf.Tensor]:
    """Gives pieces without rows the inner shape of the others, checked, where it is not static.

    Args:
      pieces: tensors [k, ...].
      inner: their static inner shape.
      origin: the tensor of the body that they are, for the error.
      is_read: whether somebody reads it.
    """
    if not is_read or inner.is_fully_defined():
        return pieces
    shapes = [tf.shape(p) for p in pieces]
    inside = shapes[0][1:]
    for shape in shapes[1:]:
        inside = tf.where(shape[0] > 0, shape[1:], inside)
    op = origin.op
    what = f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'})"
    fits = tf.stack([tf.equal(s[0], 0) | tf.reduce_all(tf.equal(s[1:], inside)) for s in shapes])
    text = (
        f"The results of branches that rows choose between differ in shape: {what}. Expected: one "
        "shape, since nothing says when the function is traced that they differ. Give the inputs "
        "static shapes, or pad the results. Found the shapes, with the number of rows in front,"
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(fits), [text, *shapes], 20)]):
        inside = tf.identity(inside)
    return [tf.reshape(p, tf.concat([s[:1], inside], 0)) for p, s in zip(pieces, shapes)]


def _count(value: Ragged) -> Any:
    first = next(s for s in value.sizes if isinstance(s, RowSizes)).tensor
    return _dim(first, 0)


def _dim(tensor: tf.Tensor, axis: int) -> Any:
    known = tensor.shape[axis]
    return tf.shape(tensor)[axis] if known is None else known
