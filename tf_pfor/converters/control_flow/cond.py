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

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import input_passed, is_read, place_of
from tf_pfor.converters.analysis._loop_graphs import source as passed_on
from tf_pfor.converters.analysis._safety import is_linear, writes_state
from tf_pfor.converters.analysis._variant_types import BRANCHES, same_constant
from tf_pfor.converters.control_flow._branch_forms import Handed, forms_of_branches, put_in_order
from tf_pfor.converters.control_flow._branch_lists import (
    Threads,
    list_of_items,
    lists_of_branches,
    put_together,
    unset_outputs,
)
from tf_pfor.converters.control_flow._branch_optionals import (
    among,
    by_branch,
    left_in,
    one_source,
    optionals_of,
    refuse_reads,
)
from tf_pfor.converters.control_flow._branch_rows import Gather, Outputs, on_all_rows, on_some_rows
from tf_pfor.converters.control_flow._guarded_branch import (
    apart,
    is_by_loop,
    is_unknown_in_loop,
    run_once,
)
from tf_pfor.converters.control_flow._subgraphs import (
    Region,
    as_layout,
    join,
    one_of,
    padded_rows,
    positions,
    stitched,
)
from tf_pfor.converters.lists._list_gradients import known_in_gradients
from tf_pfor.converters.lists._lists import stack_list
from tf_pfor.converters.lists._ragged_optionals import Parts, of_branches
from tf_pfor.converters.lists._row_packs import with_rows
from tf_pfor.converters.lists._unpacked_optionals import (
    Opened,
    as_opened,
    leave_open,
    opened_by,
    tensors_of,
)
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import ALWAYS, ANY, RegisterPFor
from tf_pfor.core.stacked_lists import ListRows, received, rows_of
from tf_pfor.core.values import Layout, Value, dims, is_static
from tf_pfor.layouts.ragged_parts import of_one_inner_shape
from tf_pfor.layouts.ragged_rules import takes_ragged

# Elements from which on nobody looks whether all branches give the same constant.
_SMALL = 16

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
        region.unread = frozenset(
            k
            for k, o in enumerate(call.op.outputs)
            if o.dtype == tf.variant and not is_read(o, call.walker.is_asked)
        )
    for region in regions:
        args = region.with_early(args)
    if which.constant is not None and not which.is_stacked:
        call.note("cond: constant predicate, inlined")
        chosen = regions[_branch_of(which.constant, len(regions))]
        opened = _left_open(call, regions)
        made = chosen.convert(args, call.loop, call.emit)
        values = [as_layout(m.call, m.value, m.value.layout) for m in made]
        for k, known in optionals_of(call, regions, opened).items():
            value = stack_list(call, values[k])
            values[k] = among(value, regions.index(chosen), known)
        return values
    args = known_in_gradients(call, args)
    if not which.is_stacked:
        call.note("cond: one for all rows")
        return _one(call, which, regions, args)
    _, known = call.emit.memo.get(_parts_key(call, which, len(regions)), (None, ()))
    for region, rows in zip(regions, known):
        region.rows = rows
    handed = _handed(call, regions, args, by_row=True)
    if handed.forms:
        way, run = "split", functools.partial(_split, handed=handed)
    elif all(is_linear(r.graph) for r in regions):
        way, run = "select", _select
    elif _tf.in_xla_context(call.emit.graph) or _is_static_in_body(call, regions):
        way, run = "padded", _padded
    else:
        way, run = "split", _split
    call.note(f"cond: {way}")
    made = run(call, which, regions, args)
    return [_agreed(regions, k, args, call.emit) or m for k, m in enumerate(made)]


def _agreed(
    regions: Sequence[Region], k: int, args: Sequence[Value], emit: Emitter
) -> Value | None:
    """Output ``k``, where all branches give the same input or constant, as shapes of gradients."""
    graphs = [r.graph for r in regions]
    passed = {input_passed(graph, k) for graph in graphs}
    i = passed.pop() if len(passed) == 1 else None
    if i is not None and args[i].dtype != tf.variant:
        return args[i]
    if (graphs[0].outputs[k].shape.num_elements() or _SMALL) >= _SMALL:
        return None
    constants = [None if a.is_stacked else a.constant for a in args]
    known = same_constant([_known(graph.outputs[k], constants.__getitem__) for graph in graphs])
    return None if known is None else Value.unstacked(emit.constant(known), constant=known)


