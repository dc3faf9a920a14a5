"""Samples of tf_pfor/converters/matmul.py."""

import tensorflow as tf

from tests.harness import normal, sample

SAMPLES = [
    sample("BiasAdd", tf.nn.bias_add, normal(2, 3), normal(3).fixed),
    sample("MatMul", tf.matmul, normal(2, 3), normal(3, 4)),
    sample(
        "MatMul", lambda a, b: tf.matmul(a, b, transpose_a=True), normal(3, 2), normal(3, 4),
        label="transpose_a",
    ),
]  # fmt: skip
