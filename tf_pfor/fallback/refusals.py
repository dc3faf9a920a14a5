"""Ops that must not run in a sequential loop over rows, or that XLA cannot compile there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._devices import why_not_compiled
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import handed_on
from tf_pfor.core.values import dims, is_static
from tf_pfor.fallback.randomness import check_looped

_REFUSED = {
    name: why
    for why, names in {
        "it belongs to a loop or a conditional of TensorFlow 1 (use tf.while_loop and tf.cond "
        "with control flow version 2)": "ControlTrigger Enter Exit LoopCond Merge NextIteration "
        "RefEnter RefExit RefMerge RefNextIteration RefSwitch Switch",
        "it is a gradient that TensorFlow 1 takes when the graph runs (use tf.gradients or a "
        "tape)": "SymbolicGradient",
        "it runs on another machine": "RemoteCall Recv Send",
    }.items()
    for name in names.split()
}
_REFUSED_PARTS = {
    "Dataset": "datasets cannot be made or read inside a vectorized loop",
    "Iterator": "an iterator cannot be advanced inside a vectorized loop: read it outside",
    "Queue": "a queue cannot be used inside a vectorized loop",
    "Barrier": "a queue cannot be used inside a vectorized loop",
    "Reader": "a reader cannot be used inside a vectorized loop",
}


OTHER_HANDLES = (
    "its variable, table or queue differs between iterations: read them all outside, and take the "
    "row of what was read"
)


def why_not(op: tf.Operation, may_loop: bool) -> str:
    """Why ``op`` must not run in a sequential loop; "" if it may."""
    if op.type in _REFUSED:
        return _REFUSED[op.type]
    for part, why in _REFUSED_PARTS.items():
        if part in op.type:
            return why
    schema = _tf.schema(op.type)
    assert schema is not None
    handles = [t for t in op.outputs if t.dtype == tf.resource]
    if schema.is_stateful and any(handed_on(t) is None for t in handles):
        return "it makes a resource, and iterations cannot each have their own"
    return "" if may_loop else "the fallback loop is off"


def why_not_inside(op: tf.Operation, may_loop: bool) -> str:
    """Why ``op``, or an op in a function of it, must not run in a sequential loop; "" if it may."""
    graphs = _tf.functions_of(op)
    if not graphs:
        return why_not(op, may_loop)
    if any(handed_on(t) is None for t in op.outputs if t.dtype == tf.resource):
        return "it hands on a resource"
    inner = [why_not_inside(o, True) for g in graphs for o in g.get_operations()]
    found = [why for why in inner if why]
    return found[0] if found else "" if may_loop else "the fallback loop is off"


def check_kernels(operations: Iterable[tf.Operation]) -> None:
    """Refuses ops that XLA has no kernels for."""
    for op in operations:
        if problem := why_not_compiled(op):
            raise CannotVectorize(problem)


def check_region(operations: Sequence[tf.Operation], walker: Conversion) -> None:
    """Refuses draws that rows share; under XLA also Python, unknown sizes and unknown kernels."""
    check_looped(operations, walker)
    for op in operations if _tf.in_xla_context(walker.emit.graph) else ():
        where = f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'})"
        check_kernels([op])
        sizes = {"Fill": op.inputs[:1], "Range": op.inputs}.get(op.type, ())
        if not all(_is_known(t, walker) for t in sizes):
            raise CannotVectorize(f"under jit_compile, the size of {where} must be known")
        if op.type in ("MirrorPad", "Pad", "PadV2") and not _is_known(op.inputs[1], walker):
            raise CannotVectorize(f"under jit_compile paddings must be known: {where}")
        if op.type == "XlaDynamicUpdateSlice" and not is_static(dims(op.inputs[1])):
            raise CannotVectorize(
                f"under jit_compile the gradient of a slice, {where}, needs a slice of one length"
            )


def _is_known(tensor: tf.Tensor, walker: Conversion) -> bool:
    """Whether a tensor of the body has one value, known before running."""
    return _tf.static_value(tensor) is not None or walker.bounds.constant(tensor) is not None
