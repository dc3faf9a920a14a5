"""Gradients of lists that say what the lists hold.

TensorFlow's shape function of AddN throws if several lists are known to hold something and nothing
is known of the last. The gradient of a list is such a sum, over all uses of the list. When XLA
compiles it, nothing is known of the results of conditionals and loops. Then the process ends, also
for one row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._variant_types import uses
from tf_pfor.core.call import Call
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Cell, Value

_GRADIENT = "TfPforKnownList"
_BY_ENDS = ("EmptyTensorList", "TensorListPopBack", "TensorListPushBack")


def known_in_gradients(call: Call, args: Sequence[Value]) -> list[Value]:
    """The inputs of a conditional or a loop, so that XLA knows the items of returned gradients."""
    graph = call.emit.graph
    given = list(call.op.inputs)[int(call.op.type in _tf.BRANCHES) :]
    is_compiled = _tf.in_xla_context(graph) and not _tf.in_body(graph)
    if not (is_compiled and _tf.may_record_gradients()):
        return list(args)
    known = [
        _passed_on(call, a) if _has_gradient(a) and not _is_pushed_to(call, made) else a
        for a, made in zip(args, given)
    ]
    return [*known, *args[len(given) :]]  # what was cut before a loop follows


def _has_gradient(value: Value) -> bool:
    """Whether ``value`` is a list of items with gradients, as far as is known."""
    if not isinstance(value, StackedList):
        return False
    element = _tf.list_element(value.tensor)
    return element is not None and (element[0].is_floating or element[0].is_complex)


def _is_pushed_to(call: Call, made: tf.Tensor) -> bool:
    """Whether a list of the body holds fewer items than it has room for; it has one reader only."""
    return any(op.type in _BY_ENDS for op, _ in uses(call, made, is_list=True))


def _passed_on(call: Call, value: Value) -> Value:
    """``value``, with ``_gradient``."""
    protos = {
        "T": call.emit.type_attr(tf.variant),
        "_gradient_op_type": _tf.attr_value("string", _GRADIENT),
    }
    made = call.emit.create("Identity", [value.tensor], protos).outputs[0]
    return dataclasses.replace(value, cell=Cell(made))


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, upstream: tf.Tensor) -> Any:
    """The same list; for XLA, which has one tensor for a list, nothing happens."""
    element = _tf.list_element(op.inputs[0])
    assert element is not None
    whole = tf.raw_ops.TensorListStack(
        input_handle=upstream, element_shape=-1, element_dtype=element[0]
    )
    return tf.raw_ops.TensorListFromTensor(tensor=whole, element_shape=-1)
