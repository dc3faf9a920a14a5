"""Samples of tf_pfor/converters/parsing/examples.py."""

import tensorflow as tf

from tests.sample import sample
from tests.samples.parsing.text import PLAIN, texts


def example(i):
    made = {"x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, 2.0 * i]))}
    if i % 2:
        made["label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
    features = tf.train.Features(feature=made)
    return tf.train.Example(features=features).SerializeToString()


EXAMPLES = [example(i) for i in range(4)]
FEATURES = {
    "x": tf.io.FixedLenFeature([2, 1], tf.float32),
    "label": tf.io.FixedLenFeature([], tf.int64, 7),
}


def version_1(op, serialized, **options):
    made = op(
        serialized=serialized, dense_keys=["label", "x"], dense_shapes=[[], [2]],
        dense_defaults=[tf.constant(7, tf.int64), tf.constant([], tf.float32)],
        sparse_keys=[], sparse_types=[], **options,
    )  # fmt: skip
    return made.dense_values


SAMPLES = [
    sample("ParseExample", lambda x: version_1(tf.raw_ops.ParseExample, x, names=[]),
        texts(3, of=EXAMPLES), **PLAIN),
    sample("ParseExampleV2", lambda x: tf.io.parse_single_example(x, FEATURES), texts(of=EXAMPLES),
        **PLAIN),
    sample("ParseExampleV2", lambda x: tf.io.parse_example(x, FEATURES), texts(3, of=EXAMPLES),
        label="vectors", **PLAIN),
    sample("ParseSingleExample",
        lambda x: version_1(tf.raw_ops.ParseSingleExample, x, num_sparse=0), texts(of=EXAMPLES),
        **PLAIN),
]  # fmt: skip
