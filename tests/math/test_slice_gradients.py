"""Sums of gradients of slices: the slices joined, not zeros of full size added up."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import check as check_gradients
from tests.comparisons import gradient_of
from tests.math.test_products import check, normal

N, T, K = 3, 6, 2
X = normal(N, T, K)


def steps(x):
    return tf.add_n([tf.sin(x[t] * (t + 1.0)) for t in range(T)])


def gaps(x):
    return tf.sin(x[1]) * x[4]


def from_the_end(x):
    return tf.sin(x[-1]) * x[0] * x[-3]


def ranges(x):
    return tf.sin(x[1:2]) * tf.reduce_prod(x[2:4], 0) * x[-2:, :] + x[:1, :] ** 2


def with_new_axes(x):
    return tf.sin(x[1][None]) * x[2, tf.newaxis] + x[4:5]


def whole_too(x):
    return tf.sin(x[1]) * x[2] + tf.reduce_sum(x**2, 0)


def gradient(f):
    def one(x):
        return gradient_of(lambda: tf.reduce_sum(f(x) ** 2), x)

    return one


@pytest.mark.parametrize("f", [steps, gaps, from_the_end, ranges, with_new_axes, whole_too])
def test_joined(f):
    types = check(gradient(f), X)
    assert not types["StridedSliceGrad"]


def overlapping(x):
    return tf.sin(x[1:3]) * x[2:4]


def twice(x):
    return tf.sin(x[1]) * tf.cos(x[1]) * x[2]


def every_second(x):
    return tf.sin(x[::2]) * x[1::2]


def columns(x):
    return tf.sin(x[:, 0]) * x[:, 1]


def at_a_place_of_the_row(x):
    return tf.sin(x[tf.cast(x[0, 0] > 0, tf.int32)]) * x[2]


@pytest.mark.parametrize("f", [overlapping, twice, every_second, columns, at_a_place_of_the_row])
def test_apart(f):
    check(gradient(f), X)


def test_a_gradient_that_others_read():
    def one(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            first, last = tf.reduce_sum(x[0] ** 2), tf.reduce_sum(x[5] ** 3)
        a, b = tape.gradient(first, x), tape.gradient(last, x)
        return a + b, a

    check(one, X)


@pytest.mark.parametrize("n", [0, 1])
def test_no_rows_and_one(n):
    found = tf_pfor.vectorized_map(gradient(steps), X[:n])
    wanted = [gradient(steps)(X[0])] if n else np.zeros([0, T, K])
    np.testing.assert_allclose(found, wanted)


def test_second_order_and_jit_compile():
    check_gradients(lambda x: gradient(steps)(x), X.numpy(), second=True, unknown=True, rtol=1e-8)


def test_a_jacobian():
    x = X[0]

    @tf.function
    def rows(ours):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = steps(x)
        if ours:
            return tf_pfor.tape_jacobian(tape, y, x)
        return tape.jacobian(y, x, experimental_use_pfor=False)

    np.testing.assert_allclose(rows(True), rows(False), rtol=1e-12)
