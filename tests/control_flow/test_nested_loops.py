"""Gradients, in the body, of loops and branches in each other, which rows leave at different times
and of which they take different ones."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_in_body
from tf_pfor.converters.control_flow._subgraphs import Region

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
INNER = tf.constant([2, 0, 4, 1, 3])
OUTER = tf.constant([1, 3, 2, 0, 2])
X = tf.constant(RNG.normal(size=[5, 3]))


def cell(s):
    return tf.tanh(tf.linalg.matvec(W, s))


def while_in_while(k, m, x, bound=None):
    def outer(t, s):
        inner = tf.while_loop(
            lambda u, r: u < k - t, lambda u, r: (u + 1, cell(r)), (0, s), maximum_iterations=bound
        )
        return t + 1, inner[1] + s

    return tf.while_loop(lambda t, s: t < m, outer, (0, x), maximum_iterations=bound)[1]


def equal_outside(k, m, x, bound=None):
    return while_in_while(k, tf.constant(2), x, bound)


def arrays(k, m, x):
    def outer(t, s):
        array = tf.TensorArray(tf.float64, 5, element_shape=[3])

        def inner(u, r, array):
            return u + 1, cell(r), array.write(u, r)

        _, r, array = tf.while_loop(lambda u, *_: u < k - t, inner, (0, s, array))
        return t + 1, r + tf.reduce_sum(array.stack(), 0)

    return tf.while_loop(lambda t, s: t < m, outer, (0, x))[1]


def three_deep(k, m, x):
    def outer(t, s):
        return t + 1, while_in_while(k - t, m, s)

    return tf.while_loop(lambda t, s: t < 2, outer, (0, x))[1]


def loop_in_branch(k, m, x):
    def outer(t, s):
        def inside():
            return tf.while_loop(lambda u, r: u < k, lambda u, r: (u + 1, cell(r)), (0, s))[1]

        return t + 1, tf.cond(m > t, inside, lambda: s * 2.0)

    return tf.while_loop(lambda t, s: t < 3, outer, (0, x))[1]


def branch_in_loop(k, m, x):
    """Branches that keep other things for the gradient, and a tensor of another shape."""

    def outer(t, s):
        def product():
            return tf.reduce_sum(tf.sin(s)[:, None] * W, 0)

        return t + 1, tf.cond((k + t) % 2 == 0, product, lambda: cell(s) * s)

    return tf.while_loop(lambda t, s: t < m, outer, (0, x))[1]


def branch_with_loops(k, m, x):
    return tf.cond(k > 1, lambda: while_in_while(k, m, x), lambda: branch_in_loop(m, k, x))


def invariant_branch(k, m, x):
    return tf.cond(tf.reduce_sum(W) > -100.0, lambda: while_in_while(k, m, x), lambda: x)


def invariant_in_loop(k, m, x):
    """An invariant branch of a loop, which loops over a branch of rows."""

    def outer(t, s):
        return t + 1, tf.cond(t < 2, lambda: branch_in_loop(k, m, s), lambda: cell(s))

    return tf.while_loop(lambda t, s: t < 3, outer, (0, x))[1]


def branch_in_branch(k, m, x):
    def outer(t, s):
        def inside():
            return tf.cond(s[0] > 0, lambda: cell(s), lambda: tf.sin(s))

        return t + 1, tf.cond(m > t, inside, lambda: s * tf.cos(s))

    return tf.while_loop(lambda t, s: t < k, outer, (0, x))[1]


def writes_in_branches(k, m, x):
    def outer(t, s, array):
        def early():
            return cell(s), array.write(t, s)

        def late():
            return tf.sin(s), array.write(t + 1, s * 2.0)

        s, array = tf.cond(s[0] > 0.1, early, late)
        return t + 1, s, array

    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))
    array = tf.while_loop(lambda t, *_: t < k, outer, (0, x, array))[2]
    return tf.reduce_sum(array.stack() ** 2, 0) * tf.cast(m, tf.float64)


def gradients(model, nested_tapes=False):
    """Under two tapes TensorFlow keeps what second gradients would need, also if nobody asks."""

    def one(k, m, x):
        with tf.GradientTape() as outer:
            if nested_tapes:
                outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(model(k, m, x) ** 2)
            return tape.gradient(loss, [x, W], unconnected_gradients="zero")

    return one


def mapped(one, n=5, **options):
    return tf_pfor.vectorized_map(
        lambda row: one(*row),
        (INNER[:n], OUTER[:n], X[:n]),
        fallback_to_while_loop=False,
        **options,
    )


def assert_right(found, one, n=5):
    one = tf.function(one)
    expected = [one(INNER[i], OUTER[i], X[i]) for i in range(n)]
    for f, e in zip(found, zip(*expected), strict=True):
        np.testing.assert_allclose(f, tf.stack(e), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("nested_tapes", [False, True])
@pytest.mark.parametrize("model", [while_in_while, equal_outside, arrays])
def test_gradient_in_the_body(model, nested_tapes, strategy):
    one = gradients(model, nested_tapes)
    assert_right(mapped(one, while_strategy=strategy), one)


@pytest.mark.parametrize("model", [while_in_while, arrays])
def test_few_rows(model):
    one = gradients(model, False)
    assert_right(mapped(one, 1), one, 1)
    assert [t.shape for t in mapped(one, 0)] == [(0, 3), (0, 3, 3)]


def test_second_gradients_of_conditionals_in_loops_under_jit_compile():

    def one(k, x):
        def body(t, s):
            return t + 1, tf.cond(t < k - 1, lambda: tf.sin(s) * x[t], lambda: s**2)

        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.while_loop(
                    lambda t, _: t < tf.minimum(k, 3), body, (0, x[0]), maximum_iterations=3
                )[1]
            first = tf.reduce_sum(tape.gradient(y, x) ** 2)
        return outer.gradient(first, x)

    @tf.function(jit_compile=True, autograph=False)
    def of_all(*rows):
        return tf_pfor.vectorized_map(lambda row: one(*row), rows, fallback_to_while_loop=False)

    found = of_all(INNER, X)
    by_row = tf.function(one, autograph=False)
    for k, x, row in zip(INNER, X, found):
        np.testing.assert_allclose(row, by_row(k, x), rtol=1e-6, atol=1e-8)


MODELS = [
    three_deep,
    loop_in_branch,
    branch_in_loop,
    branch_with_loops,
    invariant_branch,
    invariant_in_loop,
    branch_in_branch,
    writes_in_branches,
]


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("model", MODELS)
def test_branches_and_three_loops(model, strategy):
    one = gradients(model)
    assert_right(mapped(one, while_strategy=strategy), one)


@pytest.mark.parametrize("model", [loop_in_branch, branch_in_loop])
def test_no_rows_in_branches(model):
    assert [t.shape for t in mapped(gradients(model), 0)] == [(0, 3), (0, 3, 3)]


@pytest.mark.parametrize("model", [while_in_while, arrays])
def test_second_gradients(model):
    one = gradients(gradient_in_body(model))
    assert_right(mapped(one), one)


@pytest.mark.parametrize("model", [branch_in_loop, branch_in_branch])
def test_second_gradients_of_branches_in_loops_are_refused(model):
    with pytest.raises(tf_pfor.NotVectorizableError, match="or optionals that are kept, are added"):
        mapped(gradients(gradient_in_body(model)))


def assert_differentiated(model):
    """The gradient in the body, and another one of its result."""
    inside = gradient_in_body(model)

    def total(run):
        with tf.GradientTape() as tape:
            x = tf.identity(X)
            tape.watch(x)
            loss = tf.reduce_sum(tf.cos(run(x)))
        return tape.gradient(loss, x)

    found = tf.function(
        lambda: total(
            lambda x: tf_pfor.vectorized_map(lambda row: inside(*row), (INNER, OUTER, x))
        ),
        autograph=False,
    )()
    expected = tf.function(
        lambda: total(lambda x: tf.stack([inside(INNER[i], OUTER[i], x[i]) for i in range(5)]))
    )()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [three_deep, loop_in_branch, branch_in_loop, branch_in_branch])
def test_differentiated_from_outside(model):
    assert_differentiated(model)


def test_conversions_do_not_grow_with_depth(monkeypatch):
    """A trial converts what is in a loop only to see layouts: each of six loops at most 3 times."""
    conversions, convert = collections.Counter(), Region.convert

    def counted(region, *args, **options):
        conversions[region.name] += 1
        return convert(region, *args, **options)

    def nested(depth, s, k):
        if depth == 0:
            return tf.sin(s)
        body = lambda t, s: (t + 1, nested(depth - 1, s, k))  # noqa: E731
        return tf.while_loop(lambda t, _: t < k, body, (0, s))[1]

    monkeypatch.setattr(Region, "convert", counted)
    args = (X[:3, 0], tf.constant([2, 0, 1]))
    found = tf_pfor.vectorized_map(lambda row: nested(6, *row), args, fallback_to_while_loop=False)
    expected = [nested(6, x, k) for x, k in zip(*args)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    bodies = [count for name, count in conversions.items() if "_body" in name]
    assert len(bodies) == 6
    assert max(bodies) <= 3
