"""Rows of different shapes that get one shape by padding, and segments, of which rows have many."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import from_packed, uses_packed
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.linear import forms
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source


@ragged_rule("Pad")
def pad(call: Call, input: Value, paddings: Value) -> Any:
    """The gradient of a Slice to a size of the row: zeros around, up to one shape."""
    target, known = call.output_shape(), forms(call.op.inputs[1])
    if not isinstance(input, Ragged) or known is None or len(input.ragged_axes) != 1:
        raise CannotVectorize("rows of several axes that differ are padded")
    (axis,) = input.ragged_axes
    others = [amount.known for i, row in enumerate(known) if i != axis for amount in row]
    if not is_static(target) or any(amount != 0 for amount in others):
        raise CannotVectorize("the size after padding is not known")
    begin = tf.cast(call.stacked(paddings), tf.int32)[:, axis, 0]
    return call.like(placed(input, axis, begin, target[axis]))


def placed(value: Ragged, axis: int, begin: tf.Tensor, size: int) -> tf.Tensor:
    """[n, ..., size, ...]: the rows from ``begin`` on, among zeros."""
    own = value.sizes[axis]
    assert isinstance(own, RowSizes)
    at: Any = tf.range(size)[None] - begin[:, None]
    is_inside = (at >= 0) & (at < own.tensor[:, None])
    x = value.in_rows
    rank = x.shape.rank
    assert rank is not None
    room = tf.shape(x)[axis + 1]
    wide = tf.pad(x, [[0, 1] if k == axis + 1 else [0, 0] for k in range(rank)])
    return tf.gather(wide, tf.where(is_inside, at, room), axis=axis + 1, batch_dims=1)


@source("SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum")
def segments(call: Call, data: Value, segment_ids: Value) -> Any:
    """As many segments in each row as its last id says: the ids of all rows follow each other."""
    if not uses_packed(call):
        raise CannotVectorize("how many segments there are, under jit_compile")
    ids = tf.cast(call.stacked(segment_ids), tf.int32)  # [n, T]
    none: Any = tf.fill([tf.shape(ids)[0], 1], -1)
    counts = tf.reduce_max(tf.concat([none, ids], 1), 1) + 1
    counts.set_shape([call.loop.static_length])
    lengths = RowSizes.of(counts)
    x = call.stacked(data)
    flat = tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0))
    flat.set_shape([None, *x.shape[2:]])
    flat_ids = tf.reshape(ids + lengths.starts[:, None], [-1])
    made = call.rebuild(data=flat, segment_ids=flat_ids)
    return from_packed(call, made, [lengths])
