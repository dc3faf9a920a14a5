"""Second gradients through loops that rows leave at different times: with lists, tape in tape."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import check, gradient_of

LENGTHS = np.array([2, 0, 4, 1], np.int32)
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
W = tf.constant(np.random.default_rng(1).normal(size=(3, 3)) * 0.5, tf.float32)
_cell = lambda s: tf.tanh(tf.linalg.matvec(W, s) + s * 0.1)


def _array(size):
    array = tf.TensorArray(tf.float32, size, element_shape=[3], clear_after_read=False)
    return array.unstack(tf.zeros([size, 3]))


def _written(k, x):
    """A list that is written at the counter."""

    def body(t, s, array):
        s = _cell(s)
        return t + 1, s, array.write(t, s)

    _, s, array = tf.while_loop(lambda t, *_: t < k, body, (0, x, _array(4)))
    return s, array.stack()


def _read_back(k, x):
    """Each item from the one before."""
    body = lambda t, array: (t + 1, array.write(t + 1, _cell(array.read(t))))
    return tf.while_loop(lambda t, _: t < k, body, (0, _array(5).write(0, x)))[1].stack()


def _from_the_end(k, x):
    """At places that differ by row."""
    body = lambda t, array: (t - 1, array.write(t - 1, _cell(array.read(t))))
    return tf.while_loop(lambda t, _: t > 0, body, (k, _array(5).write(k, x)))[1].stack()


def _captured(k, x):
    array = _array(4).unstack(tf.stack([x, x * 2.0, x * 3.0, x * x]))
    body = lambda t, s: (t + 1, _cell(s + array.read(t)))
    return tf.while_loop(lambda t, _: t < k, body, (0, x))[1]


def _gradient_of(f):
    def inside(k, x):
        return gradient_of(
            lambda: tf.add_n([tf.reduce_sum(out**2) for out in tf.nest.flatten(f(k, x))]), x
        )

    return inside


LOOPS = {f.__name__: f for f in (_written, _read_back, _from_the_end, _captured)}
loops = pytest.mark.parametrize("loop", LOOPS)
strategies = pytest.mark.parametrize("strategy", ["compact", "mask"])


@loops
@strategies
def test_both_outside(loop, strategy):
    check(LOOPS[loop], LENGTHS, X, second=True, xla=False, while_strategy=strategy)


@loops
@strategies
def test_one_inside(loop, strategy):
    check(_gradient_of(LOOPS[loop]), LENGTHS, X, xla=False, while_strategy=strategy)


@loops
@strategies
def test_both_inside(loop, strategy):
    twice = _gradient_of(_gradient_of(LOOPS[loop]))
    check(twice, LENGTHS, X, xla=False, grad=False, while_strategy=strategy)


@strategies
def test_lists_of_rows_that_differ_in_length(strategy):
    def f(k, x):
        array = tf.TensorArray(tf.float32, k + 1, element_shape=[3], clear_after_read=False)
        array = array.write(0, x)
        body = lambda t, array: (t + 1, array.write(t + 1, _cell(array.read(t))))
        return tf.while_loop(lambda t, _: t < k, body, (0, array))[1].read(k)

    check(f, LENGTHS, X, second=True, xla=False, unknown=True, while_strategy=strategy)
    twice = _gradient_of(_gradient_of(f))
    check(twice, LENGTHS, X, xla=False, grad=False, unknown=True, while_strategy=strategy)


@pytest.mark.parametrize("strategy", ["compact", "mask"])
def test_forward_mode_through_loops_and_conditionals(strategy):
    """TensorFlow's forward mode of a function differentiates its gradient: what that gathers."""

    def f(k, x):
        body = lambda t, s: (t + 1, tf.cond(t < k - 1, lambda: tf.sin(s) * x, lambda: tf.exp(s)))
        return tf.while_loop(lambda t, _: t < k, body, (0, x))[1]

    mapped = tf_pfor.vmap(f, while_strategy=strategy)
    x, v = tf.constant(X), tf.constant(np.cos(X))
    with tf.autodiff.ForwardAccumulator(x, v) as acc:
        y = mapped(tf.constant(LENGTHS), x)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        rows = tf.stack([tf.function(f)(*row) for row in zip(LENGTHS, x)])
    jacobians = tape.jacobian(rows, x, experimental_use_pfor=False)
    np.testing.assert_allclose(acc.jvp(y), tf.einsum("aibj,bj->ai", jacobians, v), rtol=1e-4)
