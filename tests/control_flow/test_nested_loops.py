"""Gradients, in the body, of loops and branches in each other, which rows leave at different times
and of which they take different ones. What those keep that all rows share is shared too, and stands
in containers beside what each row keeps for itself."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import case, refuse, table
from tests.comparisons import (
    by_row,
    compare,
    gradient_in_body,
    gradient_of,
    gradients_in_body,
    mapped,
    strict_map,
)
from tf_pfor.converters.control_flow._subgraphs import Region

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
INNER = tf.constant([2, 0, 4, 1, 3])
OUTER = tf.constant([1, 3, 2, 0, 2])
X = tf.constant(RNG.normal(size=[5, 3]))
cell = lambda s: tf.tanh(tf.linalg.matvec(W, s))


def while_in_while(k, m, x, bound=None):
    def outer(t, s):
        inner = tf.while_loop(
            lambda u, r: u < k - t, lambda u, r: (u + 1, cell(r)), (0, s), maximum_iterations=bound
        )
        return t + 1, inner[1] + s

    return tf.while_loop(lambda t, s: t < m, outer, (0, x), maximum_iterations=bound)[1]


equal_outside = lambda k, m, x, bound=None: while_in_while(k, tf.constant(2), x, bound)


def arrays(k, m, x):
    def outer(t, s):
        array = tf.TensorArray(tf.float64, 5, element_shape=[3])
        inner = lambda u, r, array: (u + 1, cell(r), array.write(u, r))
        _, r, array = tf.while_loop(lambda u, *_: u < k - t, inner, (0, s, array))
        return t + 1, r + tf.reduce_sum(array.stack(), 0)

    return tf.while_loop(lambda t, s: t < m, outer, (0, x))[1]


def three_deep(k, m, x):
    outer = lambda t, s: (t + 1, while_in_while(k - t, m, s))
    return tf.while_loop(lambda t, s: t < 2, outer, (0, x))[1]


def loop_in_branch(k, m, x):
    def outer(t, s):
        inside = lambda: tf.while_loop(lambda u, r: u < k, lambda u, r: (u + 1, cell(r)), (0, s))[1]
        return t + 1, tf.cond(m > t, inside, lambda: s * 2.0)

    return tf.while_loop(lambda t, s: t < 3, outer, (0, x))[1]


def branch_in_loop(k, m, x):
    """Branches that keep other things for the gradient, and a tensor of another shape."""

    def outer(t, s):
        product = lambda: tf.reduce_sum(tf.sin(s)[:, None] * W, 0)
        return t + 1, tf.cond((k + t) % 2 == 0, product, lambda: cell(s) * s)

    return tf.while_loop(lambda t, s: t < m, outer, (0, x))[1]


def branch_with_loops(k, m, x):
    return tf.cond(k > 1, lambda: while_in_while(k, m, x), lambda: branch_in_loop(m, k, x))


def invariant_branch(k, m, x):
    return tf.cond(tf.reduce_sum(W) > -100.0, lambda: while_in_while(k, m, x), lambda: x)


def invariant_in_loop(k, m, x):
    """An invariant branch of a loop, which loops over a branch of rows."""
    outer = lambda t, s: (t + 1, tf.cond(t < 2, lambda: branch_in_loop(k, m, s), lambda: cell(s)))
    return tf.while_loop(lambda t, s: t < 3, outer, (0, x))[1]


def branch_in_branch(k, m, x):
    def outer(t, s):
        inside = lambda: tf.cond(s[0] > 0, lambda: cell(s), lambda: tf.sin(s))
        return t + 1, tf.cond(m > t, inside, lambda: s * tf.cos(s))

    return tf.while_loop(lambda t, s: t < k, outer, (0, x))[1]


def writes_in_branches(k, m, x):
    def outer(t, s, array):
        late = lambda: (tf.sin(s), array.write(t + 1, s * 2.0))
        s, array = tf.cond(s[0] > 0.1, lambda: (cell(s), array.write(t, s)), late)
        return t + 1, s, array

    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))
    array = tf.while_loop(lambda t, *_: t < k, outer, (0, x, array))[2]
    return tf.reduce_sum(array.stack() ** 2, 0) * tf.cast(m, tf.float64)


def equal_loops(s):
    """Equally many trips for all rows, of two loops in each other."""
    inner = lambda t, s: (t + 1, tf.sin(cell(s)))
    outer = lambda t, s: (t + 1, tf.while_loop(lambda t, s: t < 2, inner, (0, s))[1] + s)
    return tf.while_loop(lambda t, s: t < 2, outer, (0, s))[1]


def with_array(k, s):
    array = tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(tf.zeros([5, 3], tf.float64))
    body = lambda t, s, array: (t + 1, cell(s), array.write(t, s * 0.5))
    _, s, array = tf.while_loop(lambda t, *_: t < k, body, (0, s, array))
    return s + tf.reduce_sum(array.stack(), 0)


# A list of lists.
shared_loops_in_a_branch = lambda k, m, x: tf.cond(k > m, lambda: equal_loops(x), lambda: tf.cos(x))


def shared_loops_in_a_loop(k, m, x):
    return tf.while_loop(lambda t, s: t < k, lambda t, s: (t + 1, equal_loops(s)), (0, x))[1]


def shared_branch_in_branch(k, m, x):
    """Optionals that hold lists, of which the two branches keep different ones."""
    inner = tf.constant(1) + tf.size(x)
    return tf.cond(
        k > m,
        lambda: tf.cond(inner > 2, lambda: with_array(m, x), lambda: equal_loops(x)),
        lambda: tf.cos(x),
    )


def shared_branch_in_loop(k, m, x):
    """Another branch in each trip, the same for all rows, and lists of it."""

    def body(t, s):
        s = tf.cond(t > 0, lambda: with_array(m, s), lambda: equal_loops(s))
        return t + 1, s

    return tf.while_loop(lambda t, s: t < k - 1, body, (0, x))[1]


SHARED = [
    shared_loops_in_a_branch, shared_loops_in_a_loop, shared_branch_in_branch, shared_branch_in_loop
]  # fmt: skip
BRANCHES = [
    three_deep, loop_in_branch, branch_in_loop, branch_with_loops, invariant_branch,
    invariant_in_loop, branch_in_branch, writes_in_branches,
]  # fmt: skip


def gradients(model, nested_tapes=False):
    """Under two tapes TensorFlow keeps what second gradients would need, also if nobody asks."""

    def one(k, m, x):
        with tf.GradientTape() as outer:
            if nested_tapes:
                outer.watch(x)
            return gradients_in_body(model, also=(W,))(k, m, x)

    return one


def check(one, n=5, **options):
    compare(one, INNER[:n], OUTER[:n], X[:n], **options)


def shapes_of_no_rows(model):
    found = mapped(gradients(model), INNER[:0], OUTER[:0], X[:0])
    assert [t.shape for t in found] == [(0, 3), (0, 3, 3)]


def differentiated_from_outside(model):
    """The gradient in the body, and another one of its result."""
    one = gradient_in_body(model)

    def total(run):
        x = tf.identity(X)
        return gradient_of(lambda: tf.reduce_sum(tf.cos(run(one, INNER, OUTER, x))), x)

    found = tf.function(total, autograph=False)(tf.autograph.experimental.do_not_convert(mapped))
    np.testing.assert_allclose(found, tf.function(total)(by_row), rtol=1e-9, atol=1e-12)


def refused_twice(model):
    match = "or optionals that are kept, are added"
    refuse(gradients(gradient_in_body(model)), INNER, OUTER, X, match=match)


STRATEGIES = ["compact", "mask"]
FEW = [while_in_while, arrays, *SHARED]
test_table_of_gradients = table({
    "in the body": (
        lambda model, tapes, strategy: check(gradients(model, tapes), while_strategy=strategy),
        [while_in_while, equal_outside, arrays], [False, True], STRATEGIES,
    ),
    "branches and three loops": (
        lambda model, strategy: check(gradients(model), while_strategy=strategy),
        [*BRANCHES, *SHARED], STRATEGIES,
    ),
    "in a branch": (lambda model: check(gradients(model)), [shared_loops_in_a_branch]),
    "one row": (lambda model: check(gradients(model), 1), FEW),
    "no rows": (shapes_of_no_rows, [*FEW, loop_in_branch, branch_in_loop]),
    "second": (lambda model: check(gradients(gradient_in_body(model))), [while_in_while, arrays]),
    "second, refused": (refused_twice, [branch_in_loop, branch_in_branch]),
    "from outside": (
        differentiated_from_outside,
        [three_deep, loop_in_branch, branch_in_loop, branch_in_branch, *SHARED],
    ),
})  # fmt: skip


@case(compare, INNER, X, function={"jit_compile": True}, rtol=1e-6, atol=1e-8)
def test_second_gradients_of_conditionals_in_loops_under_jit_compile(k, x):
    body = lambda t, s: (t + 1, tf.cond(t < k - 1, lambda: tf.sin(s) * x[t], lambda: s**2))

    def first():
        goes_on = lambda t, _: t < tf.minimum(k, 3)
        y = lambda: tf.while_loop(goes_on, body, (0, x[0]), maximum_iterations=3)[1]
        return tf.reduce_sum(gradient_of(y, x) ** 2)

    return gradient_of(first, x)


def loop(k, body, s):
    return tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, body(t, s)), (0, s))[1]


def test_conversions_do_not_grow_with_depth(monkeypatch):
    """A trial converts what is in a loop only to see layouts: each of six loops at most 3 times."""
    conversions, convert = collections.Counter(), Region.convert

    def counted(region, *args, **options):
        conversions[region.graph.name] += 1
        return convert(region, *args, **options)

    def nested(depth, s, k):
        if depth == 0:
            return tf.sin(s)
        body = lambda t, s: (t + 1, nested(depth - 1, s, k))
        return tf.while_loop(lambda t, _: t < k, body, (0, s))[1]

    monkeypatch.setattr(Region, "convert", counted)
    args = (X[:3, 0], tf.constant([2, 0, 1]))
    found = strict_map(lambda row: nested(6, *row), args)
    expected = [nested(6, x, k) for x, k in zip(*args)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    bodies = [count for name, count in conversions.items() if "_body" in name]
    assert len(bodies) == 6
    assert max(bodies) <= 3


@case(compare, tf.constant(np.random.default_rng(0).normal(size=[4, 3])))
@pytest.mark.parametrize(
    "step",
    [
        lambda s, i, j: tf.tanh(tf.tensor_scatter_nd_update(s, [[j], [i]], s[:2] * s[1:])),
        lambda s, i, j: tf.pow(tf.abs(s) + 0.5, tf.cast(i + j, tf.float64) * 0.3),
    ],
)
def test_items_that_all_rows_share_keep_their_shape(step, x):
    """They are popped from lists that were popped from lists, of which nothing is said."""
    return gradient_of(lambda: loop(3, lambda i, s: loop(2, lambda j, s: step(s, i, j), s), x), x)


@case(compare, tf.reshape(tf.range(12.0), [4, 3]), function={}, rtol=1e-6)
@pytest.mark.parametrize("name", ["of a table", "of the trip"])
def test_three_loops_of_equal_trips(name, x):
    """Their gradients keep lists of lists of what all rows share: an error when it ran."""
    table = tf.constant([[0.5, -1.0, 2.0], [1.5, 0.3, -0.2]])

    def inner(j, t, s):
        return s * table[j] if name == "of a table" else s * tf.cast(t + 1, s.dtype)

    with tf.GradientTape() as tape:
        tape.watch(x)
        s = loop(
            3, lambda _, s: loop(2, lambda j, s: loop(2, lambda t, s: inner(j, t, s), s), s), x
        )
        total = tf.reduce_sum(s)
    return tape.gradient(total, x)


def test_what_a_conditional_of_all_rows_keeps_in_a_loop_of_some():
    """An inner loop, whose number of trips its branch keeps for the gradient."""

    def model(k, x):
        branch = lambda s: tf.while_loop(lambda u, _: u < 2, lambda u, r: (u + 1, r * r), (0, s))[1]
        body = lambda t, s: (t + 1, tf.cond(t > 0, lambda: branch(s), lambda: s))
        return tf.while_loop(lambda t, _: t < k, body, (0, x))[1]

    one = gradients_in_body(model)
    rows = tf.constant([0, 2]), X[:2]
    found = tf.function(lambda *rows: mapped(one, *rows), autograph=False)(*rows)
    np.testing.assert_allclose(found[0], [2 * X[0], 8 * X[1] ** 7], rtol=1e-9)
