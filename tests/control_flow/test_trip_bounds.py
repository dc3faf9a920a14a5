"""The most trips of a loop, told by its predicate: XLA must know them for gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import case, refuse
from tests.comparisons import compare, gradient_of, looped, value_and_gradient, vectorized

_x = lambda *shape, seed=0: np.random.default_rng(seed).normal(size=shape).astype(np.float32)
X = _x(5, 3)
LEN = np.array([2, 0, 4, 1, 4], np.int32)
# The conditional that a Python ``a and b`` becomes.
_and = lambda a, b: tf.cond(a, b, lambda: a)
_or = lambda a, b: tf.cond(a, lambda: a, b)


@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize(
    ("goes_on", "start", "step"),
    [
        (lambda t, k: t < tf.minimum(k, 3), 0, 1),
        (lambda t, k: tf.logical_and(t < k, t <= 3), 1, 1),
        (lambda t, k: tf.logical_and(k > 0, tf.logical_and(t < 2 * k, t < 8)), -1, 3),
        (lambda t, k: tf.logical_or(t < 1, tf.logical_and(t < k, tf.greater(4, t))), 0, 1),
        (lambda t, k: t < 4, 0, 2),
        (lambda t, k: _and(k > 0, lambda: _and(t < k, lambda: t < tf.minimum(2 * k, 4))), 0, 1),
        (lambda t, k: _and(t < 3, lambda: t < k), 0, 1),
        (lambda t, k: _or(t < 1, lambda: _and(t < k, lambda: t < 3)), 0, 1),
    ],
)
def test_gradient_under_jit_compile_of_a_bound_in_the_predicate(goes_on, start, step, where):
    """By a tape around the map, and by one in the body: TensorFlow has no room for its lists."""
    w = tf.Variable(_x(3, 3))

    def f(k, x):
        body = lambda t, s: (t + step, tf.tanh(tf.linalg.matvec(w, s) + x))
        return tf.while_loop(lambda t, _: goes_on(t, k), body, (start, x))[1]

    def grad(run, jit):
        total = lambda k, x: gradient_of(lambda: tf.reduce_sum(run((k, x))[0] ** 2), w)
        by_row = lambda k, x: gradient_of(lambda: tf.reduce_sum(f(k, x) ** 2), w)

        @tf.function(jit_compile=jit, autograph=False)
        def go(k, x):
            return total(k, x) if where == "outside" else run((k, x), by_row)[0]

        return go(tf.constant(LEN), tf.constant(X)).numpy()

    found = grad(lambda a, one=f: vectorized(one, a), True)
    np.testing.assert_allclose(found, grad(lambda a, one=f: looped(one, a, 5), False), 1e-4, 1e-5)


def test_newtons_method_under_jit_compile():
    """Rows end by value, at last after 20 trips."""

    @tf.function
    def root(a):
        x, i = a, 0
        while tf.abs(x * x - a) > 1e-8 and i < 20:
            x = 0.5 * (x + a / x)
            i += 1
        return x

    a = np.array([0.5, 1.5, 7.0, 100.0])
    run = lambda a: value_and_gradient(lambda: vectorized(root, (a,))[0], a)
    y, slopes = tf.function(run, jit_compile=True, autograph=False)(tf.constant(a))
    np.testing.assert_allclose(y, np.sqrt(a), 1e-8)
    np.testing.assert_allclose(slopes, 0.5 / np.sqrt(a), 1e-6)


@pytest.mark.parametrize("goes_on", [
    lambda t, k: t < k,
    lambda t, k: _or(t < 1, lambda: t < k),
    lambda t, k: _and(t < k, lambda: k > 0),
    lambda t, k: tf.cond(k > 0, lambda: t < k, lambda: t < 3),
])  # fmt: skip
def test_no_bound(goes_on):
    """Gradients in the body of a loop without a bound are refused under jit_compile."""
    step = lambda t, s: (t + 1, tf.sin(s))
    run = lambda k, x: tf.while_loop(lambda t, _: goes_on(t, k), step, (0, x))[1]
    one, match = lambda k, x: gradient_of(lambda: run(k, x), x), "maximum_iterations, or bound a c"
    refuse(one, tf.constant(LEN), tf.constant(X), function={"jit_compile": True}, match=match)


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_bound_that_is_made_before_the_loop(where):
    def f(k, x):
        limit = tf.minimum(3, k + 1)
        return tf.while_loop(lambda t, _: t < limit, lambda t, s: (t + 1, tf.sin(s) * x), (0, x))[1]

    slope = lambda k, x: gradient_of(lambda: f(k, x), x)
    inside = lambda k, x: vectorized(slope, (k, x))[0]
    outside = lambda k, x: gradient_of(lambda: vectorized(f, (k, x))[0], x)
    run = inside if where == "inside" else outside
    args = tf.constant(LEN), tf.constant(X)
    found = tf.function(run, jit_compile=True, autograph=False)(*args)
    np.testing.assert_allclose(found, looped(slope, args, 5)[0], 1e-5, 1e-6)


def test_a_gradient_that_somebody_else_took():
    """TensorFlow adds what it keeps for a gradient to the loop of a tf.function, in place."""

    @tf.function
    def helper(x, n):
        for _ in tf.range(n):
            x = x * 1.5 - tf.sin(x)
        return x

    gradient = tf.function(lambda k, x: gradient_of(lambda: helper(x, k), x))
    k, x = tf.constant(LEN), tf.constant(X)
    gradient(k[0], x[0])
    run = tf.function(
        lambda k, x: vectorized(lambda n, v: (helper(v, n),), (k, x)), jit_compile=True
    )
    np.testing.assert_allclose(run(k, x)[0], tf.stack([helper(*e) for e in zip(x, k)]), 1e-5)


@case(compare, tf.constant(_x(5, 3, 2)), function={"jit_compile": True}, rtol=1e-5)
@pytest.mark.parametrize("limit", [lambda x: tf.shape(x)[0], lambda x: tf.shape(x)[0] - 1])
def test_a_static_size_is_a_bound(limit, x):
    """Bounds as ``for i in tf.range(tf.shape(x)[0])`` and ``while i < tf.shape(x)[0]`` have it."""
    step = lambda i, s: (i + 1, s + tf.reduce_sum(x[i]) ** 2)
    start = (0, tf.constant(0.0))
    return gradient_of(lambda: tf.while_loop(lambda i, _: i < limit(x), step, start)[1], x)
