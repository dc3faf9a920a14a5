"""What no converter takes: one op, or a region of ops, in a sequential loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.values import Value

if TYPE_CHECKING:
    from tf_pfor.call import Inputs
    from tf_pfor.convert import Walker


def why_not(op: tf.Operation, may_loop: bool) -> str:
    """Why ``op`` must not run in a sequential loop; "" if it may."""
    schema = _tf.schema(op.type)
    assert schema is not None
    if schema.is_stateful:
        return "it is stateful, and a stateful op cannot run in the fallback loop yet"
    if not may_loop:
        return "the fallback loop is off"
    return ""


def loop_op(op: tf.Operation, inputs: Inputs, walker: Walker) -> list[Value]:
    """Runs one op in a sequential loop over its stacked inputs."""
    raise NotImplementedError
