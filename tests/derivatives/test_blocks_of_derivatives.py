"""Derivatives in blocks, of loops and of each other, also compiled by XLA."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import jacobian_of

X = tf.constant([0.3, 0.5, -0.2, 0.7, 1.1], tf.float64)
A = np.sin(np.arange(25.0)).reshape(5, 5)
FORMS = (tf_pfor.hessian, tf_pfor.hessian_diag, tf_pfor.laplacian)
of_jit = pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


compiled = lambda fn, jit: tf.function(fn, jit_compile=jit, autograph=False)


def loop(x):
    body = lambda t, h: (t + 1, tf.tanh(tf.linalg.matvec(tf.constant(A), h) + x))
    return tf.while_loop(lambda t, h: t < 3, body, (0, x), maximum_iterations=3)[1]


def unrolled(x):
    h = x
    for _ in range(3):
        h = tf.tanh(tf.linalg.matvec(tf.constant(A), h) + x)
    return h


def test_the_reference_agrees_with_finite_differences():
    step = 1e-6
    jacobian = tf_pfor.jacrev(unrolled)
    columns = [jacobian(X + step * e) - jacobian(X - step * e) for e in np.eye(5)]
    numerical = np.stack([np.asarray(c) for c in columns], -1) / (2 * step)
    np.testing.assert_allclose(tf_pfor.hessian(unrolled)(X), numerical, rtol=1e-7, atol=1e-8)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")  # a list whose length is not known
@of_jit
@grid(form=FORMS, chunk=[1, 2, 3])
def test_second_derivatives_of_a_loop(form, chunk, jit):
    """Blocks read lists of the loop from outside: XLA must be told how many items they hold."""
    close(compiled(form(loop, chunk_size=chunk), jit)(X), form(unrolled)(X))


@of_jit
def test_lists_that_are_read_in_a_loop_hold_what_they_held(jit):
    """The lists that a gradient pushes to begin empty, however much room they have."""

    def columns(x):
        jacobian = tf_pfor.jacrev(loop)(x)
        total = tf.reduce_sum(jacobian**2)
        some = lambda ids: tf_pfor.vectorized_map(lambda i: tf.gradients(total * x[i], x)[0], ids)
        return tf.map_fn(some, tf.constant([[0, 1], [2, 3]]), fn_output_signature=tf.float64)

    def expected(x):
        total = tf.reduce_sum(tf_pfor.jacrev(unrolled)(x) ** 2)
        rows = [tf.gradients(total * x[i], x)[0] for i in range(4)]
        return tf.reshape(tf.stack(rows), [2, 2, 5])

    close(compiled(columns, jit)(X), compiled(expected, False)(X))


f = lambda x: tf.sin(x) * tf.reduce_sum(x**2)
blocks_in = lambda outer, inner, chunk: outer(inner(f, chunk_size=chunk))
product = lambda fn, **_: lambda x: tf_pfor.hvp(lambda x: tf.reduce_sum(fn(x) ** 2))(x, X)
PAIRS = [
    (tf_pfor.jacfwd, tf_pfor.jacrev),
    (tf_pfor.jacrev, tf_pfor.jacfwd),
    (tf_pfor.jacfwd, tf_pfor.jacfwd),
    (product, tf_pfor.jacrev),
]
HIGHER = [
    (tf_pfor.jacfwd, tf_pfor.hessian_diag),
    (tf_pfor.hessian_diag, tf_pfor.jacrev),
    (tf_pfor.laplacian, tf_pfor.jacfwd),
]


@of_jit
@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_derivatives_of_blocks(outer, inner, jit):
    close(compiled(blocks_in(outer, inner, 1), jit)(X), blocks_in(outer, inner, None)(X))


@of_jit
@pytest.mark.parametrize(("outer", "inner"), HIGHER)
def test_higher_derivatives_of_blocks(outer, inner, jit):
    close(compiled(blocks_in(outer, inner, 2), jit)(X), blocks_in(outer, inner, None)(X))


def of_tape(fn, chunk_size):
    def jacobian(x):
        return jacobian_of(lambda: fn(x), x, parallel_iterations=chunk_size)

    return jacobian


@pytest.mark.parametrize("form", [tf_pfor.jacfwd, tf_pfor.hessian_diag, of_tape])
@pytest.mark.parametrize("second", [tf_pfor.hessian, tf_pfor.laplacian])
def test_blocks_in_blocks_under_jit_compile(form, second):
    """Only those that nobody differentiates are blocks."""
    found = compiled(form(second(f, chunk_size=2), chunk_size=3), True)(X)
    close(found, form(second(f), chunk_size=None)(X))


def test_three_tapes_in_blocks_under_jit_compile():
    third = lambda chunk: of_tape(of_tape(of_tape(f, chunk), chunk), chunk)
    close(compiled(third(2), True)(X), tf_pfor.jacrev(tf_pfor.hessian(f))(X))
