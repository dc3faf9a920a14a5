"""Slices, joins and reversals of rows of different lengths copy pieces, without an index."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map
from tests.ways import table_of
from tf_pfor._tf import _graphs
from tf_pfor.layouts.pieces import joined
from tf_pfor.layouts.row_sizes import RowSizes

LENGTHS = [3, 0, 5, 1, 2, 4]
BODIES = {
    "rest": lambda w: w[1:],
    "front": lambda w: w[:-2],
    "inner": lambda w: w[1:-1],
    "differences": lambda w: w[1:] - w[:-1],
    "reversed": lambda w: w[::-1],
    "emphasis": lambda w: tf.concat([w[:1], w[1:] - tf.cast(0.5, w.dtype) * w[:-1]], 0),
    "joined": lambda w: tf.concat([w, w[::-1], w[:1]], 0),
}
DENSE = {
    "front": lambda x, k: x[:k],
    "inner": lambda x, k: x[1:k],
    "end": lambda x, k: x[k:],
    "product": lambda x, k: tf.nn.relu(x[:k]) * tf.reduce_sum(x[:k]),
}


def rows(*inner, dtype=tf.float32):
    numbers = np.random.default_rng(1).normal(size=(sum(LENGTHS), *inner)) * 4
    return tf.RaggedTensor.from_row_lengths(tf.cast(numbers, dtype), LENGTHS)


KINDS = {
    f"{dtype.name} {inner}": rows(*inner, dtype=dtype)
    for inner in ((), (2,), (2, 3), (0,))
    for dtype in (tf.float32, tf.int64, tf.float16)
}
WORDS = {f"text {inner}": tf.strings.as_string(rows(*inner)) for inner in ((), (2,), (2, 3), (0,))}
OF_TEXT = [name for name in BODIES if name not in ("differences", "emphasis")]
test_table_of_pieces = table_of(
    {
        **{f"{k}, {kind}": (f, x) for k, f in BODIES.items() for kind, x in KINDS.items()},
        **{f"{k}, {kind}": (BODIES[k], x) for k in OF_TEXT for kind, x in WORDS.items()},
    },
    ways=["eager"], tolerance=(0.0, 0.0),
)  # fmt: skip
DENSE_X = tf.constant(np.random.default_rng(2).normal(size=(len(LENGTHS), 5, 2)), tf.float32)
DENSE_K = tf.constant(LENGTHS)
test_table_of_dense_rows = table_of(
    {
        **DENSE,
        **{f"shared, {k}": (lambda n, f=f: f(DENSE_X[2], n), DENSE_K) for k, f in DENSE.items()},
    },
    DENSE_X, DENSE_K, ways=["vmap"], tolerance=(1e-6, 0.0),
)  # fmt: skip


def cubes(body):
    return lambda w: tf.reduce_sum(body(w) ** 3 * tf.reduce_sum(w))


test_table_of_gradients_inside = table_of(
    BODIES, rows(), ways=["inside"], looped=["inside"], tolerance=(1e-5, 1e-5)
)
test_table_of_gradients = table_of(
    {
        **{name: (body, rows()) for name, body in BODIES.items()},
        **{f"cubes, {k}": (cubes(body), rows(2) * 0.1) for k, body in BODIES.items()},
    },
    ways=["around", "twice around", "function, twice around", "no rows",
          "unknown n, no rows"],
    only={
        "no rows": BODIES, "unknown n, no rows": BODIES,
        "around": [f"cubes, {name}" for name in BODIES],
        "twice around": [f"cubes, {name}" for name in BODIES],
        "function, twice around": [f"cubes, {name}" for name in BODIES],
    },
    slopes=(2e-4, 1e-5),
)  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_no_element_has_an_index(name):
    spec = tf.type_spec_from_value(rows())
    mapped = tf.function(lambda x: strict_map(BODIES[name], x))
    ops = mapped.get_concrete_function(spec).graph.get_operations()
    assert not [op for op in ops if op.type in ("GatherV2", "GatherNd", "Cumsum") and _is_long(op)]
    copies = 1 if name not in ("differences", "emphasis", "joined") else 2
    assert len([op for op in ops if op.type == "RaggedGather"]) >= copies


def _is_long(op):
    return op.outputs[0].dtype == tf.float32


def test_pieces_of_nothing_and_twice_differentiated():
    x = tf.constant(np.arange(7.0))
    for cuts, which in [([0, 7], [0]), ([0, 0, 7, 7], [2, 0]), ([0, 2, 3, 7], []),
                        ([0, 2, 3, 7], [2, 0])]:  # fmt: skip
        numbers = tf.constant(cuts), tf.constant(which, tf.int32)
        expected = [x[cuts[k] : cuts[k + 1]] for k in which]
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = joined(x, *numbers)
                z = tf.reduce_sum(y**3)
            np.testing.assert_array_equal(y, tf.concat([*expected, x[:0]], 0))
            first = tape.gradient(z, x)
        mask = np.zeros(7)
        for k in which:
            mask[cuts[k] : cuts[k + 1]] = 1
        np.testing.assert_allclose(first, 3 * x**2 * mask)
        np.testing.assert_allclose(outer.gradient(first, x), 6 * x * mask)


@pytest.mark.parametrize("lengths", [LENGTHS, [0, 0], [0, 7], [1], []])
def test_the_row_of_each_element(lengths):
    """Numbers of rows come from one kernel on CPUs, and from sums where XLA converts the ops."""

    def numbers(sizes):
        return RowSizes.of(sizes).rows

    sizes = tf.constant(lengths, tf.int32)
    spec = tf.TensorSpec([None], tf.int32)
    plain = tf.function(numbers, input_signature=[spec])
    types = {op.type for op in plain.get_concrete_function().graph.get_operations()}
    assert "RaggedRange" in types
    assert "Cumsum" not in types
    expected = np.repeat(np.arange(len(lengths)), lengths)
    for found in (plain(sizes), in_a_body(numbers, sizes)):
        assert found.dtype == tf.int32
        np.testing.assert_array_equal(found, expected)


def in_a_body(function, sizes):
    """The result where an outer map converts the ops."""
    graph = _graphs.BodyGraph("body")
    with graph.as_default():
        made = function(tf.constant(sizes.numpy(), tf.int32))
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(made)


def test_slices_that_begin_inside_of_the_row():
    """A fault of the place would read another row."""
    x, k = tf.reshape(tf.range(15.0), [3, 5]), tf.constant([5, 2, 3])
    body = lambda row, k: tf.slice(row[:k], [1], [k - 1])
    found = strict_map(lambda each: body(*each), (x, k))
    assert found.to_list() == [body(*row).numpy().tolist() for row in zip(x, k)]


def test_gathers_of_pieces_of_the_row():
    """A fault of the segments would read the first row."""
    x, k = tf.reshape(tf.range(15.0), [3, 5]), tf.constant([5, 2, 3])

    def body(row, k):
        pieces = tf.RaggedTensor.from_row_splits(row[:k], [0, 1, k])
        return tf.gather(pieces, [1, 0]).flat_values

    found = strict_map(lambda each: body(*each), (x, k))
    assert found.to_list() == [body(*row).numpy().tolist() for row in zip(x, k)]
