"""Philox 4x32-10 in integer ops: the numbers that TensorFlow's kernels draw, bit for bit.

A generator is a key and a counter. Block g of four 32-bit numbers is a hash of the key and of
counter + g. All numbers here are held in uint64.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf._shared import shared

_M = (0xD2511F53, 0xCD9E8D57)
_W = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words = tuple[tf.Tensor, tf.Tensor]
"""Numbers 0 and 2 of blocks, and numbers 1 and 3: [n, blocks, 2] each."""

SMALL = 64
"""Numbers drawn in one iteration up to which integer ops beat a loop over the kernel."""

KERNEL = "the kernel's own arithmetic is needed for what a loop would draw, bit for bit"
"""Why other draws loop."""


def u64(value: int) -> Any:
    """A uint64 constant."""
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


def low(x: tf.Tensor) -> tf.Tensor:
    """The lower 32 bits."""
    return tf.bitwise.bitwise_and(x, u64(0xFFFFFFFF))


def high(x: tf.Tensor) -> tf.Tensor:
    """The upper 32 bits, moved down."""
    return tf.bitwise.right_shift(x, u64(32))


def join(lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """Two 32-bit numbers as one of 64 bits."""
    return tf.bitwise.bitwise_or(lower, tf.bitwise.left_shift(upper, u64(32)))


@shared([2, None, None], [_ROUNDS, 2, None, 1])
def block(counter: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """The numbers of blocks: [2, n, blocks], of which numbers 0 and 2 are the upper 32 bits.

    Both halves of a round are one op, which makes a draw in a tf.data pipeline start fast.

    Args:
      counter: [2, n or 1, blocks], the two words of 64 bits of each.
      keys: [rounds, 2, n or 1, 1], the keys of the rounds in the upper 32 bits.
    """
    factors = tf.constant(np.array([*map(u64, _M)]).reshape([2, 1, 1]))
    width, axis = tf.constant(u64(32)), tf.constant([0])
    first, odd = low(counter), tf.bitwise.bitwise_and(counter, u64(0xFFFFFFFF << 32))
    state = None
    for key in tf.unstack(keys, _ROUNDS):
        if state is not None:
            first, odd = tf.bitwise.right_shift(state, width), tf.bitwise.left_shift(state, width)
        products = tf.reverse(first * factors, axis)
        state = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(products, odd), key)
    assert state is not None
    return state


@shared([None, 2])
def scramble(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Keys [n, 1] and counters [n, 2] of seeds [n, 2] (StatelessRandomGetKeyCounter)."""
    words = tf.transpose(tf.cast(seed, tf.uint64))  # negative: two's complement
    keys = [
        [((k + i * w) & 0xFFFFFFFF) << 32 for k, w in zip((0x3EC8F720, 0x02461E29), _W)]
        for i in range(_ROUNDS)
    ]
    made = block(words[:, :, None], tf.constant(np.array(keys, np.uint64)[:, :, None, None]))
    key, counter = tf.unstack(join(high(made), low(made)), 2)  # [n, 1]
    return key, tf.concat([tf.zeros_like(counter), counter], -1)


def skip(counter: tf.Tensor, blocks: tf.Tensor) -> tf.Tensor:
    """The 128-bit counter [..., 2] after some blocks (uint64, broadcasts)."""
    first, second = tf.unstack(counter, 2, -1)
    lower = first + blocks
    carry = tf.cast(lower < blocks, tf.uint64)
    return tf.stack([lower, tf.broadcast_to(second + carry, tf.shape(lower))], -1)


def numbers(key: tf.Tensor, counter: tf.Tensor, blocks: int) -> Words:
    """The numbers of ``blocks`` blocks.

    Args:
      key: uint64 [n or 1, 1].
      counter: uint64 [n or 1, 2].
      blocks: the number of blocks.
    """
    at = counter[:, None]
    at = skip(at, _range(blocks)) if blocks > 1 else at
    steps = np.array([[u64(i * w) for w in _W] for i in range(_ROUNDS)])[:, :, None, None]
    keys = tf.bitwise.left_shift(tf.stack([key, high(key)]) + steps, u64(32))
    made = tf.transpose(block(tf.transpose(at, [2, 0, 1]), keys), [1, 2, 0])
    made.set_shape([None, blocks, 2])
    return high(made), low(made)


def _range(blocks: int) -> tf.Tensor:
    return tf.constant(np.arange(blocks, dtype=np.uint64)[None])


def drawn(words: Words, dtype: tf.DType, count: int) -> tf.Tensor:
    """Uniform floats in [0, 1), or the bits of integers: [n, count], in the kernels' order."""
    even, odd = words
    if dtype in (tf.float32, tf.half, tf.bfloat16, tf.int32, tf.uint32):
        flat = tf.stack([even, odd], -1)  # [n, blocks, 2, 2]
    else:
        flat = join(odd, even) if dtype == tf.float64 else join(even, odd)
    size = flat.shape[1:].num_elements()
    flat = tf.reshape(flat, [-1, size])[:, :count]
    return uniform(flat, dtype) if dtype.is_floating else flat


def uniform(bits: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Floats in [0, 1) of bits: the lower ones are the mantissa of a number in [1, 2)."""
    width, exponent, whole, narrow = _FLOATS[dtype]
    mantissa = tf.bitwise.bitwise_and(bits, u64((1 << width) - 1))
    filled = tf.bitwise.bitwise_or(mantissa, u64(exponent << width))
    raw = tf.bitcast(tf.cast(filled, whole), narrow)
    return raw - tf.constant(1, narrow)


# Bits of the mantissa, the exponent of one, the integer dtype of the same size.
_FLOATS = {
    tf.bfloat16: (7, 127, tf.uint16, tf.bfloat16),
    tf.float32: (23, 127, tf.uint32, tf.float32),
    tf.float64: (52, 1023, tf.uint64, tf.float64),
    tf.half: (10, 15, tf.uint16, tf.half),
}


def blocks_for(count: int, dtype: tf.DType) -> int:
    """The number of blocks that ``count`` numbers of a dtype take."""
    each = 2 if dtype in (tf.float64, tf.int64, tf.uint64) else 4
    return -(-count // each)
