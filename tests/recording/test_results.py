"""Tests of results of ``batched`` that are no plain tensors."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of


class Pair(tf.experimental.ExtensionType):
    """Two tensors."""

    first: tf.Tensor
    second: tf.Tensor


class Holder(tf.experimental.ExtensionType):
    """A RaggedTensor in an extension type."""

    rows: tf.RaggedTensor


ragged = lambda n: tf.RaggedTensor.from_row_lengths(tf.range(4.0) * 2.0, [n, 4 - n])
sparse = lambda n: tf.sparse.from_dense(tf.constant([0.0, 2.0, 1.0]) * float(n))


@pytest.mark.parametrize("chunk_size", [None, 1])
def test_ragged_and_sparse_tensors_are_stacked(chunk_size):
    examples = [1, 3, 0]
    found = tf_pfor.batched(ragged, chunk_size=chunk_size)(examples)
    assert found.to_list() == [ragged(n).to_list() for n in examples]
    found = tf_pfor.batched(lambda n: {"x": sparse(n)}, chunk_size=chunk_size)(examples)["x"]
    expected = [tf.sparse.to_dense(sparse(n)).numpy().tolist() for n in examples]
    assert tf.sparse.to_dense(found).numpy().tolist() == expected
    pair = tf_pfor.batched(lambda n: Pair(tf.ones([2]) * n, n), chunk_size=chunk_size)(examples)
    np.testing.assert_array_equal(pair.first, [[1.0, 1.0], [3.0, 3.0], [0.0, 0.0]])
    np.testing.assert_array_equal(pair.second, examples)


def test_ragged_tensors_are_shown_as_eager_ones():
    shown = lambda x: [str(x), repr(x), f"{x}", x.to_list(), str(x.numpy())]
    made = lambda x: tf.RaggedTensor.from_row_lengths(x * 2.0, tf.cast(x[:2] + 1.0, tf.int64))
    x = tf.constant([0.0, 1.0, 2.0])
    with tf_pfor.lazy():
        ragged = made(x)
        inside = shown(made(x))
    assert inside == shown(ragged) == shown(made(x))
    texts = []
    tf_pfor.batched(lambda x: texts.append(shown(made(x))) or x)([x])
    assert texts == [inside]


def test_gradients_of_ragged_results():
    v = tf.Variable(3.0)
    fn = lambda n: tf.RaggedTensor.from_row_lengths(tf.range(4.0) * v, [n, 4 - n])
    assert float(gradient_of(lambda: tf.reduce_sum(tf_pfor.batched(fn)([1, 3])), v)) == 12.0
    rows = tf.function(lambda x: tf_pfor.batched(lambda k: ragged(1) * k)(x))(tf.ones([2]))
    assert rows.to_list() == [ragged(1).to_list()] * 2


@pytest.mark.parametrize(("fn", "error", "message"), [
    (lambda n: tf.IndexedSlices(tf.ones([1]) * n, tf.constant([1]), tf.constant([3])),
        tf_pfor.ArgumentTypeError, "fn returns IndexedSlices.*Return tf.convert_to_tensor"),
    (lambda n: Holder(ragged(n)), tf_pfor.ArgumentTypeError, "fn returns Holder"),
    (lambda n: ragged(n) if n > 1 else tf.ones([2]), tf_pfor.ArgumentError, "same structure"),
    (lambda n: None if n > 1 else tf.ones([2]), tf_pfor.ArgumentError, "same structure"),
    (lambda n: tf.sparse.from_dense(tf.ones([n])), tf_pfor.ArgumentError, "SparseTensors of"),
])  # fmt: skip
def test_results_that_cannot_be_stacked(fn, error, message):
    with pytest.raises(error, match=message):
        tf_pfor.batched(fn)([1, 3])
