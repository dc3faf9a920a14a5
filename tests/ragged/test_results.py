"""Results whose shape differs between rows: RaggedTensors (Agarwal, 2019)."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import comparisons
from tests.comparisons import mapped

pytestmark = pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")

X = tf.random.stateless_normal([4, 6], [1, 2])
K = tf.constant([0, 2, 1, 6])
IMAGES = tf.random.stateless_normal([4, 5, 6, 3], [1, 3])
TEXTS = tf.constant(["a b c", "", "d", "ee f"])

BODIES = {
    "slice": lambda x, k: x[:k] * 2.0,
    "from": lambda x, k: x[k:] + 1.0,
    "range": lambda x, k: tf.range(k),
    "where": lambda x, k: tf.where(x > 0),
    "mask": lambda x, k: tf.boolean_mask(x, x > 0),
    "unique": lambda x, k: tf.unique(tf.cast(x, tf.int32))[0],
    "repeat": lambda x, k: tf.repeat(x, k),
    "tile": lambda x, k: tf.tile(x[:, None], [1, k]),
    "two axes": lambda x, k: tf.ones([k, 2, k]) * x[0],
    "crop": lambda x, k: IMAGES[0][:k, : k + 1] * x[0],
    "fill": lambda x, k: tf.fill([3, k], x[1]),
    "rank 2": lambda x, k: tf.reshape(x[: 2 * (k // 2)], [-1, 2]),
    "bools": lambda x, k: x[:k] > 0,
    "branch": lambda x, k: tf.cond(k > 1, lambda: x[:2], lambda: x),
    "array": lambda x, k: _items(x, k),
}  # fmt: skip


def _items(x, k):
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
    for i in tf.range(k):
        array = array.write(i, x[i] * 2.0)
    return array.stack()


def expected(body, xs, ks):
    return comparisons.rows_of(body, xs, ks)


def assert_rows(found, rows):
    assert isinstance(found, tf.RaggedTensor)
    comparisons.assert_rows(found, rows, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("site", ["eager", "function", "unknown", "pfor", "vmap", "dataset"])
def test_as_the_loop(name, site):
    body = BODIES[name]
    rows = expected(body, X, K)

    def run(x, k):
        if site == "pfor":
            return tf_pfor.pfor(lambda i: body(tf.gather(x, i), tf.gather(k, i)), 4)
        if site == "vmap":
            return tf_pfor.vmap(body)(x, k)
        return tf_pfor.vectorized_map(lambda e: body(*e), (x, k))

    if site == "dataset":
        batches = tf.data.Dataset.from_tensor_slices((X, K)).batch(3).map(run)
        run = lambda *_: tf.concat(list(batches), 0)  # noqa: E731
    elif site == "unknown":
        if name == "branch":
            pytest.skip("branches of unknown shapes are taken to have one")
        run = tf.function(
            run, input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None], tf.int32)]
        )
    elif site == "function":
        run = tf.function(run)
    assert_rows(run(X, K), rows)


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(name, n):
    body = BODIES[name]
    found = tf_pfor.vectorized_map(lambda e: body(*e), (X[:n], K[:n]))
    assert isinstance(found, tf.RaggedTensor)
    assert found.nrows() == n
    if n:
        assert_rows(found, expected(body, X[:1], K[:1]))


def test_strings():
    found = tf_pfor.vectorized_map(tf.strings.split, TEXTS)
    assert found.to_list() == [[b"a", b"b", b"c"], [], [b"d"], [b"ee", b"f"]]


def test_out_shapes():
    def run(out_shapes, ks=K):
        return tf_pfor.vectorized_map(lambda e: e[0][: e[1]], (X, ks), out_shapes=out_shapes)

    np.testing.assert_allclose(run("padded"), run("ragged").to_tensor())
    np.testing.assert_allclose(run("dense", tf.fill([4], 3)), X[:, :3])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_results.py:\d+"):
        run("dense")
    with pytest.raises(ValueError, match="out_shapes must be"):
        run("something")
    with pytest.raises(ValueError, match="out_axes asks for axis 1"):
        tf_pfor.vmap(lambda x, k: x[:k], out_axes=1)(X, K)


def test_ensure_shape_makes_a_result_dense():
    found = tf_pfor.vectorized_map(
        lambda e: tf.ensure_shape(e[0][: e[1]], [2]), (X, tf.fill([4], 2))
    )
    np.testing.assert_allclose(found, X[:, :2])


def test_paper_example_1():
    """Agarwal (2019), Example 1: slice to the true length, convolve, multiply."""
    inputs = tf.random.stateless_normal([5, 8, 3], [1, 4])
    lengths = tf.constant([8, 3, 5, 1, 4])
    kernel = tf.random.stateless_normal([3, 3, 4], [1, 5])
    weights = tf.random.stateless_normal([4, 2], [1, 6])

    def loop_fn(i):
        row = tf.gather(inputs, i)[: lengths[i]]
        convolved = tf.nn.conv1d(row[None], kernel, 1, "SAME")[0]
        return convolved @ weights

    found = tf_pfor.pfor(loop_fn, 5)
    assert found.shape.as_list() == [5, None, 2]
    assert_rows(found, [loop_fn(i) for i in range(5)])


def test_gradients_to_elements():
    def run(x, k):
        return tf_pfor.vectorized_map(lambda e: e[0][: e[1]] ** 2, (x, k)).flat_values

    with tf.GradientTape() as tape:
        tape.watch(X)
        y = tf.reduce_sum(run(X, K) ** 2)
    mask = tf.range(6) < K[:, None]
    np.testing.assert_allclose(
        tape.gradient(y, X), tf.where(mask, 4 * X**3, 0.0), rtol=1e-5
    )  # fmt: skip


def test_results_meet_other_ragged_tensors():
    """Row splits are int64, as TensorFlow's are."""
    found = tf_pfor.pfor(lambda i: tf.range(i), 3)
    assert found.row_splits.dtype == tf.int64
    total = found + tf.ragged.constant([[], [10], [20, 30]], dtype=tf.int32)
    assert total.to_list() == [[], [10], [20, 31]]
    images = tf_pfor.pfor(lambda i: tf.ones([i, 2, i]), 3)
    assert images.shape.as_list() == [3, None, 2, None]
    assert (images * 2.0).to_list() == [[], [[[2.0], [2.0]]], [[[2.0, 2.0]] * 2] * 2]


@pytest.mark.parametrize("n", [0, 3])
def test_what_must_be_of_one_shape_is_dense(n):
    """Kernels that do not broadcast, one of whose inputs has the same shape in all rows."""
    x = tf.reshape(tf.range(12.0), [3, 4])[:n]
    mask = tf.constant([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0]])[:n] > 0

    def two(row, m):
        kept = tf.boolean_mask(row, m)  # [2], which nobody knows
        chosen = tf.raw_ops.Select(condition=m[:2], x=kept, y=tf.zeros_like(kept))
        return chosen, tf.add_n([kept, row[:2]])

    found = mapped(two, x, mask)
    for i in range(n):
        for f, e in zip(found, two(x[i], mask[i])):
            np.testing.assert_array_equal(f[i], e)
    assert [f.shape for f in found] == [[n, 2]] * 2


def test_what_must_be_of_one_shape_but_is_not():
    x = tf.reshape(tf.range(6.0), [2, 3])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vectorized_map(lambda r: tf.add_n([tf.boolean_mask(r, r > 1.0), r]), x)
