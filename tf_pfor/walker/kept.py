"""Ops that stay as they are: constants, what is known before running, what no row changes."""

from __future__ import annotations

from tf_pfor import _tf
from tf_pfor.core import matching
from tf_pfor.core.call import Call
from tf_pfor.core.emit import folded
from tf_pfor.core.registry import Outcome
from tf_pfor.core.values import Unstacked, Value, dims
from tf_pfor.walker.checked import checked


def kept(call: Call) -> list[Value]:
    """A loop-invariant op, emitted once."""
    if call.op_type != "Const":
        call.walker.recorder.add(call.op, Outcome.KEPT)
    # Emitted only if an emitted op reads it. XLA has no kernel for a FakeParam in place of a list.
    if matching.is_shape_arithmetic(call.op) or call.op_type == "FakeParam":
        output = call.op.outputs[0]
        return [Unstacked.deferred(call.rebuild, dims(output), output.dtype)]
    made = call.rebuild()
    outputs = made if isinstance(made, list) else [made]
    return checked(call, None, [Value.unstacked(t) for t in outputs])


def constant(call: Call) -> list[Value] | None:
    """A constant of the body."""
    return _known(call, _tf.static_value(call.op.outputs[0])) if call.op_type == "Const" else None


def known_before_running(call: Call) -> list[Value] | None:
    """A few integers that follow from constants and static shapes."""
    if not matching.may_be_folded(call.op) or call.schema.is_stateful:
        return None
    array = call.walker.bounds.constant(call.op.outputs[0])
    array = folded(call.op, call.flat_inputs()) if array is None else array
    return None if array is None else _known(call, array)


def _known(call: Call, array: object) -> list[Value]:
    """A constant: emitted when somebody reads it, one for each value."""
    emit, output = call.emit, call.op.outputs[0]
    call.walker.recorder.add(call.op, Outcome.KEPT)
    if array is None:
        return kept(call)
    make = lambda: emit.constant(array, output.dtype)  # noqa: E731
    return [Unstacked.deferred(make, dims(output), output.dtype, known=array)]
