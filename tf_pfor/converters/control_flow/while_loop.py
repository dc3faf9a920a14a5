"""While loops (Agarwal and Ganichev, 2019): the choice of a strategy.

* the predicate is loop-invariant: one ``tf.while_loop`` over stacked variables (while_plain.py);
* the rows make different numbers of trips: ``compact`` (while_compact.py) or ``mask``
  (while_mask.py).

docs/decisions/0004 has the measurements behind the choice.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import Reach
from tf_pfor.converters.analysis._safety import is_smooth, reads_a_step, work_of, writes_state
from tf_pfor.converters.control_flow import while_compact, while_mask, while_plain
from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._carry_forms import collect_factors, require_room, store_by_row
from tf_pfor.converters.control_flow._carry_layouts import planned
from tf_pfor.converters.lists._list_gradients import known_in_gradients
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import ALWAYS, ANY, RegisterPFor
from tf_pfor.core.values import Shape, Stacked, Unstacked, Value, is_static
from tf_pfor.layouts.ragged_rules import takes_ragged

_ATTRS = ("T", "body", "cond", "output_shapes", "parallel_iterations")

# Up to this many elementary operations in a trip of all rows, copying the survivors costs more
# than it saves.
_CHEAP = 400_000

# The same for one row that is a few numbers: to copy one costs as much as some thirty sums.
_CHEAP_ROW = 32

_ONE_SHAPE = "Give it the largest shape before the loop"


@takes_ragged("While StatelessWhile")
@RegisterPFor("While", ALWAYS, attrs=_ATTRS)
@RegisterPFor("StatelessWhile", ANY, attrs=_ATTRS)
def convert_while(call: Call, input: list[Value]) -> Any:
    """x_i = body(x_i) while cond(x_i)."""
    plan = planned(call, known_in_gradients(call, input))
    if _tf.in_xla_context(call.emit.graph) and _grows(plan):
        raise Refused(f"a variable of the loop changes its shape, under jit_compile. {_ONE_SHAPE}")
    require_room(plan)
    if not _tf.in_xla_context(call.emit.graph) or plan.maximum_iterations is not None:
        collect_factors(plan)
    may_gather = not (_is_static(call) or call.emit.is_trial)
    if not plan.is_variant:
        if may_gather:
            store_by_row(plan, leaving=False)
        call.note(f"while: one trip count for all rows, {plan.describe()}")
        return while_plain.convert(plan)
    strategy = choose(plan)
    if strategy == "compact" and may_gather and not plan.is_late:
        store_by_row(plan, leaving=True)
    halved = strategy == "compact" and while_compact.may_halve(plan)
    call.note(f"while: {strategy}{', in two halves' if halved else ''}, {plan.describe()}")
    if strategy == "compact":
        return while_compact.convert(plan, halved=halved)
    return while_mask.convert(plan, padded=strategy == "mask, padded")


def choose(plan: Plan) -> str:
    """The strategy for rows that make different numbers of trips."""
    call = plan.call
    wanted = call.settings.while_strategy
    is_static, in_xla = _is_static(call), _tf.in_xla_context(call.emit.graph)
    regions = (plan.cond.graph, plan.body.graph)
    writes = any(writes_state(g) for g in regions)
    safe = (
        not writes
        and all(is_smooth(g) for g in regions)
        and not any(reads_a_step(op) for op in plan.body.graph.get_operations())
        and not _ends_by_value(plan)
        and not plan.is_late
    )
    where = "under jit_compile" if in_xla else "inside another map"
    if is_static and writes:
        raise CannotVectorize(f"a loop that changes state, with trip counts that differ, {where}")
    if is_static and wanted == "compact":
        raise CannotVectorize(
            f"while_strategy is 'compact', and {where} the number of active rows cannot change"
        )
    if wanted == "auto":
        wanted = "mask" if is_static or _is_cheap(plan, safe=safe, writes=writes) else "compact"
    if wanted == "compact" or writes:
        return "compact"
    if _grows(plan):
        why = where if is_static else "and while_strategy is 'mask'"
        what = "a variable of a loop with trip counts that differ changes its shape"
        raise CannotVectorize(f"{what}, {why}. {_ONE_SHAPE}")
    while_mask.check_sizes(plan, padded=not safe)
    return "mask" if safe else "mask, padded"


def _holds_numbers(plan: Plan) -> bool:
    """Whether a row is a few numbers, for which others stand in at the price of a select."""

    def is_number(inner: Shape, dtype: tf.DType) -> bool:
        known = inner is not None and is_static(inner) and math.prod(inner) == 1
        return known and dtype not in (tf.variant, tf.resource)

    read = [plan.args[i] for i in plan.passed]
    return all(c.is_uniform or is_number(c.inner, plan.dtype(c)) for c in plan.carries) and all(
        isinstance(v, Unstacked) or (isinstance(v, Stacked) and is_number(v.inner_shape, v.dtype))
        for v in read
    )


def _is_cheap(plan: Plan, *, safe: bool, writes: bool) -> bool:
    """Whether a trip of all rows takes less than it takes to copy those that go on."""
    n, work = plan.call.loop.static_length, work_of(plan.body.graph)
    if work is None or writes or any(c.may_grow for c in plan.carries):
        return False
    if safe and n is not None and n * work <= _CHEAP:
        return True
    return work <= _CHEAP_ROW and _holds_numbers(plan)


def _is_static(call: Call) -> bool:
    """Whether shapes must not depend on data: for XLA, or for a map around this one.

    That one would meet a different number of active rows in each iteration.
    """
    graph = call.emit.graph
    return _tf.in_xla_context(graph) or _tf.in_body(graph)


def _grows(plan: Plan) -> bool:
    """Whether a trip is known to change the shape of a variable."""
    given, seen = [a.inner_shape for a in plan.args], plan.as_seen()
    known = [c for c in plan.carries if c.may_grow and is_static(given[c.index])]
    for c in known:
        seen[c.index] = seen[c.index].with_inner_shape(given[c.index])
    made = plan.body.shapes(seen, plan.call.loop.static_length, [c.index for c in known])
    return any(is_static(m) and m != given[c.index] for c, m in zip(known, made))


def _ends_by_value(plan: Plan) -> bool:
    """Whether a row may leave because of what it computed, such as an infinite number.

    To go on computing with that, if only to throw it away, has derivatives that are not finite.
    """
    cond, graph = plan.cond.graph, plan.body.graph
    reach = Reach(graph, controls=False)
    read = set(Reach(cond, controls=False).inputs_of(cond.outputs[0].op))
    todo = list(read)
    while todo:  # what the predicate depends on, in this trip or in those before
        more = reach.inputs_of(graph.outputs[todo.pop()].op) - read
        read |= more
        todo += more
    return any(not graph.inputs[i].dtype.is_integer for i in read)
