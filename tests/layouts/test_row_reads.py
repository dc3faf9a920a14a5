"""Reads of ``x[k]`` where only some rows are active: one gather, at places from either end."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map

X = tf.constant(np.random.default_rng(0).normal(size=[6, 4, 3]))


def branch(x, k):
    return tf.cond(x[0, 0] > 0, lambda: tf.reduce_sum(x[k] * x[0]), lambda: tf.reduce_prod(x[k]))


def loop(x, k):
    def step(t, s):
        return t + 1, tf.sin(s) + x[k] * x[t]

    most = 1 + tf.cast(tf.abs(x[0, 0]) * 4.0, tf.int32) % 4
    return tf.while_loop(lambda t, _: t < most, step, (0, x[1]))[1]


def from_the_end(x, k):
    """The place is computed in the loop, and negative."""

    def step(t, s):
        return t + 1, tf.sin(s) + x[-1 - t] * x[k]

    most = 1 + tf.cast(tf.abs(x[0, 0]) * 4.0, tf.int32) % 4
    return tf.while_loop(lambda t, _: t < most, step, (0, x[1]))[1]


@pytest.mark.parametrize("size", [4, None])
def test_reads_of_some_rows(size):
    """Reads of tensors of a known size, and of an unknown size."""
    assert len({int(1 + abs(x[0, 0]) * 4) % 4 for x in X}) > 2

    def body(x):
        return [one(x, k) for one in (branch, loop, from_the_end) for k in (-4, -1, 2)]

    @tf.function(input_signature=[tf.TensorSpec([6, size, 3], X.dtype)])
    def mapped(xs):
        return strict_map(body, xs)

    for found, *wanted in zip(mapped(X), *[body(x) for x in X]):
        np.testing.assert_allclose(found, wanted)
