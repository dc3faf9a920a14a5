"""Tests of NumPy values, numbers and lists beside recorded tensors: dtypes are as of eager ops."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

X = tf.constant([0.5, -1.0, 2.0])
OPERANDS = [
    lambda y: y * np.sqrt(2.0),
    lambda y: np.sqrt(2.0) - y,
    lambda y: y // np.int64(2) + y % np.float64(0.3),
    lambda y: y ** np.array([1.0, 2.0, 3.0]),
    lambda y: (y > np.float64(0.1)) | (y == np.array([0, 1, 2])),
    lambda y: tf.maximum(np.float64(0.1), y),
    lambda y: tf.where(y > 0.0, np.float64(1.5), y),
    lambda y: tf.clip_by_value(y, np.float64(-0.2), np.float64(1.1)),
    lambda y: tf.concat([np.ones(2), y, [1, 2]], np.int64(0)),
    lambda y: tf.concat([np.ones(200), y], 0),
    lambda y: tf.einsum("i,ij->j", y, np.ones([3, 40])),
    lambda y: tf.nn.bias_add(y[None], np.ones(3)),
    lambda y: tf.pad(y, np.array([[1, 0]]), constant_values=np.float64(0.3)),
    lambda y: tf.cast(y, tf.int32) * np.float64(1.5),  # cut off to an integer
    lambda y: tf.multiply(tf.Variable([1.0, 2.0, 3.0]), np.float64(0.7)) * y,
    lambda y: tf.one_hot(tf.cast(y, tf.int32), np.int64(3), np.float32(0.3), 0.0),
]
"""Eager ops give a NumPy value the dtype of a tensor beside it."""


@pytest.mark.parametrize("fn", OPERANDS)
def test_numpy_values_in_lazy(fn):
    expected = fn(X * 1.0)
    with tf_pfor.lazy():
        found = fn(X * 1.0)
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: tf.maximum(np.float64(0.5), x),
        lambda x: tf.maximum(0, x),
        lambda x: tf.where(x > 1, np.float64(0.3), x),
        lambda x: tf.concat([np.ones(100), [x], [1, 2]], 0),
        lambda x: x * np.sqrt(2.0),
        lambda x: tf.cast(x, tf.int32) * np.array([1.5, 2.5]),
    ],
)
def test_numpy_values_in_batched(fn):
    rows = tf.constant([0.25, 3.0])
    found = tf_pfor.batched(fn)(rows)
    expected = tf.stack([fn(x) for x in rows])
    assert found.dtype == expected.dtype
    assert found.numpy().tolist() == expected.numpy().tolist()
