"""Samples of tf_pfor/converters/lists/optional.py."""

import tensorflow as tf

from tests.sample import normal, sample

raw = tf.raw_ops


def _get(x, y):
    made = raw.OptionalFromValue(components=[x, y])
    return raw.OptionalGetValue(
        optional=made, output_types=[tf.float32, tf.float32], output_shapes=[[2], [3]]
    )


def _has(x):
    return raw.OptionalHasValue(optional=raw.OptionalFromValue(components=[x]))


def _none(x):
    return x, raw.OptionalHasValue(optional=raw.OptionalNone())


# XLA has no optionals.
SAMPLES = [
    sample("OptionalFromValue", _get, normal(2), normal(3), xla=False),
    sample("OptionalGetValue", _get, normal(2), normal(3), xla=False),
    sample("OptionalHasValue", _has, normal(2), xla=False),
    sample("OptionalNone", _none, normal(2), xla=False),
]
