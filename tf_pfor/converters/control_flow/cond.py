"""Conditionals (Agarwal and Ganichev, 2019): If, Case and their stateless forms.

Four ways, the first that applies:

* *inline*: the predicate is a constant; only the branch that is taken is converted;
* *one*: the predicate is loop-invariant; one conditional with converted branches;
* *select*: the predicate varies and the branches are a few ops that are total and linear: both
  run on all rows, then a select;
* *split*: rows are partitioned, each branch runs on its rows, the results are stitched. A side
  without rows does not run. Where shapes must be static (jit_compile) each branch runs on n rows
  (*padded*). A row of this side stands in for each row of the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._safety import is_linear, only_adds, writes_state
from tf_pfor.converters.control_flow._branch_forms import (
    Handed,
    agreed,
    handed_on,
    put_in_order,
    sizes_meet,
    stitched_output,
    unread_lists,
)
from tf_pfor.converters.control_flow._branch_lists import (
    Threads,
    list_of_items,
    lists_of_branches,
    put_together,
    refuse_lists_for_gradients,
)
from tf_pfor.converters.control_flow._branch_optionals import (
    among,
    by_branch,
    one_source,
    optionals_of,
    refuse_reads,
)
from tf_pfor.converters.control_flow._branch_rows import Gather, Outputs, on_all_rows, on_some_rows
from tf_pfor.converters.control_flow._guarded_branch import (
    index_of,
    is_by_loop,
    masks_of,
    one_for_all,
)
from tf_pfor.converters.control_flow._subgraphs import Region, as_layout, padded_rows
from tf_pfor.converters.lists._list_gradients import known_in_gradients
from tf_pfor.converters.lists._unpacked_optionals import as_opened, left_open, opened_by
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import ALWAYS, ANY, RegisterPFor
from tf_pfor.core.values import Layout, Value, dims, is_static
from tf_pfor.layouts.ragged_rules import takes_ragged

_IF = ("then_branch", "else_branch", "output_shapes", "Tin", "Tout")
_CASE = ("branches", "output_shapes", "Tin", "Tout")


@takes_ragged("Case If StatelessCase StatelessIf")
@RegisterPFor("If", ALWAYS, attrs=_IF)
@RegisterPFor("StatelessIf", ANY, attrs=_IF)
def convert_if(call: Call, cond: Value, input: list[Value]) -> Any:
    """r_i = then(x_i) if c_i else else(x_i)."""
    if cond.inner_shape != ():
        raise CannotVectorize("the predicate is not a scalar")
    names = [call.attr("else_branch").name, call.attr("then_branch").name]
    return _convert(call, cond, [Region(call, name) for name in names], input)


@RegisterPFor("Case", ALWAYS, attrs=_CASE)
@RegisterPFor("StatelessCase", ANY, attrs=_CASE)
def convert_case(call: Call, branch_index: Value, input: list[Value]) -> Any:
    """r_i = branches[k_i](x_i); an index out of range means the last branch."""
    regions = [Region(call, f.name) for f in call.attr("branches")]
    return _convert(call, branch_index, regions, input)


def _convert(call: Call, which: Value, regions: list[Region], args: list[Value]) -> Any:
    if which.dtype == tf.string:
        raise CannotVectorize("the predicate is a string")
    for region in regions:
        region.may_differ = call.walker.inner_map is None  # else one map over pairs does better
        region.unread = unread_lists(call)
    for region in regions:
        args = region.with_early(args)
    if which.constant is not None and not which.is_stacked:
        call.note("cond: constant predicate, inlined")
        chosen = regions[_branch_of(which.constant, len(regions))]
        opened = left_open(call, [r.graph for r in regions], regions[0].unread)
        made = chosen.convert(args, call.loop, call.emit)
        values = [as_layout(m.call, m.value, m.value.layout) for m in made]
        for k, known in optionals_of(call, regions, opened).items():
            value = as_layout(call, values[k], Layout.STACKED_LIST)
            values[k] = among(value, regions.index(chosen), known)
        return values
    refuse_lists_for_gradients(call, regions)
    args = known_in_gradients(call, args)
    if not which.is_stacked:
        call.note("cond: one for all rows")
        return one_for_all(call, which, regions, args)
    _, known = call.emit.memo.get(_parts_key(call, which, len(regions)), (None, ()))
    for region, rows in zip(regions, known):
        region.rows = rows
    handed = handed_on(call, regions, args, by_row=True)
    if handed.forms:
        in_xla = _tf.in_xla_context(call.emit.graph)
        way = "padded" if in_xla else "split"
    elif all(is_linear(r.graph) for r in regions) and not sizes_meet(call, regions, args):
        way = "select"
    elif _tf.in_xla_context(call.emit.graph) or _is_static_in_body(call, regions):
        way = "padded"
    else:
        way = "split"
    call.note(f"cond: {way}")
    if way == "select":
        made = _select(call, which, regions, args)
    else:
        run = _padded if way == "padded" else _split
        made = run(call, which, regions, args, handed)
    return [agreed(call, regions, k, args) or m for k, m in enumerate(made)]


def _is_static_in_body(call: Call, regions: list[Region]) -> bool:
    """Inside another map whose iterations would partition their rows differently."""
    if not call.is_for(_tf.in_body) or any(writes_state(r.graph) for r in regions):
        return False
    opened = opened_by(call, [r.graph for r in regions])
    try:
        _, made = lists_of_branches(call, regions, opened)
    except CannotVectorize:
        return False
    return all(o.shape.is_fully_defined() for o in call.op.outputs) and all(
        items.count is not None for items in made.values()
    )


def _branch_of(index: np.ndarray, count: int) -> int:
    found = int(index)
    if index.dtype == np.bool_ or (count == 2 and index.dtype != np.int32):
        return int(bool(found))
    return found if 0 <= found < count else count - 1


# ---------------------------------------------------------------------------
# A predicate for each row
# ---------------------------------------------------------------------------


def _select(call: Call, which: Value, regions: list[Region], args: list[Value]) -> Any:
    """All branches on all rows, then a select."""
    masks = masks_of(call, which, len(regions), first=1)
    sides = [r.convert(args, call.loop, call.emit) for r in regions]
    results: list[tf.Tensor] = [m.as_layout(Layout.STACKED) for m in sides[0]]
    for mask, side in zip(masks, sides[1:]):
        results = [
            call.emit("Select", mask, m.as_layout(Layout.STACKED), r) for m, r in zip(side, results)
        ]
    return results


def _padded(
    call: Call, which: Value, regions: list[Region], args: list[Value], handed: Handed
) -> Any:
    """Static shapes: each branch on n rows, all of them rows that take it."""
    if not all(only_adds(r.graph) for r in regions):
        raise CannotVectorize(
            "a branch that changes state, taken by some rows only, under jit_compile"
        )
    others = [o for k, o in enumerate(call.op.outputs) if k not in handed.forms]
    if not all(o.shape.is_fully_defined() for o in others):
        raise CannotVectorize("the shape of an output is not known before running")
    if handed.forms and is_by_loop(call.loop.length, regions):
        raise Refused("a branch keeps rows of different shapes for its gradient")
    emit = call.emit
    everyone = call.loop.places
    opened = left_open(call, [r.graph for r in regions], regions[0].unread)
    sources, lists_made = lists_of_branches(call, regions, opened)
    if any(items.count is None for items in lists_made.values()):
        raise Refused("branches make lists whose length is not known before running")
    threads = Threads(call, regions, sources, args)
    results: list[Any] | None = None
    count, values = len(call.op.outputs), list[list[tf.Tensor]]()
    masks, found = masks_of(call, which, len(regions)), dict[Any, Any]()
    for b, (mask, region) in enumerate(zip(masks, regions)):
        rows, flag = padded_rows(mask, everyone, emit), emit("Any", mask, np.int32(0))
        kept = {k: branches[b] for k, branches in opened.items()}
        outputs = Outputs(threads, lists_made, handed, kept=kept)
        made = on_all_rows(call, region, threads.seen(args), rows, flag, outputs)
        handed.take(call, mask, made, found)
        made, inside = made[:count], made[count:]
        values.append(inside)
        threads.left(call, made, [])
        if results is not None:
            made = [
                m
                if k in sources or k in opened or k in handed.forms
                else emit("Select", mask, m, r)
                for k, (m, r) in enumerate(zip(made, results))
            ]
        results = made
    assert results is not None
    for k, written in threads.lists.items():
        results[k] = written
    for k in lists_made:
        results[k] = list_of_items(call, results[k], lists_made[k])
    for k, value in as_opened(call, opened, [t for made in values for t in made], masks).items():
        results[k] = value
    for k in handed.forms:
        results[k] = found[k]
    return results


def _split(
    call: Call, which: Value, regions: list[Region], args: list[Value], handed: Handed
) -> Any:
    """Partition, run each branch on its rows, stitch."""
    count, emit, n = len(regions), call.emit, call.loop.static_length
    if any(o.shape.rank is None and o.dtype != tf.variant for o in call.op.outputs):
        raise CannotVectorize("the rank of an output is unknown")
    optionals = optionals_of(call, regions, ())
    refuse_reads(call, optionals)
    sources, lists_made = lists_of_branches(call, regions, optionals, may_grow=True)
    growing = [k for k in sources if one_source(regions, k) is None]
    index, parts = _parts(call, which, count)
    split: dict[int, tuple[tf.Tensor, list[tf.Tensor]]] = {}

    def part(b: int) -> Gather:
        def gather(whole: tf.Tensor) -> tf.Tensor:
            if id(whole) not in split:  # one pass for all branches; its gradient is dense
                made = emit("DynamicPartition", whole, index, num_partitions=count)
                split[id(whole)] = (whole, made)
            return split[id(whole)][1][b]

        return gather

    sides: list[list[tf.Tensor]] = []
    threads = Threads(call, regions, sources, args, growing)
    outputs = Outputs(threads, lists_made, handed, optionals)
    for b, (region, rows) in enumerate(zip(regions, parts)):
        flag = emit("Greater", emit.as_tensor(emit.dim(rows, 0)), np.int32(0))
        is_known = not optionals and all(is_static(dims(o)) for o in call.op.outputs)
        if b == 0 and n is None and not is_known:
            # Of no rows at all this branch tells the sizes of the results, and its gradient runs.
            flag = emit("LogicalOr", flag, emit("Equal", call.loop.length_tensor, np.int32(0)))
        made = on_some_rows(call, region, threads.seen(args), rows, flag, outputs, part(b))
        ends = len(made) - len(lists_made)
        threads.left(call, made, made[ends - len(growing) : ends])
        sides.append(made)
    results: list[Any] = []
    for k, output in enumerate(call.op.outputs):
        if k in sources:
            results.append(threads.lists[k])
            continue
        if k in handed.forms:
            results.append(None)
            continue
        if k in optionals:
            at = len(call.op.outputs) + 2 * list(optionals).index(k)
            made = [[side[k], *side[at : at + 2]] for side in sides]
            held = outputs.parts[k]
            results.append(by_branch(call, index, parts, made, optionals[k], held))
            continue
        if k in lists_made:
            pieces = [side[k] for side in sides]
            ends = [side[len(side) - len(lists_made) + list(lists_made).index(k)] for side in sides]
            is_uneven = k in outputs.uneven
            results.append(put_together(call, parts, pieces, ends, lists_made[k], is_uneven))
            continue
        results.append(stitched_output(call, parts, [side[k] for side in sides], output))
    at = len(call.op.outputs) + 2 * len(optionals)
    put_in_order(call, parts, [side[at:] for side in sides], sides, handed, results)
    return results


def _parts_key(call: Call, which: Value, count: int) -> Any:
    return ("parts", call.loop, which.cell, count)


def _parts(call: Call, which: Value, count: int) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The branch of each row, and the rows of each branch: once for each predicate.

    The gradient of a conditional has the same predicate, and reads what the branches left for it.
    """
    key = _parts_key(call, which, count)
    found = call.emit.memo.get(key)
    if found is None:
        index = index_of(call, which, count)
        parts = tf.dynamic_partition(call.loop.places, index, count)  # int32 [k_b]
        found = call.emit.memo[key] = (index, parts)
    return found