def _known(tensor: tf.Tensor, given: Callable[[int], np.ndarray | None]) -> np.ndarray | None:
    """The constant that a tensor of a branch is; ``given`` tells the constants of its inputs."""
    tensor = passed_on(tensor)
    op, i = tensor.op, place_of(tensor.graph, tensor)
    if i is not None:
        return given(i)
    if op.type not in BRANCHES:
        return _tf.static_value(tensor)
    ends = [graph.outputs[tensor.value_index] for graph in _tf.functions_of(op)]
    return same_constant([_known(t, lambda i: _known(op.inputs[i + 1], given)) for t in ends])


def _handed(call: Call, regions: list[Region], args: list[Value], *, by_row: bool) -> Handed:
    """The outputs whose shape may differ between rows."""
    if call.walker.inner_map is not None:
        if by_row and any(_conflict([r.graph.outputs[k] for r in regions]) for k in _numbers(call)):
            raise CannotVectorize("branches give results of different shapes")
        return Handed({})
    wanted = _numbers(call)
    in_xla = _tf.in_xla_context(call.emit.graph)
    if in_xla:
        wanted = [k for k in wanted if not is_static(dims(call.op.outputs[k]))]
    length = None if by_row else call.loop.static_length
    forms = forms_of_branches(
        call, regions, args, wanted, lambda r: r.trial(args, length), by_row=by_row
    )
    for k in forms if in_xla else ():
        shapes = dict.fromkeys(str(dims(r.graph.outputs[k])) for r in regions)
        raise Refused(
            "branches that rows choose between give results of different shapes, "
            f"{' and '.join(shapes)}: give them one shape, e.g. by padding"
        )
    return Handed(forms)


def _numbers(call: Call) -> list[int]:
    """The outputs that are read, and are tensors."""
    return [
        k
        for k, o in enumerate(call.op.outputs)
        if o.dtype not in (tf.variant, tf.resource) and is_read(o, call.walker.is_asked)
    ]


def _conflict(tensors: Sequence[tf.Tensor]) -> bool:
    """Whether two static shapes cannot be the same."""
    first, *others = [t.shape for t in tensors]
    return not all(first.is_compatible_with(shape) for shape in others)


def _left_open(call: Call, regions: Sequence[Region]) -> Opened:
    """The optionals that the branches do not make, where shapes are static."""
    graphs = [r.graph for r in regions]
    is_static = call.is_for(_tf.in_body) or call.is_for(_tf.in_xla_context)
    opened = opened_by(call, graphs) if is_static else {}
    opened = {k: each for k, each in opened.items() if k not in regions[0].unread}
    leave_open(call, graphs, opened)
    return opened


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
        length is not None for _, _, length in made.values()
    )


def _branch_of(index: np.ndarray, count: int) -> int:
    found = int(index)
    if index.dtype == np.bool_ or (count == 2 and index.dtype != np.int32):
        return int(bool(found))
    return found if 0 <= found < count else count - 1


# ---------------------------------------------------------------------------
# One for all rows
# ---------------------------------------------------------------------------


