"""Samples of tf_pfor/converters/parsing/sequences.py: what is of one shape in all rows."""

import tensorflow as tf

from tests.sample import sample
from tests.samples.parsing.text import PLAIN, texts


def example(i):
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[i, i + 1]))
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={"x": feature})
    ).SerializeToString()


EXAMPLES = [example(i) for i in range(4)]


def version_1(x):
    return tf.raw_ops.ParseSingleSequenceExample(
        serialized=x, feature_list_dense_missing_assumed_empty=[], context_sparse_keys=[],
        context_dense_keys=["x"], feature_list_sparse_keys=[], feature_list_dense_keys=[],
        context_dense_defaults=[tf.constant([], tf.int64)], debug_name="",
        context_dense_shapes=[[2]],
    ).context_dense_values  # fmt: skip


SAMPLES = [
    sample(
        "ParseSequenceExampleV2",
        lambda x: tf.io.parse_single_sequence_example(
            x, {"x": tf.io.FixedLenFeature([2], tf.int64)}, {}
        )[0],
        texts(of=EXAMPLES), **PLAIN, max_ops=16,
    ),
    sample("ParseSingleSequenceExample", version_1, texts(of=EXAMPLES), **PLAIN, max_ops=16),
]  # fmt: skip
