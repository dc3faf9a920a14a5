"""Slices and ranges in a loop that no trip changes, made before the loop.

Where their length differs between rows, the trips of a loop must know that it stays the same. A
gradient of the loop keeps what is made of them in lists, whose items have one shape in each row.
So ``x[:k]`` is cut once, before the loop, also if a conditional or a loop in the loop reads it.

Only ops move that cannot fail: a row may make no trip at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import pass_through
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion, Cut, Failed, is_in_map
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import key
from tf_pfor.core.report import Recorder
from tf_pfor.core.values import Value, dims, is_static
from tf_pfor.layouts import linear
from tf_pfor.layouts.ragged import RowSize, is_ragged

_INDEX = frozenset(["Add", "AddV2", "Cast", "Maximum", "Minimum", "Mul", "Neg", "Sub"])
_OF_SHAPES = frozenset(["Identity", "Pack", "Rank", "Shape", "ShapeN", "Size"])


def of_loop(call: Call, graph: tf.Graph, args: Sequence[Value]) -> list[tuple[Cut, Value]]:
    """The cuts of a loop, with their values before it."""
    known = dict(inherited(call, graph))
    fixed = pass_through(graph)
    new = [c for c in _cuts(graph, fixed) if c not in known]
    if new:
        recorder = Recorder()
        settings = dataclasses.replace(call.settings, fallback="error")
        walker = call.walker.enter(call.loop, call.emit, recorder)
        walker.settings, walker.entered_by = settings, call.op
        made = _values(walker, graph, {i: args[i] for i in fixed}, new)
        known.update(made)
    return list(known.items())


def inherited(call: Call, function: tf.Graph) -> list[tuple[Cut, Value]]:
    """The cuts in one function of an op that were made before a loop around the op."""
    return [(c.inside, v) for c, v in call.walker.early.items() if c.is_in(call.op, function)]


def _cuts(graph: tf.Graph, fixed: Collection[int]) -> Iterator[Cut]:
    """The cuts in a function, of inputs of which no trip changes those in ``fixed``."""
    same = _same(graph, fixed)
    for op in graph.get_operations():
        for function in () if is_in_map(op) else _functions(op):
            inner = _fixed(op, function, same)
            for cut in _cuts(function, inner) if inner else ():
                yield cut.called_by(op, function)
        is_cut = op.type in ("Range", "StridedSlice") and key(op.outputs[0]) in same
        if is_cut and not is_static(dims(op.outputs[0])):
            yield Cut((), op)


def _same(graph: tf.Graph, fixed: Collection[int]) -> set[object]:
    """The tensors that may move out of the loop, by key: inputs ``fixed``, cuts, and indices."""
    handles = (tf.resource, tf.variant)
    found = {key(t) for i, t in enumerate(graph.inputs) if i in fixed and t.dtype not in handles}
    for op in graph.get_operations():
        if not op.control_inputs and _may_move(op) and all(key(t) in found for t in op.inputs):
            found.update(() if is_in_map(op) else map(key, op.outputs))
    return found


def _functions(op: tf.Operation) -> list[tf.Graph]:
    """The functions of a conditional, a call or a loop (its body)."""
    if op.type in _tf.LOOPS:
        return [_tf.function_graph(op.graph, op.get_attr("body").name)]
    return _tf.functions_of(op) if op.type in _tf.CONTAINERS else []


def _given(op: tf.Operation) -> list[tf.Tensor]:
    """The inputs of these functions, outside of them."""
    return list(op.inputs)[int(op.type in _tf.BRANCHES) :]


def _fixed(op: tf.Operation, function: tf.Graph, same: Collection[object]) -> set[int]:
    """The inputs of a function that are ``same`` outside of it, and that no trip of it changes."""
    fixed = {i for i, t in enumerate(_given(op)) if key(t) in same}
    return fixed & pass_through(function) if op.type in _tf.LOOPS else fixed


def _may_move(op: tf.Operation) -> bool:
    """Whether an op makes a cut, or an index of one, and cannot fail."""
    if op.type == "Const" or op.type in _OF_SHAPES:
        return True
    if op.type == "StridedSlice" and op.get_attr("shrink_axis_mask"):
        return _is_inside(op)
    if op.type == "StridedSlice":
        return not _is_window(op)
    if op.type == "Range":
        return True
    return op.type in _INDEX and op.outputs[0].shape.rank == 0


def _is_inside(op: tf.Operation) -> bool:
    """Whether an op reads one element of a vector of known size, of a shape say."""
    (size,) = op.inputs[0].shape if op.inputs[0].shape.rank == 1 else (None,)
    at = _tf.static_value(op.inputs[1])
    return size is not None and at is not None and at.size == 1 and -size <= int(at[0]) < size


def _is_window(op: tf.Operation) -> bool:
    """Whether a slice has one length in all rows: to reach past an edge is an error then."""
    begins, ends = (linear.forms(t) for t in op.inputs[1:3])
    if begins is None or ends is None:
        return True
    pairs = zip(begins.flat, ends.flat)
    return any(a.known is None and b.plus(a, -1).known is not None for a, b in pairs)


def _values(
    walker: Conversion, graph: tf.Graph, given: Mapping[int, Value], cuts: Sequence[Cut]
) -> list[tuple[Cut, Value]]:
    """The cuts whose length differs between rows, with their values; others stay in the loop.

    ``given`` has the values of inputs of the function, of which the cuts are.
    """
    for i, value in given.items():
        walker.bind(graph.inputs[i], value)
    same = _same(graph, given)
    mine = [c for c in cuts if not c.calls and key(c.tensor) in same]
    values = [(c, _value(walker, c.tensor)) for c in mine]
    found = [(c, v) for c, v in values if v is not None]
    for op, function in dict.fromkeys(c.calls[0] for c in cuts if c.calls):
        outside = _given(op)
        fixed = _fixed(op, function, same)
        made = {i: _made(walker, outside[i]) for i in fixed}
        known = {i: v for i, v in made.items() if v is not None}
        child = walker.enter(walker.loop, walker.emit, walker.recorder)
        child.settings, child.entered_by = walker.settings, op
        inner = [c.inside for c in cuts if c.is_in(op, function)]
        found += [(c.called_by(op, function), v) for c, v in _values(child, function, known, inner)]
    return found


def _value(walker: Conversion, tensor: tf.Tensor) -> Value | None:
    """The value of a cut, None if it may stay in the loop."""
    if tensor.op.type == "Range":
        limit = _made(walker, tensor.op.inputs[1])
        if not isinstance(limit, RowSize) or limit.size.is_number:
            return None  # it may be negative, which is an error
    value = _made(walker, tensor)
    return value if value is not None and is_ragged(value) else None


def _made(walker: Conversion, tensor: tf.Tensor) -> Value | None:
    try:
        return walker.convert([tensor])[0]
    except (CannotVectorize, Failed):
        return None
