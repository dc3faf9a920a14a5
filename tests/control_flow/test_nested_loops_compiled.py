"""Gradients in the body of loops in loops under jit_compile, with trip counts for each row."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import refuse, table
from tests.comparisons import compare, gradient_of, gradients_in_body, mapped
from tf_pfor._tf import _functions

RNG = np.random.RandomState(3)
W = tf.constant(RNG.randn(3, 3) * 0.8)
OUTER = tf.constant([3, 0, 5, 1, 2])
INNER = tf.constant([2, 3, 0, 4, 1])
X = tf.constant(RNG.randn(5, 3))
cell = lambda s, x: tf.tanh(tf.linalg.matvec(W, s) + x)


def loops(inner_cond, inner_most, outer_cond=lambda t, k, m: t < k, outer_most=5):
    """A loop in a loop; the conditions of both, and how many trips they make at most."""

    def model(k, m, x):
        def outer(t, s):
            s = tf.while_loop(
                lambda u, r: inner_cond(u, t, m, r), lambda u, r: (u + 1, cell(r, x)), (0, s),
                maximum_iterations=inner_most,
            )[1]  # fmt: skip
            return t + 1, tf.sin(s) * 1.2

        return tf.while_loop(
            lambda t, _: outer_cond(t, k, m), outer, (0, x), maximum_iterations=outer_most
        )[1]

    return model


def three(k, m, x):
    def middle(u, s):
        s = tf.while_loop(
            lambda v, _: v < (m + u) % 3, lambda v, r: (v + 1, cell(r, x)), (0, s),
            maximum_iterations=3,
        )[1]  # fmt: skip
        return u + 1, s * 1.1

    def outer(t, s):
        s = tf.while_loop(lambda u, _: u < m, middle, (0, s), maximum_iterations=4)[1]
        return t + 1, tf.sin(s) * 1.2

    return tf.while_loop(lambda t, _: t < k, outer, (0, x), maximum_iterations=5)[1]


def branch_in_both(k, m, x):
    def outer(t, s):
        inner = lambda u, r: (u + 1, tf.cond(u < t, lambda: cell(r, x), lambda: tf.sin(r) * x))
        s = tf.while_loop(lambda u, _: u < m, inner, (0, s), maximum_iterations=4)[1]
        return t + 1, s

    return tf.while_loop(lambda t, _: t < k, outer, (0, x), maximum_iterations=5)[1]


def scan_in_loop(k, m, x):
    def outer(t, s):
        return t + 1, tf.scan(lambda a, e: tf.tanh(tf.linalg.matvec(W, a) * e), x, s)[-1]

    return tf.while_loop(lambda t, _: t < k, outer, (0, x), maximum_iterations=5)[1]


def python_for(k, m, x):
    s = x
    for _ in tf.range(k):
        for _ in tf.range(m):
            s = cell(s, x)
        s = tf.sin(s) * 1.2
    return s


def python_for_over_items(k, m, x):
    s = x
    for _ in tf.range(tf.minimum(k, 5)):
        for e in x:
            s = cell(s, e)
        s = tf.sin(s) * 1.2
    return s


def python_while(k, m, x):
    s, t = x, 0
    while t < tf.minimum(k, 5):
        u = 0
        while u < tf.minimum(m, 4):
            s = cell(s, x)
            u += 1
        s = tf.sin(s) * 1.2
        t += 1
    return s


MODELS = {
    "inner equal": loops(lambda u, t, m, r: u < 3, 3),
    "outer equal": loops(lambda u, t, m, r: u < m, 4, lambda t, k, m: t < 3, 3),
    "both differ": loops(lambda u, t, m, r: u < m, 4),
    "inner differs by trip": loops(lambda u, t, m, r: u < (m + t) % 4, 4),
    "inner is the trip": loops(lambda u, t, m, r: u < t, 5),
    "inner ends by value": loops(lambda u, t, m, r: tf.reduce_sum(r * r) > 0.3, 4),
    "bounds in conditions": loops(
        lambda u, t, m, r: u < tf.minimum(m, 4), None, lambda t, k, m: t < tf.minimum(k, 5), None
    ),
    "three": three,
    "branch in both": branch_in_both,
    "scan in loop": scan_in_loop,
    "for in for": _functions.autographed(python_for),
    "for items in for": _functions.autographed(python_for_over_items),
    "while in while": _functions.autographed(python_while),
}
gradients = lambda model: gradients_in_body(model, also=(W,))


def compiled(one, n):
    run = tf.function(mapped, jit_compile=True, autograph=False)
    return run(one, OUTER[:n], INNER[:n], X[:n])


def assert_right(model, n):
    compare(gradients(model), OUTER[:n], INNER[:n], X[:n], function={"jit_compile": True})


COMPILED = {"jit_compile": True}
test_table_of_gradients = table({
    "of five rows": (lambda name: assert_right(MODELS[name], 5), MODELS),
    "of one row": (
        lambda name: assert_right(MODELS[name], 1), ["inner equal", "both differ", "for in for"]
    ),
})  # fmt: skip


def refuse_compiled(one, match):
    refuse(one, OUTER, INNER, X, match=match, function=COMPILED)


def test_no_rows():
    found = compiled(gradients(MODELS["both differ"]), 0)
    assert [t.shape for t in found] == [(0, 3), (0, 3, 3)]


@pytest.mark.parametrize("name", ["inner equal", "both differ"])
def test_a_tape_around_the_map(name):
    """TensorFlow's own second gradient of one row does not compile."""

    def around(run):
        total = lambda x: gradient_of(lambda: tf.reduce_sum(tf.sin(run(x))), x)
        return total

    one = lambda k, m, x: gradients(MODELS[name])(k, m, x)[0]
    of_all = around(lambda x: mapped(one, OUTER, INNER, x))
    found = tf.function(of_all, jit_compile=True, autograph=False)(X)
    for k, m, x, row in zip(OUTER, INNER, X, found):
        alone = around(lambda x, k=k, m=m: one(k, m, x))
        wanted = tf.function(alone, autograph=False)(x)
        np.testing.assert_allclose(row, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("by_row", [True, False])
def test_a_loop_in_a_branch_is_refused(by_row):
    """Rows choose the branch, or a number does that all rows share."""

    def run(shared):
        def model(k, m, x):
            def loop():
                return tf.while_loop(
                    lambda t, _: t < m,
                    lambda t, s: (t + 1, cell(s, x)),
                    (0, x),
                    maximum_iterations=4,
                )[1]

            return tf.cond((k if by_row else shared) > 1, loop, lambda: tf.sin(x))

        return tf_pfor.vmap(gradients(model))(OUTER, INNER, X)

    with pytest.raises(tf_pfor.NotVectorizableError, match="put the condition into that of the"):
        tf.function(run, jit_compile=True, autograph=False)(tf.constant(2))


def test_loops_without_a_bound_are_refused():
    """XLA must know how much the loops keep for their gradients."""
    model = loops(lambda u, t, m, r: u < m, None)
    with pytest.raises(tf_pfor.NotVectorizableError, match="how many trips it makes at most: give"):
        compiled(gradients(model), 3)


@pytest.mark.parametrize("weight", [W, tf.Variable(W)], ids=["constant", "variable"])
@pytest.mark.parametrize("differs", [False, True])
def test_trips_that_the_loop_around_computes_are_refused(weight, differs):
    """Loops ``for l in tf.range(f(i))``, which TensorFlow does not compile for one row either."""

    def model(k, m, x):
        s = x
        for i in tf.range(k):
            for _ in tf.range(tf.minimum(i + m, 2) if differs else tf.minimum(i, 2)):
                s = tf.tanh(tf.linalg.matvec(weight, s)) + 0.1 * x
        return s

    total = lambda *row: tf.reduce_sum(_functions.autographed(model)(*row) ** 2)
    one = lambda k, m, x: gradient_of(lambda: total(k, m, x), [x, weight])
    refuse_compiled(one, "give that one maximum_iterations")


def test_rows_in_the_outer_loop_have_the_room_of_all_rows():
    """The rows that are active are not known before running, the trips of all rows are."""

    def model(k, m, x):
        def outer(t, s):
            inner = tf.while_loop(
                lambda u, _: u < m, lambda u, r: (u + 1, tf.sin(r)), (0, s), maximum_iterations=m
            )
            return t + 1, inner[1]

        return tf.while_loop(lambda t, _: t < k, outer, (0, x), maximum_iterations=5)[1]

    run = tf.function(mapped, jit_compile=True, autograph=False)
    made = run.get_concrete_function(gradients_in_body(model), OUTER, INNER, X)
    assert made.structured_outputs[0].shape == [5, 3]
