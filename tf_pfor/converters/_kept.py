"""Loop-invariant Optionals, which conditionals keep for their gradients, with stacked values."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.call import Call


def stacked_optional(call: Call, handle: tf.Tensor) -> tf.Tensor | None:
    """The Optional with all its values repeated, [n, ...]; None if they are not known tensors."""
    parts = _components(handle)
    if parts is None or any(t.dtype == tf.variant for t in parts):
        return None
    types, shapes = [t.dtype for t in parts], [t.shape for t in parts]

    def repeated() -> tf.Tensor:
        values = tf.raw_ops.OptionalGetValue(
            optional=handle, output_types=types, output_shapes=shapes
        )
        many = [tf.repeat(v[None], call.loop.length, 0) for v in values]
        return tf.raw_ops.OptionalFromValue(components=many)

    with call.emit.graph.as_default():
        has_value = tf.raw_ops.OptionalHasValue(optional=handle)
        return tf.cond(has_value, repeated, tf.raw_ops.OptionalNone)


def _components(handle: tf.Tensor) -> list[tf.Tensor] | None:
    """What was put into an Optional, in the graph where it was made."""
    op: Any = handle.op
    if op.type == "OptionalFromValue":
        return list(op.inputs)
    if op.type == "Identity":
        return _components(op.inputs[0])
    if op.type == "Placeholder":
        outside = [a for a, b in getattr(op.graph, "captures", ()) if b is handle]
        is_known = bool(outside) and tf.is_symbolic_tensor(outside[0])
        return _components(outside[0]) if is_known else None
    if op.type in ("If", "StatelessIf", "Case", "StatelessCase"):
        made = (_components(g.outputs[handle.value_index]) for g in _tf.functions_of(op))
        return next((parts for parts in made if parts is not None), None)
    return None
