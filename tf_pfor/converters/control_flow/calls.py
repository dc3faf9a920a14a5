"""Function calls, and ``tf.custom_gradient``."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._wrong_shapes import refuse_wrong_shapes
from tf_pfor.converters.math import _collectives
from tf_pfor.core import regions
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ALWAYS, FUNCTION_RULES, RegisterPFor
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged_rules import takes_ragged

# Which device or compiler runs a function does not change what it computes, but for what it draws.
_HINTS = ("Tout", "config", "config_proto", "executor_type", "f")
_DRAWS = (
    "a function with jit_compile=True draws random numbers, of which XLA has others: compile the "
    "map as well, vmap(..., jit_compile=True), or leave out both"
)


@takes_ragged("PartitionedCall StatefulPartitionedCall")
@RegisterPFor("PartitionedCall", ALWAYS, attrs=_HINTS, family="inline")
@RegisterPFor("StatefulPartitionedCall", ALWAYS, attrs=_HINTS, family="inline")
def call_of_function(call: Call, args: list[Value]) -> Any:
    """f(x_1, ..., x_k): the ops of f in place of the call."""
    if _tf.COLLECTIVE in call.attrs:
        return _collectives.convert(call, args)
    if call.is_row_loop:
        return call.loop_again(args)
    name = call.attr("f").name
    if regions.draws_by_xla(call.op) and not _tf.in_xla_context(call.emit.graph):
        if any(v.is_stacked for v in args):
            raise CannotVectorize(_DRAWS)
        with call.emit.as_default():
            return [Value.unstacked(t) for t in regions.copied(call.op, [v.tensor for v in args])]
    rule = FUNCTION_RULES.get(name)
    found = rule and rule.convert(call, args)
    if found is not None:
        return found
    name = _implementation(call, name)
    refuse_wrong_shapes(call, name)
    return call.convert_function(name, args, outputs=len(call.op.outputs))


def _implementation(call: Call, name: str) -> str:
    """The function that TensorFlow runs instead of ``name`` on a CPU, where there is one.

    Libraries register several implementations under one name, and Grappler chooses when the graph
    runs. Random numbers of TensorFlow Probability differ between them.
    """
    graph = call.op.graph
    mine = getattr(_tf.find_function(graph, name), "cached_definition", None)
    if mine is None or "api_implements" not in mine.attr or _tf.in_xla_context(call.emit.graph):
        return name
    if tf.config.list_logical_devices("GPU"):
        return name
    while graph is not None:
        for other in graph.as_graph_def().library.function:
            if _arity(other) == _arity(mine) and other.attr["api_preferred_device"].s == b"CPU":
                return other.signature.name
        graph = getattr(graph, "outer_graph", None)
    return name


def _arity(function: Any) -> tuple[bytes, int, int]:
    signature = function.signature
    name = function.attr["api_implements"].s
    return name, len(signature.input_arg), len(signature.output_arg)


@RegisterPFor("IdentityN", ALWAYS)
def identity_n(call: Call, input: list[Value]) -> Any:
    """x_1, ..., x_k, with the gradient of a tf.custom_gradient if they come from one."""
    return call.with_custom_gradient(input)
