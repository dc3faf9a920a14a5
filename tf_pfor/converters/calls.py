"""Function calls, and ``tf.custom_gradient``."""

from __future__ import annotations

from typing import Any

from tf_pfor import _tf
from tf_pfor.call import Call
from tf_pfor.converters import _collectives
from tf_pfor.registry import ALWAYS, RegisterPFor
from tf_pfor.values import Value

# Which device or compiler runs a function does not change what it computes.
_HINTS = ("Tout", "config", "config_proto", "executor_type", "f")


@RegisterPFor("PartitionedCall", ALWAYS, attrs=_HINTS, family="inline")
@RegisterPFor("StatefulPartitionedCall", ALWAYS, attrs=_HINTS, family="inline")
def call_of_function(call: Call, args: list[Value]) -> Any:
    """f(x_1, ..., x_k): the ops of f in place of the call."""
    if _tf.COLLECTIVE in call.attrs:
        return _collectives.convert(call, args)
    if call.is_row_loop:
        return call.loop_again(args)
    return call.convert_function(call.attr("f").name, args, outputs=len(call.op.outputs))


@RegisterPFor("IdentityN", ALWAYS)
def identity_n(call: Call, input: list[Value]) -> Any:
    """x_1, ..., x_k, with the gradient of a tf.custom_gradient if they come from one."""
    return call.with_custom_gradient(input)
