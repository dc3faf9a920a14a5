"""Rows of ragged and sparse tensors, in maps and Keras layers, and as results, against a loop."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map
from tests.ways import errors_of, table_of

L = keras.layers
LENGTHS = [2, 4, 1, 3]
VALUES = tf.random.stateless_normal([10, 3], [1, 2])
ROWS = tf.RaggedTensor.from_row_lengths(VALUES, LENGTHS)
WEIGHTS = tf.constant([[1.0, 2.0, 3.0]] * 4)
SITES = ["eager, few rows", "function, few rows", "unknown n, few rows", "vmap", "dataset"]


def ragged(rows, rank=None):
    return tf.ragged.constant(rows, ragged_rank=rank, dtype=tf.float32)


NESTED = ragged([[[1.0, 2.0], [3.0]], [], [[4.0], [], [5.0, 6.0, 7.0]]])
OF_OTHER_RANKS = {
    "deep": ragged([[[[1.0], [2.0, 3.0]], []], [], [[[4.0]], [[], [5.0]], [[6.0, 7.0]]]]),
    "wide": ragged([[[[1.0, 2.0], [3.0, 4.0]], []], [[[5.0, 6.0]]], []], 2),  # of two elements
    "flat": ragged([[[1.0, 2.0]], []], 1),
    "nested": NESTED,
}
PLACES = tf.ragged.constant([[1, 0, 1], [], [2, 2]], dtype=tf.int32)


KERNEL = tf.random.stateless_normal([3, 1], [1, 5])
DENSE = tf.constant([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
_CUBE = np.where(np.random.default_rng(0).uniform(size=[4, 3, 5]) < 0.4, 1.5, 0.0)
CUBE, OTHER_CUBE = tf.sparse.from_dense(tf.constant(_CUBE)), tf.constant(_CUBE + 1.0)


def scaled(row, w):
    return {"scaled": row * w, "total": tf.reduce_sum(row @ w[:, None])}


def jacobian(row):
    return tf_pfor.jacrev(lambda w: tf.reduce_mean((row @ w) ** 2))(KERNEL)


OF_NESTED = {
    "itself": lambda r: r,
    "doubled": lambda r: r * 2.0,
    "sums of rows": lambda r: tf.reduce_sum(r, axis=1),
    "sum of all": lambda r: tf.reduce_sum(r.flat_values),
    "lengths": lambda r: r.row_lengths(),
    "two results": lambda r: {"a": r + 1.0, "b": r.nrows()},
}
OF_TWO_AXES = {
    "concat": lambda r: tf.concat([r, r * 2.0, r], 1),
    "backwards": lambda r: tf.gather(r, tf.range(r.nrows())[::-1]),
    "masked": lambda r: tf.ragged.boolean_mask(r, tf.reduce_sum(r, 1) > 3.0),
    "texts": lambda r: tf.strings.reduce_join(tf.strings.as_string(r), axis=-1),
    "texts apart": lambda r: tf.strings.reduce_join(tf.strings.as_string(r), -1, separator="-"),
}
SPARSE = {
    "dense": tf.sparse.to_dense,
    "sum": tf.sparse.reduce_sum,
    "itself": lambda s: s,
    "mapped": lambda s: tf.sparse.map_values(tf.square, s),
    "product": lambda s: tf.sparse.sparse_dense_matmul(
        tf.sparse.expand_dims(s, 0), tf.ones([3, 2])),
}  # fmt: skip


def batch_of_one(layer):
    return lambda row: layer(row[None])[0]


def attention():
    layer = L.MultiHeadAttention(2, 4)
    return lambda row: layer(row[None], row[None])[0]


LAYERS = {
    "Dense": L.Dense(4, activation="relu"),
    "LayerNormalization": L.LayerNormalization(),
    "Dropout": L.Dropout(0.5),
    "Softmax": L.Softmax(),
    "Conv1D": batch_of_one(L.Conv1D(2, 3, padding="same")),
    "GlobalAveragePooling1D": batch_of_one(L.GlobalAveragePooling1D()),
    "GlobalMaxPooling1D": batch_of_one(L.GlobalMaxPooling1D()),
    "MultiHeadAttention": attention(),
    "Embedding": (L.Embedding(7, 4), tf.ragged.constant([[1, 2], [], [6, 0, 3]])),
    "LSTM": batch_of_one(L.LSTM(3)),
    "GRU": batch_of_one(L.GRU(3, return_sequences=True)),
}
for made in LAYERS.values():  # weights are not made in a body
    made[0](tf.constant([1])) if isinstance(made, tuple) else made(VALUES)
test_table_of_layers = table_of(LAYERS, ROWS, ways=["eager"])

OF_ROWS = {
    "scaled": (scaled, (ROWS, WEIGHTS)),
    "per-example gradients": (jacobian, ROWS),
    "softmax": (lambda r: tf.reduce_sum(tf.nn.softmax(r, 0) ** 2), ROWS),
    "halves of bits": (
        lambda r: tf.bitcast(r, tf.int32),
        tf.ragged.constant([[1.0, -2.0, 0.5], [4.0], []], dtype=tf.float64)),
    "bits and back": (
        lambda r: tf.bitcast(tf.bitcast(r, tf.int32) + 0, tf.float64),
        tf.ragged.constant([[1.0, -2.0, 0.5], [4.0], []], dtype=tf.float64)),
    "doubled sparse rows": (
        lambda s: tf.sparse.to_dense(s) * 2.0, tf.sparse.from_dense(tf.eye(3) * 2.0)),
    "sums of squares": (lambda r: tf.reduce_sum(r.flat_values**2), NESTED),
    "rows at places": (tf.gather, (NESTED, PLACES)),
    "ragged results": (
        lambda k: tf.RaggedTensor.from_row_lengths(tf.range(k), tf.stack([k - 1, 1])),
        tf.constant([3, 1, 2])),
    "sparse results": (tf.sparse.from_dense, DENSE),
    "sparse by dense": (
        lambda s, x: tf.sparse.sparse_dense_matmul(s, x, adjoint_b=True), (CUBE, OTHER_CUBE)),
    "sparse in any order": (
        lambda s: tf.sparse.to_dense(tf.sparse.reorder(s)),
        tf.SparseTensor([[2, 0], [0, 1], [2, 2], [0, 0]], [1.0, 2.0, 3.0, 4.0], [3, 3])),
    "a map in a map": (
        lambda row: strict_map(tf.range, row), tf.constant([[1, 2], [0, 3]])),
}  # fmt: skip
EXACT = {
    **{f"nested, {k}": (body, NESTED) for k, body in (*OF_NESTED.items(), *OF_TWO_AXES.items())},
    **{f"rank {k}": (lambda r: r * 2.0, rows) for k, rows in OF_OTHER_RANKS.items()},
    **{f"sparse, {k}": (body, tf.sparse.from_dense(DENSE)) for k, body in SPARSE.items()},
}  # fmt: skip
FLOATS = ["softmax", "sums of squares", "rows at places"]
test_table_of_rows = table_of(
    OF_ROWS, ways=[*SITES, "chunks", "around"],
    only={"chunks": ["scaled", "ragged results"], "around": FLOATS}, looped=SITES,
)  # fmt: skip
test_table_of_composites = table_of(
    EXACT, ways=[*SITES, "chunks"], only={"chunks": ["nested, sum of all"]}, looped=SITES,
    tolerance=(0.0, 0.0),
)  # fmt: skip


@pytest.mark.parametrize("rows", OF_OTHER_RANKS.values(), ids=list(OF_OTHER_RANKS))
def test_results_have_the_ranks_of_the_rows(rows):
    found = strict_map(lambda r: r * 2.0, rows, fallback="loop", warn=False)
    assert found.ragged_rank == rows.ragged_rank
    assert found.shape[1:].as_list() == rows.shape[1:].as_list()


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("out_shapes", ["ragged", "padded"])
def test_blocks(n, out_shapes):
    """The last block is shorter than the others."""
    found = strict_map(tf.range, tf.range(n), chunk_size=2, out_shapes=out_shapes)
    assert found.shape[0] == n
    for i, got in enumerate(found):
        np.testing.assert_array_equal(got[:i], np.arange(i))
        assert out_shapes == "padded" or len(got) == i


test_errors = errors_of(
    {
        "an index beyond the end": (lambda r: (r * 2.0)[1], ROWS, r"test_elements.py:\d+"),
        "a place beyond the end": (tf.gather, (NESTED, PLACES + 1), "an index is out of bounds"),
    },
)
test_bits_that_are_refused = errors_of(
    {"bytes": (lambda r: tf.bitcast(r, tf.int32), tf.cast(ROWS[:, :, 0], tf.uint8))},
    error=tf_pfor.NotVectorizableError, match="the last axis differs",
)  # fmt: skip


def test_only_axis_0_of_ragged_elements_is_mapped():
    with pytest.raises(ValueError, match="A RaggedTensor among the arguments has.*Expected: 0"):
        tf_pfor.vmap(lambda r: r, in_axes=1)(ROWS)


@pytest.mark.parametrize("out_shapes", ["ragged", "padded"])
def test_results_of_padded_maps_keep_their_rows(out_shapes):
    body, numbers = OF_ROWS["ragged results"]
    found = tf_pfor.vectorized_map(body, numbers, out_shapes=out_shapes)
    assert found.to_list() == [[[0, 1], [2]], [[], [0]], [[0], [1]]]


def test_ragged_batches_of_clipped_gradients():
    rows, weight = ragged([[1.0, 2.0], [3.0], []], 1), tf.Variable(2.0)
    loss = lambda x: tf.reduce_sum(weight * x)  # noqa: E731
    total, losses = tf_pfor.clipped_gradient_sum(loss, weight, rows, clip_norm=2.5)
    np.testing.assert_allclose(losses, [6.0, 6.0, 0.0])
    np.testing.assert_allclose(total, 5.0)


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


def test_sparse_elements_in_any_order():
    """The map puts them in order, which the op on one row asks for."""
    whole = OF_ROWS["sparse in any order"][1]
    found = tf_pfor.vectorized_map(tf.sparse.to_dense, whole)
    np.testing.assert_array_equal(found, [[4, 2, 0], [0, 0, 0], [1, 0, 3]])


OF_SPARSE = {
    "itself": lambda s: s,
    "retained": lambda s: tf.sparse.retain(s, s.values > 1.0),
    "slice": lambda s: tf.sparse.slice(s, [0, 1], [2, 3]),
    "halves": lambda s: tf.sparse.split(s, 2, axis=1),
    "transposed": tf.sparse.transpose,
    "joined": lambda s: tf.sparse.concat(0, [s, s]),
    "reshaped": lambda s: tf.sparse.reshape(s, [5, -1]),
    "slice of a dense tensor": lambda s: tf.sparse.slice(
        tf.sparse.from_dense(tf.sparse.to_dense(s)), [1, 0], [2, 4]
    ),
}


def under_a_tape(run, s):
    with tf.GradientTape() as tape:
        tape.watch(s.values)
        return run(s)


PLACES_OF_MAPS = {
    "eager": lambda run, _: run,
    "function": lambda run, _: tf.function(run, autograph=False),
    "unknown n": lambda run, s: tf.function(
        run,
        autograph=False,
        input_signature=[tf.SparseTensorSpec([None, *s.shape[1:]], s.dtype)],
    ),
    "tape": lambda run, _: lambda s: under_a_tape(run, s),
}


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize(
    ("way", "name"),
    [
        *(("eager", name) for name in OF_SPARSE),
        *(("function", name) for name in ("retained", "slice")),
        *(("unknown n", name) for name in ("retained", "slice", "halves")),
        ("tape", "retained"),
    ],
)
def test_shapes_of_sparse_results_are_known_without_rows(way, name, n):
    body = OF_SPARSE[name]
    run = PLACES_OF_MAPS[way](lambda s: strict_map(body, s), CUBE)
    found = run(tf.sparse.slice(CUBE, [0, 0, 0], [n, *CUBE.shape[1:]]))
    wanted = body(tf.sparse.from_dense(OTHER_CUBE[0] * 0))
    for got, want in zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True):
        assert got.dense_shape.numpy().tolist() == [n, *want.dense_shape.numpy()]


def test_sizes_of_sets_that_all_rows_share_are_known_without_rows():
    numbers = tf.constant([[[1, 2], [3, 3]], [[4, 5], [6, 7]]])
    for n, last in ((0, 0), (2, 2)):
        found = strict_map(lambda x: tf.sets.union(x, x), numbers[:n])
        assert found.dense_shape.numpy().tolist() == [n, 2, last]
