"""Gradients of looked-up rows, kept apart for each example and not densified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class BatchedIndexedSlices(NamedTuple):
    """``tf.IndexedSlices`` with axes in front: gradients of an embedding, one for each example.

    A gradient of a [V, ...] table is zero but for the k rows that were looked up. Values of an
    index that stands there several times add up.

    Attributes:
      values: [*batch, k, *table.shape[1:]]; ragged if k differs per example.
      indices: integers [*batch, k], rows of the table; ragged if the values are.
      dense_shape: the shape of the table, a vector.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> table = tf.Variable(tf.zeros([5, 1]))
    >>> grads, _ = tf_pfor.per_example_gradients(
    ...     lambda ids: tf.reduce_sum(tf.gather(table, ids)), table,
    ...     tf.constant([[1, 1], [0, 4]]), sparse=True)
    >>> grads.indices.numpy().tolist(), grads.values.shape
    ([[1, 1], [0, 4]], TensorShape([2, 2, 1]))
    >>> grads.to_dense()[..., 0].numpy().tolist()
    [[0.0, 2.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0]]
    """

    values: Any
    indices: Any
    dense_shape: tf.Tensor

    @classmethod
    def of(cls, slices: tf.IndexedSlices, table: tf.Variable) -> BatchedIndexedSlices:
        """Makes one, with no axes in front, of a ``tf.IndexedSlices``."""
        values = tf.convert_to_tensor(slices.values)
        values = tf.reshape(values, tf.concat([[-1], tf.shape(table)[1:]], 0))
        values.set_shape([slices.indices.shape[0], *table.shape[1:]])
        return cls(values, tf.reshape(slices.indices, [-1]), tf.shape(table))

    def _even(self, fn: Callable[[BatchedIndexedSlices], Any]) -> Any:
        """``fn`` of slices that are as many in each example: index -1 is no row of the table."""
        values, indices = self.values, self.indices
        if not isinstance(indices, tf.RaggedTensor):
            return fn(self)
        if indices.shape.rank == 2:
            return fn(self._replace(values=values.to_tensor(), indices=indices.to_tensor(-1)))
        inner = self._replace(values=values.values, indices=indices.values)
        return indices.with_values(inner._even(fn))

    def to_dense(self) -> tf.Tensor:
        """The dense gradients, [*batch, *table.shape]."""
        return self._even(BatchedIndexedSlices._to_dense)

    def _to_dense(self) -> tf.Tensor:
        batch = tf.shape(self.indices)[:-1]
        count, rows = tf.reduce_prod(batch), tf.cast(self.dense_shape[0], tf.int64)
        first = tf.range(tf.cast(count, tf.int64)) * rows
        ids = tf.reshape(tf.cast(self.indices, tf.int64), [count, tf.shape(self.indices)[-1]])
        ids = tf.reshape(ids + first[:, None], [-1])
        values = tf.reshape(self.values, tf.concat([[-1], self.dense_shape[1:]], 0))
        total = tf.cast(count, tf.int64) * rows
        return tf.reshape(
            tf.math.unsorted_segment_sum(values, ids, total),
            tf.concat([batch, self.dense_shape], 0),
        )

    def sum(self, weights: tf.Tensor | None = None) -> tf.IndexedSlices:
        """The sum over the axes in front, in the form that an optimizer takes.

        Args:
          weights: [*batch], the factor of each example's gradient.
        """
        values = self.values
        if weights is not None:
            behind = values.shape.rank - weights.shape.rank
            ones = tf.ones([behind], tf.int32)
            shape = tf.concat([tf.shape(weights), ones], 0)
            values *= tf.reshape(tf.cast(weights, values.dtype), shape)
        flat = tf.reshape(values, tf.concat([[-1], self.dense_shape[1:]], 0))
        return tf.IndexedSlices(flat, tf.reshape(self.indices, [-1]), self.dense_shape)

    def squared_norms(self) -> tf.Tensor:
        """The sum of the squares of each dense gradient, [*batch], without forming the gradient.

        It makes the products of all pairs of slices, k * k numbers, and adds the pairs that belong
        to one table row.
        """
        return self._even(BatchedIndexedSlices._squared_norms)

    def _squared_norms(self) -> tf.Tensor:
        size = tf.reduce_prod(self.dense_shape[1:])
        shape = tf.concat([tf.shape(self.indices), [size]], 0)
        flat = tf.reshape(self.values, shape)
        if flat.dtype in (tf.float16, tf.bfloat16):  # their squares overflow
            flat = tf.cast(flat, tf.float32)
        products = tf.math.real(tf.matmul(flat, flat, adjoint_b=True))  # [*batch, k, k]
        same = self.indices[..., :, None] == self.indices[..., None, :]
        return tf.reduce_sum(tf.where(same, products, tf.zeros_like(products)), [-2, -1])