def _one(call: Call, which: Value, regions: list[Region], args: list[Value]) -> Any:
    """An invariant predicate: one conditional, the layouts of its outputs made equal."""
    opened = _left_open(call, regions)
    optionals = optionals_of(call, regions, opened)
    handed = _handed(call, regions, args, by_row=False)
    layouts, rowed = _layouts(call, regions, args, optionals)
    for k in handed.forms:
        layouts[k] = Layout.RAGGED
    kept = {k: list(dict.fromkeys(itertools.chain(*each))) for k, each in opened.items()}
    parts: dict[int, list[Parts | None]] = {}

    def branch(b: int, region: Region) -> Any:
        def run() -> list[tf.Tensor]:
            emit = Emitter()
            loop = call.loop.inside(emit)
            inner = [loop.take(a) for a in args]
            made = region.convert(inner, loop, emit)
            tensors = [
                tf.constant(0) if k in opened or k in handed.forms else m.as_layout(layout)
                for k, (m, layout) in enumerate(zip(made, layouts))
            ]
            for k in rowed:
                value = stack_list(made[k].call, made[k].value)
                if k in optionals:
                    left = left_in(value, region.graph.outputs[k], args, by_row=False)
                    parts.setdefault(k, []).append(left)
                    value = among(value, b, optionals[k])
                tensors[k], *rows = with_rows(made[k].call, value, k)
                tensors += rows
            handed.hand_on(made, tensors)
            for k, alternatives in kept.items():
                tensors += tensors_of(made[k].call, made[k].value, alternatives)
            return [*tensors, tf.constant(0)]

        return run

    runs = [branch(b, r) for b, r in enumerate(regions)]
    sides = [apart(run) for run in runs]
    by_loop = is_by_loop(call.loop.length, regions) and not opened
    start = unset_outputs(call, regions, args, layouts) if by_loop else None
    if start is not None:
        made = _one_by_loops(call, which, runs, start)
    elif is_unknown_in_loop(call.loop.length):
        raise CannotVectorize(
            "under jit_compile, a conditional in a loop over an unknown number of rows returns a "
            "list, or what has no static shape"
        )
    elif call.op_type in ("If", "StatelessIf"):
        no, yes = sides
        made = one_of(call, runs, lambda: tf.cond(_as_bool(which.tensor), yes, no))
    else:
        made = one_of(call, runs, lambda: tf.switch_case(which.tensor, sides))
    held = {k: of_branches(each) for k, each in parts.items()}
    return _results_of_one(call, regions, args, handed, layouts, rowed, kept, held, made)


def _results_of_one(
    call: Call,
    regions: list[Region],
    args: list[Value],
    handed: Handed,
    layouts: list[Layout],
    rowed: list[int],
    kept: dict[int, list[Any]],
    held: dict[int, Parts],
    made: list[tf.Tensor],
) -> list[Value]:
    """The outputs of one conditional for all rows, of what its branches hand on."""
    count = len(call.op.outputs)
    rows: dict[int, ListRows | None] = {}
    for k, layout in enumerate(layouts):
        if layout is Layout.STACKED_LIST and k not in rowed:
            source = one_source(regions, k)
            rows[k] = None if source is None else rows_of(args[source])
    for place, k in enumerate(rowed):
        ends, ids = made[count + 2 * place : count + 2 * place + 2]
        ends.set_shape([None])
        ids.set_shape([call.loop.static_length])
        size, parts = call.emit.dim(ends, 0), held.get(k, ())
        rows[k] = ListRows(size, ids=ids, lengths=ends, parts=parts)
    rest = iter(made[count + 2 * len(rowed) :])
    ragged = handed.values(call, made, rest)
    beside = as_opened(call, {k: [each] for k, each in kept.items()}, [*rest]) | ragged
    return [
        beside.get(k) or received(t, layout, dims(o), rows.get(k))
        for k, (t, layout, o) in enumerate(zip(made[:count], layouts, call.op.outputs))
    ]


def _one_by_loops(
    call: Call, which: Value, runs: Sequence[Any], start: list[tf.Tensor]
) -> list[tf.Tensor]:
    """The branch taken, each as a loop of at most one trip."""
    made = [*start, tf.constant(0)]
    for flag, run in zip(_masks(call, which, len(runs)), runs):
        made = run_once(flag, run, made)
    return made


def _layouts(
    call: Call, regions: Sequence[Region], args: list[Value], optionals: Iterable[int]
) -> tuple[list[Layout], list[int]]:
    """The layouts of the outputs, and which of them are lists of others than the loop's rows."""
    found, rowed = [Layout.UNSTACKED] * len(call.op.outputs), set(optionals)
    for region in regions:
        trials = region.trial(args, call.loop.static_length)
        found = [join(a, t.layout) for a, t in zip(found, trials)]
        rowed |= {k for k, t in enumerate(trials) if t.has_rows}
    lists = [k for k in sorted(rowed) if found[k] is Layout.STACKED_LIST]
    lists = [k for k in lists if one_source(regions, k) is None]
    if lists and _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("under jit_compile, a branch makes lists of some rows")
    return found, lists


def _as_bool(tensor: tf.Tensor) -> tf.Tensor:
    return tensor if tensor.dtype == tf.bool else tf.cast(tensor, tf.bool)


# ---------------------------------------------------------------------------
# A predicate for each row
# ---------------------------------------------------------------------------


def _index(call: Call, which: Value, count: int) -> tf.Tensor:
    """int32 [n]: the branch that each row takes."""
    tensor = which.tensor
    if call.op_type in ("If", "StatelessIf"):
        return tf.cast(_as_bool(tensor), tf.int32)
    is_valid = tf.logical_and(tensor >= 0, tensor < count)
    return tf.where(is_valid, tensor, count - 1)


