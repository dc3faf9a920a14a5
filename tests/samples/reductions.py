"""Samples of tf_pfor/converters/reductions.py."""

import tensorflow as tf

from tests.harness import normal, sample

SAMPLES = [
    sample("Sum", lambda x: tf.reduce_sum(x, [0, -1]), normal(2, 3, 4)),
    sample("Mean", lambda x: tf.reduce_mean(x, 1, keepdims=True), normal(2, 3, 4)),
]
