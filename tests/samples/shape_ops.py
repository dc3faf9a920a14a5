"""Samples of tf_pfor/converters/shape_ops.py."""

import tensorflow as tf

from tests.harness import normal, sample

SAMPLES = [
    sample("Reshape", lambda x: tf.reshape(x, [3, -1]), normal(2, 3, 2)),
    sample("Squeeze", tf.squeeze, normal(2, 1)),
]
