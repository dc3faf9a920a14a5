"""Loops and branches over rows whose size is one number for all, unknown before it runs."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import by_row, gradient_of, mapped, strict_map

X = tf.random.stateless_normal([4, 3], [1, 2])
K = tf.constant([0, 3, 1, 1])
SPECS = [tf.TensorSpec([None, None]), tf.TensorSpec([None], tf.int32)]


def elif_then_for(x, k):
    if k > 2:
        y = x * 2.0
    elif k > 0:
        y = tf.sin(x)
    else:
        y = x * x
    for _ in tf.range(k):
        y = y * tf.cos(x) + y
    return tf.reduce_sum(y)


def for_in_if(x, k):
    y = x
    if k > 0:
        for _ in tf.range(k):
            y = tf.sin(y) * tf.reduce_sum(x)
    return tf.reduce_sum(y * y)


def for_alone(x, k):
    y = x
    for _ in tf.range(k):
        y = y * tf.cos(x) + y
    return tf.reduce_sum(y * y)


def slope(body):
    body = tf.function(body)
    gradient = lambda x, k: gradient_of(lambda: body(x, k), x)
    return gradient


differentiated = lambda run, *args: gradient_of(lambda: tf.reduce_sum(run(*args) ** 2), args[0])
CASES = {"elif, then for": elif_then_for, "for in if": for_in_if, "slope of for": slope(for_alone)}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    body = CASES[name]
    run = tf.function(lambda x, k: mapped(body, x, k), input_signature=SPECS, autograph=False)
    np.testing.assert_allclose(run(X, K), by_row(body, X, K), rtol=1e-4, atol=1e-5)
    assert run(X[:0], K[:0]).shape[0] == 0


@pytest.mark.parametrize("name", ["elif, then for", "for in if"])
def test_gradients_around(name):
    body = CASES[name]
    run = tf.function(
        lambda x, k: differentiated(lambda *a: mapped(body, *a), x, k),
        input_signature=SPECS, autograph=False,
    )  # fmt: skip
    want = differentiated(lambda *a: by_row(body, *a), X, K)
    np.testing.assert_allclose(tf.convert_to_tensor(run(X, K)), want, rtol=1e-3, atol=1e-4)


def test_sizes_that_do_not_fit_are_an_error():
    @tf.function(input_signature=[SPECS[0], SPECS[0], SPECS[1]], autograph=False)
    def run(x, y, k):
        return strict_map(lambda e: tf.reduce_sum(e[0][: e[2]] * e[1]), (x, y, k))

    np.testing.assert_allclose(run(X, X[:, :2], K * 0 + 2), tf.reduce_sum(X[:, :2] ** 2, 1), 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sizes of two inputs along axis 0"):
        run(X, X[:, :2], K)


def beam_search(scores, start):
    """The number of beams is known when it runs."""
    count = tf.minimum(3, tf.shape(start)[0])
    best, token = tf.math.top_k(start, count)
    history = tf.zeros([count, 3], tf.int32)
    size = tf.shape(scores)[0]

    def step(t, best, token, history):
        ahead = tf.reshape(tf.gather(scores, token) + best[:, None], [-1])
        best, place = tf.math.top_k(ahead, count)
        token = place % size
        return t + 1, best, token, tf.gather(history, place // size) * 10 + token[:, None]

    found = tf.while_loop(lambda t, *_: t < 4, step, (0, best, token, history))
    return found[1], found[3]


def test_beam_search():
    scores = tf.random.stateless_normal([4, 5, 5], [1, 2])
    specs = [tf.TensorSpec([None] * 3), SPECS[0]]
    run = tf.function(
        lambda *a: mapped(beam_search, *a), input_signature=specs, autograph=False
    )(scores, scores[:, 0])  # fmt: skip
    one = tf.function(beam_search, input_signature=[s.__class__(s.shape[1:]) for s in specs])
    for i in range(4):
        for got, want in zip(run, one(scores[i], scores[i, 0])):
            np.testing.assert_allclose(got[i], want, rtol=1e-5)
