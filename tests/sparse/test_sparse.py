"""Sparse and ragged tensors in bodies: bad indices, and the public functions."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import mapped

raw = tf.raw_ops
X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
AT = np.int64([[[0, 1], [1, 0], [1, 3], [2, 2]], [[0, 0], [0, 1], [1, 2], [2, 3]],
               [[0, 3], [1, 1], [2, 0], [2, 1]]])  # fmt: skip


def _each(body, *elems):
    return tf.stack([body(*map(tf.constant, row)) for row in zip(*elems)])


def _sparse(values, at):
    return tf.SparseTensor(at, values, [3, 4])


@pytest.mark.parametrize(
    "body",
    [
        lambda s: tf.sparse.to_dense(s),
        lambda s: tf.sparse.reduce_sum(s),
        lambda s: tf.sparse.reduce_sum(s, 1, keepdims=True),
        lambda s: tf.sparse.reduce_max(s, 0),
        lambda s: tf.sparse.sparse_dense_matmul(s, tf.constant(X.T)),
        lambda s: tf.sparse.sparse_dense_matmul(tf.constant(X.T), s),
        lambda s: tf.sparse.to_dense(tf.sparse.transpose(s)),
        lambda s: tf.sparse.to_dense(tf.sparse.reshape(s, [2, -1])),
        lambda s: tf.sparse.to_dense(tf.sparse.concat(0, [s, s])),
        lambda s: tf.sparse.to_dense(tf.sparse.softmax(s)),
        lambda s: tf.sparse.to_dense(s * tf.constant(X)),
        lambda s: tf.sparse.to_dense(tf.sparse.expand_dims(s, 1)),
        lambda s: tf.sparse.add(s, tf.constant(X)),
    ],
    ids=["to_dense", "reduce_sum", "keepdims", "reduce_max", "matmul", "matmul_right", "transpose",
         "reshape", "concat", "softmax", "times", "expand_dims", "add"],
)  # fmt: skip
def test_public_functions(body):
    def of_row(x, at):
        return body(_sparse(x, at))

    found, expected = mapped(of_row, X, AT), _each(of_row, X, AT)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def _reorder(x, at, shape):
    return raw.SparseReorder(input_indices=at[::-1], input_values=x, input_shape=shape)[1]


def _softmax(x, at, shape):
    return raw.SparseSoftmax(sp_indices=at, sp_values=x, sp_shape=shape)


@pytest.mark.parametrize("body", [_reorder, _softmax])
def test_a_shape_of_the_row_with_as_many_entries_in_each(body):
    shapes = np.int64([[3, 4], [5, 4], [3, 6]])
    found, expected = mapped(body, X, AT, shapes), _each(body, X, AT, shapes)
    np.testing.assert_allclose(found, expected, 1e-6)


def _one_wrong(place, value):
    at = AT.copy()
    at[1, place] = value
    return at


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("to_dense", lambda x, at: tf.sparse.to_dense(_sparse(x, at))),
        ("matmul", lambda x, at: tf.sparse.sparse_dense_matmul(_sparse(x, at), X.T)),
        ("matmul_both",
         lambda x, at: tf.sparse.sparse_dense_matmul(_sparse(x, at), x[:, None] * X.T)),
        ("adjoint", lambda x, at: tf.sparse.sparse_dense_matmul(
            _sparse(x, at), X[:, :2] * x[0], adjoint_a=True)),
        ("reduce_sum", lambda x, at: tf.sparse.reduce_sum(_sparse(x, at), 1)),
        ("add", lambda x, at: tf.sparse.add(_sparse(x, at), tf.constant(X) * x)),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("wrong", [[3, 0], [-1, 0], [0, 4]], ids=["high", "low", "column"])
def test_an_index_outside_fails_as_for_one_example(name, body, wrong):
    """Never a place of the next row."""
    at = _one_wrong(-1 if wrong[0] == 3 else 0, wrong)
    fails = True
    try:
        with tf.device("cpu"):
            tf.function(body)(tf.constant(X[1]), tf.constant(at[1]))
        fails = False
    except tf.errors.OpError:
        pass
    assert fails or name == "reduce_sum"
    if fails:
        with pytest.raises(tf.errors.OpError):
            mapped(body, X, at)
    else:
        np.testing.assert_allclose(mapped(body, X, at), _each(body, X, at), 1e-5)


@pytest.mark.parametrize("place", [1, 2], ids=["repeated", "unsorted"])
def test_validated_indices(place):
    at = _one_wrong(place, [0, 0])

    def body(x, at):
        return tf.sparse.to_dense(_sparse(x, at), validate_indices=True)

    with pytest.raises(tf.errors.InvalidArgumentError):
        body(tf.constant(X[1]), tf.constant(at[1]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(body, X, at)


@pytest.mark.parametrize("splits", [[0, 3, 1, 4], [1, 2, 3, 4], [0, -1, 2, 4], [0, 1, 2, 5]])
def test_bad_splits(splits):
    """TensorFlow's kernel reads behind the values where the splits do."""
    is_long = splits[-1] > 4
    splits = np.int64([[0, 1, 2, 4], splits, [0, 0, 4, 4]])

    def body(x, s):
        ragged = tf.RaggedTensor.from_row_splits(x, s, validate=False)
        return ragged.to_tensor(shape=[3, 2])

    if not is_long:
        with pytest.raises(tf.errors.InvalidArgumentError):
            body(tf.constant(X[1]), tf.constant(splits[1]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(body, X, splits)


def test_splits_that_end_early():
    splits = np.int64([[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 4, 4]])

    def body(x, s):
        ragged = tf.RaggedTensor.from_row_splits(x, s, validate=False)
        return ragged.to_tensor(shape=[3, 3])

    np.testing.assert_allclose(mapped(body, X, splits), _each(body, X, splits))
