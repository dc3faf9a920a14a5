"""Samples of tf_pfor/converters/control_flow/calls.py."""

import tensorflow as tf

from tests.sample import normal, sample

_SCALE = tf.Variable([1.0, -2.0, 3.0], trainable=True)


@tf.function
def _product(x, y):
    return x * y, x - y


@tf.function
def _scaled(x, y):
    return x * y * _SCALE


@tf.function
def _outer(x, y):
    a, b = _product(x, y)
    c, _ = _product(b, a)
    return a, c


_compiled = tf.function(lambda x, y: x * y, jit_compile=True)


@tf.custom_gradient
def _clipped(x, y):
    """The product; each iteration's gradient is clipped by its own norm."""

    def gradient(upstream):
        share = upstream * tf.minimum(1.0, 0.1 / tf.norm(upstream))
        return share * y, share * x

    return x * y, gradient


SAMPLES = [
    sample("IdentityN", lambda x, y: tuple(tf.identity_n([x, y])), normal(3), normal()),
    sample("IdentityN", _clipped, normal(3), normal(3), label="custom_gradient"),
    sample("PartitionedCall", _product, normal(3), normal(3)),
    sample("PartitionedCall", _compiled, normal(3), normal(3), label="compiled"),
    sample("PartitionedCall", _outer, normal(2, 3), normal(3), label="nested"),
    sample("StatefulPartitionedCall", _scaled, normal(3), normal(3)),
]
