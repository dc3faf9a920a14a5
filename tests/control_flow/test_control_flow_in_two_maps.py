"""Gradients of conditionals in loops, loops in conditionals and loops in loops,
in a map in the body of another map."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
K = tf.constant([[0, 2, 1], [3, 1, 0], [0, 0, 0], [4, 2, 5]])
X = tf.constant(RNG.normal(size=[4, 3, 3]))
STEPS = tf.constant(RNG.normal(size=[4, 3, 5, 3]))
M = tf.constant([1, 0, 3, 2])  # of rows of the outer map only
J = tf.constant([2, 0, 1])  # of rows of the inner map only


def cell(s):
    return tf.tanh(tf.linalg.matvec(W, s))


def loop(k, body, s, **options):
    return tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, body(t, s)), (0, s), **options)[1]


def predicate_of_both(k, x, steps, m, j):
    return loop(k, lambda t, s: tf.cond(s[0] > 0.1, lambda: cell(s) * s, lambda: tf.sin(s)), x)


def predicate_of_the_outer_row(k, x, steps, m, j):
    return loop(k, lambda t, s: tf.cond(t < m, lambda: cell(s) * s, lambda: tf.sin(s)), x)


def predicate_of_the_inner_row(k, x, steps, m, j):
    return loop(m, lambda t, s: tf.cond(t < j, lambda: cell(s) * s, lambda: tf.sin(s)), x)


def equal_trips(k, x, steps, m, j):
    return loop(3, lambda t, s: tf.cond(s[0] > 0.1, lambda: cell(s) * s, lambda: tf.sin(s)), x)


def cases(k, x, steps, m, j):
    def body(t, s):
        branches = [lambda: cell(s), lambda: s * s, lambda: tf.reduce_sum(s**2) * x]
        return tf.switch_case((t + m) % 3, branches)

    return loop(k, body, x)


def in_each_other(k, x, steps, m, j):
    """The outer branches keep what the inner ones have kept."""

    def body(t, s):
        other = lambda: tf.cond(t < m, lambda: s * s, lambda: tf.exp(tf.sin(s)))  # noqa: E731
        return tf.cond(s[0] > 0.1, lambda: cell(s) * s, other)

    return loop(k, body, x)


def read_from_an_array(k, x, steps, m, j):
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(steps)

    def body(t, s):
        there, back = lambda: cell(s) * array.read(t), lambda: s + array.read(4 - t) ** 2
        return tf.cond(s[0] > 0.1, there, back)

    return loop(k, body, x)


def written_to_an_array(k, x, steps, m, j):
    def body(t, s, array):
        s = cell(s) + steps[t]
        there, back = lambda: array.write(t, s**2), lambda: array.write((t + 2) % 5, tf.sin(s))
        return t + 1, s, tf.cond(s[0] > 0.1, there, back)

    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))
    return tf.while_loop(lambda t, *_: t < k, body, (0, x, array))[2].stack()


def loop_in_a_branch(k, x, steps, m, j):
    there = lambda: loop(k, lambda t, s: cell(s) + steps[t], x)  # noqa: E731
    return tf.cond(x[0] > 0.0, there, lambda: tf.sin(x) * steps[m])


def loop_in_a_branch_of_the_outer_row(k, x, steps, m, j):
    there = lambda: loop(j, lambda t, s: cell(s) + steps[t], x)  # noqa: E731
    return tf.cond(m > 0, there, lambda: tf.sin(x) * steps[m])


def loop_in_a_loop(k, x, steps, m, j):
    return loop(k, lambda t, s: loop(t + m, lambda u, z: cell(z) + steps[t], s), x)


def equal_trips_inside(k, x, steps, m, j):
    return loop(k, lambda t, s: loop(2, lambda u, z: cell(z) * steps[t], s), x)


def loops_of_an_array(k, x, steps, m, j):
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(steps)
    return loop(k, lambda t, s: loop(j, lambda u, z: cell(z) + array.read(t) * array.read(u), s), x)


def three_loops(k, x, steps, m, j):
    return loop(k, lambda t, s: loop(m, lambda u, z: loop(j, lambda v, y: cell(y), z), s), x)


def gradients(model):
    def one(k, x, steps, m, j):
        with tf.GradientTape() as tape:
            tape.watch([x, steps])
            loss = tf.reduce_sum(model(k, x, steps, m, j) ** 2)
        return tape.gradient(loss, [x, steps, W], unconnected_gradients="zero")

    return one


def of_both(one, **options):
    """Two maps: ``m`` belongs to rows of the outer map, ``j`` to rows of the inner map only."""

    options = options or {"fallback_to_while_loop": False}

    def rows(k, x, steps, m, j):
        def outer(row):
            k, x, steps, m = row
            inner = lambda r: one(*r[:3], m, r[3])  # noqa: E731
            return tf_pfor.vectorized_map(inner, (k, x, steps, j), **options)

        return tf_pfor.vectorized_map(outer, (k, x, steps, m), **options)

    return rows


def check(model, n=4, columns=3, **options):
    one = gradients(model)
    alone = tf.function(one)
    args = K[:n, :columns], X[:n, :columns], STEPS[:n, :columns], M[:n], J[:columns]
    found = tf.function(of_both(one, **options), autograph=False)(*args)
    expected = [
        [alone(*(a[i, c] for a in args[:3]), M[i], J[c]) for c in range(columns)] for i in range(n)
    ]
    for place, f in enumerate(found):
        wanted = tf.stack([tf.stack([e[place] for e in row]) for row in expected])
        np.testing.assert_allclose(f, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "model",
    [predicate_of_both, predicate_of_the_outer_row, in_each_other, read_from_an_array],
)
def test_conditionals_in_loops(model):
    check(model)


@pytest.mark.parametrize(
    "model", [predicate_of_the_inner_row, equal_trips, cases, written_to_an_array]
)
def test_more_conditionals_in_loops(model):
    check(model)


@pytest.mark.parametrize("model", [loop_in_a_branch, loop_in_a_branch_of_the_outer_row])
def test_loops_in_branches(model):
    check(model)


@pytest.mark.parametrize("model", [loop_in_a_loop, equal_trips_inside])
def test_loops_in_loops(model):
    check(model)


@pytest.mark.parametrize("model", [loops_of_an_array, three_loops])
def test_more_loops_in_loops(model):
    check(model)


@pytest.mark.parametrize("model", [in_each_other, loop_in_a_branch, loop_in_a_loop])
@pytest.mark.parametrize("rows", [(1, 3), (4, 1)])
def test_few_rows(model, rows):
    check(model, *rows)


@pytest.mark.parametrize("model", [in_each_other, loop_in_a_loop])
def test_unknown_number_of_rows(model):
    one = gradients(model)
    alone = tf.function(one)
    args = (K, X, STEPS, M, J)
    specs = [tf.TensorSpec([None, None, *a.shape[2:]], a.dtype) for a in args[:3]]
    specs += [tf.TensorSpec([None], a.dtype) for a in args[3:]]
    run = tf.function(of_both(one), input_signature=specs, autograph=False)
    for n, columns in ((4, 3), (1, 2), (0, 3), (2, 0)):
        given = K[:n, :columns], X[:n, :columns], STEPS[:n, :columns], M[:n], J[:columns]
        found = run(*given)
        assert found[0].shape == (n, columns, 3)
        assert found[2].shape == (n, columns, 3, 3)
        for i in range(n):
            for c in range(columns):
                wanted = alone(*(a[i, c] for a in given[:3]), M[i], J[c])
                for f, w in zip(found, wanted, strict=True):
                    np.testing.assert_allclose(f[i, c], w, rtol=1e-9, atol=1e-11)


def test_what_is_kept_without_a_static_shape():
    def model(k, x, steps, m, j):
        def body(t, s):
            return tf.cond(tf.reduce_sum(s) > 0.1, lambda: tf.sin(s) * s, lambda: tf.exp(s))

        return loop(k, body, x, shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])))

    with pytest.warns(tf_pfor.FallbackWarning, match="While"):  # in maps of maps only
        check(model, 2, 2, out_shapes="dense")


def test_second_gradients_of_loops_in_loops():
    def one(*args):
        with tf.GradientTape() as tape:
            tape.watch(args[1])
            total = tf.reduce_sum(gradients(loop_in_a_loop)(*args)[0] ** 2)
        return tape.gradient(total, args[1])

    found, alone = tf.function(of_both(one), autograph=False)(K, X, STEPS, M, J), tf.function(one)
    for i, row in enumerate(found):
        expected = [alone(K[i, c], X[i, c], STEPS[i, c], M[i], J[c]) for c in range(3)]
        np.testing.assert_allclose(row, tf.stack(expected), rtol=1e-9, atol=1e-11)
