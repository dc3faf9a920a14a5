"""Samples of tf_pfor/converters/state/random_stateless.py: the draws of a loop, bit for bit.

Under XLA the numbers come from other algorithms: there is nothing to compare with.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.sample import In, ints, normal, sample, uniform

r = tf.raw_ops
SEED = ints(2, low=-(2**31), high=2**31 - 1)
LONG_SEED = ints(2, low=-(2**62), high=2**62, dtype=np.int64)


def _words(count):
    def draw(rng, _):
        return rng.integers(0, 2**63, [count]).astype(np.uint64)

    return In((count,), draw)


KEY, COUNTER = _words(1), _words(2)


def _of_key(op_type, **attrs):
    def body(key, counter):
        return getattr(r, op_type)(key=key, counter=counter, alg=1, **attrs)

    return body


def _drawn(op_type, fn, *inputs, **options):
    options = {"grad": False, "xla": False, "rtol": 0.0, "atol": 0.0, "max_ops": 400, **options}
    return sample(op_type, fn, *inputs, **options)


def _get_alg(x):
    return x * tf.cast(r.StatelessRandomGetAlg(), tf.float32)


def _key_counter_alg(seed):
    key, counter, _ = r.StatelessRandomGetKeyCounterAlg(seed=seed)
    return key, counter


UNIFORM = [
    *(_drawn("StatelessRandomUniform",
        lambda s, d=d: r.StatelessRandomUniform(shape=[7], seed=s, dtype=d), SEED, label=d.name)
        for d in (tf.bfloat16, tf.float32, tf.float64, tf.half)),
    _drawn("StatelessRandomUniformV2", lambda s: tf.random.stateless_uniform([2, 3], s), LONG_SEED,
        label="int64-seed"),
    *(_drawn("StatelessRandomUniformFullInt",
        lambda s, d=d: r.StatelessRandomUniformFullInt(shape=[7], seed=s, dtype=d), SEED,
        label=d.name) for d in (tf.int32, tf.int64, tf.uint32, tf.uint64)),
    *(_drawn("StatelessRandomUniformInt",
        lambda s, lo=lo, hi=hi: r.StatelessRandomUniformInt(shape=[7], seed=s, minval=lo,
        maxval=hi), SEED, label=lo.dtype.name)
        for lo, hi in ((tf.constant(-(2**31)), tf.constant(2**31 - 7)),
        (tf.constant(-5, tf.int64), tf.constant(2**62, tf.int64)))),
    *(_drawn("StatelessRandomUniformV2", _of_key("StatelessRandomUniformV2", shape=[3, 2], dtype=d),
        KEY, COUNTER, label=d.name) for d in (tf.float32, tf.float64)),
    _drawn("StatelessRandomUniformFullIntV2",
        _of_key("StatelessRandomUniformFullIntV2", shape=[5], dtype=tf.uint32), KEY, COUNTER),
    _drawn("StatelessRandomUniformIntV2",
        _of_key("StatelessRandomUniformIntV2", shape=[5], minval=3, maxval=1000), KEY, COUNTER),
]  # fmt: skip

NORMAL = [
    *(
        _drawn(
            "StatelessRandomNormal",
            lambda s, d=d: r.StatelessRandomNormal(shape=[7], seed=s, dtype=d),
            SEED,
            label=d.name,
        )
        for d in (tf.bfloat16, tf.float32, tf.half)
    ),
    _drawn(
        "StatelessRandomNormalV2", _of_key("StatelessRandomNormalV2", shape=[3, 3]), KEY, COUNTER
    ),
]

_CATEGORICAL = (
    (tf.float32, 4, tf.int64), (tf.float64, 1, tf.int32), (tf.half, 7, tf.int64),
)  # fmt: skip
CHOICES = [
    _drawn("RandomIndexShuffle",
           lambda i, s, m: r.RandomIndexShuffle(
               index=i, seed=tf.concat([s, s[:1]], 0), max_index=m, rounds=4),
           ints(high=9), SEED, ints(low=10, high=20)),
    *[
        _drawn("StatelessMultinomial",
               lambda s, p, d=d, k=k, o=o: r.StatelessMultinomial(
                   logits=tf.cast(p, d), num_samples=k, seed=s, output_dtype=o),
               SEED, normal(1, 5), label=f"{d.name}, {k}")
        for d, k, o in _CATEGORICAL
    ],
    _drawn("StatelessMultinomial",
           lambda s, p: r.StatelessMultinomial(
               logits=tf.where(p > 1.0, -np.inf, p), num_samples=9, seed=s),
           LONG_SEED, normal(1, 6), label="masked"),
]  # fmt: skip

LOOPED = [
    _drawn("SobolSample", lambda k: r.SobolSample(dim=2, num_results=3, skip=k), ints(high=9)),
    _drawn("StatelessMultinomial",
        lambda s, p: r.StatelessMultinomial(logits=p, num_samples=4, seed=s), SEED, normal(2, 3)),
    _drawn("StatelessParameterizedTruncatedNormal",
        lambda s, m: r.StatelessParameterizedTruncatedNormal(shape=[3], seed=s, means=m,
        stddevs=1.0, minvals=-1.0, maxvals=1.0), SEED, uniform(3)),
    _drawn("StatelessRandomBinomial",
           lambda s: r.StatelessRandomBinomial(shape=[3], seed=s, counts=5.0, probs=0.4,
                                               dtype=tf.float32), SEED),
    _drawn("StatelessRandomGammaV2",
           lambda s: r.StatelessRandomGammaV2(shape=[3], seed=s, alpha=1.5), SEED),
    _drawn("StatelessRandomGammaV3",
           _of_key("StatelessRandomGammaV3", shape=[3], alpha=1.5), KEY, COUNTER),
    _drawn("StatelessRandomNormal",
           lambda s: r.StatelessRandomNormal(shape=[5], seed=s, dtype=tf.float64),
           SEED, label="float64"),
    _drawn("StatelessRandomPoisson",
           lambda s, x: r.StatelessRandomPoisson(shape=[3], seed=s, lam=x, dtype=tf.float32),
           SEED, uniform()),
    _drawn("StatelessRandomUniformV2",
           _of_key("StatelessRandomUniformV2", shape=[70]), KEY, COUNTER, label="large"),
    _drawn("StatelessShuffle",
        lambda k, c: r.StatelessShuffle(value=tf.range(6), key=k, counter=c, alg=1), KEY, COUNTER),
    _drawn("StatelessTruncatedNormal",
           lambda s: r.StatelessTruncatedNormal(shape=[5], seed=s), SEED),
    _drawn("StatelessTruncatedNormalV2",
           _of_key("StatelessTruncatedNormalV2", shape=[5]), KEY, COUNTER),
]  # fmt: skip

SAMPLES = [
    _drawn("StatelessRandomGetAlg", _get_alg, normal(2)),
    _drawn("StatelessRandomGetKeyCounter", lambda s: r.StatelessRandomGetKeyCounter(seed=s), SEED),
    _drawn("StatelessRandomGetKeyCounterAlg", _key_counter_alg, LONG_SEED),
    *UNIFORM,
    *NORMAL,
    *CHOICES,
    *(dataclasses.replace(s, unknown=s.op_type != "StatelessShuffle") for s in LOOPED),
]
