"""Lists as one tensor, also where their lengths differ between the iterations of an outer map.

A map in the body of another map reads the rows of a list from one tensor [T, ...]. If T differs
between the iterations of the outer map, the tensor is as long as the longest list. There are zeros
behind the end of shorter lists. This is done only where nothing depends on T: for ops that the
inner map emits by itself. Such ops read each row before its end, add up all rows, or make a list of
the old length.

A list under XLA has room for more items than it holds, and ends where the last one was pushed. A
list that is made of a tensor ends at its room. So the gradient of a stack is added to zeros of the
list that was stacked, which end at the same place. Then each pop meets the gradient of its push.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import IN_PLACE, Emitter

_GRADIENT = "TfPforPaddedStack"
_MARK = "_tf_pfor_padded"


def padded_stack(emit: Emitter, handle: tf.Tensor, shape: Any, dtype: tf.DType) -> tf.Tensor:
    """TensorListStack; in a body marked, so that a map around it may pad the result.

    Its gradient is a list of the length of ``handle``, without the padding.
    """
    protos = {"element_dtype": emit.type_attr(dtype)}
    if _tf.in_body(emit.graph):
        protos[_MARK] = _tf.attr_value("bool", True)
    if _has_own_length(emit):
        protos["_gradient_op_type"] = _tf.attr_value("string", _GRADIENT)
    flat = [handle, emit.as_tensor(shape)]
    return emit.create("TensorListStack", flat, protos).outputs[0]


def equally_long(emit: Emitter, wholes: Sequence[tf.Tensor], axis: int = 0) -> list[tf.Tensor]:
    """Tensors [T, ...] of known rank with zeros at their ends, as long as the longest of them.

    Args:
      emit: the emitter of the graph they are in.
      wholes: the tensors.
      axis: the axis of T.
    """
    sizes = [emit.as_tensor(emit.dim(t, axis)) for t in wholes]
    most = functools.reduce(lambda a, b: emit("Maximum", a, b), sizes)
    made = list[tf.Tensor]()
    for whole, size in zip(wholes, sizes):
        ends: list[Any] = [[0, 0]] * whole.shape.rank
        ends[axis] = [0, emit("Sub", most, size)]
        with emit.graph.as_default():
            made.append(tf.pad(whole, ends))
    return made


def is_padded(op: tf.Operation) -> bool:
    """Whether ``op`` is a stack that may be padded."""
    return _MARK in _tf.attr_map(op)


def unpadded(emit: Emitter, made: tf.Tensor, handle: tf.Tensor) -> tf.Tensor:
    """The list ``made`` of the tensor that ``padded_stack`` made of ``handle``, and as long."""
    if not _has_own_length(emit):
        return made
    return emit("TensorListResize", made, emit("TensorListLength", handle))


def _has_own_length(emit: Emitter) -> bool:
    """Whether a map around may give each row's list a length; XLA's have one for all."""
    return _tf.in_body(emit.graph) and not _tf.in_xla_context(emit.graph)


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, upstream: tf.Tensor) -> Any:
    handle, shape = op.inputs
    made = tf.raw_ops.TensorListFromTensor(
        tensor=tf.convert_to_tensor(upstream), element_shape=shape
    )
    length = tf.raw_ops.TensorListLength(input_handle=handle)
    return tf.raw_ops.TensorListResize(input_handle=made, size=length), None


@tf.RegisterGradient(IN_PLACE["TensorListStack"])
def _gradient_of_stack(op: tf.Operation, upstream: tf.Tensor) -> Any:
    emit, (handle, shape) = Emitter(), op.inputs
    made = emit("TensorListFromTensor", tf.convert_to_tensor(upstream), shape)
    return emit("AddN", [emit("ZerosLike", handle), made]), None  # the first says where it ends


@tf.RegisterGradient(IN_PLACE["TensorListFromTensor"])
def _gradient_of_list(op: tf.Operation, upstream: tf.Tensor) -> Any:
    emit, (tensor, _) = Emitter(), op.inputs
    shape = emit.shape_of(tensor)[1:]
    made = emit("TensorListStack", upstream, shape, element_dtype=tensor.dtype)
    made.set_shape(tensor.shape)
    return made, None
