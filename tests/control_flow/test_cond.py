"""Conditionals: predicates that vary and that do not, empty sides, traps, gradients, XLA."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import case, grid, refuse
from tests.comparisons import check, gradient_of, notes, row_of, value_and_gradient, vectorized
from tf_pfor import NotVectorizableError, vectorized_map

_x = lambda *shape, seed=0: np.random.default_rng(seed).normal(size=shape).astype(np.float32)
X = _x(5, 3)
P = np.array([True, False, True, True, False])
X6 = np.arange(1.0, 7.0, dtype=np.float32)


def test_select_when_branches_are_linear():
    found = notes(lambda p, x: tf.cond(p, lambda: x + 1.0, lambda: -x), P, X)
    assert "cond: select" in found
    check(lambda p, x: tf.cond(p, lambda: x + 1.0, lambda: -x), P, X)


_TAPED = {
    "one keeps a value": lambda p, w, x: tf.cond(p, lambda: tf.exp(x) * x, lambda: 2.0 * x),
    "two": lambda p, w, x: tf.cond(p, lambda: tf.exp(x) * x, lambda: tf.sin(x)),
    "of two shapes": lambda p, w, x: tf.cond(
        p, lambda: tf.sin(x) * tf.reduce_sum(x**2), lambda: tf.linalg.matvec(w, tf.exp(x)) ** 3
    ),
    "three": lambda p, w, x: tf.switch_case(
        tf.cast(p, tf.int32) + tf.cast(x[0] > 0.5, tf.int32),
        [lambda: x * tf.sin(x), lambda: tf.linalg.matvec(w, x) ** 2, lambda: tf.exp(x) * x[0]],
    ),
}


@pytest.mark.parametrize("name", sorted(_TAPED))
def test_gradient_inside(name):
    """The tensors that branches keep for gradients are one output, for all branches."""
    w = tf.constant(_x(3, 3, seed=1))
    slopes = lambda y, x: gradient_of(y, [x, w], unconnected_gradients="zero")
    first = lambda p, x: slopes(lambda: _TAPED[name](p, w, x), x)
    total = lambda p, x: sum(tf.reduce_sum(tf.sin(g)) for g in first(p, x))
    check(first, P, X, xla=name == "two", rtol=1e-4)
    check(lambda p, x: slopes(lambda: total(p, x), x), P, X, xla=False, grad=False, rtol=1e-4)


@case(check, P, X)
def test_gradient_inside_of_a_list_that_branches_write(p, x):
    """The list is the same in all rows until then; so is the gradient that comes back to it."""

    def written():
        ta = tf.TensorArray(tf.float32, 2).unstack(tf.reshape(tf.constant(X6), [2, 3]))
        k = tf.cast(x[0] > 0.0, tf.int32)
        return tf.cond(p, lambda: ta.write(k, tf.exp(x)), lambda: ta).stack()

    return value_and_gradient(written, x, unconnected_gradients="zero")


@pytest.mark.parametrize("branches", ["few linear ops", "others"])
def test_branches_of_different_shapes(branches):
    """Each leaves its rows packed; not under XLA."""

    def f(p, x):
        y = x if branches == "few linear ops" else tf.sin(x)
        return tf.reduce_sum(tf.cond(p, lambda: y, lambda: y[:2]))

    run = lambda p, x: vectorized_map(lambda a: f(*a), (p, x))
    for p in (P, P[:0]):
        found = tf.function(run)(tf.constant(p), tf.constant(X[: len(p)]))
        np.testing.assert_allclose(found, [f(a, x) for a, x in zip(p, X)], rtol=1e-6)
    with pytest.raises(NotVectorizableError, match=r"shapes, \(2,\) and \(3,\)"):
        tf.function(run, jit_compile=True)(tf.constant(P), tf.constant(X))


@pytest.mark.parametrize("n", [5, 0])
def test_gradient_of_an_embedding_that_one_branch_reads(n):
    """Its slices are three rows; of the other branch, all rows of the table, zeros."""
    table = tf.Variable(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))

    def f(a):
        p, x = a
        with tf.GradientTape() as tape:
            y = tf.cond(p, lambda: tf.sin(tf.gather(table, [1, 2, 1])) * x, lambda: x[None] ** 2)
        return tf.convert_to_tensor(tape.gradient(y, table))

    args = tf.constant(P[:n]), tf.constant(X[:n])
    found = tf.function(vectorized_map)(f, args, fallback_to_while_loop=False)
    expected = [tf.function(f)((args[0][i], args[1][i])) for i in range(n)]
    assert len(found) == n
    np.testing.assert_allclose(found, np.reshape(expected, found.shape), rtol=1e-6)


def test_optionals_of_the_user():
    """They may have a value in some rows: looped."""
    Optional = tf.experimental.Optional
    some, none = Optional.from_value, lambda: Optional.empty(tf.TensorSpec([3]))
    f = lambda row: tf.cond(row[0], lambda: some(row[1]), none).has_value()
    found = vectorized_map(f, (tf.constant(P), tf.constant(X)), warn=False)
    np.testing.assert_array_equal(found, P)


@pytest.mark.parametrize("p", [np.ones(5, bool), np.zeros(5, bool), np.zeros(0, bool)], ids=str)
def test_lists_that_no_row_makes(p):
    def f(p, x):
        make = lambda n: lambda: tf.TensorArray(tf.float32, 2, element_shape=[]).unstack(x[:2] * n)
        return tf.cond(p, make(2.0), make(3.0)).stack()

    x = X[: len(p)]
    found = vectorized_map(lambda a: f(*a), (tf.constant(p), tf.constant(x)))
    np.testing.assert_allclose(found, np.where(p[:, None], 2 * x[:, :2], 3 * x[:, :2]))


@case(refuse, tf.constant(P), tf.constant(X), match="make lists of other lengths")
def test_lists_of_different_lengths_are_an_error(p, x):
    make = lambda n: lambda: tf.TensorArray(tf.float32, n, element_shape=[]).unstack(x[:n])
    return tf.reduce_sum(tf.cond(p, make(2), make(3)).stack())


def test_state_in_one_branch():
    v = tf.Variable(0.0)

    def f(p, x):
        def add():
            v.assign_add(x[0])
            return x

        return tf.cond(p, add, lambda: x * 2.0)

    out = vectorized_map(lambda a: f(*a), (tf.constant(P), tf.constant(X)))
    np.testing.assert_allclose(out, np.where(P[:, None], X, 2 * X))
    np.testing.assert_allclose(v.numpy(), X[P, 0].sum(), rtol=1e-5)


K = np.array([2, 0, 3, 1, 3], np.int32)


@case(check, K, _x(5, 4), second=True, xla=False)
@pytest.mark.parametrize("while_strategy", ["compact", "mask"])
def test_second_gradient_of_a_conditional_in_a_loop(k, x):
    """Sides with an unknown number of rows: what TensorFlow makes zeros of has that shape."""
    body = lambda t, s: (t + 1, tf.cond(t < k - 1, lambda: tf.sin(s) * x[t], lambda: s * s))
    return tf.while_loop(lambda t, _: t < k, body, (0, x[0]))[1]


def test_static_shapes_of_sides():
    """Nothing claims to have no rows: how many take a side is not known before running."""
    f = lambda p, x: tf.cond(p, lambda: tf.linalg.inv(x), lambda: tf.exp(x))
    p, x = np.array([True, False, True]), _x(3, 2, 2)
    go = tf.function(lambda p, x: vectorized(f, (p, x)))
    graph = go.get_concrete_function(p, x).graph
    shapes = [o.shape for op in graph.get_operations() for o in op.outputs if o.shape.rank == 3]
    assert [None, 2, 2] in [shape.as_list() for shape in shapes]
    assert all(shape[0] != 0 for shape in shapes)


@case(check, K[:3], np.array([[0, 1], [2, 2], [3, 0]], np.int32), _x(3, 4))
@pytest.mark.parametrize("xla", [False, True])
def test_gradient_of_gathers_in_branches(k, i, x):
    """The shape of the gradient is the same constant in both: one for all rows."""
    y = lambda: tf.cond(k > 1, lambda: tf.gather(x, i) ** 2, lambda: tf.gather(x, i) * 3.0)
    return tf.convert_to_tensor(gradient_of(y, x))


@grid(jit=[False, True], n=[0, 1, 5])
def test_unknown_number_of_rows(n, jit):
    """A side without rows gives zeros; where both sides have all rows, there are n of them."""

    def one(x):
        choice = tf.cast(x[0] * 2.0, tf.int32)
        y = tf.switch_case(choice, [lambda: tf.sin(x) * x[0], lambda: x**3])
        return tf.cond(x[1] > 100.0, lambda: tf.exp(x) * y, lambda: y * x)

    rows = lambda x: vectorized_map(one, x)

    def gradient(x):
        return gradient_of(lambda: tf.reduce_sum(rows(x) ** 2), x, unconnected_gradients="zero")

    def run(f, x, rank):
        spec = tf.TensorSpec([None] * (rank - 1) + [3], tf.float32)
        return tf.function(f, jit_compile=jit, input_signature=[spec])(x)

    x = X[:n]
    expected = np.array([one(row) for row in x], np.float32).reshape([n, 3])
    np.testing.assert_allclose(run(rows, x, 2), expected, 1e-5, 1e-6)
    slopes = np.array([gradient(tf.constant(row[None]))[0] for row in x]).reshape([n, 3])
    np.testing.assert_allclose(tf.convert_to_tensor(run(gradient, x, 2)), slopes, 1e-5, 1e-6)
    if jit:  # the inner map asks for the size of the outer one's rows
        return
    twice = run(lambda x: vectorized_map(rows, x), np.stack([x, x]), 3)
    np.testing.assert_allclose(twice, np.stack([expected] * 2), 1e-5, 1e-6)


exp_or_square = lambda p, x: tf.cond(p, lambda: tf.exp(x), lambda: x * x)
three_ways = lambda i, x: tf.switch_case(i, [lambda: tf.exp(x), lambda: x * x, lambda: x * 0.0])
FLAG, TABLE, WEIGHT = tf.constant([3.0]), tf.range(10.0), tf.constant(_x(3, 4))

# Conditionals: values, gradients and XLA.
CONDITIONALS = {
    "variant predicate": (exp_or_square, [P, X], {}),
    "on one side-the first": (exp_or_square, [P | True, X], {}),
    "on one side-the second": (exp_or_square, [P & False, X], {}),
    "few rows-none": (exp_or_square, [P[:0], X[:0]], {}),
    "few rows-one": (exp_or_square, [P[:1], X[:1]], {}),
    "three ways-all taken": (three_ways, [np.array([0, 1, 2, 1, 0], np.int32), X], {}),
    "three ways-one taken": (three_ways, [np.array([2, 2, 2, 2, 2], np.int32), X], {}),
    "three ways-others": (three_ways, [np.array([-1, 0, 3, 7, 1], np.int32), X], {}),
    # sqrt and log of rows that do not take the branch must not reach values or gradients
    "NaN-of the other side": (
        lambda x: tf.cond(x > 0.0, lambda: tf.sqrt(x) + tf.math.log(x), lambda: tf.constant(0.0)),
        [np.array([4.0, -1.0, 0.0, 9.0, -3.0], np.float32)], {},
    ),
    "NaN-of the row": (
        lambda x: tf.cond(tf.math.is_nan(x), lambda: 0.0 * tf.zeros_like(x), lambda: tf.tanh(x)),
        [np.array([1.0, np.nan, 2.0], np.float32)], {},
    ),
    "invariant predicate": (
        lambda x: tf.cond(
            tf.reduce_sum(FLAG) > 2.0, lambda: (x, FLAG[0]), lambda: (x * 2.0, x[0])
        ), [X], {},
    ),
    "invariant index": (
        lambda x: tf.switch_case(
            tf.cast(tf.reduce_sum(FLAG), tf.int32) - 2, [lambda: x * x, lambda: x[0] + x]
        ), [X], {},
    ),
    "captured weight": (
        lambda x: tf.cond(
            x[0] > 0.0, lambda: tf.tanh(x[None] @ WEIGHT), lambda: tf.nn.softmax(x[None] @ WEIGHT)
        ), [X], {},
    ),
    "unknown inner shape": (
        lambda p, k: tf.reduce_sum(
            tf.cond(p, lambda: tf.exp(k[: tf.shape(TABLE)[0]]), lambda: k[:7])
        ), [P, _x(5, 7)], {"xla": False},
    ),
    "equal constants-results": (
        lambda p, x: tf.cond(p, lambda: (tf.exp(x), 2.0, [1, 2]), lambda: (x, 3.0, [1, 2])),
        [P, X], {},
    ),
    "equal constants-a shape": (
        lambda p, x: tf.reshape(x, tf.cond(p, lambda: [3, 1], lambda: [3, 1])), [P, X], {},
    ),
}  # fmt: skip


@row_of(CONDITIONALS, X)
def autograph_if(x):
    if tf.reduce_sum(x) > 0:
        y = tf.exp(x) * 2.0
    elif x[0] > 0:
        y = x / 3.0
    else:
        y = -x
    return y


@row_of(CONDITIONALS, np.array([0, 5, 2, 7, 1], np.int32), X)
def branch_that_would_fail(i, x):
    def safe():
        tf.debugging.assert_less(i, 3)
        return x[i]

    return tf.cond(i < 3, safe, lambda: tf.constant(0.0))


@row_of(CONDITIONALS, X)
def tf_case(x):
    s = tf.reduce_sum(x)
    return tf.case(
        [(s > 1.0, lambda: tf.exp(x)), (s > 0.0, lambda: x * x)], default=lambda: tf.sin(x)
    )


@row_of(CONDITIONALS, P, X)
def nested(p, x):
    return tf.cond(
        p,
        lambda: tf.cond(x[0] > 0.0, lambda: tf.exp(x), lambda: x * x),
        lambda: tf.cond(x[1] > 0.0, lambda: tf.sin(x), lambda: tf.cos(x)),
    )


@row_of(CONDITIONALS, P, X)
def several_outputs_and_constants(p, x):
    return tf.cond(
        p, lambda: (x * x, tf.constant(1), x[0]), lambda: (x, tf.constant(2), tf.constant(5.0))
    )


@row_of(CONDITIONALS, P, X, xla=False, grad=False)
def shapes_that_nobody_reads(p, x):
    return tf.cond(p, lambda: (tf.sin(x), x), lambda: (x, x[:2]))[0]


@row_of(CONDITIONALS, P, X)
def list_written_by_branches(p, x):
    ta = tf.TensorArray(tf.float32, 3, element_shape=[])
    ta = ta.unstack(x)
    ta = tf.cond(p, lambda: ta.write(0, 7.0), lambda: ta.write(1, x[2]))
    return ta.stack()


@row_of(CONDITIONALS, P, X, xla=False)
def lists_that_branches_make(p, x):
    """New lists, lists of each other's items, and a list that exists already."""
    old = tf.TensorArray(tf.float32, 3, element_shape=[2]).unstack(tf.reshape(x[:1] * X6, [3, 2]))

    def make():
        return tf.TensorArray(tf.float32, 3, element_shape=[2]).unstack(
            tf.reshape(tf.sin(x[1] * X6), [3, 2])
        )

    one = tf.cond(p, make, lambda: old)
    two = tf.cond(p, lambda: old.write(1, x[:2]), make)
    return one.stack() + 2.0 * two.concat()[::2, None]


@row_of(CONDITIONALS, P, X)
def lists_that_branches_make_under_jit_compile(p, x):
    make = lambda *items: lambda: tf.TensorArray(tf.float32, 2).unstack(tf.stack(items))
    return tf.cond(p, make(tf.sin(x), x * x), make(3.0 * x, tf.exp(x))).stack()


@pytest.mark.parametrize("name", CONDITIONALS)
def test_table_of_conditionals(name):
    f, args, options = CONDITIONALS[name]
    check(f, *args, **options)
