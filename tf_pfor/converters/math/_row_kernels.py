"""Ops that are faster row by row than all at once where rows are large: a copy for each device.

A kernel that reads a row once and writes it once is faster than the formula for all rows. The
formula goes through memory for each of its ops. ``MapDefun`` runs the kernel for all rows in
parallel; TensorFlow has it for CPUs. Elsewhere, under XLA and in the body of another map the
formula is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.core.call import Call

Rows = Callable[..., tf.Tensor]

LEAST = 1 << 13
"""Elements of a row from which on it is large."""


def may_be_used(call: Call) -> bool:
    """Whether the place where an op is emitted allows it."""
    graph = call.emit.graph
    if _tf.in_xla_context(graph) or _tf.in_body(graph):
        return False
    return call.loop.real is None and not call.emit.is_trial  # rows may be stand-ins


def by_device(
    kernel: Rows, formula: Rows, tensors: Sequence[tf.Tensor], shape: Sequence[int]
) -> tf.Tensor:
    """[n, *shape]: the kernel for each row on a CPU, else the formula; without a gradient.

    Args:
      kernel: a function of a row of each tensor.
      formula: a function of the tensors.
      tensors: [n, ...] each.
      shape: the shape of a row of the result.
    """
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
    rows = [tf.TensorSpec(s.shape[1:], s.dtype) for s in specs]
    full = tf.TensorShape([tensors[0].shape[0], *shape])
    one = _function(lambda *row: [kernel(*row)], rows)
    (dtype,) = [t.dtype for t in one.outputs]

    def by_kernel(*given: tf.Tensor) -> Any:
        one.add_to_graph(tf.compat.v1.get_default_graph())
        return tf.raw_ops.MapDefun(
            arguments=list(given),
            captured_inputs=[],
            output_types=[dtype],
            output_shapes=[tf.TensorShape(shape)],
            f=one,
        )

    on_cpu, elsewhere = _function(by_kernel, specs), _function(lambda *x: [formula(*x)], specs)
    for branch in (on_cpu, elsewhere):
        branch.add_to_graph(tf.compat.v1.get_default_graph())
    (made,) = _graphs.by_device(on_cpu, elsewhere, tensors, [full])
    made.set_shape(full)
    return made


def with_gradient_of_formula(
    kernel: Rows, formula: Rows, tensors: Sequence[tf.Tensor], shape: Sequence[int]
) -> tf.Tensor:
    """``by_device``, with the gradient of the formula."""

    def gradient(given: Sequence[tf.Tensor], upstream: tf.Tensor) -> Any:
        inputs = [_tf.captured(t) for t in given]
        return tf.gradients(formula(*inputs), inputs, upstream)

    tensors = [_tf.captured(t) for t in tensors]
    (made,) = attached(lambda *of: [by_device(kernel, formula, of, shape)], tensors, gradient)
    return made


def _function(function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*specs)
