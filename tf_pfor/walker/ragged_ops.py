"""What an op becomes that reads rows of different shapes: a rule of its kind, or a loop."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.checked import checked
from tf_pfor.core.conversion import Inputs
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import Outcome
from tf_pfor.core.values import Results
from tf_pfor.layouts.ragged_rules import RULES


def convert(op: tf.Operation, inputs: Inputs, walker: Any) -> Results:
    """The results of an op, some of whose inputs are ragged.

    Args:
      op: the op.
      inputs: its inputs.
      walker: what converts it.
    """
    reason = "it has no rule for rows of different shapes"
    rule = RULES.get(op.type)
    if rule is not None:
        call = Call(op, inputs, walker)
        graph = walker.emit.graph
        before = len(graph.get_operations())
        try:
            with graph.as_default():
                results = checked(call, None, rule(call, *inputs.values()))
        except CannotVectorize as why:
            reason = str(why)
        else:
            walker.emit.operations += graph.get_operations()[before:]
            walker.recorder.add(op, Outcome.VECTORIZED)
            return results
    return walker.fall_back(op, inputs, reason)
