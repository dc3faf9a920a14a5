"""The layouts of a loop's carries: found by trial trips, until they no longer change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis import _loop_graphs
from tf_pfor.converters.control_flow._aligned_pops import (
    begin_late,
    emptied,
    gets_lists,
    pops_lists,
)
from tf_pfor.converters.control_flow._branch_optionals import refuse_carried
from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._loop_variables import Carry, keep_shapes, known_integers
from tf_pfor.converters.control_flow._ragged_carries import RaggedCarry
from tf_pfor.converters.control_flow._repeated_pushes import Repeats, of_pushed, popped_lists
from tf_pfor.converters.control_flow._subgraphs import Region, join
from tf_pfor.converters.control_flow._trials import Trial, as_left, contents, sizes_in
from tf_pfor.converters.lists._carried_lists import most_pops, set_aside
from tf_pfor.converters.lists._row_packs import holds_packs, with_packs
from tf_pfor.core.call import Call
from tf_pfor.core.stacked_lists import known_rows
from tf_pfor.core.values import Layout, Value, dims, is_static


def planned(call: Call, args: Sequence[Value]) -> Plan:
    """The plan of a loop: its inputs and carries in layouts that no trip changes."""
    cond, body = (Region(call, call.attr(name).name) for name in ("cond", "body"))
    # A trial may find that one map over pairs is better than a map in a map.
    body.may_differ, body.may_hold = call.walker.inner_map is None, True
    graphs = (body.graph, cond.graph)
    given = body.with_early(args, is_loop=True)
    passed = _loop_graphs.pass_through(body.graph) | {*range(len(args), len(given))}
    ready, popped = popped_lists(call, given, *graphs, passed)
    ready, empty = emptied(call, ready, *graphs, passed)
    bound = _most_trips(call, ready, *graphs, passed)
    most = most_pops(call, ready, body.graph)
    ready, aside = set_aside(call, ready, *graphs, passed, bound if most is None else most)
    plan = Plan(call, cond, body, ready, passed, aside, bound)
    plan.carries = _live(plan, popped)
    live = {c.index for c in plan.carries} | plan.passed
    body.unread = frozenset(range(len(body.graph.outputs))) - live
    keep_shapes(plan.carries, given, body, plan.as_seen, call.loop.static_length)
    if body.may_differ:
        _stack_what_trips_stack(plan)
    plan.is_variant = _differs_in_trips(plan)
    _rows_begin_late(plan)
    for carry in plan.carries:
        _hold_packs(plan, carry)
    _settle(plan)
    while _rows_begin_late(plan) or _rows_differ(plan, empty | set(aside)):
        _settle(plan)
    return plan


def _most_trips(
    call: Call, args: Sequence[Value], graph: tf.Graph, cond: tf.Graph, passed: set[int]
) -> int | None:
    """The bound that tf.while_loop was given; for XLA, also what the predicate tells."""
    start = known_integers(args)
    is_named = len(args) > 1 and "maximum_iterations" in call.op.inputs[1].op.name
    if is_named and 1 in passed and start.get(1, -1) >= 0:
        return start[1]
    if not _tf.in_xla_context(call.emit.graph):
        return None
    return _loop_graphs.most_trips(cond, graph, call.op.inputs, start)


def _live(plan: Plan, popped: Mapping[int, Repeats]) -> list[Carry]:
    """The carries: neither pass-through nor dead."""
    graph, op, passed = plan.body.graph, plan.call.op, plan.passed
    reach, in_cond = _loop_graphs.Reach(graph), _loop_graphs.Reach(plan.cond.graph)
    live = set(in_cond.inputs_of(plan.cond.graph.outputs[0].op))
    for o in (*plan.body.controls, *_loop_graphs.effects(graph)):
        live |= reach.inputs_of(o)
    for o in (*plan.cond.controls, *_loop_graphs.effects(plan.cond.graph)):
        live |= in_cond.inputs_of(o)
    read = {
        i for i, t in enumerate(op.outputs) if _loop_graphs.is_read(t, plan.call.walker.is_asked)
    }
    live |= read
    todo = list(live)
    while todo:
        i = todo.pop()
        if i not in passed:
            more = reach.inputs_of(graph.outputs[i].op) - live
            live |= more
            todo += more
    kept = _loop_graphs.keep_lengths(graph, op.inputs)
    made = {i: RaggedCarry.of(plan.call, i, plan.args[i]) for i in live - passed}
    return [
        Carry(
            i,
            plan.args[i].layout if i not in popped else popped[i].layout,
            dims(graph.inputs[i]),
            i in read,
            plan.args[i].dtype == tf.variant and i not in kept,
            known_rows(plan.args[i]).lengths is not None,
            repeats=popped.get(i),
            may_grow=not is_static(dims(graph.inputs[i])) and made[i] is None,
            ragged=made[i],
            keeps_length=i in kept,
        )
        for i in sorted(live - passed)
    ]


def _find_pushed(plan: Plan) -> bool:
    """Whether there are lists to which trips push what no trip changes; they settle again."""
    fixed = plan.passed | {c.index for c in plan.carries if c.repeats}
    found: dict[int, Repeats] = {}
    for c in plan.carries:
        arg = plan.args[c.index]
        if c.is_uniform and arg.dtype == tf.variant and c.repeats is None:
            made = of_pushed(plan.call, arg, plan.body.graph, plan.cond.graph, c.index, fixed)
            found.update({} if made is None else {c.index: made})
    length = plan.call.loop.static_length
    pushed = [r.pushed for r in found.values() if r.pushed is not None]
    layouts = plan.body.layouts(pushed, plan.as_seen(), length) if pushed else []
    for c in plan.carries:
        if c.index in found and layouts[list(found).index(c.index)] is Layout.UNSTACKED:
            c.repeats = found[c.index]
    return any(c.index in found and c.repeats for c in plan.carries)


def _stack_what_trips_stack(plan: Plan) -> None:
    """Stacks variables of which the body's graph tells it, which takes fewer trials."""
    special = {c.index for c in plan.carries if c.repeats is not None}
    plain = (Layout.STACKED, Layout.STACKED_LIST)
    own = [a.layout in plain and i not in special for i, a in enumerate(plan.args)]
    open_ = [c for c in plan.carries if c.is_uniform and c.repeats is None]
    open_ = [c for c in open_ if is_static(c.inner)]
    while True:
        made = _loop_graphs.surely_stacked(plan.body.graph, own)
        found = [c for c in open_ if made[c.index] and not own[c.index]]
        if not found:
            return
        for c in found:
            is_list = plan.args[c.index].dtype == tf.variant
            own[c.index], c.layout = True, Layout.STACKED_LIST if is_list else Layout.STACKED


