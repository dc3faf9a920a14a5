"""Philox 4x32-10 in integer ops: the numbers that TensorFlow's kernels draw, bit for bit.

A generator is a key and a counter. Block g of four 32-bit numbers is a hash of the key and of
counter + g. All numbers here are held in uint64.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

_M = (0xD2511F53, 0xCD9E8D57)
_W = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words = list[tf.Tensor]

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


def block(counter: Words, key: Words) -> Words:
    """The four numbers of one block, from the four words of the counter and the two of the key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for i in range(_ROUNDS):
        if i:
            k0, k1 = low(k0 + u64(_W[0])), low(k1 + u64(_W[1]))
        p0, p1 = c0 * u64(_M[0]), c2 * u64(_M[1])
        c0, c1, c2, c3 = (
            tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(high(p1), c1), k0),
            low(p1),
            tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(high(p0), c3), k1),
            low(p0),
        )
    return [c0, c1, c2, c3]


def _word(words: Any, k: int) -> tf.Tensor:
    return words[..., k]  # the stubs know no ...


def scramble(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Key [..., 1] and counter [..., 2] of a seed [..., 2] (StatelessRandomGetKeyCounter)."""
    words = tf.cast(seed, tf.uint64)  # negative ones: two's complement
    s0, s1 = _word(words, 0), _word(words, 1)
    key = [tf.constant(u64(0x3EC8F720)), tf.constant(u64(0x02461E29))]
    m0, m1, m2, m3 = block([low(s0), high(s0), low(s1), high(s1)], key)
    zero = tf.zeros_like(m0)
    return tf.expand_dims(join(m0, m1), -1), tf.stack([zero, join(m2, m3)], -1)


def skip(counter: tf.Tensor, blocks: tf.Tensor) -> tf.Tensor:
    """The 128-bit counter [..., 2] after some blocks (uint64, broadcasts)."""
    lower = _word(counter, 0) + blocks
    carry = tf.cast(lower < blocks, tf.uint64)
    upper = _word(counter, 1) + carry
    return tf.stack([lower, tf.broadcast_to(upper, tf.shape(lower))], -1)


def numbers(key: tf.Tensor, counter: tf.Tensor, blocks: int) -> Words:
    """The numbers of ``blocks`` blocks: four words [n, blocks].

    Args:
      key: uint64 [n or 1, 1].
      counter: uint64 [n or 1, 2].
      blocks: how many.
    """
    at = skip(counter[:, None, :], _range(blocks))
    lower, upper = _word(at, 0), _word(at, 1)  # [n, blocks]
    words = [low(lower), high(lower), low(upper), high(upper)]
    return block(words, [low(key), high(key)])


def _range(blocks: int) -> tf.Tensor:
    return tf.constant(np.arange(blocks, dtype=np.uint64)[None])


def drawn(words: Words, dtype: tf.DType, count: int) -> tf.Tensor:
    """Uniform floats in [0, 1), or the bits of integers: [n, count], in the kernels' order."""
    if dtype in (tf.float32, tf.half, tf.bfloat16, tf.int32, tf.uint32):
        flat = tf.stack(words, -1)  # [n, blocks, 4]
    else:
        flat = tf.stack([join(words[0], words[1]), join(words[2], words[3])], -1)
        if dtype == tf.float64:
            flat = tf.stack([join(words[1], words[0]), join(words[3], words[2])], -1)
    size = flat.shape[1] * flat.shape[2]
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
    """How many blocks ``count`` numbers of a dtype take."""
    each = 2 if dtype in (tf.float64, tf.int64, tf.uint64) else 4
    return -(-count // each)
