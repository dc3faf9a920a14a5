"""Variable-length features, as one example in each row sees them."""

from __future__ import annotations

import tensorflow as tf

from tf_pfor.converters.parsing._batches import sizes_between
from tf_pfor.core.call import Call
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, shape_value


def sparse_vector(call: Call, values: tf.Tensor, splits: tf.Tensor) -> list[Value]:
    """Indices [k, 1], values [k] and the shape [k] of each row.

    Args:
      call: the call.
      values: the values of all examples, one behind the other.
      splits: int32 [n + 1], the begins of the examples' values.
    """
    size = sizes_between(call, splits)
    places = tf.range(tf.shape(values)[0]) - tf.gather(splits, size.rows)
    indices = tf.cast(places[:, None], tf.int64)
    indices.set_shape([None, 1])
    shape = shape_value(call.emit, [size], tf.int64)
    return [Ragged.packed(indices, [size]), Ragged.packed(values, [size]), shape]


def ragged_vector(call: Call, values: tf.Tensor, splits: tf.Tensor) -> Value:
    """Values of each row: one example has no splits."""
    return Ragged.packed(values, [sizes_between(call, splits)])
