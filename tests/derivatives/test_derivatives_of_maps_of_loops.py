"""Forward, second and mixed derivatives of a map whose rows make different numbers of trips."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

ROWS = tf.constant([[1.0, 2.0], [0.1, 0.2], [-0.5, 0.7], [0.9, -0.3]], tf.float64)


def trips(x):
    return tf.cast(tf.floor(tf.abs(x[0]) * 3.0), tf.int32)


def until_large(x):
    def goes_on(i, s):
        return (i < 8) & (tf.reduce_sum(s) < 1.5)

    return tf.while_loop(goes_on, lambda i, s: (i + 1, s + 0.3 * x * x), (0, x))[1]


def written(x):
    a, s = tf.TensorArray(x.dtype, 4, element_shape=[2]), x
    for i in tf.range(4):
        if i < trips(x):
            s = tf.sin(s) * x + 0.1
        a = a.write(i, s)
    return tf.reduce_sum(a.stack(), 0)


def with_branches(x):
    s, t = x, tf.reduce_sum(x)
    for _ in tf.range(trips(x)):
        if s[0] > 0.0:
            s = tf.sin(s) * t
        t = t * 0.5 + s[1]
    return s * t


def in_a_loop(x):
    s = x
    for i in tf.range(trips(x)):
        j = 0
        while j < i and tf.reduce_sum(s) < 3.0:
            s = s * s + 0.1
            j += 1
        s = s * x
    return s


# Second derivatives of a loop in a loop join lists whose lengths differ, row by row.
LOOPING = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
BODIES = (until_large, written, with_branches, pytest.param(in_a_loop, marks=LOOPING))


def mapped(body):
    return lambda rows: tf_pfor.vectorized_map(body, rows)


def summed(body):
    return lambda rows: tf.reduce_sum(tf.sin(mapped(body)(rows)))


@pytest.mark.parametrize("body", BODIES)
def test_jacobian_forward(body):
    found = tf_pfor.jacfwd(mapped(body))(ROWS)
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, tf_pfor.jacrev(mapped(body))(ROWS), rtol=1e-9, atol=1e-12)
    wanted = [tf_pfor.jacrev(tf.function(body))(x) for x in ROWS]
    np.testing.assert_allclose([found[i, :, i] for i in range(4)], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("body", BODIES)
def test_second_derivatives(body):
    alone = tf.function(lambda x: tf.reduce_sum(tf.sin(body(x))))
    wanted = []
    for x in ROWS:
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = alone(x)
            slopes = tf.unstack(inner.gradient(y, x))
        rows = [outer.gradient(s, x, unconnected_gradients="zero") for s in slopes]
        wanted.append(np.stack(rows))
    close = {"rtol": 1e-8, "atol": 1e-10}
    hessian = tf_pfor.hessian(summed(body))(ROWS)
    np.testing.assert_allclose([hessian[i, :, i] for i in range(4)], wanted, **close)
    twice = tf_pfor.jacrev(tf_pfor.grad(summed(body)))(ROWS)
    np.testing.assert_allclose(twice, hessian, **close)
    product = tf_pfor.hvp(summed(body))(ROWS, ROWS)
    np.testing.assert_allclose(product, np.einsum("ijk,ik->ij", wanted, ROWS), **close)


def test_gradient_of_steps_that_take_gradients():
    """The places that a gradient in a trip reads are constants of a function that it calls."""

    def one(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, k = x, 0
            while k < 2 and tf.norm(y) > 0.5:
                y -= 0.1 * tf_pfor.grad(lambda z: z[0] ** 2 * z[1])(y)
                k += 1
        return tape.gradient(y, x)

    found = tf_pfor.vectorized_map(one, ROWS, fallback="error")
    alone = tf.function(one)
    np.testing.assert_allclose(found, [alone(x) for x in ROWS], rtol=1e-10)
