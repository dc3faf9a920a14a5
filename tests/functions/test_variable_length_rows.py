"""The same functions in maps over rows of different lengths, without a loop over the rows."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map

ROWS = [[1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0]]


@tf_pfor.custom_vmap
def shifted(shape):
    return shape + 1


@shifted.def_vmap
def shifted_rows(axis_size, in_batched, shape):
    del axis_size, in_batched
    return shape + 1, True


# What is done with a row, and what that is.
BODIES = {
    "grad": (tf_pfor.grad(lambda x: tf.reduce_sum(x**3)), lambda x: 3 * x**2),
    "vjp": (lambda x: tf_pfor.vjp(tf.sin, x)[1](x)[0], lambda x: x * np.cos(x)),
    "jvp": (lambda x: tf_pfor.jvp(tf.sin, (x,), (x,))[1], lambda x: x * np.cos(x)),
    "linearize": (lambda x: tf_pfor.linearize(tf.sin, x)[1](x), lambda x: x * np.cos(x)),
    "scan": (lambda x: tf_pfor.associative_scan(tf.add, x), np.cumsum),
    "solve": (lambda x: tf_pfor.conjugate_gradient(lambda v: 2.0 * v, x)[0], lambda x: x / 2),
    "vectorize": (tf_pfor.vectorize(tf.square, fallback="error"), np.square),
    "gauss_newton": (lambda x: tf_pfor.gauss_newton_vector_product(tf.sin, tf.nn.l2_loss)(x, x),
        lambda x: np.cos(x) ** 2 * x),
    "custom_vmap": (lambda x: x * tf.cast(shifted(tf.shape(x)), x.dtype),
        lambda x: x * (len(x) + 1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_rows(kind, dtype):
    body, expected = BODIES[kind]
    rows = tf.ragged.constant(ROWS, dtype)
    found = strict_map(body, rows)
    assert found.dtype == dtype
    for row, one in zip(ROWS, found, strict=True):
        np.testing.assert_allclose(one, expected(np.array(row)), rtol=1e-5)


def test_a_jacobian_in_a_loop():
    def body(x):
        y = tf.zeros_like(x)
        for _ in tf.range(3):
            y = y - 0.1 * tf.reduce_sum(tf_pfor.jacrev(lambda y: y * x + y**3)(y), 1)
        return y

    def expected(x):
        y = np.zeros_like(x)
        for _ in range(3):
            y = y - 0.1 * (x + 3 * y**2)
        return y

    found = strict_map(body, tf.ragged.constant(ROWS))
    for row, one in zip(ROWS, found, strict=True):
        np.testing.assert_allclose(one, expected(np.array(row)), rtol=1e-5)
