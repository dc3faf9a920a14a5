"""Loops and conditionals, with gradients, in a map in the body of another map: rows of both leave
loops at different times and choose branches."""

from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid, refuse, table
from tests.comparisons import assert_close, by_row, compare, gradient_of, gradients_in_body, mapped
from tests.comparisons import in_two_maps as in_maps

RNG = np.random.default_rng(0)
W = tf.Variable(RNG.normal(size=[3, 3]) * 0.5)
X = tf.constant(RNG.normal(size=[4, 3, 3]))
STEPS = tf.constant(RNG.normal(size=[4, 3, 5, 3]))
K = tf.constant([[0, 2, 1], [3, 1, 0], [0, 0, 0], [4, 2, 5]])
M = tf.constant([[1, 0, 2], [2, 2, 1], [3, 0, 0], [1, 1, 1]])
P = tf.constant([1, 0, 3, 2])  # of rows of the outer map only
Q = tf.constant([2, 0, 1])  # of rows of the inner map only
PAIRS = K, M, X, STEPS
ARGS = *PAIRS, P, Q


class Row(NamedTuple):
    """The parts of a row of both maps."""

    k: Any
    m: Any
    x: Any
    steps: Any
    p: Any = None
    q: Any = None


cell = lambda s: tf.tanh(tf.linalg.matvec(W, s))


def loop(k, body, s, **options):
    return tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, body(t, s)), (0, s), **options)[1]


array_of = lambda items: tf.TensorArray(tf.float64, 5, element_shape=[3]).unstack(items)
captured = lambda r, **options: loop(r.k, lambda t, s: cell(s) + r.steps[t], r.x, **options)


def of_an_array(r):
    array = array_of(r.steps)
    return loop(r.k, lambda t, s: cell(s) * array.read(t), r.x)


def to_an_array(r):
    """Written, and read after the loop, at places of each row's own."""
    body = lambda t, s, array: (t + 1, cell(s), array.write((t + r.m) % 5, s))
    start = 0, r.x, array_of(tf.zeros([5, 3], tf.float64))
    _, s, array = tf.while_loop(lambda t, *_: t < r.k, body, start)
    return s + tf.reduce_sum(array.stack(), 0) + array.read(r.m)


equal_trips = lambda r: captured(r._replace(k=tf.constant(3)))
branches = lambda r: tf.cond(r.k > r.m, lambda: tf.sin(cell(r.x)), lambda: tf.cos(r.x) * r.x)
# Both keep values of the same shapes.
alike = lambda r: tf.cond(r.k > r.m, lambda: tf.sin(tf.sin(r.x)), lambda: tf.exp(tf.tanh(r.x)))


def cases(r):
    x = r.x
    functions = [lambda: tf.sin(cell(x)), lambda: tf.cos(x) * x, lambda: tf.reduce_sum(x**2) * x]
    return tf.switch_case(r.k, functions)


def fails_elsewhere(r):
    """Infinite, with a gradient that is no number, in the rows that do not take it."""
    k, m, x = r.k, r.m, r.x
    y = tf.cond(k > m, lambda: tf.sqrt(tf.cast(k - m, tf.float64) * x**2), lambda: x * 2.0)
    return y + tf.cond(k > m, lambda: x, lambda: x / tf.cast(m - k + 1, tf.float64))


def predicate_of_both(r, k=None):
    k = r.k if k is None else k
    return loop(k, lambda t, s: tf.cond(s[0] > 0.1, lambda: cell(s) * s, lambda: tf.sin(s)), r.x)


def predicate_of_the_outer_row(r):
    return loop(r.k, lambda t, s: tf.cond(t < r.p, lambda: cell(s) * s, lambda: tf.sin(s)), r.x)


def predicate_of_the_inner_row(r):
    return loop(r.p, lambda t, s: tf.cond(t < r.q, lambda: cell(s) * s, lambda: tf.sin(s)), r.x)


predicate_in_equal_trips = lambda r: predicate_of_both(r, 3)


def cases_in_a_loop(r):
    def body(t, s):
        ways = [lambda: cell(s), lambda: s * s, lambda: tf.reduce_sum(s**2) * r.x]
        return tf.switch_case((t + r.p) % 3, ways)

    return loop(r.k, body, r.x)


