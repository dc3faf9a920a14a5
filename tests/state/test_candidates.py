"""Candidate samplers: own draws of each row, by the law of the kernel."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map

r = tf.random
UNIGRAMS = [float(i + 1) for i in range(18)]
SAMPLERS = {
    "fixed": lambda x: r.fixed_unigram_candidate_sampler(
        x, 1, 6, True, 20, unigrams=UNIGRAMS, num_reserved_ids=2, distortion=0.75
    ),
    "log uniform": lambda x: r.log_uniform_candidate_sampler(x, 1, 6, True, 20),
    "uniform": lambda x: r.uniform_candidate_sampler(x, 1, 6, True, 20),
    "with repetition": lambda x: r.log_uniform_candidate_sampler(x, 1, 6, False, 20),
}


@pytest.fixture(autouse=True, params=["chance", "global seed"])
def seeded(request):
    """Under a seed, two ops of the same seeds draw the same numbers."""
    if request.param == "global seed":
        tf.random.set_seed(1)
    yield
    tf.random.set_seed(None)


@pytest.mark.parametrize("name", SAMPLERS)
def test_law(name):
    body = lambda x: list(SAMPLERS[name](x))
    true = tf.fill([10000, 1, 1], np.int64(3))
    found = [np.asarray(x) for x in strict_map(body, true)]
    one = tf.function(body)
    wanted = [np.stack(c) for c in zip(*[one(true[0]) for _ in range(2000)])]
    often = [np.bincount(s.ravel(), minlength=20) / len(s) for s in (found[0], wanted[0])]
    np.testing.assert_allclose(*often, atol=0.05)
    if name != "with repetition":
        assert (np.diff(np.sort(found[0], 1), axis=1) > 0).all()
    for got, want in zip(found[1:], wanted[1:]):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.mean(0), want.mean(0), atol=0.03)
        np.testing.assert_allclose(got.std(0), want.std(0), atol=0.03)


@pytest.mark.parametrize("loss", [tf.nn.nce_loss, tf.nn.sampled_softmax_loss])
def test_losses(loss):
    x, w = r.stateless_normal([6, 4, 8], [1, 2]), r.stateless_normal([50, 8], [3, 4])
    labels = r.stateless_uniform([6, 4, 1], [5, 6], 0, 50, tf.int64)

    with tf.GradientTape() as tape:
        tape.watch(w)
        found = strict_map(lambda row: loss(w, tf.zeros([50]), row[1], row[0], 10, 50), (x, labels))
    gradient = tf.convert_to_tensor(tape.gradient(found, w))
    assert found.shape == [6, 4]
    assert np.isfinite(found).all()
    assert np.abs(gradient).max() > 0
    # all classes drawn: what is left of the loss is no chance
    full = [loss(w, tf.zeros([50]), labels[i], x[i], 50, 50, remove_accidental_hits=True)
            for i in range(6)]  # fmt: skip
    again = strict_map(
        lambda row: loss(w, tf.zeros([50]), row[1], row[0], 50, 50, remove_accidental_hits=True),
        (x, labels),
    )
    tries = np.abs(np.stack(full) - again) / (1 + np.abs(np.stack(full)))
    assert tries.mean() < 0.1  # how many tries it took shifts the logits a little


def test_accidental_hits_of_own_candidates():
    true = r.stateless_uniform([5, 3, 2], [1, 2], 0, 9, tf.int64)
    drawn = r.stateless_uniform([5, 6], [3, 4], 0, 9, tf.int64)
    body = lambda row: list(tf.nn.compute_accidental_hits(row[0], row[1], 2))
    found = strict_map(body, (true, drawn))
    for i in range(5):
        for got, want in zip(found, body((true[i], drawn[i]))):
            np.testing.assert_array_equal(got[i], want)


def test_log_uniform_counts_of_draws_with_repetition():
    """These are expected, not counted: the chance of a class times the draws, as the kernel has."""
    true = tf.constant([[[0]], [[3]], [[19]]], tf.int64)
    body = lambda x: list(SAMPLERS["with repetition"](x))
    sampled, of_true, of_sampled = strict_map(body, true)
    chance = {x: body(tf.constant([[x]], tf.int64))[1].numpy() for x in range(20)}
    np.testing.assert_allclose(of_true, [chance[x] for x in (0, 3, 19)], rtol=1e-5)
    wanted = np.vectorize(lambda x: chance[x].item())(sampled)
    np.testing.assert_allclose(of_sampled, wanted, rtol=1e-5)