def _settle(plan: Plan) -> None:
    """The layouts: a fixpoint over trial conversions, reached in 1 + len(carries) rounds."""
    length = plan.call.loop.static_length
    settled = [c for c in plan.carries if c.repeats is None]
    positions = [c.index for c in settled]
    for _ in range(2 * len(plan.carries) + 1):
        before = _form(plan)
        found = plan.body.trial(plan.as_seen(), length, positions)
        for carry, trial in zip(settled, found):
            _settle_carry(plan, carry, trial)
        if _form(plan) == before:
            break
    refuse_carried(plan.call, [plan.body.graph.outputs[i] for i in positions])
    plan.is_variant = plan.is_late or _differs_in_trips(plan)


def _differs_in_trips(plan: Plan) -> bool:
    """Whether rows may make different numbers of trips; more than one knows at first may."""
    (goes_on,) = plan.cond.trial(plan.as_seen(), plan.call.loop.static_length)
    return goes_on.layout is not Layout.UNSTACKED


def _form(plan: Plan) -> list[Any]:
    """The layouts, and all else that trials may change."""
    return [
        (c.layout, c.has_lengths, c.ragged and c.ragged.fixed, contents(plan.args[c.index]))
        for c in plan.carries
    ]


def _settle_carry(plan: Plan, carry: Carry, trial: Trial) -> None:
    """Gives a variable the form in which a trial trip leaves it."""
    i, call = carry.index, plan.call
    if carry.ragged is not None:
        carry.ragged = carry.ragged.settled(trial)
    elif trial.layout is Layout.RAGGED:
        start = call.stacked(plan.args[i])
        carry.ragged = RaggedCarry.becoming(call, i, start, trial)
        carry.may_grow = carry.grows = False
        carry.layout = Layout.RAGGED
    carry.layout = join(carry.layout, trial.layout)
    like = plan.body.graph.inputs[i]
    plan.args[i] = as_left(call, plan.args[i], trial, like, lambda k: _sizes(plan, k))
    _hold_packs(plan, carry)
    if trial.has_lengths:
        carry.has_lengths, carry.is_resized = True, False


def _sizes(plan: Plan, i: int) -> Sequence[Any]:
    """The sizes of a row of variable ``i``, None where trips change them."""
    fixed = [c.ragged.fixed for c in plan.carries if c.index == i and c.ragged is not None]
    return fixed[0] if fixed else sizes_in(plan.args[i])


def _hold_packs(plan: Plan, carry: Carry) -> bool:
    """Lets a list hold packs if trips of some rows only push lists to it."""
    i, call, arg = carry.index, plan.call, plan.args[carry.index]
    is_some = plan.is_variant or call.loop.rows is not None
    if not is_some or not carry.is_resized or carry.is_uniform:
        return False
    if not gets_lists(call, plan.body.graph, i, arg):
        return False
    plan.args[i] = with_packs(call, arg, plan.body.graph.inputs[i])
    return not holds_packs(arg)


def _rows_begin_late(plan: Plan) -> bool:
    """Lets rows begin in different trips, which pop lists that differ; False if nothing is new."""
    graph, args = plan.body.graph, plan.args
    special = [c for c in plan.carries if c.repeats is None]
    clocks = [c for c in special if pops_lists(plan.call, graph, c.index, args[c.index])]
    if plan.is_late or not clocks:
        return False
    if not plan.is_variant and not any(c.has_lengths for c in clocks):
        return False
    plan.is_late = True
    begin_late(plan.call, plan.carries, args, clocks)
    return True


def _rows_differ(plan: Plan, empty: set[int]) -> bool:
    """Lets lists differ between rows, or hold one tensor; False if nothing is new.

    Lists at the positions ``empty`` are empty before the loop.
    """
    # Under XLA a push copies the tensor.
    is_copied = plan.is_variant or _tf.in_xla_context(plan.call.emit.graph)
    changed = is_copied and not plan.is_late and _find_pushed(plan)
    if not plan.is_variant:
        return changed
    for carry in plan.carries:
        if carry.repeats is not None:
            continue
        if carry.is_uniform and plan.args[carry.index].dtype == tf.variant:
            carry.layout, changed = Layout.STACKED_LIST, True
        changed |= _hold_packs(plan, carry)
        is_kept = not plan.is_late or carry.index in empty
        is_kept = is_kept and _loop_graphs.is_pushed(plan.body.graph, carry.index)
        if carry.is_resized and not is_kept:
            carry.has_lengths, carry.is_resized, changed = True, False, True
    return changed
