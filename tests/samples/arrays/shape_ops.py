"""Samples of tf_pfor/converters/arrays/shape_ops.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample, uniform

raw = tf.raw_ops


_K = fixed(2)  # x[:k] has a dimension that is not known before running

SAMPLES = [
    sample("BroadcastArgs", lambda a, b: tf.raw_ops.BroadcastArgs(s0=a, s1=b),
           drawn((2,), lambda r: np.int32([3, r.integers(1, 3) * 4 - 3])),
           drawn((3,), lambda r: np.int32([r.integers(0, 9), 1, 5])), max_ops=40, xla=False),
    sample("BroadcastTo", lambda x: tf.broadcast_to(x, [2, 4, 3]), normal(1, 3)),
    sample("BroadcastTo", lambda x: tf.broadcast_to(x, [2, 3]), normal(), label="scalar"),
    sample("BroadcastTo", lambda x: tf.broadcast_to(x, [2, 3]), normal(2, 3), label="same",
           max_ops=0),
    sample("ConjugateTranspose", lambda x: raw.ConjugateTranspose(x=x, perm=[1, 0, 2]),
           normal(2, 3, 2, dtype=np.complex64)),
    sample("Empty", lambda x: x + raw.Empty(shape=[2, 3], dtype=tf.float32, init=True), normal(),
           grad=False),
    sample("ExpandDims", lambda x: tf.expand_dims(x, 1), normal(2, 3)),
    sample("ExpandDims", lambda x: tf.expand_dims(x, -1), normal(), label="scalar"),
    sample("Fill", lambda x: tf.fill([2, 3], x), normal()),
    sample("Fill", lambda x: tf.fill([], x), ints(), label="scalar"),
    sample("LinSpace", lambda a, b: raw.LinSpace(start=a, stop=b, num=5), normal(), normal(),
           grad=False),
    sample("LinSpace", lambda a, b: raw.LinSpace(start=a, stop=b, num=1), normal(), normal(),
           label="one", grad=False),
    sample("Range", lambda i: tf.range(i, i + 3), ints()),
    sample("Range", lambda i: tf.range(i, i - 5, -2), ints(dtype=np.int64), label="down",
           xla=False),  # the length is no constant for XLA
    sample("Rank", lambda x: raw.Rank(input=x), normal(2, 3), grad=False),
    sample("Reshape", lambda x: tf.reshape(x, [3, -1]), normal(2, 3, 2)),
    sample("Reshape", lambda x: tf.reshape(x, []), normal(1, 1), label="scalar"),
    sample("Reshape", lambda x: tf.reshape(x, tf.stack([tf.shape(x)[0], -1])), normal(2, 3, 2),
           label="of shape", max_ops=1),
    sample("Reshape", lambda x: tf.reshape(x[None], [1, -1]) + 1.0, normal(3, 2), label="folded",
           max_ops=3),
    sample("Reshape", lambda x, s: tf.reshape(x, s), normal(6), fixed(np.asarray([2, 3], np.int64)),
           label="int64"),
    sample("Reshape", lambda x, k: tf.reshape(x[:k], [3, -1]), normal(3, 3, 2), _K, label="loose",
           xla=False),
    sample("Reshape", lambda x, k: tf.reshape(x[:k, :k], [k, k, 1]), normal(3, 3), _K,
           label="looser", xla=False, max_ops=20),
    sample("Reshape", lambda x, k: tf.reshape(x[:k, :k], [k, -1]), normal(3, 3), _K,
           label="inferred", xla=False, max_ops=20),
    sample("Shape", lambda x: raw.Shape(input=x), normal(2, 3), grad=False, max_ops=2),
    sample("Shape", lambda x, k: raw.Shape(input=x[:k], out_type=tf.int64), normal(3, 3), _K,
           label="loose", grad=False, xla=False),
    sample("ShapeN", lambda x, y: raw.ShapeN(input=[x, y]), normal(2, 3), normal(1), grad=False),
    sample("Size", lambda x: raw.Size(input=x), normal(2, 3), grad=False),
    sample("Size", lambda x, k: raw.Size(input=x[:k]), normal(3, 3), _K, label="loose",
           grad=False, xla=False),
    sample("Squeeze", tf.squeeze, normal(2, 1)),
    sample("Squeeze", lambda x: tf.squeeze(x, [-1]), normal(1, 2, 1), label="last"),
    sample("Squeeze", lambda x, k: tf.squeeze(x[: k - 1], [0]), normal(3, 2), _K, label="loose",
           xla=False),
    sample("Tile", lambda x: tf.tile(x, [1, 2]), uniform(2, 3)),
    sample("Tile", lambda x, m: tf.tile(x, m), normal(2), fixed([3]), label="input"),
    sample("Tile", lambda x: tf.tile(x[None], [1, 2, 1]), normal(2, 3), label="folded", max_ops=2),
    sample("Transpose", lambda x: tf.transpose(x, [2, 0, 1]), normal(2, 3, 4)),
    sample("Transpose", lambda x, p: tf.transpose(x, p), normal(2, 3), fixed([1, 0]),
           label="input", xla=False),
    sample("Transpose", lambda x: tf.transpose(x[None], [0, 2, 1]) + 0.5, normal(2, 3),
           label="folded", max_ops=3),
    sample("Transpose", lambda x: tf.transpose(x), normal(), label="scalar"),
    sample("Transpose", lambda x, p: tf.transpose(x, p), normal(2, 2, 2),
           drawn((3,), lambda r: r.permutation(3).astype(np.int32)), label="own", max_ops=30,
           xla=False),
]  # fmt: skip
