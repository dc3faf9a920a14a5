"""Samples of tf_pfor/converters/state/candidates.py; test_candidates.py has the laws."""

import tensorflow as tf

from tests.sample import ints, sample

TRUE = ints(2, 1, high=6, dtype="int64")
_DRAWN = {"random": True, "grad": False, "xla": False, "max_ops": 140,
          "steps": "tries, until each row has enough classes that differ"}  # fmt: skip
r = tf.random


SAMPLES = [
    sample("AllCandidateSampler", lambda x: list(r.all_candidate_sampler(x, 1, 6, True)), TRUE,
           grad=False, xla=False),
    sample("FixedUnigramCandidateSampler", lambda x: list(r.fixed_unigram_candidate_sampler(
               x, 1, 4, True, 9, distortion=0.5, num_reserved_ids=1,
               unigrams=[1.0, 5.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0])), TRUE, **_DRAWN),
    sample("LogUniformCandidateSampler", lambda x: list(r.log_uniform_candidate_sampler(
               x, 1, 4, True, 9)), TRUE, **_DRAWN),
    sample("UniformCandidateSampler", lambda x: list(r.uniform_candidate_sampler(
               x, 1, 4, True, 9)), TRUE, **_DRAWN),
    sample("UniformCandidateSampler", lambda x: list(r.uniform_candidate_sampler(
               x, 1, 4, False, 9)), TRUE, label="with repetition", **_DRAWN),
]  # fmt: skip
