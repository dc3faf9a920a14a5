"""Rows that leave a loop at different times, and update single items of arrays."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import (
    all_ops,
    assert_close,
    by_row,
    compare,
    gradient_in_body,
    in_two_maps,
    mapped,
    two_orders,
)

RNG = np.random.default_rng(5)
TRIPS = tf.constant([2, 0, 4, 1])
PLACES = tf.constant(RNG.integers(0, 6, (4, 5)).astype(np.int32))
X = tf.constant(RNG.normal(size=(4, 6, 3)))
MOST = 5


def _step(t, a, p):
    """A new item, of two items that were there."""
    pair = tf.gather(a, tf.stack([p[t], (p[t] + t) % 6]))
    return tf.tanh(pair[0] * 1.3 - tf.cos(pair[1]))


def update(t, a, p):
    return tf.tensor_scatter_nd_update(a, [[p[t]]], [_step(t, a, p)])


def add(t, a, p):
    return tf.tensor_scatter_nd_add(a, [[p[t]], [0]], [_step(t, a, p), a[1] * 0.5])


def sub(t, a, p):
    return tf.tensor_scatter_nd_sub(a, [[p[t]]], [_step(t, a, p)])


def largest(t, a, p):
    return tf.tensor_scatter_nd_max(a, [[p[t]]], [_step(t, a, p)])


def smallest(t, a, p):
    return tf.tensor_scatter_nd_min(a, [[p[t]]], [_step(t, a, p)])


def single_numbers(t, a, p):
    new = tf.sin(tf.gather_nd(a, [[p[t], 1], [2, t % 3]]) * 2.0)
    return tf.tensor_scatter_nd_update(a, [[p[t], 0], [p[t], 2]], new)


def same_places(t, a, p):
    del p
    return tf.tensor_scatter_nd_update(a, [[t], [5]], [tf.sin(a[t + 1]), a[t] * a[5]])


def several(t, a, p):
    a = tf.tensor_scatter_nd_update(a, [[p[t]]], [_step(t, a, p)])
    a = tf.tensor_scatter_nd_add(a, [[(p[t] + 1) % 6]], [a[p[t]] * 0.7])
    return tf.tensor_scatter_nd_update(a, [[p[t]]], [tf.sin(a[p[t]] + a[(p[t] + 1) % 6])])


def read_whole_after(t, a, p):
    a = tf.tensor_scatter_nd_update(a, [[p[t]]], [_step(t, a, p)])
    return tf.tensor_scatter_nd_update(a, [[t]], [tf.tanh(tf.reduce_mean(a, 0) + a[p[t]])])


def replaced_after(t, a, p):
    return tf.sin(update(t, a, p)) + 0.1 * a


def in_a_branch(t, a, p):
    return tf.cond(p[t] > 2, lambda: update(t, a, p), lambda: sub(t, a, p))


def inner_loop(t, a, p):
    def trip(u, a):
        return u + 1, tf.tensor_scatter_nd_update(a, [[(p[t] + u) % 6]], [_step(u, a, p)])

    return tf.while_loop(lambda u, _: u < p[t] % 4, trip, (0, a), maximum_iterations=4)[1]


def by_its_items(t, a, p):
    """A loop in a loop, which ends by what is in the array."""

    def goes_on(u, a):
        return (u < 4) & (a[p[t], 0] < 0.5)

    def trip(u, a):
        return u + 1, tf.tensor_scatter_nd_add(
            a, [[p[t]]], [tf.constant([0.3, 0.1, -0.2], a.dtype)]
        )

    return tf.while_loop(goes_on, trip, (0, a), maximum_iterations=4)[1]


@tf.custom_gradient
def _plus_one(x):
    return x * 2.0, lambda upstream: upstream + 1.0


def custom_gradient(t, a, p):
    """Rows that are done have a gradient of zero, of which this makes another number."""
    item = tf.tanh(_plus_one(a[(p[t] + 1) % 6]))
    a = tf.tensor_scatter_nd_update(a, [[p[t]]], [_plus_one(item)])
    return tf.tensor_scatter_nd_add(a, [[0]], [_plus_one(a[p[t]]) * 0.1])


def in_place(t, a, p):
    return tf.raw_ops.InplaceUpdate(x=a * 1.0, i=p[t][None], v=_step(t, a, p)[None])


STEPS = [
    update, add, sub, largest, smallest, single_numbers, same_places, several, read_whole_after,
    replaced_after, in_a_branch, inner_loop, by_its_items, custom_gradient,
]  # fmt: skip


def _loop(step):
    def one(k, p, x):
        def trip(t, a):
            return t + 1, step(t, a, p)

        return tf.while_loop(lambda t, _: t < k, trip, (0, x), maximum_iterations=MOST)[1]

    return one


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "options", [{"jit_compile": True}, {"while_strategy": "mask"}], ids=["compiled", "mask"]
)
def test_values_and_gradients(step, options):
    # TensorFlow has no second gradient of a largest item; XLA compiles none of whole arrays.
    is_first = step in (largest, smallest)
    is_first |= "jit_compile" in options and step in (replaced_after, in_a_branch)
    orders = 1 if is_first else 2
    one, options = _loop(step), dict(options)
    function = tf.function(autograph=False, jit_compile=options.pop("jit_compile", False))

    def run(of):
        found = two_orders(lambda x: of(one, TRIPS, PLACES, x), X, [])
        return found[: 1 + orders]

    found = function(lambda: run(lambda *args: mapped(*args, **options)))()
    expected = tf.function(lambda: run(_stacked))()
    assert_close(found, expected)


def _stacked(one, *args):
    return tf.stack([one(*row) for row in zip(*map(tf.unstack, args), strict=True)])


@pytest.mark.parametrize("step", [update, add, largest, several, read_whole_after, inner_loop])
def test_gradients_in_the_body(step):
    compare(gradient_in_body(_loop(step)), TRIPS, PLACES, X, function={"jit_compile": True})


@pytest.mark.parametrize(
    ("step", "compiled"),
    [(update, False), (update, True), (smallest, False), (several, False), (inner_loop, False)],
)
def test_two_maps(step, compiled):
    args = [tf.reshape(a, [2, 2, *a.shape[1:]]) for a in (TRIPS, PLACES, X)]
    one = gradient_in_body(_loop(step))
    found = tf.function(in_two_maps, autograph=False, jit_compile=compiled)(one, *args)
    assert_close(found, by_row(one, *args, maps=2))


def test_in_place_update():
    compare(_loop(in_place), TRIPS, PLACES, X, while_strategy="mask")


def test_variables_that_change_places():
    """A row that leaves keeps its own arrays, and not the ones that others updated."""

    def one(k, p, x):
        def trip(t, a, b, c):
            return t + 1, update(t, b, p), a, c * 0.5 + a

        return tf.while_loop(
            lambda t, *_: t < k, trip, (0, x, x * 2.0, x), maximum_iterations=MOST
        )[1:]

    for options in ({"function": {"jit_compile": True}}, {"while_strategy": "mask"}):
        compare(one, TRIPS, PLACES, X, **options)


@pytest.mark.parametrize("dtype", [tf.int32, tf.bool, tf.complex64])
def test_dtypes(dtype):
    def one(k, p, x):
        def trip(t, a):
            return t + 1, tf.tensor_scatter_nd_update(a, [[p[t]]], [a[(p[t] + 1 + t) % 6]])

        return tf.while_loop(lambda t, _: t < k, trip, (0, x), maximum_iterations=MOST)[1]

    x = tf.cast(X * 3.0, tf.int32)
    x = x > 0 if dtype is tf.bool else tf.cast(x, dtype)
    for options in ({"function": {"jit_compile": True}}, {"while_strategy": "mask"}):
        compare(one, TRIPS, PLACES, x, **options)


def test_places_outside_of_rows_that_are_done():
    """A row that has made its trips would write behind the end."""

    def one(k, x):
        def trip(t, a):
            return t + 1, tf.tensor_scatter_nd_update(a, [[6 - k + t]], [a[6 - k + t] * 2.0])

        return tf.while_loop(lambda t, _: t < k, trip, (0, x), maximum_iterations=MOST)[1]

    for options in ({"function": {"jit_compile": True}}, {"while_strategy": "mask"}):
        compare(one, TRIPS, X, **options)


def check_outside(one):
    """An error as for one row; XLA does what it does for one row."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        mapped(one, TRIPS, X, while_strategy="mask")
    alone = tf.function(one, jit_compile=True)
    expected = tf.stack([alone(k, x) for k, x in zip(TRIPS, X)])
    compiled = tf.function(lambda: mapped(one, TRIPS, X), autograph=False, jit_compile=True)
    assert_close(compiled(), expected)


