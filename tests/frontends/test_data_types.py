"""``tf_pfor.data``: extension types as elements of a dataset and as results."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.frontends.datasets import Dataset
from tf_pfor.data import explain, filter_map_and_batch, find_failure, map_and_batch, vectorize

ROWS = tf.random.stateless_normal([5, 3], [1, 2])


class Pair(tf.experimental.BatchableExtensionType):
    """Tensors only."""

    a: tf.Tensor
    b: tf.Tensor


class _Encoder(tf.experimental.ExtensionTypeBatchEncoder):
    """One tensor for both fields."""

    def encode(self, spec, value, minimum_rank=0):
        return [tf.stack([value.low, value.high], -1)]

    def decode(self, spec, encoded_value):
        return Range(*tf.unstack(encoded_value[0], axis=-1))

    def encoding_specs(self, spec):
        return [tf.TensorSpec([*spec.low.shape, 2], spec.low.dtype)]

    def batch(self, spec, batch_size):
        return Range.Spec(*[tf.TensorSpec([batch_size, *spec.low.shape], spec.low.dtype)] * 2)

    def unbatch(self, spec):
        return Range.Spec(*[tf.TensorSpec(spec.low.shape[1:], spec.low.dtype)] * 2)


class Range(tf.experimental.BatchableExtensionType):
    """A type with an encoder of its own."""

    low: tf.Tensor
    high: tf.Tensor
    __batch_encoder__ = _Encoder()


class Held(tf.experimental.BatchableExtensionType):
    """Fields of all kinds, one of them of another type."""

    words: tf.RaggedTensor
    near: tf.SparseTensor
    inner: Range


class Plain(tf.experimental.ExtensionType):
    """A type that says nothing about batches."""

    x: tf.Tensor
    words: tf.RaggedTensor


ragged = lambda x: tf.RaggedTensor.from_row_lengths(x, [1, 2])
MAKE = {
    "tensors": lambda x: Pair(x, x[0]),
    "encoder": lambda x: Range(x, x + 1.0),
    "of all kinds": lambda x: Held(ragged(x), tf.sparse.from_dense(x), Range(x, x * 2.0)),
    "plain": lambda x: Plain(x, ragged(x)),
    "operator": lambda x: tf.linalg.LinearOperatorDiag(x),
    "beside others": lambda x: {"pair": Pair(x, x[0]), "x": x},
}


def fields(x):
    """All tensors of an element or of a batch."""
    if isinstance(x, tf.linalg.LinearOperator):
        return [x.to_dense()]
    if isinstance(x, tf.SparseTensor):
        return [tf.sparse.to_dense(x)]
    if isinstance(x, dict):
        return [y for key in sorted(x) for y in fields(x[key])]
    if not isinstance(x, tf.experimental.ExtensionType):
        return [x]
    names = ("a", "b", "low", "high", "words", "near", "inner", "x")
    return [y for name in names if hasattr(x, name) for y in fields(getattr(x, name))]


def listed(x):
    return x.to_list() if isinstance(x, tf.RaggedTensor) else x.numpy().tolist()


def assert_batches(found, size, wanted):
    """Batches of so many of the wanted elements, in order."""
    batches = list(found)
    assert len(batches) == -(-len(wanted) // size)
    for k, batch in enumerate(batches):
        expected = wanted[k * size : (k + 1) * size]
        assert type(batch) is type(expected[0])
        for got, *rows in zip(fields(batch), *map(fields, expected), strict=True):
            assert [*map(listed, got)] == [*map(listed, rows)]


@pytest.mark.parametrize("choose", ["vectorized", "loop"])
@pytest.mark.parametrize("name", MAKE)
class TestExtensionTypes:
    def test_as_elements(self, name, choose):
        dataset = Dataset.from_tensor_slices(ROWS).map(MAKE[name])

        @tf.autograph.experimental.do_not_convert
        def total(x):
            return tf.add_n([tf.reduce_sum(y) for y in fields(x)])

        found = [*dataset.apply(map_and_batch(total, 2, choose=choose)).unbatch()]
        np.testing.assert_allclose(found, [total(MAKE[name](x)) for x in ROWS], rtol=1e-5)

    def test_as_results(self, name, choose):
        found = Dataset.from_tensor_slices(ROWS).apply(map_and_batch(MAKE[name], 2, choose=choose))
        assert_batches(found, 2, [MAKE[name](x) for x in ROWS])

    def test_that_are_kept(self, name, choose):
        transformation = filter_map_and_batch(
            lambda x: (x[0] > ROWS[2, 0], MAKE[name](x)), 2, choose=choose
        )
        found = Dataset.from_tensor_slices(ROWS).apply(transformation)
        kept = [MAKE[name](x) for x in ROWS if x[0] > ROWS[2, 0]]
        assert 0 < len(kept) < 5
        assert_batches(found, 2, kept)


def test_fields_of_own_length():
    """The function gets each element as it is."""
    dataset = Dataset.range(5).map(lambda i: (Pair(tf.range(i), i), tf.range(2 * i)))
    found = [
        *dataset.apply(map_and_batch(lambda p, x: (tf.size(p.a), tf.size(x), p.b), 3)).unbatch()
    ]
    assert [tuple(map(int, row)) for row in found] == [(i, 2 * i, i) for i in range(5)]


def test_of_batches():
    dataset = Dataset.from_tensor_slices(ROWS).map(MAKE["of all kinds"]).batch(2)
    found = [*dataset.map(vectorize(lambda x: tf.reduce_sum(x.words, None))).unbatch()]
    np.testing.assert_allclose(found, tf.reduce_sum(ROWS, 1), rtol=1e-5)


def test_what_explains_and_finds():
    dataset = Dataset.from_tensor_slices([[1.0], [0.0], [2.0]]).map(lambda x: Pair(x, x))
    one = lambda p: tf.debugging.check_numerics(1.0 / p.a, "zero")
    assert any(r.op_type == "CheckNumerics" for r in explain(one, dataset).records)
    assert find_failure(one, dataset).index == 1


def test_what_no_type_can_batch_is_refused():
    dataset = Dataset.range(3).map(lambda i: (i, Dataset.range(i)))
    with pytest.raises(tf_pfor.ArgumentTypeError, match="SparseTensors and extension types"):
        dataset.apply(map_and_batch(lambda i, _: i, 2))
