"""Conditionals and loops in branches that rows choose or that all rows share, with no rows too.

Gradients are taken in the body, and by a tape around them.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, pairwise, strict_map

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
K = np.array([1, 2, 0, 3], np.int32)
M = np.array([0, 2, 1, 1], np.int32)
X = RNG.normal(size=[4, 3])
N = tf.TensorSpec([None], tf.int32)
cell = lambda s: tf.tanh(tf.linalg.matvec(W, s))
loop = lambda body, s: tf.while_loop(lambda t, _: t < 2, lambda t, s: (t + 1, body(s)), (0, s))[1]


def loop_of_array(body, s):
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))

    def step(t, s, array):
        new = body(s)
        return t + 1, new, array.write(t, new * 0.5 + s)

    _, s, array = tf.while_loop(lambda t, *_: t < 2, step, (0, s, array))
    return s + tf.reduce_sum(array.stack(), 0) * 0.3


def in_each_other(k, m, x, p):
    y = tf.linalg.matvec(W, x)
    inner = lambda: tf.cond(m > 0, lambda: y * tf.cos(y), lambda: tf.sin(y) + 1)
    return tf.cond(k > m, lambda: tf.sin(tf.sin(y)), inner)


def shared_inside(k, m, x, p):
    y = loop(cell, x)
    inner = lambda: tf.cond(p > 0, lambda: y * tf.cos(y), lambda: tf.sin(y) + 1)
    return tf.cond(k > m, lambda: tf.sin(tf.sin(y)), inner)


def shared_around(k, m, x, p):
    inner = lambda: tf.cond(k > m, lambda: cell(x), lambda: tf.sin(x))
    return tf.cond(p > 0, inner, lambda: loop(tf.sin, x))


def shared_loops(k, m, x, p):
    return tf.cond(p > 0, lambda: tf.cos(tf.sin(loop(cell, x))), lambda: loop_of_array(tf.sin, x))


def shared_maps(k, m, x, p):
    rows = tf.stack([x, x / 2])
    there = lambda: tf.reduce_sum(tf.map_fn(tf.cos, rows), 0)
    return tf.cond(p > 0, there, lambda: tf.reduce_sum(tf.map_fn(cell, rows), 0))


def shared_in_a_loop(k, m, x, p):
    body = lambda s: tf.cond(p > 0, lambda: loop_of_trips(k, s), lambda: tf.sin(s))
    return loop(body, x)


def loop_of_trips(k, s):
    return tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, cell(s)), (0, s))[1]


def gradients(model, k, m, x, p):
    return gradient_of(
        lambda: tf.reduce_sum(model(k, m, x, p) ** 2), [x, W], unconnected_gradients="zero"
    )


def around(run, x):
    """The gradient of gradients."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        of_x, of_w = run(x)
        y = tf.reduce_sum(of_x**2) + tf.reduce_sum(of_w**3)
    return [tape.gradient(y, x, unconnected_gradients="zero")]


MODELS = [in_each_other, shared_inside, shared_around, shared_loops, shared_maps, shared_in_a_loop]


@grid(model=MODELS, order=[1, 2])
def test_gradients(model, order):
    x_spec, p_spec = tf.TensorSpec([None, 3], tf.float64), tf.TensorSpec([], tf.int32)

    @tf.function(autograph=False, input_signature=[N, N, x_spec, p_spec])
    def of_all(k, m, x, p):
        run = lambda x: strict_map(lambda row: gradients(model, *row, p), (k, m, x))
        return run(x) if order == 1 else around(run, x)

    @tf.function(autograph=False)
    def alone(k, m, x, p):
        run = lambda x: gradients(model, k, m, x, p)
        return run(x) if order == 1 else around(run, x)

    for p in (0, 1):
        p = tf.constant(p)
        rows = [alone(k, m, x, p) for k, m, x in zip(*map(tf.constant, (K, M, X)))]
        pairwise(np.testing.assert_allclose, of_all(K, M, X, p), zip(*rows), rtol=1e-9, atol=1e-10)
        for n in (0, 1):
            found = of_all(K[:n], M[:n], X[:n], p)
            for f, expected in zip(found, zip(*rows), strict=True):
                np.testing.assert_allclose(f, tf.stack(expected)[:n], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("in_map", [False, True])
def test_a_shape_that_tensorflow_says_wrongly_is_refused(in_map):
    """Two tapes around a conditional make TensorFlow take the shape of its first branch for all."""

    def slope(row):
        x, k = row
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                made = tf.cond(k > 0, lambda: x[:2] * x[0], lambda: tf.concat([x**3, x], 0))
                y = tf.reduce_mean(made * made)
            found = tape.gradient(y, x)
        return outer.gradient(found, x)

    body = lambda row: tf_pfor.vectorized_map(lambda x: slope((x, row[1])), row[0])
    x, k = tf.ones([2, 4, 3]), tf.constant([0, 1])
    with pytest.raises(tf_pfor.NotVectorizableError, match=r"returns \(2,\), but.*\(6,\)"):
        tf_pfor.vectorized_map(body if in_map else slope, (x if in_map else x[:, 0], k))
