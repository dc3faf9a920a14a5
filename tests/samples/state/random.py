"""Samples of tf_pfor/converters/state/random.py: shapes and dtypes; test_random.py has the rest."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, normal, sample, uniform

raw = tf.raw_ops


def truncated(means):
    bounds = {"minvals": tf.constant(-2.0), "maxvals": tf.constant(2.0)}
    return raw.ParameterizedTruncatedNormal(
        shape=[2, 3], means=means, stdevs=tf.constant(1.0), **bounds
    )


def stateful(op_type, fn, *inputs, **options):
    return sample(op_type, fn, *inputs, random=True, grad=False, xla=False, **options)


SAMPLES = [
    stateful("RandomUniform", lambda x: x + tf.random.uniform([3]), normal(3)),
    stateful("RandomStandardNormal", lambda x: x + tf.random.normal([2, 3]), normal(3)),
    stateful("TruncatedNormal", lambda x: x + tf.random.truncated_normal([3]), normal(3)),
    stateful("RandomUniformInt", lambda x: (x, tf.random.uniform([2], 0, 9, tf.int32)), normal()),
    stateful("NonDeterministicInts", lambda x: (x, raw.NonDeterministicInts(shape=[2])), normal()),
    stateful("RandomGamma", lambda a: tf.random.gamma([2], a), uniform(3)),
    stateful("RandomPoissonV2", lambda a: tf.random.poisson([2], a), uniform(3)),
    stateful("Multinomial", lambda x: raw.Multinomial(logits=x, num_samples=4), normal(2, 3)),
    stateful("ParameterizedTruncatedNormal", truncated, uniform()),
    stateful("ParameterizedTruncatedNormal", truncated, uniform(2), label="vector"),
    stateful("RandomShuffle", tf.random.shuffle, normal(4, 2)),
    stateful("RandomShuffle", lambda x, y: (x, tf.random.shuffle(y)), normal(), fixed(np.arange(4)),
        label="invariant"),
]  # fmt: skip
