"""Results of a loop over rows as one tensor: the shapes of rows must be equal, and known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import Dim
from tf_pfor.core.values import Value, dims, is_static
from tf_pfor.layouts.ragged import Ragged


def of_known_shape(tensor: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """A result of one row, once it has the shape that is known of ``output``, by ``set_shape`` say.

    Args:
      tensor: the result.
      output: its tensor in the body.
    """
    known, found = output.shape, tensor.shape
    if not known.is_fully_defined() or found == known or output.dtype == tf.variant:
        return tensor
    return of_shape(tensor, known, f"the body says of {_named(output)}")


def of_shape(tensor: tf.Tensor, known: tf.TensorShape, who: str) -> tf.Tensor:
    """A tensor of one row, after a check that it has a shape.

    Args:
      tensor: the tensor.
      known: the shape, fully known.
      who: who says so, for the error.
    """
    message = f"Not the shape that {who}. Expected: {known}. Found"
    shape = tf.shape(tensor)
    is_equal = tf.raw_ops.Equal(x=shape, y=known.as_list(), incompatible_shape_error=False)
    is_right = tf.equal(tf.size(shape), known.rank) & tf.reduce_all(is_equal)
    with tf.control_dependencies([tf.debugging.Assert(is_right, [message, shape])]):
        return tf.identity(tensor)


def dense_of_known_shape(value: Ragged, output: tf.Tensor) -> Value:
    """Ragged rows whose shape is fully known in the body, by ``set_shape`` say: checked.

    Args:
      value: the rows.
      output: their tensor in the body, of a shape that is fully known.
    """
    return dense_of_shape(value, output.shape, f"the body says of {_named(output)}")


def dense_of_shape(value: Ragged, known: Any, who: str) -> Value:
    """Ragged rows that must all have one shape: dense, after a check when it runs.

    Args:
      value: the rows.
      known: the shape.
      who: who needs it, for the error.
    """
    message = f"Not the shape that {who}. Expected: {known}. Found"
    shapes = value.shape_tensor()
    is_right = tf.reduce_all(tf.equal(shapes, known.as_list()))
    with tf.control_dependencies([tf.debugging.Assert(is_right, [message, shapes], 99)]):
        n = tf.shape(shapes)[:1]
        dense = tf.reshape(value.trimmed(), tf.concat([n, known.as_list()], 0))
    dense.set_shape([shapes.shape[0], *known])
    return Value.stacked(dense)


def _named(output: tf.Tensor) -> str:
    op = output.op
    return f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'})"


def array_of_rows(like: tf.Tensor | tf.TensorSpec, n: Dim) -> tf.TensorArray:
    """An array for ``n`` rows, each ``like`` a tensor."""
    is_read = like.shape.rank is None  # by ``like_the_first``
    return tf.TensorArray(
        like.dtype, n, element_shape=like.shape, infer_shape=False, clear_after_read=not is_read
    )


def like_the_first(
    array: tf.TensorArray, i: tf.Tensor, tensor: tf.Tensor, output: tf.Tensor
) -> tf.Tensor:
    """Row ``i`` of a result of unknown rank, after a check that it has the shape of row 0.

    Args:
      array: the rows before it.
      i: its number.
      tensor: the row.
      output: its tensor in the body.
    """
    if tensor.shape.rank is not None or tensor.dtype == tf.variant:
        return tensor
    found = tf.shape(tensor)
    first = tf.cond(i > 0, lambda: tf.shape(array.read(0)), lambda: found)
    is_equal = tf.raw_ops.Equal(x=first, y=found, incompatible_shape_error=False)
    message = (
        f"The shape of a result differs between iterations: {_named(output)}. Its rank is not "
        "known when the body is traced. Say it by tf.ensure_shape(result, [None]). Found the shapes"
    )
    is_right = tf.equal(tf.size(first), tf.size(found)) & tf.reduce_all(is_equal)
    with tf.control_dependencies([tf.debugging.Assert(is_right, [message, first, found])]):
        return tf.identity(tensor)


def stacked_rows(array: tf.TensorArray, like: tf.Tensor | tf.TensorSpec, n: Dim) -> tf.Tensor:
    """The n rows of ``array``, each ``like`` a tensor; if there are none, unknown dimensions are 0.

    Args:
      array: the rows to stack.
      like: a tensor with the shape and dtype of a row.
      n: the number of rows.
    """
    shape = dims(like)
    if is_static(shape) or (isinstance(n, int) and n):
        return array.stack()
    if isinstance(n, int):
        return tf.zeros([0, *[d or 0 for d in shape or ()]], like.dtype)
    if shape is None:
        return tf.cond(tf.equal(n, 0), lambda: tf.zeros([0], like.dtype), array.stack)
    filler = tf.where(tf.equal(n, 0), 0, -1)
    return tf.raw_ops.TensorListStack(
        input_handle=array.flow,
        element_shape=tf.stack([filler if d is None else d for d in shape]),
        element_dtype=like.dtype,
    )


def padded(tensor: tf.Tensor, n: Dim) -> tf.Tensor:
    """``tensor``, or one row of zeros if it has no rows."""
    row = tf.concat([[1], tf.shape(tensor)[1:]], 0)
    out = tf.cond(tf.equal(n, 0), lambda: tf.zeros(row, tensor.dtype), lambda: tensor)
    out.set_shape(tf.TensorShape([None]).concatenate(tensor.shape[1:]))
    return out


def row_of(padded: tf.Tensor, sizes: Sequence[Any]) -> tf.Tensor:
    """One row of the padded form, cut to its sizes (ints and int32 [])."""
    rank = padded.shape.rank
    assert rank is not None
    rest = [-1 if d is None else d for d in padded.shape[len(sizes) :]]  # for shape functions
    row = tf.slice(padded, [0] * rank, tf.stack([*sizes, *rest]))
    row.set_shape(
        [s if isinstance(s, int) else None for s in sizes] + list(padded.shape[len(sizes) :])
    )
    return row
