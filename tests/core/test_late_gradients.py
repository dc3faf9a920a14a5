"""Gradients that the walker does not see, a custom one's and a loop's over rows, in nests.

Each stands in two nested conditionals or loops, whose predicates rows share or not, with a tape
around the map. The gradient is converted in the gradient of a branch or of a body.
"""

import contextlib
import itertools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close
from tests.fallback.test_fallback import unregistered

RNG = np.random.RandomState(0)
X = tf.constant(RNG.randn(6, 3))
W = tf.Variable(RNG.randn(3, 3) * 0.4)
FOR_THE_GRADIENT = tf.Variable(RNG.randn(3))
LARGE = tf.constant(RNG.randn(200))


@contextlib.contextmanager
def without_sinh():
    """Takes the converter of Sinh away."""
    with unregistered(("Sinh",)), warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
        yield


@tf.custom_gradient
def of_results(x):
    y = tf.tanh(x)
    return y, lambda dy: dy * (1 - y * y) * 0.7 + tf.reduce_sum(x) * 0.01 * dy


@tf.custom_gradient
def of_a_variable(x):
    def gradient(dy, variables=None):
        return tf.linalg.matvec(W, dy, transpose_a=True) * 0.5, [dy[:, None] * x * 1.5]

    return tf.linalg.matvec(W, x), gradient


@tf.custom_gradient
def of_what_it_closes_over(x):
    return tf.identity(x), lambda dy: dy * FOR_THE_GRADIENT + LARGE[:3] * dy


def repeated(x):
    return tf.sin(x) * tf.reduce_sum(x)


LEAVES = {
    "results": of_results,
    "variable": of_a_variable,
    "closure": of_what_it_closes_over,
    "recomputed": tf.recompute_grad(repeated),
    "looped": lambda x: tf.sinh(x * 0.3),
}


def loop_by_row(f):
    def run(x):
        trips = tf.cast(tf.abs(x[0]) * 2, tf.int32) % 3 + 1
        return trips_of(f, x, trips, 4)

    return run


def trips_of(f, x, trips, most):
    def body(i, y):
        return i + 1, f(y) + 0.1 * x

    return tf.while_loop(lambda i, y: i < trips, body, (0, x), maximum_iterations=most)[1]


def branch_by_row(f):
    return lambda x: tf.cond(x[1] > 0, lambda: f(x) * 1.3, lambda: tf.cos(x) + x[0])


def branch(f):
    return lambda x: tf.cond(W[0, 0] > -9, lambda: f(x) * 1.3, lambda: tf.cos(x))


NESTS = {
    "loop by row": loop_by_row,
    "loop": lambda f: lambda x: trips_of(f, x, 2, 2),
    "branch by row": branch_by_row,
    "branch": branch,
}


def in_two_maps(f, x):
    rows = tf.reshape(x, [2, 3, 3])
    return tf.reshape(tf_pfor.vmap(tf_pfor.vmap(f))(rows), [6, 3])


MODES = ("known", "unknown", "two maps", "compiled")
PAIRS = list(itertools.product(NESTS, repeat=2))
FAST = {("branch by row", "branch"), ("loop by row", "branch by row"), ("branch", "loop by row")}


def with_gradients(run, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = run(x)
        loss = tf.reduce_sum(tf.sin(y) * y)
    slopes = tape.gradient(loss, [x, W], unconnected_gradients="zero")
    return [y, *map(tf.convert_to_tensor, slopes)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("around", "inside"), PAIRS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_gradients_in_nests(leaf, around, inside, mode):
    f = NESTS[around](NESTS[inside](LEAVES[leaf]))
    spec = tf.TensorSpec([None if mode == "unknown" else 6, 3], tf.float64)
    options = {"jit_compile": True} if mode == "compiled" else {}

    @tf.function(autograph=False, input_signature=[spec], **options)
    def mapped(x):
        if mode == "two maps":
            return with_gradients(lambda x: in_two_maps(f, x), x)
        return with_gradients(tf_pfor.vmap(f), x)

    with without_sinh() if leaf == "looped" else contextlib.nullcontext():
        found = mapped(X)
    # Eagerly, since TensorFlow's own graph of one row fails, and without tf.recompute_grad there.
    one = NESTS[around](NESTS[inside](repeated)) if leaf == "recomputed" else f
    wanted = with_gradients(lambda x: tf.stack([one(row) for row in tf.unstack(x)]), X)
    assert_close(found, wanted, atol=1e-10)


def test_a_gradient_that_pads_with_a_constant_is_not_linear():
    """Its sum over the iterations is not the gradient of the sum."""

    @tf.custom_gradient
    def f(w):
        return w * 2.0, lambda d: tf.pad(d, [[1, 1]], constant_values=1.0)[:2]

    w, factors = tf.constant([3.0, 4.0]), tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(w)
        found = tf_pfor.vectorized_map(lambda c: f(w) * c, factors)
        expected = tf.stack([f(w) * c for c in tf.unstack(factors)])
    np.testing.assert_array_equal(tape.gradient(expected, w), [3.0, 6.0])
    np.testing.assert_array_equal(tape.gradient(found, w), [3.0, 6.0])
