"""Random programs: each example is a program of its own, which the batched function interprets."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import comparisons
from tests.comparisons import gradient_of, pairwise, value_and_gradient

assert_close = functools.partial(comparisons.assert_close, rtol=1e-4, atol=1e-4)  # of float32
SIZE, PROGRAMS = 3, 10
MATRIX = tf.Variable(tf.random.stateless_normal([SIZE, SIZE], [1, 2]) * 0.5)
TABLE = tf.Variable(tf.random.stateless_normal([6, SIZE], [3, 4]))
SCALE = tf.Variable(0.7)
product = lambda a: tf.tanh(tf.linalg.matvec(MATRIX, a))
mixed = lambda a, b: (tf.sigmoid(a) * b, a - SCALE * b)
as_cell, as_function = tf_pfor.cell(mixed), tf.function(mixed)
# The gradient of ``f`` at ``a``, by a tape inside.
slope = lambda a, f: gradient_of(lambda: tf.reduce_sum(f(a) ** 2), a)
slope_of_matrix = lambda a: gradient_of(lambda: tf.reduce_sum(product(a) * a), MATRIX)[0]


def halved(a):
    while tf.reduce_max(tf.abs(a)) > 0.5:
        a = a * 0.5
    return a


OPS = [
    product,
    lambda a: as_cell(a, a * 0.5)[1],
    lambda a: as_function(a, a + 0.1)[0],
    lambda a: tf.nn.softmax(a) - tf.reduce_mean(a),
    lambda a: tf.concat([a[1:], a[:1]], 0) * 0.9,
    lambda a: tf.stop_gradient(a) * 0.3 + a,
    lambda a: slope(a, product),
    lambda a: slope(a, lambda b: as_cell(b, a)[0]),
    lambda a: slope(a, lambda b: slope(b, tf.sin)),
    slope_of_matrix,
    halved,
    lambda a: a if tf.reduce_sum(a) > 0.0 else product(-a),
    lambda a: tf.reduce_sum(tf.stack([a, product(a)]), 0),
    lambda a: tf.gather(TABLE, tf.argmax(a)) * 0.5,
    lambda a: tf.fill([SIZE], tf.reduce_sum(a) * 0.2),
]
PAIRS = [
    lambda a, b: a + 0.5 * b,
    lambda a, b: tf.tanh(a) * tf.tanh(b),
    lambda a, b: tf.where(a > b, a, 0.5 * b),
    lambda a, b: as_cell(a, b)[0],
    lambda a, b: as_function(b, a)[1] * 0.5,
    lambda a, b: tf.stack([a, b])[int(tf.argmax([a[0], b[0]]))],
]


def program(rng):
    """Steps: (the number of a function, the numbers of its inputs), or the number of a row."""
    steps = [int(rng.integers(6)) for _ in range(rng.integers(1, 4))]
    for _ in range(rng.integers(1, 9)):
        which = int(rng.integers(len(OPS) + len(PAIRS)))
        steps.append((which, rng.integers(len(steps), size=2).tolist()))
    return steps


def run(steps):
    """The last value of a program."""
    values = []
    for step in steps:
        if isinstance(step, int):
            values.append(tf.gather(TABLE, step))
            continue
        which, (first, second) = step
        if which < len(OPS):
            values.append(OPS[which](values[first]))
        else:
            values.append(PAIRS[which - len(OPS)](values[first], values[second]))
    return values[-1]


BATCHED = {name: tf_pfor.batched(run, schedule=name) for name in ("agenda", "depth")}


@pytest.mark.parametrize("seed", range(50))
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    programs = [program(rng) for _ in range(PROGRAMS)]
    variables = [MATRIX, TABLE, SCALE]

    def derivative(rows):
        y, found = value_and_gradient(rows, variables, unconnected_gradients="zero")
        return y, *map(tf.convert_to_tensor, found)

    batch = BATCHED["depth" if seed % 2 else "agenda"]
    found = derivative(lambda: batch(programs))
    expected = derivative(lambda: tf.stack([run(p) for p in programs]))
    pairwise(assert_close, found, expected)
