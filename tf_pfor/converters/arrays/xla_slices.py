"""TensorFlow's gradient of a slice under jit_compile, and the gradient of this gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.arrays._indexing import row_numbers
from tf_pfor.converters.arrays._updates import updated
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.values import Value, is_static


@RegisterPFor("XlaDynamicUpdateSlice", ANY)
def xla_dynamic_update_slice(call: Call, input: Value, update: Value, indices: Value) -> Any:
    """Under jit_compile the gradient of Slice: the slice of x_i that begins at b_i becomes u_i.

    Places that differ are scattered to; XLA moves slices that reach over the end.
    """
    emit, new = call.emit, call.stacked(update)
    if not indices.is_stacked:
        first = emit.constant([0], indices.dtype)
        begin = emit("ConcatV2", [first, indices.tensor], np.int32(0))
        return call.rebuild(input=call.stacked(input), update=new, indices=begin)
    shape, sizes = input.inner_shape, update.inner_shape
    if not is_static(shape) or not is_static(sizes):
        raise CannotVectorize("the shape of an input is not known before running")
    last = np.subtract(shape, sizes).astype(indices.dtype.as_numpy_dtype)
    begin = emit("Minimum", emit("Maximum", indices.tensor, np.zeros_like(last)), last)  # [n, r]
    rank = len(sizes)
    offsets = np.moveaxis(np.indices(sizes, last.dtype), 0, -1)  # [...u, r]
    begin = emit.reshape(begin, [call.loop.length, *[1] * rank, rank])
    places = emit("AddV2", begin, emit.constant(offsets))  # [n, ...u, r]
    rows = emit.shape_vector([call.loop.length, *sizes, 1])
    numbers = emit("BroadcastTo", row_numbers(call, indices.dtype, rank + 2), rows)
    places = emit("ConcatV2", [numbers, places], -1)
    write = lambda whole, new: emit("TensorScatterUpdate", whole, places, new)  # noqa: E731
    return updated(call, input, places, new, write)


def _gradient(op: tf.Operation, upstream: tf.Tensor) -> list[Any]:
    """The gradients: of the tensor ``upstream`` with zeros in the slice, of the slice that part.

    TensorFlow has no such gradient: a third derivative of ``tf.concat`` under jit_compile needs it.
    """
    update, indices = op.inputs[1:]
    shape = tf.shape(update)
    last = tf.cast(tf.shape(upstream) - shape, indices.dtype)
    begin = tf.clip_by_value(indices, tf.zeros_like(last), last)  # as XLA moves it
    zeros = tf.zeros_like(update)
    into = Emitter()("XlaDynamicUpdateSlice", upstream, zeros, indices)
    return [into, tf.slice(upstream, begin, tf.cast(shape, indices.dtype)), None]


if not _tf.has_gradient_function("XlaDynamicUpdateSlice"):
    tf.RegisterGradient("XlaDynamicUpdateSlice")(_gradient)