def in_each_other(r):
    """The outer branches keep what the inner ones have kept."""

    def body(t, s):
        other = lambda: tf.cond(t < r.p, lambda: s * s, lambda: tf.exp(tf.sin(s)))
        return tf.cond(s[0] > 0.1, lambda: cell(s) * s, other)

    return loop(r.k, body, r.x)


def read_from_an_array(r):
    array = array_of(r.steps)

    def body(t, s):
        there, back = lambda: cell(s) * array.read(t), lambda: s + array.read(4 - t) ** 2
        return tf.cond(s[0] > 0.1, there, back)

    return loop(r.k, body, r.x)


def written_to_an_array(r):
    def body(t, s, array):
        s = cell(s) + r.steps[t]
        there, back = lambda: array.write(t, s**2), lambda: array.write((t + 2) % 5, tf.sin(s))
        return t + 1, s, tf.cond(s[0] > 0.1, there, back)

    start = 0, r.x, array_of(tf.zeros([5, 3], tf.float64))
    return tf.while_loop(lambda t, *_: t < r.k, body, start)[2].stack()


def loop_in_a_branch(r):
    return tf.cond(r.x[0] > 0.0, lambda: captured(r), lambda: tf.sin(r.x) * r.steps[r.p])


def loop_in_a_branch_of_the_outer_row(r):
    return tf.cond(r.p > 0, lambda: captured(r._replace(k=r.q)), lambda: tf.sin(r.x) * r.steps[r.p])


def loop_in_a_loop(r):
    return loop(r.k, lambda t, s: loop(t + r.p, lambda u, z: cell(z) + r.steps[t], s), r.x)


def equal_trips_inside(r):
    return loop(r.k, lambda t, s: loop(2, lambda u, z: cell(z) * r.steps[t], s), r.x)


def loops_of_an_array(r):
    array = array_of(r.steps)
    inner = lambda t: lambda u, z: cell(z) + array.read(t) * array.read(u)
    return loop(r.k, lambda t, s: loop(r.q, inner(t), s), r.x)


def three_loops(r):
    return loop(
        r.k, lambda t, s: loop(r.p, lambda u, z: loop(r.q, lambda v, y: cell(y), z), s), r.x
    )


LOOPS = [captured, of_an_array, to_an_array, equal_trips]
BRANCHES = [
    branches, alike, cases, fails_elsewhere, predicate_of_both, predicate_of_the_outer_row,
    in_each_other, read_from_an_array, loop_in_a_branch, loop_in_a_branch_of_the_outer_row,
    loop_in_a_loop, equal_trips_inside, predicate_of_the_inner_row, predicate_in_equal_trips,
    cases_in_a_loop, written_to_an_array, loops_of_an_array, three_loops,
]  # fmt: skip
gradients = lambda model: gradients_in_body(lambda *args: model(Row(*args)), by=(2, 3), also=(W,))


def second_gradients(model):
    def one(*args):
        total = lambda: tf.reduce_sum(tf.cos(gradients(model)(*args)[0]))
        return gradient_of(total, [args[2], args[3], W], unconnected_gradients="zero")

    return one


def in_two_maps(one, *args, inner=None, **options):
    """``P`` is of the rows of the outer map, ``Q`` of the inner map's rows only."""
    *pairs, p, q = args

    def outer(*row):
        return mapped(lambda *r: one(*r[:-1], row[-1], r[-1]), *row[:-1], q, **(inner or {}))

    return mapped(outer, *pairs, p, **options)


def one_by_one(one, *args):
    *pairs, p, q = args
    k = pairs[0]
    return by_row(one, *pairs, p[:, None] + 0 * k, q[None] + 0 * k, maps=2)


few = lambda n, k: (*(a[:n, :k] for a in PAIRS), P[:n], Q[:k])


def check(one, args=ARGS, *, eagerly=False, **options):
    run = lambda *args: in_two_maps(one, *args, **options)
    run = run if eagerly else tf.function(run, autograph=False)
    assert_close(run(*args), one_by_one(one, *args))


sines = lambda nest: tf.add_n([tf.reduce_sum(tf.sin(g)) for g in nest])


def differentiated(rows):
    """The gradient of a sum over what ``rows`` makes, by a tape of the outer body."""

    def one(k, m, x, steps):
        total = lambda: sines(rows(k, m, x, steps))
        return gradient_of(total, [x, steps, W], unconnected_gradients="zero")

    return one


