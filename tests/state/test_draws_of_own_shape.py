"""Seeded draws whose shape differs, numbers between two ends, and gradients of joins."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map

NUMBERS = tf.constant([3, 0, 5, 1])
SEED = [1, 2]
X = tf.range(9.0)
DRAWS = {
    "normal": lambda k: tf.random.stateless_normal([k], SEED),
    "normal, double": lambda k: tf.random.stateless_normal([k * k, 3], SEED, dtype=tf.float64),
    "many": lambda k: tf.random.stateless_normal([k * 4001], SEED),
    "uniform": lambda k: tf.random.stateless_uniform([k, 3], SEED),
    "integers": lambda k: tf.random.stateless_uniform([2, k], SEED, maxval=100, dtype=tf.int32),
    "all integers": lambda k: tf.random.stateless_uniform([k], SEED, None, None, tf.int64),
    "truncated": lambda k: tf.random.stateless_truncated_normal([k + 100, 7], SEED),
    "own seeds": lambda k: tf.random.stateless_normal([k, 3], tf.stack([k, 7])),
    "own seeds, many": lambda k: tf.random.stateless_normal([k * 4001], tf.stack([k, 7])),
    "own seeds, nothing": lambda k: tf.random.stateless_normal([k, 0], tf.stack([k, 7])),
    "own seeds, truncated": lambda k: tf.random.stateless_truncated_normal(
        [2, k], tf.stack([k, 7])),
    "own range": lambda k: tf.random.stateless_uniform([k], SEED, -k, 100, tf.int32),
    "own seeds, of a row": lambda k: X[:k] + tf.random.stateless_uniform(
        tf.shape(X[:k]), tf.stack([k, 7])),
    "between": lambda k: tf.linspace(0.0, 1.0, k + 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_draws_of_a_generator(dtype):
    generators = [tf.random.Generator.from_seed(3) for _ in range(2)]
    numbers = tf.constant([3, 0, 900, 1])

    def draws(generator):
        return lambda k: (generator.normal([k], dtype=dtype), generator.uniform([2, k]))

    found = strict_map(draws(generators[0]), numbers)
    for k, *got in zip(numbers, *found, strict=True):
        for mine, wanted in zip(got, draws(generators[1])(k), strict=True):
            np.testing.assert_array_equal(np.reshape(dense(mine), wanted.shape), wanted)
    np.testing.assert_array_equal(*[g.state for g in generators])


def dense(row):
    return row.to_tensor() if isinstance(row, tf.RaggedTensor) else row


@pytest.mark.parametrize("name", DRAWS)
def test_rows_are_those_of_a_loop(name):
    found = strict_map(DRAWS[name], NUMBERS)
    for got, k in zip(found, NUMBERS, strict=True):
        wanted = DRAWS[name](k).numpy()
        got = np.reshape(dense(got), wanted.shape)  # a RaggedTensor of no columns has none
        compare = np.testing.assert_allclose if name == "between" else np.testing.assert_array_equal
        compare(got, wanted)


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_joined_parts(axis):
    x = tf.random.stateless_normal([6, 3], SEED)

    def gradient(k):
        with tf.GradientTape() as tape:
            tape.watch(x)
            other = x[k:] if axis == 0 else x[:k]
            y = tf.reduce_sum(tf.concat([x[:k], other**2, x[:k]], axis) ** 3)
        return tape.gradient(y, x)

    found = strict_map(gradient, NUMBERS)
    for got, k in zip(found, NUMBERS, strict=True):
        np.testing.assert_allclose(got, gradient(k), rtol=1e-5)
