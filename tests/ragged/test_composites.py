"""Ragged and sparse tensors as elements and as results, of any rank, against a loop over rows."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map

NESTED = [[[1.0, 2.0], [3.0]], [], [[4.0], [], [5.0, 6.0, 7.0]]]
DEEP = [[[[1.0], [2.0, 3.0]], []], [], [[[4.0]], [[], [5.0]], [[6.0, 7.0]]]]
WIDE = [[[[1.0, 2.0], [3.0, 4.0]], []], [[[5.0, 6.0]]], []]  # the last axis has two elements
DENSE = tf.constant([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0], [0.0, 0.0, 0.0]])


def ragged(rows, rank=None):
    return tf.ragged.constant(rows, ragged_rank=rank, dtype=tf.float32)


RAGGED_BODIES = {
    "itself": lambda r: r,
    "doubled": lambda r: r * 2.0,
    "sums of rows": lambda r: tf.reduce_sum(r, axis=1),
    "sum of all": lambda r: tf.reduce_sum(r.flat_values),
    "lengths": lambda r: r.row_lengths(),
    "two results": lambda r: {"a": r + 1.0, "b": r.nrows()},
}


def loop(body, rows):
    return [body(rows[i]) for i in range(rows.shape[0] or int(rows.nrows()))]


def to_list(x):
    return x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy().tolist()


def assert_same(found, rows):
    """Each iteration's part of ``found`` is what the loop gave."""
    if isinstance(found, dict):
        for name, part in found.items():
            assert_same(part, [row[name] for row in rows])
        return
    assert to_list(found) == [to_list(row) for row in rows]
    assert found.dtype == rows[0].dtype


OF_TWO_AXES = {
    "concat": lambda r: tf.concat([r, r * 2.0, r], 1),
    "backwards": lambda r: tf.gather(r, tf.range(r.nrows())[::-1]),
    "masked": lambda r: tf.ragged.boolean_mask(r, tf.reduce_sum(r, 1) > 3.0),
    "texts": lambda r: tf.strings.reduce_join(tf.strings.as_string(r), axis=-1),
    "texts apart": lambda r: tf.strings.reduce_join(tf.strings.as_string(r), -1, separator="-"),
}


@pytest.mark.parametrize("name", OF_TWO_AXES)
def test_ops_on_rows_of_rows(name):
    body, spec = OF_TWO_AXES[name], tf.RaggedTensorSpec([None, None, None], ragged_rank=2)
    run = tf.function(lambda x: strict_map(body, x), input_signature=[spec])
    rows = ragged(NESTED)
    assert_same(run(rows), loop(body, rows))
    assert run(rows[:0]).to_list() == []


