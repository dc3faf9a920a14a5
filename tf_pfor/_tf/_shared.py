"""Functions of ops that are traced once in a process: graphs have calls of them.

A call costs as much as one op to emit. TensorFlow puts the ops of the function in the place of the
call before it runs a graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs


def shared(*shapes: Sequence[int | None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes calls of a function of tensors, which has no state, where a graph is built.

    The function returns a tensor or a tuple of tensors. Its other arguments are given by name, and
    are keys of a dict: each choice of them is another function.

    Args:
      *shapes: the static shapes of its tensors, in all calls.
    """

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def traced(dtypes: tuple[tf.DType, ...], options: tuple[tuple[str, Any], ...]) -> Any:
            specs = [tf.TensorSpec(s, d) for s, d in zip(shapes, dtypes, strict=True)]
            made = tf.function(functools.partial(function, **dict(options)), autograph=False)
            with tf.Graph().as_default():  # no device and no context of the caller's
                return made.get_concrete_function(*specs)

        @functools.wraps(function)
        def call(*tensors: tf.Tensor, **options: object) -> Any:
            if tf.executing_eagerly():
                return function(*tensors, **options)
            return _emitted(
                traced(tuple(t.dtype for t in tensors), tuple(options.items())), tensors
            )

        return call

    return decorated


def _emitted(function: Any, inputs: Sequence[tf.Tensor]) -> Any:
    """A call of a concrete function in the current graph."""
    graph = tf.compat.v1.get_default_graph()
    function.add_to_graph(graph)
    protos = {
        "Tin": _tf.attr_value("list(type)", [t.dtype for t in inputs]),
        "Tout": _tf.attr_value("list(type)", [t.dtype for t in function.outputs]),
        "f": _tf.AttrValue(),
    }
    protos["f"].func.name = tf.compat.as_str(function.name)
    made = _graphs.create_op(graph, "PartitionedCall", list(inputs), protos).outputs
    for tensor, inner in zip(made, function.outputs):
        tensor.set_shape(inner.shape)
    return made[0] if len(made) == 1 else tuple(made)
