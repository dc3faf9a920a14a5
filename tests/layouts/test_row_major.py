"""Arrays and lists with items by row: values and gradients equal to a Python loop."""

import numpy as np
import pytest
import tensorflow as tf

from tests import comparisons
from tests.comparisons import (
    all_ops,
    assert_close,
    by_row,
    compare,
    gradient_of,
    notes,
)
from tests.devices import of_cpus
from tf_pfor.converters.control_flow import while_compact

T, WIDTH = 6, 40
RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=[5, T, WIDTH]), tf.float64)
AT = tf.constant(RNG.integers(0, T, [5, 8, 2]), tf.int32)
TRIPS = tf.constant([3, 0, 8, 1, 5], tf.int32)
EQUAL = tf.fill([5], 4)


def array(x, at, trips):
    """Reads two items (at times one twice), writes one: a tensor."""

    def step(k, x):
        both = tf.gather(x, at[k])
        new = tf.sin(both[0]) * both[1]
        return k + 1, tf.tensor_scatter_nd_update(x, at[k][None, :1], new[None])

    return tf.while_loop(lambda k, _: k < trips, step, (0, x))[1]


def sliced(x, at, trips):
    """Reads of x[t], counted from the end at times."""

    def step(k, x):
        new = tf.sin(x[at[k, 0]]) + x[-1 - at[k, 1]] * x[2]
        return k + 1, tf.tensor_scatter_nd_update(x, [[at[k, 1]]], new[None])

    return tf.while_loop(lambda k, _: k < trips, step, (0, x))[1]


def listed(x, at, trips):
    """A TensorArray."""
    items = tf.TensorArray(tf.float64, T, element_shape=[WIDTH], clear_after_read=False)

    def step(k, items):
        new = tf.sin(items.read(at[k, 0])) * items.read(at[k, 1])
        return k + 1, items.write(at[k, 0], new)

    items = tf.while_loop(lambda k, _: k < trips, step, (0, items.unstack(x)))[1]
    return items.stack() + items.read(at[0, 0])


def several(x, at, trips):
    """Gathers and scatters; TensorFlow's own gradient is wrong for a gather of one item twice."""
    items = tf.TensorArray(tf.float64, T, element_shape=[WIDTH], clear_after_read=False)

    def step(k, items):
        both = items.gather([at[k, 0], (at[k, 0] + 1) % T])
        return k + 1, items.scatter(at[k, :1], tf.cos(both[:1]) + both[1:])

    return tf.while_loop(lambda k, _: k < trips, step, (0, items.unstack(x)))[1].stack()


def partial(x, at, trips):
    """Reads of parts of items: x[t, a:b], x[t, k]."""
    half = WIDTH // 2

    def step(k, x):
        both = tf.gather(x, at[k])
        ends = tf.sin(both[0, :half]) * x[at[k, 0], ::2]
        new = tf.concat([ends, both[-1][half:] * x[at[k, 1], 3]], 0)
        return k + 1, tf.tensor_scatter_nd_update(x, at[k][None, 1:], new[None])

    return tf.while_loop(lambda k, _: k < trips, step, (0, x))[1][at[0, 0], 1:]


def captured(x, at, trips):
    """Parts of items of an array that the loop only reads."""

    def step(k, s):
        read = x[at[k, 0], 2:10] * x[k % T, -8:] + x[at[k, 1] - T, 1] * x[-1, :8] + x[-2][1:9]
        return k + 1, tf.sin(s) + read

    return tf.while_loop(lambda k, _: k < trips, step, (0, x[0, :8]))[1]


def in_a_branch(x, at, trips):
    """Items at places that are known, from the end too, where only some rows read them."""
    return tf.cond(trips > 1, lambda: x[-1] * x[0] + x[-2, 1:2], lambda: tf.sin(x[at[0, 0] - T]))


BODIES = [array, sliced, listed, several, partial]


def mapped(body, **options):
    return lambda *args: comparisons.mapped(body, *args, **options)


def looped(body):
    return lambda *args: by_row(body, *args)


def with_gradient(run):
    def go(x, at, trips):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = run(x, at, trips)
                loss = tf.reduce_sum(tf.sin(y))
            first = tape.gradient(loss, x)
            total = tf.reduce_sum(tf.square(first))
        return y, first, outer.gradient(total, x)

    return go


def assert_equal(found, expected):
    assert_close(found, expected, rtol=1e-10, atol=1e-10)


def op_types(run, *args):
    graph = tf.function(run, autograph=False).get_concrete_function(*args).graph.as_graph_def()
    return {n.op for f in graph.library.function for n in f.node_def}


@pytest.mark.parametrize("trips", [TRIPS, EQUAL], ids=["by row", "equal"])
@pytest.mark.parametrize("body", [*BODIES, captured, in_a_branch])
def test_values_and_gradients(body, trips):
    expected = with_gradient(looped(body))(X, AT, trips)
    found = tf.function(with_gradient(mapped(body)))(X, AT, trips)
    assert_equal(found, expected)


