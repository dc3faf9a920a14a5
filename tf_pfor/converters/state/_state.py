"""Helpers that converters of stateful ops share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core.call import Call
from tf_pfor.core.errors import Refused
from tf_pfor.core.values import Value, as_tensor_shape
from tf_pfor.fallback.ordered_updates import name_of_variable


def once(call: Call, make: Callable[[], Any], tensors: Sequence[tf.Tensor] | None = None) -> None:
    """Emits an effect of all iterations: once, and not if there are none.

    Args:
      call: the op.
      make: emits the effect.
      tensors: the inputs of the effect; None for the inputs of the op.
    """
    n = call.loop.static_length
    if n is not None:
        if n:
            make()
        return
    emit = call.emit
    with emit.as_default():
        op = call.op
        tensors = tensors or [v.tensor for v in call.flat_inputs()]

        def run() -> tf.Tensor:
            inner = tf.compat.v1.get_default_graph()
            schema = _tf.schema(op.type)
            assert schema is not None
            protos = {k: v for k, v in call.attrs.items() if k in schema.attr_types}
            seen = [_tf.captured(t, inner) for t in tensors]
            made = _graphs.create_op(inner, op.type, seen, protos, op.name)
            with tf.control_dependencies([made]):
                return tf.constant(True)

        is_any = emit("Greater", call.loop.length_tensor, np.int32(0))
        tf.cond(is_any, run, lambda: tf.constant(False))


def total(call: Call, value: Value) -> tf.Tensor:
    """The sum over the iterations: [n, ...] -> [...]; n times an invariant value.

    Iterations that stand in for others (``Loop.real``) add nothing.
    """
    emit, dtype = call.emit, value.dtype
    wide = tf.float32 if dtype in (tf.half, tf.bfloat16) else dtype
    tensor = value.tensor if wide == dtype else emit("Cast", value.tensor, DstT=wide)
    if value.is_stacked:
        tensor = emit("Sum", call.loop.only_real(tensor), np.int32(0))
    else:
        n, real = call.loop.static_length, call.loop.real
        if real is not None:
            count = emit("Sum", emit("Cast", real, DstT=wide), np.int32(0))
        elif n is not None and n < 100:
            count = emit.constant(n, wide)
        else:
            count = emit("Cast", call.loop.length_tensor, DstT=wide)
        tensor = emit("Mul", tensor, count)
    return tensor if wide == dtype else emit("Cast", tensor, DstT=dtype)


def variable_name(call: Call, position: int = 0) -> str:
    """The variable behind an input, as the user knows it."""
    return name_of_variable(call.op.inputs[position], call.walker)


def static_shape(call: Call) -> tf.TensorShape:
    """The static shape of the variable behind input 0."""
    found = _tf.list_element(call.op.inputs[0])
    return as_tensor_shape(None) if found is None else found[1]


def shape_of_variable(call: Call, dtype: tf.DType) -> tf.Tensor:
    """The shape of the variable behind input 0, as a vector."""
    static = static_shape(call)
    if static.is_fully_defined():
        return call.emit.constant(np.asarray(static.as_list(), dtype.as_numpy_dtype))
    handle = next(iter(call.inputs.values()))
    assert isinstance(handle, Value)
    return call.emit("VariableShape", handle.tensor, out_type=dtype)


@contextlib.contextmanager
def checked_to_differ(call: Call, indices: Value, places: tf.Tensor) -> Generator[None]:
    """Two iterations that write the same place are an error: which one's value is to stay?

    What is emitted inside runs after the check.

    Args:
      call: the call.
      indices: the places as the body has them.
      places: [n, ..., k], indices into the variable's first k dimensions.
    """
    n = call.loop.static_length
    if (n is not None and n <= 1) or call.loop.is_index(indices):
        yield
        return
    message = (
        f"Two iterations of the loop write the same place of {variable_name(call)} "
        f"({call.op.type}, {_tf.user_line(call.op) or 'line unknown'}). Expected: places that "
        "differ. Places, and iterations:"
    )
    message = message.replace("'", "")  # the kernel would escape them
    if _tf.in_xla_context(call.emit.graph):
        raise Refused(
            f"iterations may write the same place of {variable_name(call)}, which cannot be "
            "checked under jit_compile"
        )
    emit = call.emit
    with emit.as_default():
        depth = tf.shape(places)[-1]
        sizes = tf.cast(shape_of_variable(call, tf.int32)[:depth], tf.int64)
        strides = tf.math.cumprod(sizes, exclusive=True, reverse=True)
        flat = tf.reduce_sum(tf.cast(places, tf.int64) * strides, -1)  # [n, ...]
        rows = tf.reshape(tf.range(tf.shape(flat)[0]), [-1, *[1] * (len(flat.shape) - 1)])
        rows = tf.reshape(tf.broadcast_to(rows, tf.shape(flat)), [-1])
        flat = tf.reshape(flat, [-1])
        order = tf.argsort(flat, stable=True)
        flat, rows = tf.gather(flat, order), tf.gather(rows, order)
        clash = tf.logical_and(tf.equal(flat[1:], flat[:-1]), tf.not_equal(rows[1:], rows[:-1]))
        found = tf.boolean_mask(flat[1:], clash)
        who = tf.boolean_mask(tf.stack([rows[:-1], rows[1:]], 1), clash)
        emit(
            "Assert",
            tf.logical_not(tf.reduce_any(clash)),
            [emit.constant(np.asarray(message.encode(), object), tf.string), found, who],
        )
    check = emit.graph.get_operations()[-1]
    with emit.graph.control_dependencies([check]):
        yield