def differentiated_in_the_outer_body(model):
    one = gradients(model)
    expected = by_row(differentiated(lambda *rows: by_row(one, *rows)), *PAIRS)
    found = mapped(differentiated(lambda *rows: mapped(one, *rows)), *PAIRS)
    assert_close(found, expected)


def refused_in_the_outer_body(model):
    one = differentiated(lambda *rows: mapped(gradients(model), *rows))
    refuse(one, *PAIRS, match="axes that differ are not indexed")


def differentiated_outside(model):
    """A tape around both maps."""

    def total(rows):
        x = tf.identity(X)
        return gradient_of(lambda: sines(rows(gradients(model), K, M, x, STEPS)), [x, W])

    found = tf.function(lambda: total(in_maps), autograph=False)()
    expected = tf.function(lambda: total(lambda *args: by_row(*args, maps=2)))()
    assert_close(found, expected)


def few_rows(model, n, k):
    last = slice(-n, None)
    args = (*(a[last, :k] for a in PAIRS), P[last], Q[:k])
    check(gradients(model), args if model is captured else few(n, k), eagerly=model is captured)


def no_rows(model, n, k):
    found = in_two_maps(gradients(model), *few(n, k))
    assert [g.shape for g in found] == [(n, k, 3), (n, k, 5, 3), (n, k, 3, 3)]


def eager(model, args=ARGS, **options):
    check(gradients(model), args, eagerly=True, **options)


NESTED = [in_each_other, loop_in_a_branch, loop_in_a_loop]
test_table_of_gradients = table({
    "gradients-of loops": (eager, LOOPS),
    "gradients-of branches": (lambda model: check(gradients(model)), BRANCHES),
    "strategies": (
        lambda model, strategy: eager(model, while_strategy=strategy), LOOPS, ["compact", "mask"]
    ),
    "second": (
        lambda model: check(second_gradients(model)),
        [loop_in_a_loop, captured, of_an_array, equal_trips],
    ),
    "in the outer body": (differentiated_in_the_outer_body, [captured, equal_trips]),
    "in the outer body, refused": (refused_in_the_outer_body, [of_an_array]),
    "outside": (differentiated_outside, [captured, to_an_array]),
    "in three maps": (
        lambda model: compare(gradients(model), *[tf.stack([a, a[::-1]]) for a in PAIRS], maps=3),
        [captured],
    ),
    "few rows-of one outer row": (few_rows, [captured], [1], [1, 3]),
    "few rows-of three outer rows": (few_rows, [captured], [3], [1]),
    "few rows-of one outer row of branches": (few_rows, NESTED, [1], [3]),
    "few rows-of one inner row": (few_rows, [branches, *NESTED], [4], [1]),
    "no rows-outside": (no_rows, [captured], [0], [0, 3]),
    "no rows-inside": (no_rows, [captured], [3], [0]),
    "no rows-inside, of branches": (no_rows, [branches], [4], [0]),
    # XLA's lists have room for as many items in all rows.
    "compiled": (
        lambda most: compare(
            gradients(lambda r: captured(r, maximum_iterations=most)), *PAIRS, maps=2,
            function={"jit_compile": True},
        ),
        [5],
    ),
    "one branch for all rows-the second": (lambda: eager(branches, (K * 0, *ARGS[1:])),),
    "one branch for all rows-the first": (lambda: eager(branches, (K + 9, *ARGS[1:])),),
})  # fmt: skip


@pytest.mark.parametrize("model", [captured, in_each_other, loop_in_a_loop])
def test_unknown_number_of_rows(model):
    one = gradients(model)
    specs = [tf.TensorSpec([None, None, *a.shape[2:]], a.dtype) for a in PAIRS]
    specs += [tf.TensorSpec([None], tf.int32)] * 2
    run = tf.function(lambda *args: in_two_maps(one, *args), input_signature=specs, autograph=False)
    for n, k in ((4, 3), (2, 1), (1, 2), (0, 3), (2, 0)):
        args = few(n, k)
        found = run(*args)
        assert [g.shape for g in found] == [(n, k, 3), (n, k, 5, 3), (n, k, 3, 3)]
        if n and k:
            assert_close(found, one_by_one(one, *args))


