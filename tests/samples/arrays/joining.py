"""Samples of tf_pfor/converters/arrays/joining.py."""

import tensorflow as tf

from tests.sample import bools, drawn, fixed, ints, normal, sample

raw = tf.raw_ops

SAMPLES = [
    sample("Concat", lambda x, y: raw.Concat(concat_dim=-1, values=[x, y]), normal(2, 3),
           normal(2, 1)),
    sample(
        "ConcatOffset", lambda a, b: raw.ConcatOffset(concat_dim=1, shape=[a, b]),
        drawn((2,), lambda r: [2, r.integers(5)]), drawn((2,), lambda r: [2, r.integers(5)]),
        xla=False,  # XLA wants constant shapes
    ),
    sample("ConcatV2", lambda x, y: tf.concat([x, y], 0), normal(2, 3), normal(1, 3)),
    sample("ConcatV2", lambda x, y: tf.concat([x, y, x], -1), bools(2, 3), bools(2, 0),
           label="last"),
    sample("ConcatV2", lambda x, w: tf.concat([x[None], tf.matmul(x[None], w)], 1), normal(3),
           normal(3, 4).fixed, label="folded", max_ops=3),
    sample("Pack", lambda x, y: tf.stack([x, y]), normal(2, 3), normal(2, 3)),
    sample("Pack", lambda x, y: tf.stack([x, y], -1), ints(2), ints(2), label="last"),
    sample("Pack", lambda x, y: tf.stack([x, 7, y]), ints(), ints(), label="scalars"),
    sample("Pack", lambda x: tf.stack([x[None], x[None]], 1), normal(3), label="folded", max_ops=2),
    sample("Split", lambda x: tf.split(x, 2, 1), normal(3, 4)),
    sample("Split", lambda x: tf.split(x[None], 3, -2), normal(3, 4), label="folded", max_ops=4),
    sample("SplitV", lambda x: tf.split(x, [1, -1, 0], 1), normal(3, 4)),
    sample("SplitV", lambda x, n: tf.split(x, n, -2), normal(3, 4), fixed([2, 1]),
           label="negative"),
    sample("Unpack", lambda x: tf.unstack(x), normal(2, 3)),
    sample("Unpack", lambda x: tf.unstack(x, axis=-1), normal(2, 3), label="last"),
    sample("Unpack", lambda x: tf.unstack(x), normal(3), label="vector"),
    sample("ParallelConcat", lambda x, y: tf.concat([x, y], 0) if tf.executing_eagerly() else
           raw.ParallelConcat(values=[x, y], shape=[2, 3]), normal(1, 3), normal(1, 3), grad=False),
]  # fmt: skip
