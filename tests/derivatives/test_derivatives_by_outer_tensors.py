"""Derivatives that a body takes by something outside of the map, through the rows that it is given.

``losses`` are computed from ``w`` outside; the body asks for the gradient of its own loss by ``w``.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of

X = np.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
W = np.asarray([0.5, -2.0])
# d (x w)^4 / d w
EXPECTED = 4 * ((X @ W) ** 3)[:, None] * X

MAPS = {
    "vectorized_map": tf_pfor.vectorized_map,
    "vmap": lambda fn, rows: tf_pfor.vmap(fn)(rows),
    "pfor": lambda fn, rows: tf_pfor.pfor(lambda i: fn(tf.gather(rows, i)), len(X)),
    "blocks": lambda fn, rows: tf_pfor.vmap(fn, chunk_size=2)(rows),
    "blocks of one": lambda fn, rows: tf_pfor.vmap(fn, chunk_size=1)(rows),
}
losses_of = lambda w, x=X: tf.reduce_sum(tf.constant(x) * w, 1) ** 2


@pytest.mark.parametrize("way", MAPS)
def test_gradients_in_a_session_graph(way):
    with tf.Graph().as_default():
        w = tf.compat.v1.get_variable("w", initializer=tf.constant(W))
        losses = losses_of(w)
        made = MAPS[way](lambda loss: tf.gradients(loss**2, w)[0], losses)
        around = tf.gradients(tf_pfor.vectorized_map(lambda loss: loss**2, losses), w)[0]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            found, summed = session.run([made, around])
    np.testing.assert_allclose(found, EXPECTED)
    np.testing.assert_allclose(summed, EXPECTED.sum(0))


def test_rows_of_an_unknown_number_in_a_session_graph():
    with tf.Graph().as_default():
        w = tf.compat.v1.get_variable("w", initializer=tf.constant(W))
        x = tf.compat.v1.placeholder(tf.float64, [None, 2])
        losses = tf.reduce_sum(x * w, 1) ** 2
        made = tf_pfor.vectorized_map(lambda loss: tf.gradients(loss**2, w)[0], losses)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            for n in (3, 1, 0):
                found = session.run(made, {x: X[:n]})
                np.testing.assert_allclose(found, EXPECTED[:n])


def recorded(way, unconnected):
    w = tf.Variable(W)
    with tf.GradientTape(persistent=True) as tape:
        losses = losses_of(w)
        return MAPS[way](lambda loss: tape.gradient(loss**2, w, None, unconnected), losses)


@grid(way=MAPS, unconnected=["none", "zero"])
def test_a_tape_that_records_around_the_map(way, unconnected):
    np.testing.assert_allclose(recorded(way, unconnected), EXPECTED)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_tape_in_a_function(jit_compile):
    w = tf.Variable(W)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def run(x):
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(x * w, 1) ** 2
            return tf_pfor.vectorized_map(lambda loss: tape.gradient(loss**2, w), losses)

    np.testing.assert_allclose(run(tf.constant(X)), EXPECTED)


def test_a_tape_around_several_maps():
    """The same body, of other rows: each map has the derivatives of its own."""
    w = tf.Variable(W)
    with tf.GradientTape(persistent=True) as tape:
        for scale in (1.0, 2.0):
            losses = losses_of(w) * scale
            found = tf_pfor.vectorized_map(
                lambda loss: tape.gradient(loss, w, None, "zero"), losses
            )
            np.testing.assert_allclose(found, 2 * scale * (X @ W)[:, None] * X)


def test_a_map_in_a_map():
    w = tf.Variable(W)
    with tf.GradientTape(persistent=True) as tape:
        losses = tf.stack([losses_of(w), losses_of(w) * 3])

        def row(some):
            return tf_pfor.vectorized_map(
                lambda loss: tape.gradient(loss**2, w, None, "zero"), some
            )

        found = tf_pfor.vectorized_map(row, losses)
    np.testing.assert_allclose(found, [EXPECTED, 9 * EXPECTED])


def test_a_tape_that_has_stopped_sees_no_row():
    """The row is, as in a loop over ``losses``, taken from them when nobody records that."""
    w = tf.Variable(W)
    with tf.GradientTape(persistent=True) as tape:
        losses = losses_of(w)
    one = [tape.gradient(loss, w, None, "zero") for loss in losses]
    found = tf_pfor.vectorized_map(lambda loss: tape.gradient(loss, w, None, "zero"), losses)
    np.testing.assert_allclose(found, one)


def test_a_tape_around_and_one_in_the_body():
    w = tf.Variable(W)
    with tf.GradientTape() as tape:
        losses = losses_of(w)
        slope = lambda loss: gradient_of(lambda: loss**3, loss)
        total = tf.reduce_sum(tf_pfor.vectorized_map(slope, losses))
    np.testing.assert_allclose(tape.gradient(total, w), 3 * EXPECTED.sum(0))
