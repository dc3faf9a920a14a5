"""Gradients of conditionals in a map in the body of another map: rows of both choose branches."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
K = tf.constant([[0, 2, 1], [3, 1, 0], [0, 0, 0], [4, 2, 5]])
M = tf.constant([[1, 0, 2], [2, 2, 1], [3, 0, 0], [1, 1, 1]])
X = tf.constant(RNG.normal(size=[4, 3, 3]))


def cell(s):
    return tf.tanh(tf.linalg.matvec(W, s))


def branches(k, m, x):
    return tf.cond(k > m, lambda: tf.sin(cell(x)), lambda: tf.cos(x) * x)


def alike(k, m, x):
    """Both keep values of the same shapes."""
    return tf.cond(k > m, lambda: tf.sin(tf.sin(x)), lambda: tf.exp(tf.tanh(x)))


def cases(k, m, x):
    functions = [lambda: tf.sin(cell(x)), lambda: tf.cos(x) * x, lambda: tf.reduce_sum(x**2) * x]
    return tf.switch_case(k, functions)


def fails_elsewhere(k, m, x):
    """Infinite, with a gradient that is no number, in the rows that do not take it."""
    y = tf.cond(k > m, lambda: tf.sqrt(tf.cast(k - m, tf.float64) * x**2), lambda: x * 2.0)
    return y + tf.cond(k > m, lambda: x, lambda: x / tf.cast(m - k + 1, tf.float64))


def gradients(model):
    def one(k, m, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(model(k, m, x) ** 2)
        return tape.gradient(loss, [x, W], unconnected_gradients="zero")

    return one


def of_rows(one):
    return lambda row: tf_pfor.vectorized_map(lambda r: one(*r), row, fallback_to_while_loop=False)


def check(model, args=(K, M, X)):
    one = gradients(model)
    alone = tf.function(one)
    rows, columns = args[0].shape
    expected = [[alone(*(a[i, j] for a in args)) for j in range(columns)] for i in range(rows)]
    found = tf_pfor.vectorized_map(of_rows(one), args, fallback_to_while_loop=False)
    for c, f in enumerate(found):
        wanted = tf.stack([tf.stack([e[c] for e in row]) for row in expected])
        np.testing.assert_allclose(f, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [branches, alike, cases, fails_elsewhere])
def test_gradients(model):
    check(model)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows):
    one = gradients(branches)
    check(branches, (K[:, :1], M[:, :1], X[:, :1]))
    found = tf_pfor.vectorized_map(of_rows(one), (K[:, :rows], M[:, :rows], X[:, :rows]))
    assert [t.shape for t in found] == [(4, rows, 3), (4, rows, 3, 3)]


def test_one_branch_for_all_rows():
    check(branches, (K * 0, M, X))
    check(branches, (K + 9, M, X))


V = tf.constant(RNG.normal(size=[4, 4]))
SIGNS = tf.constant([1.0, -1.0, 2.0, -3.0], tf.float64)


def by_outer_row(sign, v, e):
    return tf.cond(sign > 0, lambda: v * e, lambda: v[:2] * e)


def by_outer_number(k, v, e):
    return tf.switch_case(k % 3, [lambda: v * e, lambda: v[1:], lambda: tf.concat([v, v], 0)])


@pytest.mark.parametrize("one", [by_outer_row, by_outer_number])
@pytest.mark.parametrize("is_summed", [True, False])
def test_shapes_of_branches_that_the_outer_row_chooses(one, is_summed):
    which, m = (SIGNS if one is by_outer_row else K[:, 1]), X[:, 0]

    def row(a, inner):
        result = inner(lambda e: one(a[0], a[1], e), a[2])
        return tf.reduce_sum(tf.sin(result)) if is_summed else result

    def mapped(fn, rows):
        return tf_pfor.vectorized_map(fn, rows, fallback_to_while_loop=False)

    found = mapped(lambda a: row(a, mapped), (which, V, m))
    stacked = lambda fn, rows: tf.stack([fn(e) for e in rows])  # noqa: E731
    for i, got in enumerate(found):
        want = row((which[i], V[i], m[i]), stacked)
        got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(got, want, rtol=1e-9)
    with tf.GradientTape() as tape:
        tape.watch(V)
        total = tf.reduce_sum(mapped(lambda a: tf.reduce_sum(row(a, mapped)), (which, V, m)))
    with tf.GradientTape() as alone:
        alone.watch(V)
        rows = [row((which[i], V[i], m[i]), stacked) for i in range(4)]
        wanted = tf.add_n([tf.reduce_sum(r) for r in rows])
    expected = tf.convert_to_tensor(alone.gradient(wanted, V))
    found = tf.convert_to_tensor(tape.gradient(total, V))  # it may be slices
    np.testing.assert_allclose(found, expected, rtol=1e-9)
