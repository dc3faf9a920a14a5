"""Third derivatives of what is put together, under jit_compile: gradients of slices' gradients."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

X = tf.constant(np.random.default_rng(0).uniform(0.5, 1.5, [5, 2]))


def energy(p):
    return p[0] ** 3 * p[1] ** 2


FORMS = {
    "map of a hessian": lambda x: tf_pfor.vectorized_map(tf_pfor.hessian(energy), x),
    "one hessian": lambda x: tf_pfor.hessian(lambda y: tf.reduce_sum(energy(tf.transpose(y))))(x),
    "map of a laplacian": lambda x: tf_pfor.vectorized_map(tf_pfor.laplacian(energy), x),
}


def gradient(form, x):
    return gradient_of(lambda: tf.reduce_sum(tf.square(FORMS[form](x))), x)


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_second_derivatives(form):
    found = tf.function(lambda x: gradient(form, x), jit_compile=True)(X)
    step, expected = 1e-6, np.zeros([5, 2])
    for i, j in np.ndindex(5, 2):
        move = np.zeros([5, 2])
        move[i, j] = step
        above, below = (tf.reduce_sum(tf.square(FORMS[form](X + d))) for d in (move, -move))
        expected[i, j] = float(above - below) / (2 * step)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
