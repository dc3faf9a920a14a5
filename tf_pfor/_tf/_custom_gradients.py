"""tf.custom_gradient: the gradient function that is registered for one IdentityN of the body."""

from __future__ import annotations

import contextvars
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._functions import never_converted

_KEPT = "_tf_pfor_gradients"  # an attribute of graphs: gradient functions, and their names


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

    def gradient(given: Sequence[tf.Tensor], *upstream: tf.Tensor) -> list[tf.Tensor | None]:
        graph, connected = traced(op, floats)
        outside = {id(inside): t for t, inside in graph.captures}
        explicit = iter(upstream)
        values = [
            _tf.captured(value_of(outside[id(t)])) if id(t) in outside else next(explicit)
            for t in graph.inputs
        ]
        found = iter(copy(graph, values))
        return [next(found) if connected[i] else None for i in floats]

    results = list(inputs)
    made = attached(
        lambda *given: list(map(tf.identity, given)), [inputs[i] for i in floats], gradient
    )
    for i, t in zip(floats, made):
        results[i] = t
    return results


def attached(
    make: Callable[..., list[tf.Tensor]],
    given: Sequence[tf.Tensor],
    gradient: Callable[..., Sequence[tf.Tensor | None]],
) -> list[tf.Tensor]:
    """The results of ``make(*given)`` with a gradient, as tf.custom_gradient attaches it.

    Most of the time of tf.custom_gradient goes into the search for variables. There are none here.

    Args:
      make: makes tensors of other ones, in the current graph.
      given: its arguments, tensors of the current graph.
      gradient: the gradients with respect to the arguments, of the arguments and of the gradients
        of the results. The arguments are inputs of the op that is differentiated: TensorFlow
        copies the branches of a conditional, and differentiates the copies.
    """
    if tf.executing_eagerly():

        @tf.custom_gradient
        def run(*tensors: tf.Tensor) -> Any:
            made = make(*tensors)
            return made, lambda *upstream: gradient(tensors, *present(upstream, made))

        return list(run(*given))
    results = make(*given)
    count, tensors = len(results), [*results, *given]
    name = f"CustomGradient-{_tf.ops.uid()}"

    def back(op: tf.Operation | None, *upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
        op = made[0].op if op is None else op  # a SavedModel traces it without an op
        known = present(upstream[:count], op.inputs[:count])
        return [*[None] * count, *gradient(op.inputs[count:], *known)]

    graph = tf.compat.v1.get_default_graph()
    _register(name, back, _tf.owner(graph))
    protos = {
        "T": _tf.attr_value("list(type)", [t.dtype for t in tensors]),
        "_gradient_op_type": _tf.attr_value("string", name),
    }
    made = list(_graphs.add_op(graph, "IdentityN", tensors, protos, None).outputs)
    if (inside := _SAVED.get()) is not None:
        inside.append(made[0].op)
    _tf.record.record_operation("IdentityN", made, tensors, functools.partial(back, None))
    for source, tensor in zip(tensors, made):
        if source.dtype in (tf.resource, tf.variant):
            _tf.copy_handle_data(source, tensor)
    return made[:count]


_SAVED: contextvars.ContextVar[list[tf.Operation] | None] = contextvars.ContextVar(
    "saved", default=None
)
"""The ops with a gradient of their own in a gradient function that is traced for a SavedModel."""


def _register(name: str, back: Callable[..., Any], owner: tf.Graph) -> None:
    """Registers a gradient function, as long as the graph lives that it belongs to.

    TensorFlow keeps what is registered for ever, with all graphs that it reads. So the graph keeps
    the function, and the registered function only looks there.
    """
    if not hasattr(owner, _KEPT):
        names: list[str] = []
        weakref.finalize(owner, _forget, names).atexit = False
        setattr(owner, _KEPT, ({}, names))
    functions, names = getattr(owner, _KEPT)
    functions[name] = back
    names.append(name)
    graph = weakref.ref(owner)

    # A SavedModel traces it with AutoGraph, which would convert what it calls here.
    @tf.RegisterGradient(name)
    @never_converted
    def find(op: tf.Operation | None, *upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
        found = graph()
        if found is None:
            raise LookupError(f"'{name}' is a gradient of a function that was deleted.")
        functions, _ = getattr(found, _KEPT)
        if op is not None:
            return list(functions[name](op, *upstream))
        token = _SAVED.set([])  # only a SavedModel asks without an op
        try:
            made = list(functions[name](None, *upstream))
            return [_once(t) for t in made] if _forgotten(_SAVED.get()) else made
        finally:
            _SAVED.reset(token)


def _forgotten(ops: Sequence[tf.Operation] | None) -> bool:
    """Whether there are ops with gradients; they lose them, since a SavedModel keeps none."""
    for op in ops or ():
        op._clear_attr("_gradient_op_type")
    return bool(ops)


def _once(tensor: tf.Tensor | None) -> tf.Tensor | None:
    """A first derivative, whose own derivative is an error."""
    if tensor is None or not has_gradient(tensor):
        return tensor
    return tf.raw_ops.PreventGradient(
        input=tensor,
        message="A SavedModel of tf_pfor has first derivatives only. Take the second derivative in "
        "the function that is saved.",
    )


def _forget(names: Sequence[str]) -> None:
    for name in names:
        _tf.ops.gradient_registry._registry.pop(name, None)
