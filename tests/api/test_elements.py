"""Elements of ``vectorized_map`` that are no tensors, and the number of rows at once."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid

X = np.arange(14.0, dtype=np.float32).reshape(7, 2)


def masked_sum(row):
    """A body with an optional argument, as Keras layers have them."""
    x, mask = row["x"], row["mask"]
    return tf.reduce_sum(x) if mask is None else tf.reduce_sum(tf.boolean_mask(x, mask))


@pytest.mark.parametrize("mask", [None, np.asarray([[True, False]] * 7)])
@pytest.mark.parametrize("where", ["eagerly", "in a function", "in tf.data"])
def test_leaves_that_are_none(mask, where):
    run = lambda x: tf_pfor.vectorized_map(masked_sum, {"x": x, "mask": mask})
    if where == "in tf.data":
        found = next(iter(tf.data.Dataset.from_tensor_slices(X).batch(7).map(run)))
    else:
        found = (tf.function(run) if where == "in a function" else run)(tf.constant(X))
    np.testing.assert_allclose(found, X.sum(1) if mask is None else X[:, 0])


def test_the_error_for_sizes_names_the_right_leaves():
    with pytest.raises(tf_pfor.ArgumentError) as caught:
        tf_pfor.vectorized_map(lambda row: row[1], (None, X, X[:3]))
    assert "elems[1]: (7, 2)" in str(caught.value)
    assert "elems[2]: (3, 2)" in str(caught.value)


@grid(n=[0, 1, 7], size=[None, 1, 2, 3, 7, 10, "auto"])
def test_chunks(size, n):
    def run(x):
        return tf_pfor.vectorized_map(
            lambda row: (tf.reduce_sum(row[0]), row[0] * 2, row[1]), (x, None), chunk_size=size
        )

    for fn in (run, tf.function(run, input_signature=[tf.TensorSpec([None, 2])])):
        total, twice, nothing = fn(tf.constant(X[:n]))
        np.testing.assert_allclose(total, X[:n].sum(1))
        np.testing.assert_allclose(twice, X[:n] * 2)
        assert nothing is None


def test_a_budget_is_for_auto():
    with pytest.raises(tf_pfor.ArgumentError, match="memory_budget is for chunk_size='auto'"):
        tf_pfor.vectorized_map(tf.sin, X, chunk_size=2, memory_budget=1000)
    with pytest.raises(tf_pfor.ArgumentError, match="chunk_size must be a positive int"):
        tf_pfor.vectorized_map(tf.sin, X, chunk_size=0)
    made = tf_pfor.vectorized_map(tf.sin, X, chunk_size="auto", memory_budget=100_000)
    np.testing.assert_allclose(made, np.sin(X), rtol=1e-6)


class Pair(tf.experimental.ExtensionType):
    """A type of a user's, which says nothing about batches."""

    a: tf.Tensor
    b: tf.Tensor
    name: str = "pair"


class BatchedPair(tf.experimental.BatchableExtensionType):
    """One that does."""

    a: tf.Tensor
    b: tf.Tensor


WAYS = {
    "eagerly": lambda fn, x: tf_pfor.vectorized_map(fn, x),
    "in a function": lambda fn, x: tf.function(tf_pfor.vectorized_map)(fn, x),
    "vmap": lambda fn, x: tf_pfor.vmap(fn)(x),
    "vmap, compiled": lambda fn, x: tf_pfor.vmap(fn, jit_compile=True)(x),
    "in tf.data": lambda fn, x: next(
        iter(tf.data.Dataset.from_tensors(x).map(lambda x: tf_pfor.vectorized_map(fn, x)))
    ),
}


@grid(kind=[Pair, BatchedPair], way=WAYS, n=[0, 1, 7])
def test_extension_types(kind, way, n):
    x = tf.constant(X[:n])
    for _ in range(2):  # the second time by the kept trace
        made = WAYS[way](lambda row: {"made": kind(row * 2.0, tf.reduce_sum(row)), "no": None}, x)
        again = WAYS[way](lambda pair: kind(pair.a + pair.b, pair.b), made["made"])
        assert (type(made["made"]), type(again), made["no"]) == (kind, kind, None)
        np.testing.assert_allclose(made["made"].a, 2 * X[:n])
        np.testing.assert_allclose(made["made"].b, X[:n].sum(1))
        np.testing.assert_allclose(again.a, 2 * X[:n] + X[:n].sum(1)[:, None])


@pytest.mark.parametrize("way", WAYS)
def test_indexed_slices_are_dense(way):
    found = WAYS[way](lambda row: tf.IndexedSlices(row[None], [1], [3, 2]), tf.constant(X))
    expected = np.zeros([7, 3, 2])
    expected[:, 1] = X
    np.testing.assert_allclose(found, expected)
