"""Sums of gradients of slices: the slices joined, not zeros of full size added up."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import check as check_gradients
from tests.comparisons import gradient_of
from tests.math.test_products import check, normal
from tests.ways import table_of

N, T, K = 3, 6, 2
X = normal(N, T, K)


def steps(x):
    return tf.add_n([tf.sin(x[t] * (t + 1.0)) for t in range(T)])


def gradient(f):
    return lambda x: gradient_of(lambda: tf.reduce_sum(f(x) ** 2), x)


def read_twice(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        first, last = tf.reduce_sum(x[0] ** 2), tf.reduce_sum(x[5] ** 3)
    a, b = tape.gradient(first, x), tape.gradient(last, x)
    return a + b, a


JOINED = {
    "steps": steps,
    "gaps": lambda x: tf.sin(x[1]) * x[4],
    "from the end": lambda x: tf.sin(x[-1]) * x[0] * x[-3],
    "ranges": lambda x: (
        tf.sin(x[1:2]) * tf.reduce_prod(x[2:4], 0) * x[-2:, :] + x[:1, :] ** 2),
    "with new axes": lambda x: tf.sin(x[1][None]) * x[2, tf.newaxis] + x[4:5],
    "whole too": lambda x: tf.sin(x[1]) * x[2] + tf.reduce_sum(x**2, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", JOINED)
def test_joined(name):
    types = check(gradient(JOINED[name]), X)
    assert not types["StridedSliceGrad"]


APART = {
    "overlapping": lambda x: tf.sin(x[1:3]) * x[2:4],
    "twice": lambda x: tf.sin(x[1]) * tf.cos(x[1]) * x[2],
    "every second": lambda x: tf.sin(x[::2]) * x[1::2],
    "columns": lambda x: tf.sin(x[:, 0]) * x[:, 1],
    "at a place of the row": lambda x: tf.sin(x[tf.cast(x[0, 0] > 0, tf.int32)]) * x[2],
    "steps": steps,
}
test_table_of_slopes = table_of(
    {**{name: gradient(f) for name, f in APART.items()}, "read by others": read_twice}, X,
    ways=["function", "one row", "no rows"],
    only={"one row": ["steps"], "no rows": ["steps"]}, tolerance=(1e-10, 1e-10),
)  # fmt: skip


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
