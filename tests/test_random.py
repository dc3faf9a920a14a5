"""Stateful random ops: every iteration draws its own numbers, from the right distribution."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

N = 400
RAW = tf.raw_ops
DRAWS = {
    "RandomUniform": (lambda: tf.random.uniform([50]), 0.5),
    "RandomStandardNormal": (lambda: tf.random.normal([50]), 0.0),
    "RandomGamma": (lambda: tf.random.gamma([50], 2.0), 2.0),
    "RandomPoissonV2": (lambda: tf.random.poisson([50], 3.0), 3.0),
    "Multinomial": (
        lambda: RAW.Multinomial(logits=tf.math.log([[0.25, 0.75]]), num_samples=50),
        0.75,
    ),
}


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_iterations_draw_their_own_numbers(name):
    draw, mean = DRAWS[name]
    rows = tf_pfor.pfor(lambda i: draw(), N).numpy().reshape([N, -1])
    assert len({row.tobytes() for row in rows}) == N
    assert abs(rows.mean() - mean) < 0.1  # 20,000 draws: more than five standard deviations


def test_parameters_belong_to_their_row():
    rates = tf.constant([1.0, 100.0, 10000.0])
    means = tf_pfor.vectorized_map(lambda r: tf.random.poisson([200], r), rates).numpy().mean(1)
    np.testing.assert_allclose(means, rates.numpy(), rtol=0.5)


def test_logits_belong_to_their_row():
    logits = tf.constant([[[0.0, -99.0]], [[-99.0, 0.0]]])
    drawn = tf_pfor.vectorized_map(lambda x: RAW.Multinomial(logits=x, num_samples=9), logits)
    assert drawn.numpy().tolist() == [[[0] * 9], [[1] * 9]]


def test_shuffles_are_permutations_and_differ():
    rows = tf_pfor.pfor(lambda i: tf.random.shuffle(tf.range(30)), 20).numpy()
    assert (np.sort(rows, 1) == np.arange(30)).all()
    assert len({row.tobytes() for row in rows}) == 20


def test_invariant_stateless_seed_is_one_draw():
    rows = tf_pfor.pfor(lambda i: tf.random.stateless_normal([3], [1, 2]), 4).numpy()
    assert (rows == rows[0]).all()
