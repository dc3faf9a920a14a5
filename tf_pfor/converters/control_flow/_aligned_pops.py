"""Loops in which rows begin late: loops that pop lists of lists, or of items of other shapes.

TensorFlow's gradient of a loop around a loop pops, in each trip, the lists that the inner loop has
left. Rows that made fewer trips have fewer of them. All rows pop in one place, so that one list is
taken out for all rows. So each trip runs the rows with the most lists left; other rows begin when
it is their turn. All rows end together if each makes as many trips as its list is long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import (
    is_pushed,
    only_pushed,
    pops,
    pops_only,
    pushes,
    source,
)
from tf_pfor.converters.analysis._variant_types import kind_of, uses
from tf_pfor.converters.control_flow._loop_variables import Carry
from tf_pfor.converters.lists._lists import set_length
from tf_pfor.converters.lists._nested_lengths import has_ends
from tf_pfor.converters.lists._unpacked_lists import keeps
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import ListRows, StackedList, rows_of
from tf_pfor.core.values import Layout, Value, dims, is_static
from tf_pfor.layouts.repeated import RepeatedList


def pops_lists(call: Call, graph: tf.Graph, i: int, given: Value) -> bool:
    """Whether a trip takes the last item out of list ``i``, in one place for all.

    Items are lists, or may differ in shape (not under XLA), so that they are not read from one
    tensor. Lists of optionals that are not made (``given`` is the list) have no such items.
    """
    if keeps(given) or not pops_only(graph, i):
        return False
    popped = [o.outputs[1] for o in graph.get_operations() if pops(o, graph.inputs[i])]
    if len(popped) != 1:
        return False
    may_differ = not (is_static(dims(popped[0])) or _tf.in_xla_context(call.emit.graph))
    return popped[0].dtype == tf.variant or may_differ


def gets_lists(call: Call, graph: tf.Graph, i: int, given: Value) -> bool:
    """Whether trips push lists to list ``i``, which is ``given`` before the loop."""
    if graph.inputs[i].dtype != tf.variant or keeps(given):
        return False
    is_put = is_pushed(graph, i) and pushes(graph, i) > 0
    return is_put and kind_of(call, graph.inputs[i]) == tf.variant


def begin_late(call: Call, carries: Sequence[Carry], args: list[Value], clocks: Any) -> None:
    """No variable is uniform, for rows begin at different times; ``clocks`` say when."""
    for c in carries:
        if c in clocks:
            c.is_clock = c.has_lengths = True
            c.layout = Layout.STACKED_LIST
        elif c.repeats is not None and c.is_uniform:
            held = args[c.index]
            assert isinstance(held, RepeatedList)
            count = Value.stacked(call.stacked(held.count)).with_inner_shape(())
            args[c.index] = RepeatedList.of(held.item, count)
            c.repeats.layout = c.layout = Layout.STACKED
        elif c.is_uniform and args[c.index].dtype != tf.variant:
            c.layout = Layout.STACKED


def emptied(
    call: Call, args: Sequence[Value], graph: tf.Graph, cond: tf.Graph, passed: Collection[int]
) -> tuple[list[Value], set[int]]:
    """The inputs of a loop, and which are empty lists to which trips do nothing but push.

    A list of lists whose rows differ in length may be one: the gradient of a list that a loop has
    popped to its end. An assertion says so when it runs. (Arguments as of ``popped_lists``.)
    """
    out, empty = list(args), set[int]()
    for i, arg in enumerate(args):
        if i in passed or arg.dtype != tf.variant or cond.inputs[i].consumers():
            continue
        pushed = only_pushed(graph, i)
        if pushed is None:
            continue
        rows = rows_of(arg)
        if source(call.op.inputs[i]).op.type == "EmptyTensorList":
            empty.add(i)
        elif pushed.dtype != tf.variant or keeps(arg):
            continue
        elif rows is not None and rows.lengths is not None:
            out[i] = _emptied(call, arg, rows)
            empty.add(i)
    return out, empty


def _emptied(call: Call, arg: Value, rows: ListRows) -> Value:
    assert rows.lengths is not None
    begins = tf.constant(0) if rows.starts is None else rows.starts
    text = "Lists are pushed to a list that is not empty in all rows."
    with call.emit.graph.as_default():
        is_empty = tf.debugging.assert_equal(tf.convert_to_tensor(rows.lengths), begins, text)
        with tf.control_dependencies([] if is_empty is None else [is_empty]):
            handle = set_length(call.emit, arg.tensor, tf.constant(0))
    return StackedList.of(handle, dataclasses.replace(rows, lengths=None, starts=None))


def ends_of(call: Call, lists: Sequence[ListRows], made: Sequence[tf.Tensor]) -> tf.Tensor:
    """int32 [n]: where the lists of the rows end that trips pop, before the loop.

    They must agree, as those do that one loop has pushed.
    """
    emit, found = call.emit, list[tf.Tensor]()
    for rows in lists:
        lengths = rows.lengths
        assert lengths is not None
        if rows.ids is not None:
            lengths = emit("GatherV2", lengths, rows.ids, np.int32(0))
        found.append(lengths)
    if _tf.in_xla_context(emit.graph):  # which has no assertions
        loops = [{op for op, _ in uses(call, t) if "While" in op.type} for t in made]
        if any(other != loops[0] for other in loops):
            raise CannotVectorize(
                "under jit_compile, a loop pops lists of lists that different loops have made"
            )
        return found[0]
    text = "A loop pops lists of lists of different lengths."
    with emit.graph.as_default():
        same = [tf.debugging.assert_equal(found[0], other, text) for other in found[1:]]
        with tf.control_dependencies([s for s in same if s is not None]):
            return tf.identity(found[0])


def last_of(call: Call, lists: Sequence[ListRows]) -> tf.Tensor | None:
    """int32 []: how long the lists are that trips pop, where they are not cut."""
    if not lists or not has_ends(call):
        return None
    return call.emit("Max", lists[0].lengths, np.int32(0))


def cut_at(
    carries: Sequence[Carry], state: Sequence[list[tf.Tensor]], end: tf.Tensor, emit: Emitter
) -> None:
    """Cuts the lists that trips pop behind ``end``, of the rows that are due."""
    for c, tensors in zip(carries, state):
        if c.is_clock:
            tensors[0] = set_length(emit, tensors[0], end)


def due_rows(
    emit: Emitter, goes_on: tf.Tensor, ends: tf.Tensor, end: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The rows that are due in a trip, bool [n], and the place where their lists end.

    These are the rows, of those that go on, whose ``ends`` (int32 [n]) are the largest, or ``end``.
    """
    if end is None:
        none = emit("Fill", emit.shape_of(ends), np.int32(-1))
        last = emit("Max", emit("Select", goes_on, ends, none), np.int32(0))
        return due_rows(emit, goes_on, ends, last)
    return emit("LogicalAnd", goes_on, emit("Equal", ends, end)), end


def for_all(call: Call, rows: ListRows, own: tf.Tensor) -> tf.Tensor:
    """int32 [size]: ``own`` for the rows of the loop; of others where their lists end."""
    if rows.ids is None:
        return own
    emit = call.emit
    return emit("TensorScatterUpdate", rows.lengths, emit("ExpandDims", rows.ids, 1), own)
