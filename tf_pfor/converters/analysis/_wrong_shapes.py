"""Conditionals with a wrong shape in TensorFlow: refused, since other shapes are wrong, too.

Under a tape TensorFlow adds outputs to a conditional. Then it gives all outputs the shapes of the
first branch. A tape around a tape makes a function of the conditional, whose results have these
shapes. The gradients that are traced after it have the shapes as constants.
"""

from __future__ import annotations

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import value_of
from tf_pfor.core.call import Call
from tf_pfor.core.errors import Refused


def refuse_wrong_shapes(call: Call, name: str) -> None:
    """Looks at the results of the function ``name`` that are outputs of conditionals."""
    graph = _tf.function_graph(call.op.graph, name)
    for output, inside in zip(call.op.outputs, graph.outputs):
        made = value_of(inside)
        if made.op.type not in _tf.BRANCHES or made.op.graph is not graph:
            continue
        for branch in _tf.functions_of(made.op):
            own = branch.outputs[made.value_index]
            if not output.shape.is_compatible_with(own.shape):
                raise Refused(_message(output, own, made))


def _message(output: tf.Tensor, own: tf.Tensor, made: tf.Tensor) -> str:
    where = _tf.user_line(made.op) or "line unknown"
    return (
        f"TensorFlow says that the conditional ({where}) returns {output.shape}, but one of its "
        f"branches returns {own.shape}. Two tapes around it make it say so, and the same outside "
        "of a map fails in a tf.function. Let the branches return one shape, for instance the "
        "number that is made of them"
    )
