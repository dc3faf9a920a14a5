"""Rows of RaggedTensors: variable-length dense tensors, in maps and Keras layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_rows, strict_map

L = keras.layers
LENGTHS = [2, 4, 1, 3]
VALUES = tf.random.stateless_normal([10, 3], [1, 2])
ROWS = tf.RaggedTensor.from_row_lengths(VALUES, LENGTHS)


@pytest.mark.parametrize("site", ["eager", "function", "unknown", "vectorized_map", "dataset"])
def test_vmap(site):
    weights = tf.constant([1.0, 2.0, 3.0])

    def one(row, w):
        return {"scaled": row * w, "total": tf.reduce_sum(row @ w[:, None])}

    def run(rows):
        if site == "vectorized_map":
            return tf_pfor.vectorized_map(lambda r: one(r, weights), rows)
        return tf_pfor.vmap(one, in_axes=(0, None))(rows, weights)

    if site == "dataset":
        batches = list(tf.data.Dataset.from_tensor_slices(ROWS).ragged_batch(4).map(run))
        found = batches[0]
    elif site == "unknown":
        spec = tf.RaggedTensorSpec([None, None, 3], tf.float32, ragged_rank=1)
        run = tf.function(run, input_signature=[spec])
        found = run(ROWS)
        none = run(ROWS[:0])
        assert none["scaled"].nrows() == 0
        assert none["total"].shape == [0]
    else:
        found = (tf.function(run) if site == "function" else run)(ROWS)
    expected = [one(r, weights) for r in ROWS]
    assert_rows(found["scaled"], [e["scaled"] for e in expected])
    np.testing.assert_allclose(found["total"], [e["total"] for e in expected], rtol=1e-5)


LAYERS = {
    "Dense": lambda: L.Dense(4, activation="relu"),
    "LayerNormalization": lambda: L.LayerNormalization(),
    "Dropout": lambda: L.Dropout(0.5),
    "Softmax": lambda: L.Softmax(),
}
OF_BATCHES = {
    "Conv1D": lambda: L.Conv1D(2, 3, padding="same"),
    "GlobalAveragePooling1D": lambda: L.GlobalAveragePooling1D(),
    "GlobalMaxPooling1D": lambda: L.GlobalMaxPooling1D(),
    "MultiHeadAttention": lambda: L.MultiHeadAttention(2, 4),
}


@pytest.mark.parametrize("name", [*LAYERS, *OF_BATCHES])
def test_keras_layers_are_vectorized(name):
    layer = (LAYERS.get(name) or OF_BATCHES[name])()

    def one(row):
        if name in LAYERS:
            return layer(row)
        inputs = (row[None], row[None]) if name == "MultiHeadAttention" else (row[None],)
        return layer(*inputs)[0]

    rows = [one(r) for r in ROWS]
    found = strict_map(one, ROWS)
    assert_rows(found, rows)


def test_embedding():
    layer = L.Embedding(7, 4)
    ids = tf.ragged.constant([[1, 2], [], [6, 0, 3]])
    found = strict_map(layer, ids)
    assert_rows(found, [layer(r) for r in ids])


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("make", [lambda: L.LSTM(3), lambda: L.GRU(3, return_sequences=True)])
def test_recurrent_layers(make):
    layer = make()
    rows = [layer(r[None])[0] for r in ROWS]
    assert_rows(tf_pfor.vectorized_map(lambda r: layer(r[None])[0], ROWS), rows)


def test_gradients_to_the_values():
    with tf.GradientTape() as tape:
        tape.watch(VALUES)
        rows = tf.RaggedTensor.from_row_lengths(VALUES, LENGTHS)
        y = tf_pfor.vmap(lambda r: tf.reduce_sum(tf.nn.softmax(r, 0) ** 2))(rows)
    found = tf.convert_to_tensor(tape.gradient(y, VALUES))
    with tf.GradientTape() as tape:
        tape.watch(VALUES)
        rows = tf.split(VALUES, LENGTHS)
        y = tf.add_n([tf.reduce_sum(tf.nn.softmax(r, 0) ** 2) for r in rows])
    np.testing.assert_allclose(found, tape.gradient(y, VALUES), rtol=1e-4, atol=1e-6)


def test_per_example_gradients():
    layer = L.Dense(1)
    layer(tf.zeros([1, 3]))

    def loss(row):
        return tf.reduce_mean(layer(row) ** 2)

    found = tf_pfor.vectorized_map(
        lambda row: tf_pfor.jacrev(lambda w: tf.reduce_mean((row @ w) ** 2))(layer.kernel.value),
        ROWS,
    )
    for got, row in zip(found, ROWS):
        with tf.GradientTape() as tape:
            y = loss(row)
        np.testing.assert_allclose(got, tape.gradient(y, layer.kernel.value), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("out_shapes", ["ragged", "padded"])
def test_blocks(n, out_shapes):
    """The last block is shorter than the others."""

    def run(numbers):
        return tf_pfor.vectorized_map(tf.range, numbers, chunk_size=2, out_shapes=out_shapes)

    found = run(tf.range(n))
    assert found.shape[0] == n
    for i, got in enumerate(found):
        np.testing.assert_array_equal(got[:i], np.arange(i))
        assert out_shapes == "padded" or len(got) == i


def test_an_index_beyond_the_end_of_a_row_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_elements.py:\d+"):
        tf_pfor.vectorized_map(lambda r: (r * 2.0)[1], ROWS)


def test_only_axis_0_of_ragged_elements_is_mapped():
    with pytest.raises(ValueError, match="A RaggedTensor among the arguments has.*Expected: 0"):
        tf_pfor.vmap(lambda r: r, in_axes=1)(ROWS)


@pytest.mark.parametrize("axis", [1, -2])
def test_a_dense_leaf_over_another_axis(axis):
    rows = tf.ragged.constant([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]])
    shared = tf.ragged.constant([[7.0, 8.0], [9.0]])
    dense = tf.random.stateless_normal([4, 3, 2], seed=[1, 2])

    def body(e):
        return tf.reduce_sum(e["a"]) * e["b"] + tf.reduce_sum(e["c"].values)

    mapped = tf_pfor.vmap(body, in_axes=({"a": 0, "b": axis, "c": None},))
    found = mapped({"a": rows, "b": dense, "c": shared})
    wanted = [body({"a": rows[i], "b": dense[:, i], "c": shared}) for i in range(3)]
    np.testing.assert_allclose(found, tf.stack(wanted), rtol=1e-5)

    many = tf.random.stateless_normal([4, 3, 5, 2], seed=[1, 3])  # the outer map over axis 2
    nested = tf_pfor.vmap(
        lambda e: mapped({"a": rows, "b": e["b"], "c": e["c"]}), in_axes=({"b": 2, "c": None},)
    )
    found = nested({"b": many, "c": shared})
    for j in range(5):
        wanted = [body({"a": rows[i], "b": many[:, i, j], "c": shared}) for i in range(3)]
        np.testing.assert_allclose(found[j], tf.stack(wanted), rtol=1e-5)


def test_bitcasts_between_types_of_different_sizes():
    """An axis is added or taken behind the elements; the sizes of rows stay."""
    rows = tf.ragged.constant([[1.0, -2.0, 0.5], [4.0], []], dtype=tf.float64)

    def halves(row):
        return tf.bitcast(row, tf.int32)

    options = {"fallback": "error"}
    split = tf_pfor.vectorized_map(halves, rows, **options)
    back = tf_pfor.vectorized_map(lambda r: tf.bitcast(halves(r) + 0, tf.float64), rows, **options)
    np.testing.assert_array_equal(split.flat_values, tf.bitcast(rows.flat_values, tf.int32))
    np.testing.assert_array_equal(back.flat_values, rows.flat_values)
    for found in (split, back):
        np.testing.assert_array_equal(found.row_lengths(), rows.row_lengths())
    bytes_of_rows = tf.cast(rows, tf.uint8)
    with pytest.raises(tf_pfor.NotVectorizableError, match="the last axis differs"):
        tf_pfor.vectorized_map(lambda r: tf.bitcast(r, tf.int32), bytes_of_rows, **options)
