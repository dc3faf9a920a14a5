"""Samples of tf_pfor/converters/parsing/protos.py; test_protos.py decodes."""

import numpy as np
import tensorflow as tf

from tests.sample import fixed, ints, sample

SAMPLES = [
    sample(
        "EncodeProto",
        lambda sizes, values: tf.raw_ops.EncodeProto(
            sizes=sizes, values=[values], field_names=["value"],
            message_type="tensorflow.Int64List",
        ),
        ints(2, 1, high=4), ints(2, 3, dtype=np.int64), grad=False, xla=False,
    ),
    sample(
        "EncodeProto",
        lambda sizes, a, b: tf.raw_ops.EncodeProto(
            sizes=sizes, values=[a, b], field_names=["producer", "bad_consumers"],
            message_type="tensorflow.VersionDef",
        ),
        fixed(np.int32([[1, 2]])), ints(1, 1), ints(1, 2), label="two fields",
        grad=False, xla=False,
    ),
]  # fmt: skip
