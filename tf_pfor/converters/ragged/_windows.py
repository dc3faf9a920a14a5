"""Ranges of own begins and sizes, gathered into the packed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import row_ids, row_starts
from tf_pfor.layouts.ragged import RowSizes


def packed_range(
    whole: tf.Tensor, start: Any, lengths: RowSizes, stride: int, *, is_stacked: bool
) -> tf.Tensor:
    """The elements of ranges of axis 0, one row behind the other: one gather."""
    shape = tf.shape(whole)
    if is_stacked:
        rest = whole.shape[2:]
        flat = tf.reshape(whole, tf.concat([shape[:1] * shape[1], shape[2:]], 0))
        flat.set_shape([None, *rest])
        if start is None and stride == 1:
            mask = tf.range(shape[1]) < lengths.tensor[:, None]
            return tf.gather(flat, tf.where(tf.reshape(mask, [-1]))[:, 0])
        whole = flat
    rows = lengths.rows
    at = tf.range(tf.shape(rows)[0]) - tf.gather(lengths.starts, rows)
    at = at * stride if stride != 1 else at
    if start is not None:
        at += tf.gather(start, rows)
    return tf.gather(whole, at + rows * shape[1] if is_stacked else at)


def packed_window(
    whole: tf.Tensor, starts: Sequence[Any], sizes: Sequence[Any], strides: Sequence[int], *,
    is_stacked: bool,
) -> tf.Tensor:  # fmt: skip
    """The elements of ranges of several axes, one row behind the other: one gather."""
    count, lead = len(sizes), int(is_stacked)
    shape = tf.shape(whole)
    all_places = tf.reduce_prod(shape[: count + lead], keepdims=True)
    flat = tf.reshape(whole, tf.concat([all_places, shape[count + lead :]], 0))
    flat.set_shape([None, *whole.shape[count + lead :]])
    rows = row_ids(sizes)
    left = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts(sizes), rows)  # in the row
    place: Any = 0
    room: Any = 1
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
