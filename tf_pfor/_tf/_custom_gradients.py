"""tf.custom_gradient: the gradient function that is registered for one IdentityN of the body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs


def has_gradient(tensor: tf.Tensor) -> bool:
    """True for the dtypes that TensorFlow differentiates."""
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def present(upstream: Sequence[tf.Tensor | None], outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Upstream gradients of ``outputs``, zeros where TensorFlow leaves one out."""
    return [
        tf.zeros_like(_tf.captured(output)) if gradient is None else gradient
        for gradient, output in zip(upstream, outputs, strict=True)
    ]


def traced(op: tf.Operation, results: Sequence[int]) -> tuple[Any, list[bool]]:
    """The graph of the gradient function of ``op``, and for which inputs there is a gradient.

    Args:
      op: an IdentityN that tf.custom_gradient made.
      results: the outputs whose gradients are given; gradients of other outputs are zeros.
    """
    name = _tf.gradient_name(op)
    try:
        function = _tf.registered_gradient(name)
    except LookupError as why:
        raise LookupError(
            f"The body holds a custom gradient '{name}' ({_tf.user_line(op)}), which "
            "is not registered in this process. Save the model with its custom gradients, or "
            "register the gradient before differentiating."
        ) from why
    outputs = op.outputs
    connected = [False] * len(outputs)

    def run(*upstream: tf.Tensor) -> list[tf.Tensor]:
        known = dict(zip(results, upstream))
        given = [
            known[i] if i in known else tf.zeros_like(t) if has_gradient(t) else None
            for i, t in enumerate(outputs)
        ]
        found = function(op, *given)
        found = list(found) if isinstance(found, (list, tuple)) else [found]
        for i, gradient in enumerate(found):
            connected[i] = gradient is not None and has_gradient(outputs[i])
        return [tf.convert_to_tensor(g) for g, here in zip(found, connected) if here]

    specs = [tf.TensorSpec(outputs[i].shape, outputs[i].dtype) for i in results]
    with op.graph.as_default():
        return _graphs.trace("custom_gradient", run, specs), connected


def copied(
    op: tf.Operation,
    inputs: Sequence[tf.Tensor],
    value_of: Callable[[tf.Tensor], tf.Tensor],
    copy: Callable[[Any, Sequence[tf.Tensor]], list[tf.Tensor]],
) -> list[tf.Tensor]:
    """A copy of ``op`` on ``inputs``, with the gradient of ``op``.

    Args:
      op: an IdentityN that tf.custom_gradient made.
      inputs: the tensors that the copy reads.
      value_of: the copy of a tensor that the gradient function reads.
      copy: emits the ops of a graph on its inputs.
    """
    floats = [i for i, t in enumerate(op.outputs) if has_gradient(t)]

    @tf.custom_gradient
    def identity(*given: tf.Tensor) -> Any:
        made = [tf.identity(t) for t in given]

        def gradient(*upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
            graph, connected = traced(op, floats)
            outside = {id(inside): t for t, inside in graph.captures}
            explicit = iter(present(upstream, made))
            values = [
                _tf.captured(value_of(outside[id(t)])) if id(t) in outside else next(explicit)
                for t in graph.inputs
            ]
            found = iter(copy(graph, values))
            return [next(found) if connected[i] else None for i in floats]

        return made, gradient

    results = list(inputs)
    for i, t in zip(floats, identity(*[inputs[i] for i in floats])):
        results[i] = t
    return results
