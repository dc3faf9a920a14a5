"""Axes that differ between rows: the axis of each row moves to the front, for one op along axis 1.

Each row selects one of the transposed tensors, so that it computes along one axis only. A NaN
that another axis would give reaches neither a result nor a gradient. All transposed tensors must
have one shape, so all axes one size.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value


def cube_rank(call: Call, value: Value) -> int:
    """The rank of a value whose axes have all one known size."""
    rank, shape = call.require_rank(value), value.inner_shape
    if shape is None or None in shape or len(set(shape)) > 1:
        raise CannotVectorize("the axis differs between iterations, and axes differ in size")
    return rank


def own_axis(call: Call, axis: Value, rank: int) -> tf.Tensor:
    """int32 [n]: the axis of each row, from the front, which must be one of ``rank`` axes."""
    if axis.inner_shape not in ((), (1,)):
        raise CannotVectorize("several axes that differ between iterations")
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("an axis that cannot be checked, under jit_compile")
    emit = call.emit
    flat = emit.reshape(axis.tensor, [call.loop.length])
    low, high = emit.constant(-rank, flat.dtype), emit.constant(rank, flat.dtype)
    is_one = emit("LogicalAnd", emit("GreaterEqual", flat, low), emit("Less", flat, high))
    text = f"the axis is not one of {rank} in some iterations. It is"
    flat = call.after_check(is_one, text, [flat], flat, by_row=True)
    flat = emit("Cast", flat, DstT=tf.int32) if flat.dtype != tf.int32 else flat
    from_front = emit("AddV2", flat, emit.constant(rank, tf.int32))
    return emit("SelectV2", emit("Less", flat, emit.constant(0, tf.int32)), from_front, flat)


def to_front(call: Call, tensor: tf.Tensor, axis: tf.Tensor, rank: int) -> tf.Tensor:
    """[n, ..., d, ...] -> [n, d, ...], d being the axis of the row."""
    return _moved(call, tensor, axis, rank, back=False)


def to_place(call: Call, tensor: tf.Tensor, axis: tf.Tensor, rank: int) -> tf.Tensor:
    """The inverse of ``to_front``."""
    return _moved(call, tensor, axis, rank, back=True)


def _moved(call: Call, tensor: tf.Tensor, axis: tf.Tensor, rank: int, *, back: bool) -> tf.Tensor:
    emit, made = call.emit, tensor
    wide = emit.reshape(axis, [call.loop.length, *[1] * rank])
    for own in range(1, rank):
        order = [0, own + 1, *[i for i in range(1, rank + 1) if i != own + 1]]
        perm = np.argsort(order) if back else np.asarray(order)
        turned = emit("Transpose", tensor, perm.astype(np.int32))
        made = emit("SelectV2", emit("Equal", wide, emit.constant(own, tf.int32)), turned, made)
    return made
