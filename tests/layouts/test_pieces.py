"""Slices, joins and reversals of rows of different lengths copy pieces, without an index."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import (
    assert_close,
    assert_rows,
    compare_rows,
    gradient_of,
    rows_of,
    strict_map,
)
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


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("inner", [(), (2,), (2, 3), (0,)])
def test_values(name, inner):
    x = rows(*inner)
    for dtype in (tf.float32, tf.int64, tf.float16):
        given = tf.cast(x, dtype)
        found = strict_map(BODIES[name], given)
        assert_rows(found, rows_of(BODIES[name], given), rtol=0, atol=0)
    if name not in ("differences", "emphasis"):
        words = tf.strings.as_string(x)
        found = strict_map(BODIES[name], words)
        assert found.to_list() == tf.ragged.stack(rows_of(BODIES[name], words)).to_list()


@pytest.mark.parametrize("name", DENSE)
def test_values_of_dense_rows(name):
    x = tf.constant(np.random.default_rng(2).normal(size=(len(LENGTHS), 5, 2)), tf.float32)
    k = tf.constant(LENGTHS)
    found = tf_pfor.vmap(DENSE[name], fallback="error")(x, k)
    np.testing.assert_allclose(found.flat_values, tf.concat(rows_of(DENSE[name], x, k), 0), 1e-6)
    shared = tf_pfor.vmap(DENSE[name], (None, 0), fallback="error")(x[2], k)
    expected = rows_of(DENSE[name], tf.stack([x[2]] * len(LENGTHS)), k)
    np.testing.assert_allclose(shared.flat_values, tf.concat(expected, 0), 1e-6)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("of_function", [False, True])
def test_gradients_of_two_orders(name, of_function):
    x, body = rows(2), BODIES[name]

    def cubes(w):
        return tf.reduce_sum(body(w) ** 3 * tf.reduce_sum(w))

    def sums(values):
        given = x.with_values(values)
        return tf.reduce_sum(strict_map(cubes, given))

    def expected(values):
        return tf.add_n(rows_of(cubes, x.with_values(values)))

    def second(total):
        with tf.GradientTape() as outer:
            outer.watch(x.values)
            first = tf.convert_to_tensor(gradient_of(lambda: total(x.values), x.values))
            z = tf.reduce_sum(first**2)
        return first, outer.gradient(z, x.values)

    run = tf.function(second) if of_function else second
    assert_close(run(sums), second(expected), rtol=2e-4, atol=0.01)


@pytest.mark.parametrize("name", BODIES)
def test_gradients_that_the_body_takes(name):
    def slope(w):
        return gradient_of(lambda: tf.reduce_sum(BODIES[name](w) ** 2), w)

    compare_rows(slope, rows(), rtol=1e-5, atol=1e-5, fallback="loop")


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


@pytest.mark.parametrize("name", BODIES)
def test_no_rows(name):
    spec = tf.RaggedTensorSpec([None, None], tf.float32)
    mapped = tf.function(lambda x: tf_pfor.vectorized_map(BODIES[name], x), input_signature=[spec])
    none = tf.RaggedTensor.from_row_splits(tf.zeros([0]), tf.constant([0], tf.int64))
    assert mapped(none).shape[0] == 0
    assert tf_pfor.vectorized_map(BODIES[name], none).shape[0] == 0


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
