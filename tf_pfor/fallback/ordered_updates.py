"""Updates whose meaning needs the order of the loop, as of optimizers with momentum.

A variable's updates may need the new values of other variables from iteration to iteration, or
stand inside a function. Then only the loop says which iteration's value is meant. So all accesses
to these variables, with all ops on paths from one to another, run in one sequential loop.
Everything before and after stays vectorized.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core import regions
from tf_pfor.core.accesses import ASSIGNMENTS, Accesses, accesses
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.values import Results
from tf_pfor.fallback import refusals, uneven_regions
from tf_pfor.fallback.randomness import moves_once, seeds


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Ops of the body that run in order.

    Attributes:
      ops: the ops, each after those it needs.
      handles: the keys of the handles of the variables that they access.
      why: why.
    """

    ops: tuple[tf.Operation, ...]
    handles: frozenset[Any]
    why: str


def group_of(op: tf.Operation, walker: Conversion) -> Group | None:
    """The ops that must run in the order of the loop together with ``op``, if there are some."""
    if not any(t.dtype == tf.resource for t in op.inputs):
        return None
    for group in _groups(op.graph, walker):
        if op in group.ops:
            wanted = walker.wanted()
            return dataclasses.replace(group, ops=tuple(o for o in group.ops if o in wanted))
    return None


def read_by(op: tf.Operation, walker: Conversion) -> Sequence[tf.Tensor]:
    """The tensors that must be converted before an op: its inputs.

    An assignment that ends a read-modify-write needs the reads, and not the value. The loop of
    the updates makes the value of each row, and nobody else may need it.
    """
    if op.type not in ASSIGNMENTS:
        return op.inputs
    try:
        found = not moves_once(op, walker) and accesses(op.graph, walker.memo).recurrence(op)
    except Refused:
        found = False
    if not found:
        return op.inputs
    return [op.inputs[0], *(r.outputs[0] for update in found for r in update.reads)]


def _groups(graph: tf.Graph, walker: Conversion) -> list[Group]:
    """The groups of a graph, found once."""
    key = ("ordered", graph)
    if key not in walker.memo:
        is_same = walker.settings.randomness == "same"
        free = seeds(graph, walker) if is_same else frozenset[Any]()
        walker.memo[key] = groups(accesses(graph, walker.memo), free)
    return walker.memo[key]


def name_of_variable(handle: tf.Tensor, walker: Conversion) -> str:
    """The variable behind a handle of the body, as the user knows it."""
    value = walker.value_of(handle)
    same: list[Any] = [handle] if value is None else [handle, value.tensor]
    variables: list[Any] = []
    for start in (handle.graph, walker.emit.graph):
        graph = start
        while graph is not None:
            variables += getattr(graph, "variables", ())
            captures = getattr(graph, "captures", ())
            same += [outer for outer, inner in captures if any(inner is t for t in same)]
            graph = getattr(graph, "outer_graph", None)
    for variable in variables:
        if any(variable.handle is t for t in same):
            is_named = not variable.name.startswith("Variable")
            shape = "" if is_named else f" of shape {variable.shape}"
            return f"the variable '{variable.name}'{shape}"
    user = next((op for op in _tf.consumers(handle) if op.type.startswith("LookupTable")), None)
    if user is not None:
        return f"the table of {user.type} ({_tf.user_line(user) or 'line unknown'})"
    return f"the variable behind '{handle.name}'"


def check(group: Group, walker: Conversion) -> None:
    """Refuses ops that cannot run in a loop, or are not allowed to.

    Raises:
      Refused: with the reason.
    """
    writes = _writers(group.ops[0].graph, walker)
    for op in group.ops:
        refusal = refusals.why_not_inside(op, op not in writes or walker.settings.may_loop(op.type))
        if refusal:
            raise Refused(
                f"{group.why}; so what reads and writes {_names(group, walker)} must run one row "
                f"after the other, and {op.type} '{op.name}' cannot: {refusal}"
            )


def _writers(graph: tf.Graph, walker: Conversion) -> set[tf.Operation]:
    return {a.op for a in accesses(graph, walker.memo).all if a.writes}


def _names(group: Group, walker: Conversion) -> str:
    """The first variables of a group, as the user knows them."""
    handles = accesses(group.ops[0].graph, walker.memo).handles()
    mine = [name_of_variable(h, walker) for k, h in handles.items() if k in group.handles]
    names = list(dict.fromkeys(mine))
    others = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + others


_SHOWN = 3  # variables that a message names


def check_returned(graph: tf.Graph, outputs: Sequence[tf.Tensor], walker: Conversion) -> None:
    """Raises Leaves if a function returns lists of ops that run in order: its call must loop."""
    lists = {t.op for t in outputs if t.dtype == tf.variant}
    for group in _groups(graph, walker) if lists else ():
        if not lists.isdisjoint(group.ops):
            why = f"{group.why}; and the function returns a list of each row"
            raise uneven_regions.leaving(graph, walker, why)