def test_rows_of_rows_at_places_of_the_row():
    rows, places = ragged(NESTED), tf.ragged.constant([[1, 0, 1], [], [2, 2]], dtype=tf.int32)

    def run(places):
        with tf.GradientTape() as tape:
            tape.watch(rows.flat_values)
            found = strict_map(lambda e: tf.gather(*e), (rows, places))
            total = tf.reduce_sum(found.flat_values**2)
        return found, tf.convert_to_tensor(tape.gradient(total, rows.flat_values))

    found, slopes = run(places)
    assert found.to_list() == [[[3.0], [1.0, 2.0], [3.0]], [], [[5.0, 6.0, 7.0]] * 2]
    np.testing.assert_allclose(slopes, [2.0, 4.0, 12.0, 0.0, 20.0, 24.0, 28.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="an index is out of bounds"):
        run(places + 1)


@pytest.mark.parametrize("place", ["eager", "function", "vmap", "chunks", "dataset"])
@pytest.mark.parametrize("name", RAGGED_BODIES)
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_ragged_rows(name, place):
    rows, body = ragged(NESTED), RAGGED_BODIES[name]
    if place == "vmap":
        found = tf_pfor.vmap(body)(rows)
    elif place == "chunks" and name in ("sum of all",):
        found = tf_pfor.vectorized_map(body, rows, chunk_size=2)
    elif place == "dataset":
        data = tf.data.Dataset.from_tensors(rows).map(lambda x: tf_pfor.vectorized_map(body, x))
        found = next(iter(data))
    else:
        run = tf.function(lambda x: tf_pfor.vectorized_map(body, x))
        found = run(rows) if place == "function" else tf_pfor.vectorized_map(body, rows)
    assert_same(found, loop(body, rows))


@pytest.mark.parametrize(
    "rows", [ragged(DEEP), ragged(WIDE, 2), ragged([[[1.0, 2.0]], []], 1), ragged(NESTED)]
)
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_ranks(rows):
    found = tf_pfor.vectorized_map(lambda r: r * 2.0, rows)
    assert to_list(found) == to_list(rows * 2.0)
    assert found.ragged_rank == rows.ragged_rank
    assert found.shape[1:].as_list() == rows.shape[1:].as_list()


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_few_rows(n):
    rows = ragged(NESTED)[:n]
    found = tf_pfor.vectorized_map(lambda r: r + 1.0, rows)
    assert to_list(found) == to_list(rows + 1.0)
    sparse = tf.sparse.slice(tf.sparse.from_dense(DENSE), [0, 0], [n, 3])
    found = tf_pfor.vectorized_map(lambda s: tf.sparse.to_dense(s) * 2.0, sparse)
    np.testing.assert_array_equal(found, DENSE[:n] * 2.0)
    again = tf_pfor.vectorized_map(lambda s: s, sparse)
    assert again.dense_shape.numpy().tolist()[0] == n


def test_gradients_to_flat_values():
    rows = ragged(NESTED)
    with tf.GradientTape() as tape:
        tape.watch(rows.flat_values)
        sums = tf_pfor.vectorized_map(lambda r: tf.reduce_sum(r.flat_values**2), rows)
        total = tf.reduce_sum(sums * tf.constant([1.0, 10.0, 100.0]))
    found = tf.convert_to_tensor(tape.gradient(total, rows.flat_values))
    weights = tf.constant([1.0, 1.0, 1.0, 100.0, 100.0, 100.0, 100.0])
    np.testing.assert_allclose(found, 2.0 * rows.flat_values * weights)


SPARSE_BODIES = {
    "dense": tf.sparse.to_dense,
    "sum": tf.sparse.reduce_sum,
    "itself": lambda s: s,
    "mapped": lambda s: tf.sparse.map_values(tf.square, s),
    "product": lambda s: tf.sparse.sparse_dense_matmul(
        tf.sparse.expand_dims(s, 0), tf.ones([3, 2])
    ),
}


@pytest.mark.parametrize("place", ["eager", "function", "vmap"])
@pytest.mark.parametrize("name", SPARSE_BODIES)
@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_sparse_rows(name, place):
    whole, body = tf.sparse.from_dense(DENSE), SPARSE_BODIES[name]
    map_ = tf_pfor.vmap if place == "vmap" else lambda f: lambda x: tf_pfor.vectorized_map(f, x)
    run = tf.function(map_(body)) if place == "function" else map_(body)
    found = run(whole)
    expected = [body(tf.sparse.from_dense(row)) for row in DENSE]
    if isinstance(found, tf.SparseTensor):
        found = tf.sparse.to_dense(found)
        expected = [tf.sparse.to_dense(row) for row in expected]
    np.testing.assert_allclose(found, tf.stack(expected))


def test_sparse_elements_in_any_order():
    whole = tf.SparseTensor([[2, 0], [0, 1], [2, 2], [0, 0]], [1.0, 2.0, 3.0, 4.0], [3, 3])
    found = tf_pfor.vectorized_map(tf.sparse.to_dense, whole)
    np.testing.assert_array_equal(found, [[4, 2, 0], [0, 0, 0], [1, 0, 3]])


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_sparse_and_dense_elements_of_three_axes():
    dense = np.where(np.random.default_rng(0).uniform(size=[4, 3, 5]) < 0.4, 1.5, 0.0)
    whole, other = tf.sparse.from_dense(tf.constant(dense)), tf.constant(dense + 1.0)
    found = tf_pfor.vectorized_map(
        lambda e: tf.sparse.sparse_dense_matmul(e[0], e[1], adjoint_b=True), (whole, other)
    )
    np.testing.assert_allclose(found, dense @ np.swapaxes(dense + 1.0, 1, 2))


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_results_are_ragged_and_sparse():
    numbers = tf.constant([1, 2, 3])
    found = tf_pfor.vectorized_map(
        lambda k: tf.RaggedTensor.from_row_lengths(tf.range(k), tf.stack([k - 1, 1])), numbers
    )
    assert to_list(found) == [[[], [0]], [[0], [1]], [[0, 1], [2]]]
    made = tf_pfor.pfor(lambda i: tf.sparse.from_dense(tf.gather(DENSE, i)), 3)
    np.testing.assert_array_equal(tf.sparse.to_dense(made), DENSE)


@pytest.mark.parametrize("out_shapes", ["ragged", "padded"])
def test_results_of_padded_maps_keep_their_rows(out_shapes):
    body = lambda k: tf.RaggedTensor.from_row_lengths(tf.range(k), tf.stack([k - 1, 1]))  # noqa: E731
    found = tf_pfor.vectorized_map(body, tf.constant([3, 1, 2]), out_shapes=out_shapes)
    assert to_list(found) == [[[0, 1], [2]], [[], [0]], [[0], [1]]]


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_maps_in_maps():
    numbers = tf.constant([[1, 2], [0, 3]])
    found = tf_pfor.vectorized_map(lambda row: tf_pfor.vectorized_map(tf.range, row), numbers)
    assert to_list(found) == [[[0], [0, 1]], [[], [0, 1, 2]]]


def test_ragged_batches_of_clipped_gradients():
    rows, weight = ragged([[1.0, 2.0], [3.0], []], 1), tf.Variable(2.0)
    loss = lambda x: tf.reduce_sum(weight * x)  # noqa: E731
    total, losses = tf_pfor.clipped_gradient_sum(loss, weight, rows, clip_norm=2.5)
    np.testing.assert_allclose(losses, [6.0, 6.0, 0.0])
    np.testing.assert_allclose(total, 5.0)
