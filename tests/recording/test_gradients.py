"""Tapes inside of the function that is batched: gradients of each example."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import comparisons
from tests.comparisons import gradient_of, pairwise, value_and_gradient
from tests.recording.test_batched import TREES, UNITS, Model

assert_close = functools.partial(comparisons.assert_close, rtol=1e-5, atol=1e-6)  # of float32
ROWS = [tf.constant([1.0, 2.0]), tf.constant([0.5, -1.0]), tf.constant([0.3, 0.7])]
W = tf.Variable([[1.0, 2.0], [3.0, -1.0]])
UNUSED = tf.Variable(0.0)
TABLE = tf.Variable(tf.random.stateless_normal([5, 2], [1, 1]))


def layer(x):
    return tf.tanh(tf.linalg.matvec(W, x))


as_cell, as_function = tf_pfor.cell(layer), tf.function(layer)


def of_both(layer):
    def by_input_and_weights(x):
        return value_and_gradient(lambda: tf.reduce_sum(layer(x) ** 2), [x, W])

    return by_input_and_weights


def equal_calls_before_the_tape(x):
    before = x * x
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        z = before * y + tf.stop_gradient(y)
    return tape.gradient(z, x)


def second_derivative(x):
    return gradient_of(lambda: gradient_of(lambda: tf.reduce_sum(tf.sin(x) * as_cell(x)), x), x)


def persistent(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = x * x
        z = y * x
    return tape.gradient(y, x), tape.gradient(z, x), tape.gradient(z, y)


def from_the_middle(x):
    with tf.GradientTape() as tape:
        y = x * 2.0
        tape.watch(y)
        z = tf.reduce_sum(y**3)
    return tape.gradient(z, y)


def loop_by_value(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.abs(x)
        while tf.reduce_sum(y) < 20.0:
            y = y * 1.5 + 0.1
    return tape.gradient(y, x)


def unknown_sizes(x):
    return gradient_of(lambda: tf.reduce_sum(tf.boolean_mask(x * x, x > 0.6)), x)


def several_targets(x):
    return gradient_of(lambda: tf.split(x * x, 2), x, output_gradients=[x[:1], x[1:]])


def an_unused_result(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        first, _ = tf.split(tf.tanh(x), 2)
        parts = tf.unstack(x * x)
    return tape.gradient(first, x), tf.stack([tape.gradient(part, x) for part in parts])


def rows_of_a_table(x):
    rows = lambda: tf.reduce_sum(tf.gather(TABLE, [1, 2]) * x)
    return tf.convert_to_tensor(gradient_of(rows, TABLE))


def unconnected(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.stop_gradient(x) * 2.0 + W
    zero = tape.gradient(y, [x, UNUSED], unconnected_gradients="zero")
    return tape.gradient(y, x), tape.gradient(y, UNUSED), zero


def steps_of_descent(x):
    for _ in range(3):
        x -= 0.1 * gradient_of(lambda x=x: tf.reduce_sum((x - 1.0) ** 2 * x), x)
    return x


BODIES = {f.__name__: f for f in (
    equal_calls_before_the_tape, second_derivative, persistent, from_the_middle, loop_by_value,
    unknown_sizes, several_targets, an_unused_result, rows_of_a_table, unconnected,
    steps_of_descent,
)}  # fmt: skip
UNITS_OF_LAYER = {"ops": layer, "cell": as_cell, "function": as_function}
BODIES = {unit: of_both(f) for unit, f in UNITS_OF_LAYER.items()} | BODIES


@pytest.mark.parametrize("name", BODIES)
def test_a_tape_inside(name):
    fn = BODIES[name]
    batch, expected = tf_pfor.batched(fn), [tf.nest.flatten(fn(x)) for x in ROWS]
    for _ in range(2):
        for found, column in zip(tf.nest.flatten(batch(ROWS)), zip(*expected), strict=True):
            if column[0] is None:
                assert found is None
            else:
                assert_close(found, tf.stack(column))


def test_zeros_that_tensorflow_keeps_are_not_recorded():
    tf_pfor.batched(an_unused_result)(ROWS)
    for _ in range(2):
        assert type(an_unused_result(ROWS[0])[0]) is type(ROWS[0])


@pytest.mark.parametrize("unit", UNITS)
def test_gradients_of_each_tree(unit):
    model = Model(UNITS[unit], np.float64)  # float32 rounds otherwise on some processors

    def gradients(tree):
        options = {"unconnected_gradients": "zero"}
        loss, found = value_and_gradient(lambda: model.loss(tree), model.variables, **options)
        return loss, *map(tf.convert_to_tensor, found)

    expected = [tf.stack(column) for column in zip(*map(gradients, TREES))]
    pairwise(assert_close, tf_pfor.batched(gradients)(TREES), expected)


@pytest.mark.parametrize("is_traced", [False, True])
def test_a_tape_around_a_tape(is_traced):
    size_of_slope = lambda x: tf.reduce_sum(BODIES["cell"](x)[1][0] ** 2)
    batch = tf_pfor.batched(size_of_slope)
    derivative = lambda run: value_and_gradient(lambda: run(), W)
    expected = derivative(lambda: tf.stack([size_of_slope(x) for x in ROWS]))
    found = lambda: derivative(lambda: batch(ROWS))
    call = tf.function(found, autograph=False) if is_traced else found
    tf.nest.map_structure(assert_close, call(), expected)


def test_layers_of_keras():
    dense = tf.keras.layers.Dense(3, "tanh")
    dense.build([None, 2])

    def fn(x):
        loss = lambda: tf.reduce_sum(dense(x[None]) ** 2)
        return gradient_of(loss, dense.trainable_variables)

    expected = zip(*map(fn, ROWS))
    for f, e in zip(tf_pfor.batched(fn)(ROWS), expected, strict=True):
        assert_close(f, tf.stack(e))


def noisy(x):
    return x * tf.random.normal([2])


as_noisy_cell = tf_pfor.cell(noisy)


def test_draws_are_the_ones_of_the_gradient():
    def fn(x):
        y, slopes = value_and_gradient(lambda: noisy(x), x)
        return y, slopes * x

    y, same = tf_pfor.batched(fn)(ROWS)
    assert_close(y, same)


def pushed(x):
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
        y = tf.sin(x) * x
    return accumulator.jvp(y)


def jacobian(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.sin(x) * x
    return tape.jacobian(y, x)


of_draws = lambda x: gradient_of(lambda: as_noisy_cell(x), x)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (pushed, "ForwardAccumulator inside of batched"),
        (jacobian, "jacobian.. of a tape inside of batched"),
        (of_draws, "follows noisy, which draws random numbers"),
    ],
)
def test_derivatives_that_need_a_cell(fn, message):
    with pytest.raises(tf_pfor.NotVectorizableError, match=message):
        tf_pfor.batched(fn)(ROWS)
    if fn is not of_draws:
        found = tf_pfor.batched(tf_pfor.cell(fn))(ROWS)
        np.testing.assert_allclose(found, tf.stack([fn(x) for x in ROWS]), rtol=1e-5)