def convert(
    first: tf.Operation, group: Group, walker: Conversion
) -> tuple[Results, list[tf.Operation]]:
    """Runs a group in one sequential loop.

    Returns:
      What ``first`` becomes, and the operations that the group becomes.

    Raises:
      CannotVectorize: with the reason.
      Leaves: if the function that is converted returns a list: its call must loop.
    """
    check(group, walker)
    if walker.has_caller:
        returned = [t for op in group.ops for t in op.outputs if walker.is_asked(t)]
        check_returned(first.graph, returned, walker)
    inside = set(group.ops)
    before = {c for op in inside for c in op.control_inputs} - inside
    outside = before | ({t.op for op in inside for t in op.inputs} - inside)
    walker.visit([op for op in _tf.by_creation(outside) if not walker.is_done(op)])
    if walker.failed(outside):
        raise walker.Failed
    graph = walker.emit.graph
    mark = len(graph.get_operations())
    cause = next(op for op in group.ops if op in _writers(op.graph, walker))
    named = f"{group.why}; so what reads and writes {_names(group, walker)}"
    with graph.control_dependencies(walker.done(before)):
        try:
            ops = regions.in_order({*group.ops, *uneven_regions.copies(set(group.ops), walker)})
            with_it = f", {len(ops)} ops in one loop" if len(ops) > 1 else ""
            why = f"{named} runs one row after the other{with_it}"
            uneven = uneven_regions.in_order(ops, walker)
            results = walker.loop_together(first, ops, why, uneven, cause)
        except CannotVectorize as why:
            raise CannotVectorize(
                f"{named} must run one row after the other, and cannot: {why}. Let no row read "
                "what another one has written (a Keras RNN: stateful=False), or call the function "
                "for each row in a Python loop"
            ) from why
    made = graph.get_operations()[mark:]
    walker.became(group.ops, made)
    return results, made


# ---------------------------------------------------------------------------
# Which ops belong together
# ---------------------------------------------------------------------------

Handles = frozenset[Any]
"""The keys of some variables' handles."""


def groups(known: Accesses, free: Handles) -> list[Group]:
    """The ops that must run in order: disjoint groups, no two of which need each other.

    Variables that are ``free`` have one value for all iterations at any time.
    """
    found: dict[Handles, str] = {}
    for handles, why in known.unclear:
        if not handles <= free:
            _join(known, found, handles - free, why, free)
    while True:
        cycle = _cycle(known, list(found), free)
        if cycle is None:
            break
        handles, other = cycle
        _join(known, found, handles | other, found[handles], free)
    return [
        Group(tuple(o for o in known.order if o in ops), handles, why)
        for handles, why in found.items()
        for ops in [_hull(known, handles)]
    ]


def _join(
    known: Accesses, found: dict[Handles, str], handles: Handles, why: str, free: Handles
) -> None:
    """Adds a group to those found, one with those that share variables with it."""
    handles = _closure(known, handles, free)
    while True:
        shared = [other for other in found if other & handles]
        if not shared:
            break
        why = found[shared[0]]
        for other in shared:
            del found[other]
            handles |= other
        handles = _closure(known, handles, free)
    found[handles] = why


def _cycle(known: Accesses, groups: list[Handles], free: Handles) -> tuple[Handles, Handles] | None:
    """A group, and what needs it and is needed by it: variables of another, or of a scan."""
    nodes = {handles: _hull(known, handles) for handles in groups}
    inside = frozenset().union(*groups)
    for updates in known.update_groups:
        own = frozenset(known.handle_of(u) for u in updates)
        if not own & (inside | free):
            nodes[own] = {o for u in updates for o in (u.assign, *u.reads, *u.later)}
            nodes[own].update(known.between(*updates)[0])
    needs = {
        a: {b for b in nodes if b != a and any(known.is_after(op, b) for op in nodes[a])}
        for a in nodes
    }
    for middle in nodes:
        for a in nodes:
            if middle in needs[a]:
                needs[a] |= needs[middle]
    return next(
        ((a, b) for a in groups for b in nodes if b != a and b in needs[a] and a in needs[b]), None
    )


def _hull(known: Accesses, handles: Handles) -> set[tf.Operation]:
    """The accesses to some variables, the ops between, and all that read lists that these make.

    A loop over rows hands on no lists: what reads them runs in it, until they are tensors.
    """
    members = {a.op for a in known.all if a.handle in handles}
    while True:
        found = known.hull(members)
        lists = [t for op in found for t in op.outputs if t.dtype == tf.variant]
        members = found.union(*map(_tf.consumers, lists))
        if members == found:
            return found


def _closure(known: Accesses, handles: Handles, free: Handles) -> Handles:
    """The variables whose accesses cannot be taken apart from the accesses of ``handles``."""
    while True:
        inside = _hull(known, handles)
        more = {a.handle for a in known.all if a.writes and a.op in inside}
        for group in known.update_groups:
            own = {known.handle_of(u) for u in group}
            if own & handles or any(o in inside for u in group for o in (u.assign, *u.reads)):
                more |= own
        members = {a.op for a in known.all if a.handle in handles}
        for read in known.all:
            is_needed = read.op in inside or any(known.depends(op, read) for op in members)
            if is_needed and not read.writes and known.changed(read) is not None:
                more.add(read.handle)
        more -= free
        if more <= handles:
            return handles
        handles |= more
