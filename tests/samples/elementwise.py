"""Samples of tf_pfor/converters/elementwise.py."""

import tensorflow as tf

from tests.harness import bools, normal, sample, uniform

SAMPLES = [
    sample("AddV2", lambda x, y: x + y, normal(2, 3), normal(3)),
    sample("SelectV2", tf.where, bools(3), normal(2, 3), normal()),
    *[
        sample(op, lambda x, op=op: getattr(tf.raw_ops, op)(x=x), uniform(2, 3))
        for op in ("Abs", "Exp")
    ],
]
