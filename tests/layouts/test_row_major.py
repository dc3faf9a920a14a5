"""Arrays and lists with items by row: values and gradients equal to a Python loop."""

import numpy as np
import pytest
import tensorflow as tf

from tests import comparisons
from tests.comparisons import all_ops, assert_close, by_row, gradient_of, notes
from tests.devices import of_cpus
from tests.ways import errors_of, table_of
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


def of_two_arrays(x, at, trips, other):
    """One is only read."""

    def step(k, x, other):
        new = tf.gather(x, at[k, 0]) + tf.gather(other, at[k, 1])
        return k + 1, tf.tensor_scatter_nd_update(x, [[at[k, 0]]], new[None]), other

    return tf.while_loop(lambda k, *_: k < trips, step, (0, x, other))[1]


def read_as_a_whole(x, at, trips):
    def step(k, x):
        new = tf.gather(x, at[k, 0]) * tf.reduce_mean(x)
        return k + 1, tf.tensor_scatter_nd_update(x, [[at[k, 0]]], new[None])

    return tf.while_loop(lambda k, _: k < trips, step, (0, x))[1]


BODIES = [array, sliced, listed, several, partial]


OTHERS = {
    "of_two_arrays": (of_two_arrays, (X, AT, TRIPS, X[::-1])),
    "read_as_a_whole": read_as_a_whole,
    "captured": captured,
    "in_a_branch": in_a_branch,
    **{
        f"{body.__name__}, equal": (body, (X, AT, EQUAL))
        for body in (*BODIES, captured, in_a_branch)
    },
}
NAMES = [body.__name__ for body in BODIES]
FEW = ["no rows", "one row", "unknown n, few rows", "two maps", "inside"]
test_table_of_arrays = table_of(
    {**dict(zip(NAMES, BODIES)), **OTHERS}, X, AT, TRIPS,
    ways=["eager", "function, around", "function, twice around", *FEW],
    only=dict.fromkeys(FEW, NAMES),
    but=dict.fromkeys(
        ["function, around", "function, twice around"], ["of_two_arrays", "read_as_a_whole"]),
    tolerance=(1e-10, 1e-10),
)  # fmt: skip
# XLA has no gathers from lists: all rows, static shapes.
test_table_of_compiled_arrays = table_of(
    {
        body.__name__: lambda x, *rest, body=body: body(tf.cast(x, tf.float64), *rest)
        for body in (array, sliced, listed)
    },
    tf.cast(X, tf.float32), AT, TRIPS, ways=["compiled"], tolerance=(1e-6, 1e-6),
)  # fmt: skip
# Never an item of another row.
test_a_place_outside_is_an_error = errors_of({
    f"{body.__name__}, {wrong}": (
        body, (X, tf.tensor_scatter_nd_update(AT, [[2, 3, 0], [2, 3, 1]], [wrong] * 2), TRIPS))
    for body in BODIES
    for wrong in (T, -T - 1)
})  # fmt: skip


def mapped(body):
    return lambda *args: comparisons.mapped(body, *args)


def op_types(run, *args):
    graph = tf.function(run, autograph=False).get_concrete_function(*args).graph.as_graph_def()
    return {n.op for f in graph.library.function for n in f.node_def}


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


def test_an_array_that_is_also_read_as_a_whole_is_not_gathered():
    assert "TensorListGather" not in op_types(mapped(read_as_a_whole), X, AT, TRIPS)


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
    assert_close(mapped(body)(*args), by_row(body, *args), rtol=1e-10, atol=1e-10)
    found = notes(body, *args, while_strategy="compact")
    assert any("compact, in two halves" in note for note in found)
    args[2] = tf.zeros_like(args[2])  # nobody makes a trip
    assert_close(mapped(body)(*args), by_row(body, *args), rtol=1e-10, atol=1e-10)
