"""Ops that no rule takes: one or several of them in a sequential loop, or refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion, Failed, Inputs
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import Region, handed_on
from tf_pfor.core.registry import Outcome
from tf_pfor.core.values import Results, Value, dims
from tf_pfor.fallback import nested_maps, ordered_updates, refusals, row_loop, uneven_regions
from tf_pfor.walker import ragged_ops
from tf_pfor.walker.checked import checked, rejected, shaped
from tf_pfor.walker.kept import constant


def by_loop(call: Call, reason: str, otherwise: Callable[..., Any] | None = None) -> Results:
    """The results of an op that no rule takes, for that reason.

    For a ``PastEdge``, ``otherwise`` makes a result of one shape, checked at run time.
    """
    op, walker = call.op, call.walker
    results, reason = ragged_ops.from_source(call, reason, otherwise)
    if results is not None:
        return results
    nested_maps.check(walker)
    refusal = refusals.why_not(op, walker.settings.may_loop(op.type))
    if refusal:
        raise rejected(op, walker, f"{reason}; {refusal}")
    try:
        joined, uneven = uneven_regions.together(op, walker)
        if uneven or len(joined) > 1:
            why = uneven_regions.reason(joined, uneven, reason)
            is_cause = bool(uneven) or uneven_regions.has_effects(op)
            return walker.loop_together(op, joined, why, uneven, op if is_cause else None)
        looped = row_loop.loop_op(op, call.inputs, walker)
    except uneven_regions.Leaves as why:
        raise uneven_regions.Leaves(f"{why}: {reason}") from None
    except CannotVectorize as why:
        known = reason if str(why) in reason else f"{reason}; {why}"
        raise rejected(op, walker, known) from None
    expected = row_loop.by_kernel(op, looped, walker.emit.graph)
    walker.recorder.add(op, Outcome.LOOPED, reason, on_purpose=expected)
    return checked(call, None, looped)


def together(
    first: tf.Operation,
    ops: Sequence[tf.Operation],
    walker: Conversion,
    reason: str,
    uneven: Collection[Any],
    cause: tf.Operation | None,
) -> Results:
    """Runs several ops in one sequential loop (arguments as of ``Conversion.loop_together``)."""
    emit, region = walker.emit, Region.read(ops, walker, uneven)
    new = [op for op in ops if not walker.is_done(op)]
    mark = len(emit.operations)
    with emit.graph.control_dependencies(walker.done(region.waits_for)):
        given = [_known(t, walker) for t in region.inputs]
        made = row_loop.loop_region(region, given, walker) if ops else []
    for tensor, value in zip(region.outputs, made):
        call = Call(tensor.op, {}, walker)
        walker.hold(tensor, shaped(call, None, value, dims(tensor)))
    for handle in region.handles:
        source: tf.Tensor | None = handle
        while source is not None and walker.value_of(source) is None:
            source = handed_on(source)
        assert source is not None, handle  # else ``refusals.why_not`` has refused its op
        walker.hold(handle, _known(source, walker))
    by_kernel = row_loop.by_kernel(first, made, emit.graph, region)
    for op in new:
        expected = by_kernel or (cause is not None and op is not cause)
        walker.recorder.add(op, Outcome.LOOPED, reason, on_purpose=expected)
        walker.became([op], emit.operations[mark:] if uneven else [])
        for value in constant(Call(op, {}, walker)) or ():  # later ops may share it
            walker.hold(op.outputs[0], value)
    walker.hide(new, region.hidden(new))
    return [walker.value_of(t) for t in first.outputs]


def _known(tensor: tf.Tensor, walker: Conversion) -> Value:
    value = walker.value_of(tensor)
    assert value is not None, tensor.name
    return value


def in_order(op: tf.Operation, walker: Conversion) -> tuple[Results, list[tf.Operation]] | None:
    """Runs an op in the order of the loop, with all that must run so beside it.

    Returns:
      The results of the op, and what all of them become; None if its order does not matter.

    Raises:
      Failed: with all of these ops, if one of them cannot.
    """
    group = ordered_updates.group_of(op, walker)
    if group is None:
        return None
    try:
        return ordered_updates.convert(op, group, walker)
    except uneven_regions.Leaves:
        raise
    except CannotVectorize as why:
        rejected(op, walker, str(why))
        raise Failed(*group.ops) from None  # one error tells the cause of all


def alone(op: tf.Operation, inputs: Inputs, walker: Conversion, **options: bool) -> list[Value]:
    """Runs one op in a sequential loop of its own, for a converter."""
    uneven_regions.check_alone(op, walker)
    return row_loop.loop_op(op, inputs, walker, **options)


def again(op: tf.Operation, values: Sequence[Value], walker: Conversion) -> list[Value]:
    """Runs a fallback loop of the body, and the loop around it, as one loop."""
    made = row_loop.loop_again(op, values, walker)
    why = "it is a sequential loop in the body already"  # of which the map in the body warned
    walker.recorder.add(op, Outcome.LOOPED, why, on_purpose=True)
    return made
