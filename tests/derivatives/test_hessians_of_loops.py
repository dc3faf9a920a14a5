"""Hessians of loops and branches, of one example and of each row, also under jit_compile."""

import functools
import itertools
import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

RNG = np.random.RandomState(0)
W = tf.Variable(RNG.randn(3, 3) * 0.4)
X = tf.constant(RNG.randn(3, 3))


def cell(y):
    return tf.tanh(tf.linalg.matvec(W, y)) + y * y * 0.1


def trips(x):
    return tf.cast(tf.abs(x[0]) * 2, tf.int32) % 3 + 1


def loop(f):
    def run(x):
        count = trips(x)

        def body(i, y):
            return i + 1, f(y) + 0.1 * x

        return tf.while_loop(lambda i, _: i < count, body, (0, x), maximum_iterations=4)[1]

    return run


def branch(f):
    return lambda x: tf.cond(x[1] > 0, lambda: f(x) * 1.3, lambda: tf.cos(x) + x[0])


def loop_with_array(f):
    def run(x):
        count = trips(x)
        made = tf.TensorArray(tf.float64, 3, element_shape=[3]).unstack(tf.zeros([3, 3], x.dtype))

        def body(i, made, y):
            return i + 1, made.write(i, y), f(y)

        _, made, y = tf.while_loop(
            lambda i, *_: i < count, body, (0, made, x), maximum_iterations=3
        )
        return tf.reduce_sum(made.stack(), 0) * y

    return run


NESTS = {"loop": loop, "branch": branch, "array": loop_with_array}


def loss_of(f):
    return lambda x: tf.reduce_sum(tf.sin(f(x)))


def by_tapes(loss, x, jacobian=tf_pfor.tape_jacobian):
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(x)
        gradient = gradient_of(lambda: loss(x), x)
    return jacobian(outer, gradient, x)


OF_ONE = {"hessian": lambda loss, x: tf_pfor.hessian(loss)(x), "two tapes": by_tapes}
FORMS = {
    **OF_ONE,
    "hessian of rows": lambda loss, x: tf_pfor.vmap(tf_pfor.hessian(loss))(x),
    "two tapes of rows": lambda loss, x: tf_pfor.vmap(functools.partial(by_tapes, loss))(x),
    "laplacian of rows": lambda loss, x: tf_pfor.vmap(lambda row: tf_pfor.laplacian(loss)(row))(x),
}


def plain_jacobian(tape, y, x):
    return tape.jacobian(y, x, experimental_use_pfor=False)


def expected(loss, form):
    one = tf.function(loss, autograph=False)
    rows = [by_tapes(one, x, plain_jacobian) for x in tf.unstack(X)]
    if form in OF_ONE:
        return rows[0]
    return tf.stack([tf.linalg.trace(r) for r in rows] if "laplacian" in form else rows)


def check(f, form, compiled):
    """Compares with TensorFlow's tapes; returns whether some ops run in a loop over rows."""
    loss, x = loss_of(f), X[0] if form in OF_ONE else X
    options = {"jit_compile": True} if compiled else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", tf_pfor.FallbackWarning)
        found = tf.function(lambda x: FORMS[form](loss, x), autograph=False, **options)(x)
    np.testing.assert_allclose(found, expected(loss, form), 1e-9, 1e-10)
    return any(issubclass(w.category, tf_pfor.FallbackWarning) for w in caught)


LOOPED = [("array", "hessian of rows", True), ("branch", "two tapes of rows", False)]
REFUSED = [("array", "two tapes", True), ("array", "two tapes of rows", True)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", NESTS)
def test_hessians(kind, form, compiled):
    case = (kind, form, compiled)
    if case in REFUSED:
        with pytest.raises(
            tf_pfor.NotVectorizableError, match="list of lists that all rows|some rows ch"
        ):
            check(NESTS[kind](cell), form, compiled)
    else:
        assert check(NESTS[kind](cell), form, compiled) == (case in LOOPED)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("around", "inside"), list(itertools.product(NESTS, repeat=2)))
def test_hessians_of_nests(around, inside, form):
    """Hessians of each row of a loop in a loop or in a conditional run in a loop over rows."""
    looped = check(NESTS[around](NESTS[inside](cell)), form, False)
    if inside != "branch" and ("rows" in form or (around, form) == ("branch", "two tapes")):
        assert looped


@pytest.mark.parametrize(("around", "inside"), list(itertools.product(NESTS, repeat=2)))
def test_one_map_over_rows_and_vectors(around, inside):
    """The way of docs/derivatives.md to the hessians of rows that run in a loop above."""
    loss = loss_of(NESTS[around](NESTS[inside](cell)))

    @tf.function(autograph=False)
    def hessians(x):
        vectors = tf.tile(tf.eye(3, dtype=x.dtype), [3, 1])
        rows = tf_pfor.vmap(tf_pfor.hvp(loss), fallback="error")(tf.repeat(x, 3, 0), vectors)
        return tf.reshape(rows, [3, 3, 3])

    np.testing.assert_allclose(hessians(X), expected(loss, "hessian of rows"), 1e-9, 1e-10)
