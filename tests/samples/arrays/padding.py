"""Samples of tf_pfor/converters/arrays/padding.py."""

import numpy as np
import tensorflow as tf

from tests.sample import bools, drawn, fixed, ints, normal, sample

raw = tf.raw_ops
_PAIRS = [[1, 0], [2, 1]]
_INNER = [[0, 0], [1, 2]]

SAMPLES = [
    *[sample("MirrorPad", lambda x, m=m: tf.pad(x, _PAIRS, m), normal(2, 3), label=m)
        for m in ("REFLECT", "SYMMETRIC")],
    sample("MirrorPad", lambda x: tf.pad(x, [[0, 0], [0, 0], [1, 1], [0, 0], [1, 0]], "REFLECT"),
           normal(1, 2, 3, 1, 2), label="rank 5", xla=False),  # Pad of rank 5 only
    *[sample("MirrorPadGrad", lambda x, m=m: raw.MirrorPadGrad(input=x, paddings=_PAIRS, mode=m),
        normal(4, 6), label=m) for m in ("REFLECT", "SYMMETRIC")],
    sample("Pad", lambda x: tf.pad(x, _PAIRS), normal(2, 3)),
    sample("Pad", lambda x: tf.pad(x[None], [[0, 0], *_INNER]), normal(2, 3), label="folded",
           max_ops=2),
    sample("Pad", lambda x, p: tf.pad(x, p), bools(2, 3), fixed(_PAIRS), label="input", xla=False),
    sample("PadV2", lambda x: tf.pad(x, _PAIRS, constant_values=1.5), normal(2, 3)),
    # TensorFlow has no gradient with respect to the constant.
    sample("PadV2", lambda x, c: tf.pad(x, _PAIRS, constant_values=c), normal(2, 3), normal(),
           label="values", grad=False),
    sample("PadV2", lambda x, c: raw.PadV2(input=x, paddings=_PAIRS, constant_values=c),
           ints(2, 3), ints(), label="int"),
    sample("Reverse", lambda x: raw.Reverse(tensor=x, dims=[False, True]), normal(2, 3)),
    sample("ReverseSequence", lambda x, n: tf.reverse_sequence(x, n, seq_axis=1, batch_axis=0),
        normal(2, 4, 3), ints(2, high=5)),
    sample("ReverseSequence", lambda x, n: tf.reverse_sequence(x, n, seq_axis=0, batch_axis=2),
        normal(4, 3, 2), ints(2, high=5, dtype=np.int64), label="time major"),
    sample("ReverseV2", lambda x: tf.reverse(x, [0, -1]), normal(2, 2, 3)),
    sample("Roll", lambda x, s: tf.roll(x, s, 1), normal(2, 4), ints(low=-6, high=6), max_ops=14),
    sample("Roll", lambda x, s: tf.roll(x, s, [0, -1]), normal(3, 2, 4), ints(2, low=-6),
           label="axes", max_ops=14),
    sample("Roll", lambda x, s: tf.roll(x[None], s, 1), drawn((3,), lambda r: r.normal(size=3)),
           fixed(2), label="folded", max_ops=3),
    sample("ReverseV2", lambda x, a: tf.reverse(x, a), normal(2, 3, 2), ints(1, low=-3, high=3),
           label="own-axis", max_ops=30, xla=False),
]  # fmt: skip
