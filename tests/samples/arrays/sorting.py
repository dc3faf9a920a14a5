"""Samples of tf_pfor/converters/arrays/sorting.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, ints, normal, sample

raw = tf.raw_ops


def ascending(*shape):
    return drawn(shape, lambda rng: np.sort(rng.integers(0, 9, shape), -1).astype(np.int32))


def search(name):
    return lambda s, v: getattr(raw, name)(sorted_inputs=s, values=v)


SAMPLES = [
    # The CPU kernel takes the last axis and the largest entries only.
    sample("ApproxTopK", lambda x: tuple(raw.ApproxTopK(input=x, k=2)), normal(2, 6), xla=False,
           grad=False),
    sample("InTopK", lambda p, t: raw.InTopK(predictions=p, targets=t, k=2), normal(4, 5),
           ints(4), xla=False),
    sample("InTopKV2", lambda p, t: raw.InTopKV2(predictions=p, targets=t, k=2), normal(4, 5),
           ints(4)),
    sample("InTopKV2", lambda p, t, k: raw.InTopKV2(predictions=p, targets=t, k=k),
           drawn((4, 5), lambda r: np.where(r.random((4, 5)) < 0.1, np.inf, r.normal(size=(4, 5)))
                 .astype(np.float32)),
           ints(4, low=-1, high=7), ints(low=1, high=5), label="own", max_ops=24, grad=False,
           xla=False),  # XLA's own differs for targets out of range
    sample("LowerBound", search("LowerBound"), ascending(1, 6), ints(1, 4, high=9)),
    sample("LowerBound", search("LowerBound"), ascending(2, 6), ints(2, 4, high=9),
           label="rows"),
    sample("NthElement", lambda x: raw.NthElement(input=x, n=2), normal(5), xla=False),
    sample("NthElement", lambda x: raw.NthElement(input=x, n=1, reverse=True), normal(2, 3, 5),
           label="reverse", xla=False),
    sample("TopKV2", lambda x: tuple(tf.math.top_k(x, 2)), normal(5)),
    sample("TopKV2", lambda x: tuple(tf.math.top_k(x, 3)), ints(2, 3, 5, high=99),
           label="ties"),
    sample("TopKV2", lambda x: tuple(tf.math.top_k(tf.nn.bias_add(x, [0.0] * 5), 3)),
           normal(2, 5), label="after_fold"),
    sample("UpperBound", search("UpperBound"), ascending(1, 6), ints(1, 4, high=9)),
    sample("UpperBound", search("UpperBound"), ascending(2, 6), ints(2, 4, high=9),
           label="rows"),
]  # fmt: skip
