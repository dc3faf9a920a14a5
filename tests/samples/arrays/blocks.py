"""Samples of tf_pfor/converters/arrays/blocks.py."""

import tensorflow as tf

from tests.sample import fixed, normal, sample

raw = tf.raw_ops

SAMPLES = [
    sample("BatchToSpace", lambda x: raw.BatchToSpace(input=x, crops=[[0, 1], [1, 0]],
                                                      block_size=2), normal(8, 2, 2, 3)),
    sample("BatchToSpaceND", lambda x: tf.batch_to_space(x, [2, 3], [[0, 1], [2, 0]]),
           normal(12, 1, 2, 3)),
    sample("BatchToSpaceND", lambda x: tf.batch_to_space(x, [2], [[0, 0]]), normal(2, 3),
           label="one axis"),
    sample("DepthToSpace", lambda x: tf.nn.depth_to_space(x, 2), normal(1, 2, 3, 8)),
    sample("SpaceToBatch", lambda x: raw.SpaceToBatch(input=x, paddings=[[0, 1], [1, 0]],
                                                      block_size=2), normal(2, 3, 3, 2)),
    sample("SpaceToBatchND", lambda x: tf.space_to_batch(x, [2, 3], [[1, 0], [0, 1]]),
           normal(2, 3, 5, 2)),
    sample("SpaceToBatchND", lambda x, p: tf.space_to_batch(x, [2], p), normal(1, 4),
           fixed([[0, 0]]), label="one axis", xla=False),
    sample("SpaceToDepth", lambda x: tf.nn.space_to_depth(x, 2), normal(1, 4, 6, 3)),
]  # fmt: skip