@pytest.mark.parametrize("body", BODIES)
def test_items_are_gathered_one_by_one(body):
    assert {"TensorListGather", "TensorListScatterIntoExistingList"} <= op_types(
        mapped(body), X, AT, TRIPS
    )


def test_what_is_read_item_by_item_is_not_packed():
    found = op_types(mapped(partial), X, AT, TRIPS)
    assert "TensorListStack" not in found
    body = tf.function(mapped(partial)).get_concrete_function(X, AT, TRIPS)
    wide = [
        op
        for f in body.graph.as_graph_def().library.function
        for op in f.node_def
        if op.op == "Pack" and op.attr["T"].type == tf.float64.as_datatype_enum
    ]
    assert not wide


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("body", BODIES)
def test_few_rows(body, n):
    known = mapped(body)(X[:n], AT[:n], TRIPS[2 : 2 + n])
    assert known.shape == (n, *body(X[0], AT[0], TRIPS[0]).shape)
    unknown = tf.function(
        mapped(body),
        input_signature=[tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in (X, AT, TRIPS)],
    )(X[:n], AT[:n], TRIPS[2 : 2 + n])
    assert unknown.shape == known.shape
    if n:
        expected = looped(body)(X[:n], AT[:n], TRIPS[2 : 2 + n])
        assert_equal([known, unknown], [expected] * 2)


@pytest.mark.parametrize("body", [array, sliced, listed])
def test_jit_compile(body):
    """XLA has no gathers from lists: all rows, static shapes."""
    x = tf.cast(X, tf.float32)
    single = mapped(lambda x, at, trips: body(tf.cast(x, tf.float64), at, trips))
    found = tf.function(single, jit_compile=True)(x, AT, TRIPS)
    expected = looped(body)(tf.cast(x, tf.float64), AT, TRIPS)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("body", BODIES)
def test_nested(body):
    """A map of maps."""
    pairs = [tf.stack([t, t[::-1]]) for t in (X, AT, TRIPS)]
    compare(body, *pairs, maps=2, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("body", BODIES)
def test_gradient_inside_of_the_body(body):
    def one(x, at, trips):
        return gradient_of(lambda: tf.reduce_sum(tf.sin(body(x, at, trips))), x)

    compare(one, X, AT, TRIPS, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("wrong", [T, -T - 1])
def test_a_place_outside_is_an_error(body, wrong):
    """Never an item of another row."""
    at = tf.tensor_scatter_nd_update(AT, [[2, 3, 0], [2, 3, 1]], [wrong] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(body)(X, at, TRIPS)


def test_two_arrays_of_which_one_is_only_read():
    other = tf.constant(RNG.normal(size=[5, T, WIDTH]), tf.float64)

    def one(x, at, trips, other):
        def step(k, x, other):
            new = tf.gather(x, at[k, 0]) + tf.gather(other, at[k, 1])
            return k + 1, tf.tensor_scatter_nd_update(x, [[at[k, 0]]], new[None]), other

        return tf.while_loop(lambda k, *_: k < trips, step, (0, x, other))[1]

    compare(one, X, AT, TRIPS, other, rtol=1e-10, atol=1e-10)


def test_an_array_that_is_also_read_as_a_whole():
    def one(x, at, trips):
        def step(k, x):
            new = tf.gather(x, at[k, 0]) * tf.reduce_mean(x)
            return k + 1, tf.tensor_scatter_nd_update(x, [[at[k, 0]]], new[None])

        return tf.while_loop(lambda k, _: k < trips, step, (0, x))[1]

    compare(one, X, AT, TRIPS, rtol=1e-10, atol=1e-10)
    assert "TensorListGather" not in op_types(mapped(one), X, AT, TRIPS)


@pytest.mark.parametrize("body", BODIES)
def test_gradients_of_reads_are_added_in_place(body):
    """No trip adds up lists, of which most items are zeros."""

    @tf.function(autograph=False)
    def gradient(x):
        return gradient_of(lambda: tf.reduce_sum(tf.sin(mapped(body)(x, AT, TRIPS))), x)

    ops = [op for op in all_ops(gradient.get_concrete_function(X).graph) if "grad" in op.graph.name]
    assert any(op.type == "TensorListScatterIntoExistingList" for op in ops)
    assert not any(op.type == "AddN" and op.outputs[0].dtype == tf.variant for op in ops)


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("body", [array, sliced, listed, partial])
@of_cpus
def test_two_loops_of_half_of_the_rows(body, n, monkeypatch):
    monkeypatch.setattr(while_compact, "_LARGE_BY_ROW", 0)
    args = [t[:n] for t in (X, AT, TRIPS)]
    assert_equal([mapped(body)(*args)], [looped(body)(*args)])
    found = notes(body, *args, while_strategy="compact")
    assert any("compact, in two halves" in note for note in found)
    args[2] = tf.zeros_like(args[2])  # nobody makes a trip
    assert_equal([mapped(body)(*args)], [looped(body)(*args)])