@pytest.mark.parametrize("at", [-1, 6, 7])
def test_places_outside_of_rows_at_work(at):
    """An error as for one row; XLA leaves such writes out, for one row as for all."""

    def one(k, x):
        def trip(t, a):
            place = tf.where(t < 2, t, at)
            return t + 1, tf.tensor_scatter_nd_update(a, [[place]], [a[t] * 2.0])

        return tf.while_loop(lambda t, _: t < k, trip, (0, x), maximum_iterations=MOST)[1]

    check_outside(one)


@pytest.mark.parametrize("at", [-1, 6, 7])
@pytest.mark.parametrize("several", [False, True])
def test_reads_outside(at, several):
    """An error as for one row; under XLA the item that one row gets."""

    def one(k, x):
        def trip(t, a):
            place = tf.where(t < 2, t, at)
            item = tf.gather(a, tf.stack([place, 0]))[0] if several else tf.gather(a, place)
            return t + 1, tf.tensor_scatter_nd_update(a, [[t]], [item * 2.0])

        return tf.while_loop(lambda t, _: t < k, trip, (0, x), maximum_iterations=MOST)[1]

    check_outside(one)


@pytest.mark.parametrize("step", [update, add, several, single_numbers])
def test_no_op_of_a_trip_chooses_between_whole_arrays(step):
    """Neither a select nor a gather of the arrays of all rows."""

    @tf.function(autograph=False, jit_compile=True)
    def run():
        return tf_pfor.vectorized_map(lambda row: _loop(step)(*row), (TRIPS, PLACES, X))

    graph = run.get_concrete_function().graph
    made = [op for op in all_ops(graph) if op.type in ("Select", "SelectV2", "GatherV2")]
    assert made
    assert all(op.outputs[0].shape != X.shape for op in made)
