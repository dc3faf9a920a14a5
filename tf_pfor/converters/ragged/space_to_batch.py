"""Dilated convolutions of sequences of own length: their steps in turn in a batch, and back.

TensorFlow's convolutions of one axis take every k-th step as a sequence of its own. How much is
padded and cropped for that depends on the length of the row.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import after_check, from_padded, uses_packed
from tf_pfor.converters.ragged.padding import placed
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule


def _sequence(call: Call, input: Value, block_shape: Value, ends: Value) -> Any:
    """Batch and steps of a row, how many parts they are taken into, and numbers of both ends."""
    del block_shape
    block = call.maybe_constant("block_shape")
    if not isinstance(input, Ragged) or not uses_packed(call) or block is None or block.size != 1:
        raise CannotVectorize("blocks of several axes, or rows of several axes that differ")
    if len(input.sizes) != 2 or not isinstance(input.sizes[0], int):
        raise CannotVectorize("blocks of rows of several axes that differ")
    numbers: Any = tf.cast(call.stacked(ends), tf.int32)[:, 0]
    numbers = tf.broadcast_to(numbers, [call.loop.length_tensor, 2])
    return *input.sizes, int(block[0]), numbers[:, 0], numbers[:, 1]


def _length(call: Call, size: tf.Tensor) -> RowSizes:
    size.set_shape([call.loop.static_length])
    return RowSizes.of(size)


@ragged_rule("SpaceToBatchND")
def space_to_batch(call: Call, input: Value, block_shape: Value, paddings: Value) -> Any:
    """[n, b, steps, ...] -> [n, k * b, steps / k, ...]: every k-th step as a sequence."""
    batch, size, block, front, back = _sequence(call, input, block_shape, paddings)
    assert isinstance(input, Ragged)
    total = size.tensor + front + back
    text = f"padded sizes are no multiples of the block, {block}. They are"
    total = after_check(call, tf.equal(total % block, 0), text, [total], total)
    room: Any = tf.reduce_max(tf.concat([total, [0]], 0))
    wide = placed(input, 1, front, room)
    n, rest = tf.shape(wide)[0], tf.shape(wide)[3:]
    apart = tf.reshape(wide, tf.concat([[n, batch, room // block, block], rest], 0))
    axes = [0, 3, 1, 2, *range(4, len(wide.shape) + 1)]
    made = tf.reshape(
        tf.transpose(apart, axes), tf.concat([[n, block * batch, room // block], rest], 0)
    )
    made.set_shape([None, block * batch, None, *wide.shape[3:]])
    return from_padded(call, made, [block * batch, _length(call, total // block)], is_clean=True)


@ragged_rule("BatchToSpaceND")
def batch_to_space(call: Call, input: Value, block_shape: Value, crops: Value) -> Any:
    """The inverse: the steps in order, without those at the ends that were padded."""
    parts, size, block, front, back = _sequence(call, input, block_shape, crops)
    assert isinstance(input, Ragged)
    rows = input.in_rows
    n, room, rest, batch = tf.shape(rows)[0], tf.shape(rows)[2], tf.shape(rows)[3:], parts // block
    apart = tf.reshape(rows, tf.concat([[n, block, batch, room], rest], 0))
    axes = [0, 2, 3, 1, *range(4, len(rows.shape) + 1)]
    wide = tf.reshape(tf.transpose(apart, axes), tf.concat([[n, batch, room * block], rest], 0))
    length = size.tensor * block - front - back
    text = "more is cropped than there is. Sizes would be"
    length = after_check(call, length >= 0, text, [length], length)
    most: Any = tf.reduce_max(tf.concat([length, [0]], 0))
    at = tf.minimum(tf.range(most)[None] + front[:, None], tf.maximum(room * block - 1, 0))
    made = tf.gather(wide, at, axis=2, batch_dims=1)
    made.set_shape([None, batch, None, *rows.shape[3:]])
    return from_padded(call, made, [batch, _length(call, length)])
