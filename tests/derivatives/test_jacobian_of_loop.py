"""The jacobian of a loop goes back over the lists that the loop outside of the map has left."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import assert_close, gradient_of, jacobian_of, strict_map

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
X = tf.constant(RNG.normal(size=[3]))
WRITTEN = tf.Variable(1.0, dtype=tf.float64)
as_read = lambda t, s: tf.tanh(tf.linalg.matvec(W, s))
# Gradients pop what each trip computed from the variable: the same in all.
computed = lambda t, s: tf.sin(tf.linalg.matvec(tf.sin(W) @ W, s))
# The kept tensor is a bool.
masked = lambda t, s: tf.where(W[0] > 0, tf.sin(s) * W[1], s**2)
# The pushed tensor differs between trips.
by_trip = lambda t, s: tf.tanh(tf.linalg.matvec(W * tf.cast(t + 1, s.dtype), s))


def written(t, s):
    """The loop writes what it reads."""
    WRITTEN.assign_add(1.0)
    return s * tf.sin(s) * WRITTEN


def run(cell, trips, x):
    return tf.while_loop(lambda t, _: t < trips, lambda t, s: (t + 1, cell(t, s)), (0, x))[1]


def slices(cell, trips, x):
    """The jacobians by x and W, row by row, with a tape for each."""
    rows = []
    for k in range(3):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(cell, trips, x)[k]
        rows.append(tape.gradient(y, [x, W], unconnected_gradients="zero"))
    return [tf.stack(column) for column in zip(*rows)]


@grid(cell=[as_read, computed, masked, by_trip], trips=[0, 1, 4])
def test_jacobian_and_its_gradient(cell, trips):
    @tf.function
    def found(trips, x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            first = jacobian_of(lambda: run(cell, trips, x), [x, W], unconnected_gradients="zero")
            total = sum(tf.reduce_sum(tf.sin(j)) for j in first)
        return first, outer.gradient(total, [x, W], unconnected_gradients="zero")

    def expected(trips, x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            first = slices(cell, trips, x)
            total = sum(tf.reduce_sum(tf.sin(j)) for j in first)
        return first, outer.gradient(total, [x, W], unconnected_gradients="zero")

    assert_close(found(tf.constant(trips), X), expected(trips, X))


def test_a_variable_that_the_loop_writes():
    @tf.function
    def found(x):
        WRITTEN.assign(1.0)
        return jacobian_of(lambda: run(written, 3, x), x)

    @tf.function
    def expected(x):
        WRITTEN.assign(1.0)
        return gradient_of(lambda: tf.reduce_sum(run(written, 3, x)), x)

    np.testing.assert_allclose(tf.linalg.diag_part(found(X)), expected(X), rtol=1e-9)


def test_a_variable_that_changes_between_the_loop_and_its_jacobian():
    changing = tf.Variable(W)

    @tf.function
    def found(x):
        changing.assign(W)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(lambda t, s: tf.tanh(tf.linalg.matvec(changing, s)), 3, x)
        changing.assign(tf.zeros([3, 3], tf.float64))
        return tf_pfor.tape_jacobian(tape, y, x)

    np.testing.assert_allclose(found(X), slices(as_read, 3, X)[0], rtol=1e-9)


def test_weights_are_not_popped_in_each_trip():
    jacobian = tf.function(lambda trips, x: jacobian_of(lambda: run(as_read, trips, x), x))
    graph = jacobian.get_concrete_function(tf.constant(4), X).graph
    backward = [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")][-1]
    body = graph._get_function(backward.get_attr("body").name).graph
    popped = [op.outputs[1].shape for op in body.get_operations() if op.type == "TensorListPopBack"]
    assert popped
    assert (3, 3) not in [tuple(s) for s in popped]


def test_under_jit_compile():
    def bounded(x):
        return tf.while_loop(
            lambda t, _: t < 4, lambda t, s: (t + 1, as_read(t, s)), (0, x), maximum_iterations=4
        )[1]

    jacobian = tf.function(lambda x: jacobian_of(lambda: bounded(x), x), jit_compile=True)
    np.testing.assert_allclose(jacobian(X), slices(as_read, 4, X)[0], rtol=1e-7)


@grid(what=["map", "scan", "while"], room=[3, 7])
def test_second_derivatives_under_jit_compile(what, room):
    """A list does not know there how many items it holds, only for how many it has room."""

    def f(x):
        if what == "map":
            return tf.map_fn(lambda t: tf.sin(t) * t, x)
        if what == "scan":
            return tf.scan(lambda a, b: a * b + tf.sin(a), x)
        trips = 2 + tf.cast(x[0] < 100.0, tf.int32)
        step = lambda t, s: (t + 1, tf.sin(s) * x + x[t] * s)
        return tf.while_loop(lambda t, _: t < trips, step, (0, x), maximum_iterations=room)[1]

    for second in (tf_pfor.hessian(f), tf_pfor.jacrev(tf_pfor.jacrev(f))):
        compiled = tf.function(second, jit_compile=True)
        np.testing.assert_allclose(compiled(X), second(X), rtol=1e-7, atol=1e-9)
    trace = lambda x: tf.linalg.trace(tf.reshape(second(x), [-1, 3, 3]))
    laplacian = tf_pfor.laplacian(f)
    np.testing.assert_allclose(laplacian(X), trace(X), rtol=1e-7, atol=1e-9)


def by_value(x):
    n = tf.constant(0)
    while tf.abs(x[0]) > 0.3 and n < 6:
        x = tf.sin(x) * x[0]
        n += 1
    return x


def by_number(x):
    n, most = tf.constant(0), tf.cast(10.0 * tf.abs(x[1]), tf.int32)
    while n < tf.minimum(most, 6):
        x = tf.sin(x) * x[0]
        n += 1
    return x


@grid(
    f=[by_value, by_number],
    form=[tf_pfor.jacrev, tf_pfor.jacfwd, lambda f: tf_pfor.jacrev(tf_pfor.jacrev(f))],
)
def test_a_bound_in_the_condition_under_jit_compile(f, form):
    """The inner map reads, stacks and measures lists that have no room before the outer map."""
    rows = tf.stack([X, 3.0 * X, 0.1 * X])
    found = tf_pfor.vmap(form(f), jit_compile=True)(rows)
    expected = tf.stack([form(f)(row) for row in rows])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", [tf_pfor.hessian_diag, tf_pfor.laplacian])
def test_items_of_unknown_shape_under_jit_compile(form):
    def f(x):
        step = lambda t, s: (t + 1, tf.sin(s) * x)
        y = tf.while_loop(lambda t, _: t < 3, step, (0, x), maximum_iterations=5)[1]
        return tf.reduce_sum(y)

    x = X
    spec = tf.TensorSpec([None], x.dtype)
    compiled = tf.function(form(f), jit_compile=True, input_signature=[spec])
    np.testing.assert_allclose(compiled(x), form(f)(x), rtol=1e-7, atol=1e-9)


ROWS = tf.constant(RNG.normal(size=[4, 1, 3]))


@pytest.mark.filterwarnings("error::tf_pfor.FallbackWarning")
@grid(strategy=["compact", "mask"], trips=[[2, 0, 3, 1], [2, 2, 2, 2], [0, 0, 0, 0], [1, 4, 4, 4]])
def test_jacobian_of_a_vectorized_loop(strategy, trips):
    """The tensors that leaving rows leave behind differ in length from trip to trip."""

    def one(args):
        k, x = args
        return run(lambda t, s: tf.tanh(s @ W), k, x)[0]

    jacobian = lambda y, tape: tf_pfor.tape_jacobian(tape, y, [ROWS, W])

    @tf.function(autograph=False)
    def found():
        with tf.GradientTape() as tape:
            tape.watch(ROWS)
            args = tf.constant(trips), ROWS
            y = strict_map(one, args, while_strategy=strategy)
        return jacobian(y, tape)

    with tf.GradientTape() as tape:
        tape.watch(ROWS)
        y = tf.stack([one((k, x)) for k, x in zip(trips, ROWS)])
    expected = jacobian(y, tape)
    for f, e in zip(found(), expected):
        e = tf.zeros_like(f) if e is None else e
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-12)
