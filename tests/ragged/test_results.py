"""Results whose shape differs between rows: RaggedTensors (Agarwal, 2019)."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.ways import errors_of, table_of

X = tf.random.stateless_normal([4, 6], [1, 2])
K = tf.constant([0, 2, 1, 6])
IMAGES = tf.random.stateless_normal([4, 5, 6, 3], [1, 3])
KERNEL = tf.random.stateless_normal([3, 3, 4], [1, 5])
WEIGHTS = tf.random.stateless_normal([4, 2], [1, 6])
TWELVE = tf.reshape(tf.range(12.0), [3, 4])
MASK = tf.constant([[1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0]]) > 0


def _items(x, k):
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
    for i in tf.range(k):
        array = array.write(i, x[i] * 2.0)
    return array.stack()


def two(row, mask):
    """Kernels that do not broadcast, one of whose inputs has the same shape in all rows."""
    kept = tf.boolean_mask(row, mask)  # [2], which nobody knows
    chosen = tf.raw_ops.Select(condition=mask[:2], x=kept, y=tf.zeros_like(kept))
    return chosen, tf.add_n([kept, row[:2]])


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
SITES = ["eager, few rows", "function", "unknown sizes", "pfor", "vmap", "dataset"]
test_table_of_results = table_of(
    BODIES, X, K, ways=[*SITES, "around"], only={"around": ["slice", "from", "crop"]},
    but={"unknown sizes": ["branch"]},  # branches of unknown shapes are taken to have one
    looped=SITES, tolerance=(1e-6, 0.0), slopes=(1e-5, 1e-12),
)  # fmt: skip
test_table_of_others = table_of(
    {
        "texts": (tf.strings.split, tf.constant(["a b c", "", "d", "ee f"])),
        # Agarwal (2019), Example 1: slice to the true length, convolve, multiply.
        "example 1": (
            lambda x, k: tf.nn.conv1d(x[:k][None], KERNEL, 1, "SAME")[0] @ WEIGHTS,
            (tf.random.stateless_normal([5, 8, 3], [1, 4]), tf.constant([8, 3, 5, 1, 4]))),
        "of one shape": (two, (TWELVE, MASK)),
    },
    ways=["eager", "no rows", "pfor"], tolerance=(1e-6, 0.0),
)  # fmt: skip
test_what_must_be_of_one_shape_but_is_not = errors_of(
    {"add_n": lambda r: tf.add_n([tf.boolean_mask(r, r > 1.0), r])},
    tf.reshape(tf.range(6.0), [2, 3]),
)  # fmt: skip


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


def test_results_meet_other_ragged_tensors():
    """Row splits are int64, as TensorFlow's are."""
    found = tf_pfor.pfor(lambda i: tf.range(i), 3)
    assert found.row_splits.dtype == tf.int64
    total = found + tf.ragged.constant([[], [10], [20, 30]], dtype=tf.int32)
    assert total.to_list() == [[], [10], [20, 31]]
    images = tf_pfor.pfor(lambda i: tf.ones([i, 2, i]), 3)
    assert images.shape.as_list() == [3, None, 2, None]
    assert (images * 2.0).to_list() == [[], [[[2.0], [2.0]]], [[[2.0, 2.0]] * 2] * 2]