def _masks(call: Call, which: Value, count: int, *, first: int = 0) -> list[tf.Tensor]:
    """bool [n] for each branch from ``first`` on: the rows that take it."""
    if call.op_type in ("If", "StatelessIf"):
        taken = _as_bool(which.tensor)
        return [taken] if first else [tf.logical_not(taken), taken]
    index = _index(call, which, count)
    return [tf.equal(index, k) for k in range(first, count)]


def _select(call: Call, which: Value, regions: list[Region], args: list[Value]) -> Any:
    """All branches on all rows, then a select."""
    masks = _masks(call, which, len(regions), first=1)
    sides = [r.convert(args, call.loop, call.emit) for r in regions]
    results: list[tf.Tensor] = [m.as_layout(Layout.STACKED) for m in sides[0]]
    for mask, side in zip(masks, sides[1:]):
        results = [
            call.emit("Select", mask, m.as_layout(Layout.STACKED), r) for m, r in zip(side, results)
        ]
    return results


def _padded(call: Call, which: Value, regions: list[Region], args: list[Value]) -> Any:
    """Static shapes: each branch on n rows, all of them rows that take it."""
    if any(writes_state(r.graph) for r in regions):
        raise CannotVectorize(
            "a branch that changes state, taken by some rows only, under jit_compile"
        )
    if not all(o.shape.is_fully_defined() for o in call.op.outputs):
        raise CannotVectorize("the shape of an output is not known before running")
    emit = call.emit
    everyone = positions(call, call.loop)
    opened = _left_open(call, regions)
    sources, lists_made = lists_of_branches(call, regions, opened)
    if any(length is None for _, _, length in lists_made.values()):
        raise Refused("branches make lists whose length is not known before running")
    threads = Threads(call, regions, sources, args)
    results: list[Any] | None = None
    count, values = len(call.op.outputs), list[list[tf.Tensor]]()
    masks = _masks(call, which, len(regions))
    for b, (mask, region) in enumerate(zip(masks, regions)):
        rows, flag = padded_rows(mask, everyone, emit), emit("Any", mask, np.int32(0))
        kept = {k: branches[b] for k, branches in opened.items()}
        outputs = Outputs(threads, lists_made, kept=kept)
        made = on_all_rows(call, region, threads.seen(args), rows, flag, outputs)
        made, inside = made[:count], made[count:]
        values.append(inside)
        threads.left(call, made, [])
        if results is not None:
            made = [
                m if k in sources or k in opened else emit("Select", mask, m, r)
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
    return results


def _split(
    call: Call, which: Value, regions: list[Region], args: list[Value], handed: Handed | None = None
) -> Any:
    """Partition, run each branch on its rows, stitch."""
    handed = handed or Handed({})
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
    outputs = Outputs(threads, lists_made, optionals, ragged=handed)
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
        results.append(_stitched(call, parts, [side[k] for side in sides], output))
    at = len(call.op.outputs) + 2 * len(optionals)
    put_in_order(call, parts, [side[at:] for side in sides], sides, handed, results)
    return results


def _stitched(
    call: Call, parts: list[tf.Tensor], pieces: list[tf.Tensor], output: tf.Tensor
) -> tf.Tensor:
    """An output of one shape, of what the branches made of it."""
    is_wanted = is_read(output, call.walker.is_asked)
    with call.emit.graph.as_default():
        pieces = of_one_inner_shape(pieces, output.shape, output, is_read=is_wanted)
    shape = tf.TensorShape([call.loop.static_length]).concatenate(output.shape)
    return stitched(call.emit, parts, pieces, shape)


def _parts_key(call: Call, which: Value, count: int) -> Any:
    return ("parts", call.loop, which.cell, count)


def _parts(call: Call, which: Value, count: int) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The branch of each row, and the rows of each branch: once for each predicate.

    The gradient of a conditional has the same predicate, and reads what the branches left for it.
    """
    key = _parts_key(call, which, count)
    found = call.emit.memo.get(key)
    if found is None:
        index = _index(call, which, count)
        parts = tf.dynamic_partition(positions(call, call.loop), index, count)  # int32 [k_b]
        found = call.emit.memo[key] = (index, parts)
    return found
