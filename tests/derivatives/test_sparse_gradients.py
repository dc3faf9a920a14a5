"""Gradients of embeddings that are not densified, against the dense ones."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of
from tf_pfor import BatchedIndexedSlices

TABLE = np.random.default_rng(0).normal(size=[9, 3]).astype(np.float32)
IDS = tf.constant([[1, 1, 4], [0, 8, 0], [2, 3, 5], [7, 7, 7], [6, 1, 0]])


def _close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _model(dtype=tf.float32):
    table, w = tf.Variable(tf.cast(TABLE, dtype)), tf.Variable(tf.ones([3], dtype))

    def loss(ids):
        rows = tf.nn.embedding_lookup(table, ids)
        return tf.reduce_sum(tf.tanh(tf.reduce_sum(rows * w, 1)) ** 2 + rows[:, 0] * rows[:1, 1])

    return loss, {"table": table, "w": w}


def _shapes(fn, *args):
    """The static shapes of all tensors in a compiled call."""
    graph = tf.function(fn, autograph=False).get_concrete_function(*args).graph
    return {tuple(t.shape) for op in graph.get_operations() for t in op.outputs if t.shape.rank}


@grid(wrap=["eager", "graph", "xla"], chunk=[None, 2])
def test_per_example(wrap, chunk):
    loss, variables = _model()

    def run(ids):
        return tf_pfor.per_example_gradients(loss, variables, ids, chunk_size=chunk, sparse=True)

    call = run if wrap == "eager" else tf.function(run, jit_compile=wrap == "xla")
    grads, losses = call(IDS)
    expected, again = tf_pfor.per_example_gradients(loss, variables, IDS)
    slices = grads["table"]
    assert isinstance(slices, BatchedIndexedSlices)
    assert slices.values.shape[0] == slices.indices.shape[0] == 5
    _close(slices.to_dense(), expected["table"])
    _close(slices.squared_norms(), tf.reduce_sum(expected["table"] ** 2, [1, 2]))
    weights = tf.constant([1.0, 0.0, -2.0, 3.0, 0.5])
    total = slices.sum(weights)
    assert isinstance(total, tf.IndexedSlices)
    _close(tf.convert_to_tensor(total), tf.einsum("n,nvd->vd", weights, expected["table"]))
    _close(tf.convert_to_tensor(slices.sum()), tf.reduce_sum(expected["table"], 0))
    _close(grads["w"], expected["w"])
    _close(losses, again)


def test_an_optimizer_takes_the_sum():
    loss, variables = _model()
    grads, _ = tf_pfor.per_example_gradients(loss, variables["table"], IDS, sparse=True)
    before = tf.identity(variables["table"])
    tf.keras.optimizers.SGD(1.0).apply_gradients([(grads.sum(), variables["table"])])
    _close(before - variables["table"], tf.reduce_sum(grads.to_dense(), 0))


@grid(chunk=[None, 1, 2, 5, "auto"], dtype=[tf.float32, tf.float64])
def test_norms_and_clipped_sums(chunk, dtype):
    """Rows that are looked up twice in one example count once, with the sum of their values."""
    loss, variables = _model(dtype)
    grads, _ = tf_pfor.per_example_gradients(loss, variables, IDS)
    flat = np.concatenate([np.reshape(g, [5, -1]) for g in tf.nest.flatten(grads)], 1)
    norms = np.linalg.norm(flat, axis=1)
    _close(tf_pfor.gradient_norms(loss, variables, IDS, chunk_size=chunk), norms)
    clip = float(np.median(norms))
    sums, _ = tf_pfor.clipped_gradient_sum(loss, variables, IDS, clip_norm=clip, chunk_size=chunk)
    scale = np.minimum(1, clip / norms)
    for name, total in sums.items():
        assert total.dtype == dtype
        _close(total, np.einsum("n,n...->...", scale, np.asarray(grads[name])))


def test_nothing_dense_is_made():
    table = tf.Variable(tf.ones([1000, 3]))
    loss = lambda ids: tf.reduce_sum(tf.gather(table, ids) ** 2)
    calls = [
        lambda x: tf_pfor.per_example_gradients(loss, table, x, sparse=True),
        lambda x: tf_pfor.gradient_norms(loss, table, x),
        lambda x: tf_pfor.clipped_gradient_sum(loss, table, x, clip_norm=1.0),
    ]
    for call in calls:
        assert not any(len(s) > 1 and s[0] == 5 and 1000 in s for s in _shapes(call, IDS))
    assert (5, 1000, 3) in _shapes(lambda x: tf_pfor.per_example_gradients(loss, table, x), IDS)


def test_more_lookups_than_rows_are_dense():
    table = tf.Variable(TABLE[:2])
    loss = lambda ids: tf.reduce_sum(tf.gather(table, ids % 2) ** 3)
    grads, _ = tf_pfor.per_example_gradients(loss, table, IDS, sparse=True)
    assert grads.shape == [5, 2, 3]


def test_unknown_shapes_and_ranks():
    table = tf.Variable(tf.random.stateless_normal([9, 2, 2], [1, 2]))

    def loss(ids):
        return tf.reduce_sum(tf.gather(table, ids) ** 2)  # ids [2, k]

    @tf.function(input_signature=[tf.TensorSpec([None, 2, None], tf.int64)])
    def run(ids):
        grads, _ = tf_pfor.per_example_gradients(loss, table, ids, sparse=True)
        return grads.to_dense(), grads.squared_norms()

    for n in (0, 3):
        ids = tf.random.stateless_uniform([n, 2, 3], [3, 4], 0, 9, tf.int64)
        expected, _ = tf_pfor.per_example_gradients(loss, table, ids)
        found, squares = run(ids)
        _close(found, expected)
        _close(squares, tf.reduce_sum(expected**2, [1, 2, 3]))


@pytest.mark.parametrize("block", [None, 2])
def test_jacobians(block):
    table, x = tf.Variable(TABLE), tf.ones([3])

    def fn():
        return tf.gather(table, [[3, 1], [3, 0]]) ** 2 * x  # [2, 2, 3]

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = fn()
    expected = tape.jacobian(y, [table, x], experimental_use_pfor=False)
    options = {"parallel_iterations": block, "sparse": True}
    slices, by_x = tf_pfor.tape_jacobian(tape, y, [table, x], **options)
    assert slices.values.shape == [2, 2, 3, 4, 3]
    _close(slices.to_dense(), expected[0])
    _close(by_x, expected[1])
    graph = tf.function(
        lambda t: tf_pfor.jacobian(tf.gather(t, [[3, 1], [3, 0]]) ** 2, {"t": t}, **options)["t"]
    )
    _close(graph(tf.constant(TABLE)).to_dense(), expected[0])


@pytest.mark.parametrize("ids", [[[1, 1, 2], [], [0]], [[], []], [[8, 8]], []])
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("wrap", ["eager", "graph"])
def test_examples_of_own_lengths(wrap, dtype, ids):
    """Padding belongs to no row of the table: an infinite gradient of row 0 or 8 stays infinite."""
    table = tf.Variable(tf.tensor_scatter_nd_update(TABLE, [[0, 0]], [np.inf]))
    ids = tf.ragged.constant(ids, dtype=dtype, ragged_rank=1)
    loss = lambda one: tf.reduce_sum(tf.gather(table, one) ** 2)

    def run(ids):
        grads, _ = tf_pfor.per_example_gradients(loss, table, ids, sparse=True)
        return grads, grads.to_dense(), grads.squared_norms()

    slices, dense, squares = (run if wrap == "eager" else tf.function(run))(ids)
    want = np.zeros([ids.nrows(), *table.shape], np.float32)
    for i in range(len(want)):
        want[i] = tf.convert_to_tensor(gradient_of(lambda i=i: loss(ids[i]), table))
    assert isinstance(slices.indices, tf.RaggedTensor)
    assert (dense.shape[1:], squares.shape.rank) == (table.shape, 1)
    _close(dense, want)
    _close(squares, np.sum(want**2, (1, 2)))
    _close(tf.convert_to_tensor(slices.sum()), np.sum(want, 0))


@pytest.mark.parametrize("ids", [IDS, tf.ragged.constant([[1, 1], [], [0], [3, 3, 3], [8]])])
def test_batches_of_own_lengths(ids):
    """Axes in front are ragged, and the number of slices may be."""
    parts = tf.gather(TABLE, ids), ids
    shape = tf.constant(TABLE.shape)
    each = BatchedIndexedSlices(*parts, shape)
    nested = [tf.RaggedTensor.from_row_splits(t, [0, 2, 2, 5]) for t in parts]
    found = BatchedIndexedSlices(*nested, shape)
    for fn in (BatchedIndexedSlices.to_dense, BatchedIndexedSlices.squared_norms):
        assert fn(found).row_lengths().numpy().tolist() == [2, 0, 3]
        _close(fn(found).values, fn(each))
