"""Normal numbers as TensorFlow's kernel draws them, bit for bit: Box and Muller's transform.

The kernel takes logarithm, sine and cosine of a float from the C library. The library glibc (since
2.28) computes them in double, with the tables and polynomials below. Each has only 2**23 arguments
here, and for all of them the results agree (docs/decisions/0007). Where another library gives other
last bits, ``is_exact`` finds out.

The transform: Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.

Logarithm, sine and cosine: Arm Optimized Routines, logf.c and sincosf.c.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import tensorflow as tf

from tf_pfor.converters.state import _philox as philox

_DOUBLE = tf.float64


def _hex(numbers: str) -> list[float]:
    return [float.fromhex(x) for x in numbers.split()]


# For 16 intervals: 1 / c, and log(c), of a c in the middle.
_INVERSE = _hex("""
    0x1.661ec79f8f3bep+0 0x1.571ed4aaf883dp+0  0x1.49539f0f010bp+0 0x1.3c995b0b80385p+0
    0x1.30d190c8864a5p+0  0x1.25e227b0b8eap+0 0x1.1bb4a4a1a343fp+0 0x1.12358f08ae5bap+0
    0x1.0953f419900a7p+0               0x1p+0 0x1.e608cfd9a47acp-1  0x1.ca4b31f026aap-1
    0x1.b2036576afce6p-1 0x1.9c2d163a1aa2dp-1 0x1.886e6037841edp-1 0x1.767dcf5534862p-1
""")
_LOG = _hex("""
    -0x1.57bf7808caadep-2 -0x1.2bef0a7c06ddbp-2 -0x1.01eae7f513a67p-2 -0x1.b31d8a68224e9p-3
    -0x1.6574f0ac07758p-3   -0x1.1aa2bc79c81p-3 -0x1.a4e76ce8c0e5ep-4 -0x1.1973c5a611cccp-4
    -0x1.252f438e10c1ep-5                0x0p+0  0x1.aa5aa5df25984p-5  0x1.c5e53aa362eb4p-4
     0x1.526e57720db08p-3   0x1.bc2860d22477p-3  0x1.1058bc8a07ee1p-2  0x1.4043057b6ee09p-2
""")
_LOG_POLY = _hex("-0x1.00ea348b88334p-2 0x1.5575b0be00b6ap-2 -0x1.ffffef20a4123p-2")
_LN_2 = float.fromhex("0x1.62e42fefa39efp-1")
_FIRST = 0x3F330000  # the bits of the float at which the intervals begin
_SIN = _hex("0x1p0 -0x1.555545995a603p-3 0x1.1107605230bc4p-7 -0x1.994eb3774cf24p-13")
_COS = _hex(
    "0x1p0 -0x1.ffffffd0c621cp-2 0x1.55553e1068f19p-5 -0x1.6c087e89a359dp-10 0x1.99343027bf8c3p-16"
)
_HALF_PI = float.fromhex("0x1.921fb54442d18p0")
_HALF_PI_INVERSE = float.fromhex("0x1.45f306dc9c883p+23")  # times 2**24


def drawn(words: philox.Words, dtype: tf.DType, count: int) -> tf.Tensor:
    """Normal numbers [n, count] of blocks (two by two): float32, half or bfloat16."""
    first, second = (philox.uniform(x, tf.float32) for x in words)  # [n, blocks, 2]: two pairs
    radius = _radius(tf.maximum(first, np.float32(1e-7)))
    angle = tf.cast(2.0 * math.pi * tf.cast(second, _DOUBLE), tf.float32)
    pairs = tf.stack([r * radius for r in _sin_cos(angle)], -1)  # [n, blocks, 2, 2]
    flat = tf.reshape(pairs, [-1, 4 * int(pairs.shape[1])])[:, :count]
    return flat if dtype == tf.float32 else tf.cast(flat, dtype)


@functools.cache
def is_exact() -> bool:
    """Whether the kernel of this machine draws just these numbers; tried once, on 4,096."""
    with tf.init_scope():
        if not tf.executing_eagerly():
            return False
        key, counter = philox.scramble(tf.constant([[1, 2]], tf.int64))
        kernel = tf.raw_ops.StatelessRandomNormalV2(
            shape=[4096], key=key[0], counter=counter[0], alg=1
        )
        ours = drawn(philox.numbers(key, counter, 1024), tf.float32, 4096)
        return bool(tf.reduce_all(tf.equal(kernel, ours[0])))


def _radius(u: tf.Tensor) -> tf.Tensor:
    """sqrt(-2 log u) in float32; the root of a float in double, rounded, is the exact one."""
    bits = tf.bitcast(u, tf.int32)
    past = bits - _FIRST
    interval = tf.bitwise.bitwise_and(tf.bitwise.right_shift(past, 19), 15)
    exponent = tf.bitwise.right_shift(past, 23)
    z = tf.bitcast(bits - tf.bitwise.left_shift(exponent, 23), tf.float32)
    r = tf.cast(z, _DOUBLE) * tf.gather(tf.constant(_INVERSE, _DOUBLE), interval) - 1.0
    log_c = tf.gather(tf.constant(_LOG, _DOUBLE), interval)
    log_c += tf.cast(exponent, _DOUBLE) * _LN_2
    squared = r * r
    poly = _LOG_POLY[0] * squared + (_LOG_POLY[1] * r + _LOG_POLY[2])
    log = tf.cast(poly * squared + (log_c + r), tf.float32)
    return tf.cast(tf.sqrt(tf.cast(-2.0 * log, _DOUBLE)), tf.float32)


def _sin_cos(angle: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sine and cosine of float32 in [0, 2 pi], by the distance to the next axis."""
    x = tf.cast(angle, _DOUBLE)
    axis = tf.cast(x * _HALF_PI_INVERSE, tf.int32) + 0x800000
    axis = tf.bitwise.right_shift(axis, 24)  # 0 ... 4
    x -= tf.cast(axis, _DOUBLE) * _HALF_PI
    x *= tf.gather(tf.constant([1, -1, -1, 1, 1], _DOUBLE), axis)
    x2 = x * x
    x3, x4 = x * x2, x2 * x2
    sin = (x + x3 * _SIN[1]) + (x3 * x2) * (_SIN[2] + x2 * _SIN[3])
    cos = (_COS[0] + x2 * _COS[1]) + x4 * _COS[2]
    cos += (x4 * x2) * (_COS[3] + x2 * _COS[4])
    cos *= tf.gather(tf.constant([1, 1, -1, -1, 1], _DOUBLE), axis)
    is_odd = tf.equal(tf.bitwise.bitwise_and(axis, 1), 1)
    pair = tf.where(is_odd, cos, sin), tf.where(is_odd, sin, cos)
    return tf.cast(pair[0], tf.float32), tf.cast(pair[1], tf.float32)
