"""Sweep of tf.random."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, body, call, each, floats, integers, positive

_RANDOM = {"shape": [4], "seed": integers(2)}
RANDOM: list[Case] = [
    *each("tf.random", "stateless_normal stateless_uniform stateless_truncated_normal", **_RANDOM),
    call("tf.random.stateless_gamma", alpha=positive(4), **_RANDOM),
    call("tf.random.stateless_poisson", [4], integers(2), positive(4)),
    call("tf.random.stateless_binomial", [4], integers(2), 5.0, positive(4)),
    call("tf.random.stateless_categorical", floats(1, 4), 3, integers(2)),
    call("tf.random.stateless_parameterized_truncated_normal", [4], integers(2), floats(), 1.0,
        -2.0, 2.0),
    call("tf.random.experimental.stateless_shuffle", floats(5), integers(2)),
    call("tf.random.experimental.stateless_fold_in", [1, 2], integers()),
    call("tf.random.experimental.stateless_split", integers(2), 2),
    body("tf.random.experimental.index_shuffle",
        lambda i: tf.random.experimental.index_shuffle(i, tf.constant([1, 2], tf.uint32),
        tf.constant(9, tf.int32)), integers()),
    *each("tf.random", "normal uniform truncated_normal", [4], random=True),
    call("tf.random.gamma", [2], positive(4), random=True),
    call("tf.random.poisson", [2], positive(4), random=True),
    call("tf.random.categorical", floats(1, 4), 3, random=True),
    call("tf.random.shuffle", floats(5), random=True),
    *[call(f"tf.random.{k}_candidate_sampler", integers(2, 1, dtype=np.int64), 1, 3, True, 9,
        random=True) for k in ("uniform", "log_uniform", "learned_unigram")],
    call("tf.random.all_candidate_sampler", integers(2, 1, dtype=np.int64), 1, 9, True,
        random=True),
    call("tf.random.fixed_unigram_candidate_sampler", integers(2, 1, dtype=np.int64), 1, 3, True, 5,
        unigrams=[1.0] * 5, random=True),
]  # fmt: skip