def test_what_is_kept_without_a_static_shape():
    shapes = tf.TensorShape([]), tf.TensorShape([None])

    def model(r):
        def body(t, s):
            return tf.cond(tf.reduce_sum(s) > 0.1, lambda: tf.sin(s) * s, lambda: tf.exp(s))

        return loop(r.k, body, r.x, shape_invariants=shapes)

    options = {"out_shapes": "dense", "fallback": "loop"}
    with pytest.warns(tf_pfor.FallbackWarning, match="While"):  # in maps of maps only
        check(gradients(model), few(2, 2), inner=options, **options)


V = tf.constant(RNG.normal(size=[4, 4]))
SIGNS = tf.constant([1.0, -1.0, 2.0, -3.0], tf.float64)
by_outer_row = lambda sign, v, e: tf.cond(sign > 0, lambda: v * e, lambda: v[:2] * e)


def by_outer_number(k, v, e):
    return tf.switch_case(k % 3, [lambda: v * e, lambda: v[1:], lambda: tf.concat([v, v], 0)])


@grid(is_summed=[True, False], one=[by_outer_row, by_outer_number])
def test_shapes_of_branches_that_the_outer_row_chooses(one, is_summed):
    which, rows = (SIGNS if one is by_outer_row else K[:, 1]), X[:, 0]

    def row(inner, which, v, m):
        result = inner(lambda e: one(which, v, e), m)
        return tf.reduce_sum(tf.sin(result)) if is_summed else result

    stacked = lambda fn, rows: tf.stack([fn(e) for e in rows])
    found = mapped(lambda *r: row(mapped, *r), which, V, rows)
    wanted = [row(stacked, *r) for r in zip(which, V, rows)]
    for got, want in zip(found, wanted):
        got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(got, want, rtol=1e-9)

    def of_maps():
        return tf.reduce_sum(mapped(lambda *r: tf.reduce_sum(row(mapped, *r)), which, V, rows))

    of_rows = lambda: tf.add_n([tf.reduce_sum(row(stacked, *r)) for r in zip(which, V, rows)])
    found, expected = (tf.convert_to_tensor(gradient_of(f, V)) for f in (of_maps, of_rows))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_vmap():
    def one(k, x, w):
        step = lambda t, s: tf.tanh(tf.linalg.matvec(w, s) + x)
        loss = lambda: tf.reduce_sum(loop(k, step, x) ** 2)
        return gradient_of(loss, [x, w], unconnected_gradients="zero")

    found = tf_pfor.vmap(tf_pfor.vmap(one, in_axes=(0, 0, None)), in_axes=(0, 0, None))(
        K, X, W.value()
    )
    w = tf.convert_to_tensor(W)
    assert_close(found, by_row(lambda k, x: one(k, x, w), K, X, maps=2))


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU])
def test_keras(layer):
    """Per-example gradients of masked layers."""
    keras.utils.set_random_seed(3)
    made = layer(2)
    made.build((None, 4, 3))
    mask = tf.constant(np.arange(4) < np.array([[4, 1, 2], [3, 3, 0]])[..., None])
    rows = tf.constant(RNG.normal(size=[2, 3, 4, 3]), tf.float32)

    def one(x, mask):
        sources = [x, *(v.value for v in made.trainable_variables)]
        return gradient_of(lambda: tf.reduce_sum(made(x[None], mask=mask[None]) ** 2), sources)

    compare(one, rows, mask, maps=2, rtol=2e-5, atol=2e-5)


def test_one_size_for_lists_of_different_lengths():
    """Items behind the end of a list are zeros, also where the list of another row was longer."""
    raw = tf.raw_ops

    def one(k, x, steps):
        made = raw.TensorListFromTensor(tensor=steps, element_shape=[3])
        made = raw.TensorListResize(input_handle=made, size=k)
        made = raw.TensorListResize(input_handle=made, size=6)
        item = raw.TensorListGetItem(
            input_handle=made, index=3, element_shape=[3], element_dtype=x.dtype
        )
        whole = raw.TensorListStack(
            input_handle=made, element_shape=[3], element_dtype=x.dtype, num_elements=6
        )
        return item + x, whole

    compare(one, K[3], X[3], STEPS[3])
