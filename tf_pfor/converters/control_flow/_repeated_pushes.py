"""Loop variables that are lists to which each trip pushes the same loop-invariant tensor.

TensorFlow's gradient of a loop pushes what it will need, also a weight that a trip read. Where rows
leave at different times each row would keep a copy of it for each trip. Instead the loop carries
how long the list is, and the tensor once (``Layout.REPEATED``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import (
    is_only_popped,
    only_pushed,
    pass_through,
    pops_only,
    source,
)
from tf_pfor.converters.analysis._safety import writes_state
from tf_pfor.core.accesses import READS
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.values import Layout, Unstacked, Value, dims, is_static
from tf_pfor.layouts.repeated import RepeatedList, first_item


@dataclasses.dataclass(slots=True)
class Repeats:
    """A loop variable that is a list of one invariant tensor: its count is carried.

    Attributes:
      step: the number of places that a trip adds.
      layout: the layout of the count.
      pushed: the tensor of the body that a trip pushes; None where trips only pop.
      item: the item of the list before the loop; None where trips push.
      count: the number of places after the trip at hand, in the graph inside the loop.
    """

    step: int
    layout: Layout
    pushed: tf.Tensor | None = None
    item: Value | None = None
    count: tf.Tensor | None = None

    def start(self, call: Call, given: Value) -> list[tf.Tensor]:
        """The tensors before the first trip."""
        if self.pushed is None:
            assert isinstance(given, RepeatedList)
            return [given.count.tensor]
        zeros = call.emit(
            "Fill",
            call.emit.constant(np.asarray(dims(self.pushed), np.int32)),
            np.zeros((), self.pushed.dtype.as_numpy_dtype),
        )
        return [call.emit.constant(np.int32(0)), zeros]

    @property
    def shapes(self) -> list[tf.TensorShape]:
        """The static shapes of the tensors besides the count."""
        return [] if self.pushed is None else [self.pushed.shape]

    @property
    def tensors(self) -> list[tf.Tensor]:
        """The tensors of the body that are wanted."""
        return [] if self.pushed is None else [self.pushed]

    def inside(self, given: Value, count: Value, emit: Emitter) -> Value:
        """The list that the body gets in place of the list ``given``."""
        self.count = emit("AddV2", count.tensor, np.int32(self.step))
        return given if self.item is None else RepeatedList.of(self.item, count)

    def after(self, count: Value, tensors: Sequence[tf.Tensor]) -> Value:
        """The list after the loop."""
        return RepeatedList.of(self.item or Value.unstacked(tensors[1]), count)


def popped_lists(
    call: Call, args: Sequence[Value], graph: tf.Graph, cond: tf.Graph, passed: Collection[int]
) -> tuple[list[Value], dict[int, Repeats]]:
    """The REPEATED lists that trips only pop; all other carried lists are made.

    Returns:
      The inputs, and the ``Repeats`` of the lists that are popped, by position.
    """
    out, popped = list(args), dict[int, Repeats]()
    for i, arg in enumerate(args):
        if i in passed or arg.dtype != tf.variant:
            continue
        is_popped = pops_only(graph, i) and not cond.inputs[i].consumers()
        if not isinstance(arg, RepeatedList):
            arg = out[i] = _of_loop_outside(call, arg) if is_popped else arg
        elif not is_popped:
            out[i] = arg.standard(call.emit)
        if not isinstance(arg, RepeatedList) or not is_popped:
            continue
        step, tensor = 0, graph.outputs[i]
        while tensor is not graph.inputs[i]:
            step -= tensor.op.type == "TensorListPopBack"
            tensor = tensor.op.inputs[0]
        popped[i] = Repeats(step, arg.count.layout, item=arg.item)
    return out, popped


def of_pushed(
    call: Call, given: Value, graph: tf.Graph, cond: tf.Graph, i: int, fixed: Collection[int]
) -> Repeats | None:
    """Variable ``i``, an empty list, if each trip pushes what no trip changes.

    Variables at the positions ``fixed`` are the same in all trips, or lists of one tensor.
    """
    item = _pushed(graph, cond, i)
    if item is None or given.is_stacked:
        return None
    made = source(call.op.inputs[i]).op
    if made.type != "EmptyTensorList" or not _has_room(made.inputs[1], call):
        return None
    reads = not any(writes_state(g) for g in (graph, cond))
    if not _is_fixed(graph, item, fixed, reads):
        return None
    graph = call.emit.graph
    has_length = _tf.in_xla_context(graph) or _tf.in_body(graph)
    if has_length and not is_only_popped(call.op.outputs[i]):
        return None  # where the list itself is wanted its length must be known, or the same
    return Repeats(1, Layout.UNSTACKED, pushed=item)


def _pushed(graph: tf.Graph, cond: tf.Graph, i: int) -> tf.Tensor | None:
    """The one tensor of a static shape that each trip pushes to list ``i``, which nobody reads."""
    item = None if cond.inputs[i].consumers() else only_pushed(graph, i)
    if item is None or item.dtype in (tf.variant, tf.resource, tf.string):
        return None
    return item if is_static(dims(item)) else None


def _of_loop_outside(call: Call, given: Value) -> Value:
    """A list that a loop outside of the map left: one tensor and a count if it is that.

    The jacobian of a loop is such a map: it goes back over what the forward loop has kept.
    """
    if given.is_stacked or _tf.in_xla_context(call.emit.graph):
        return given
    if not tf.is_symbolic_tensor(given.tensor):
        return given
    handle = source(given.tensor)
    op, k = handle.op, handle.value_index
    if op.type not in _tf.LOOPS:
        return given
    cond, body = (_tf.function_graph(op.graph, op.get_attr(f).name) for f in ("cond", "body"))
    item = _pushed(body, cond, k)
    if item is None or source(op.inputs[k]).op.type != "EmptyTensorList":
        return given
    reads = not any(writes_state(g) for g in (body, cond))
    if not _is_fixed(body, item, pass_through(body), reads):
        return given
    emit, dtype = call.emit, item.dtype
    shape: Any = dims(item)

    key = ("list of a loop outside", emit.graph, op, k)
    if key not in call.memo:
        count = emit("TensorListLength", given.tensor)
        held = Unstacked.deferred(
            lambda: first_item(given.tensor, count, shape, dtype, emit), shape, dtype
        )
        call.memo[key] = RepeatedList.of(held, Value.unstacked(count))
    return call.memo[key]


def _has_room(limit: tf.Tensor, call: Call) -> bool:
    """Whether a list has room for all trips: no push fails."""
    known = _tf.static_value(limit)
    return (known is not None and bool(known < 0)) or limit is call.op.inputs[1]


def _is_fixed(graph: tf.Graph, tensor: tf.Tensor, fixed: Collection[int], reads: bool) -> bool:
    """Whether a tensor of a loop's body is the same in all trips.

    ``reads`` says whether a read of a variable is.
    """
    found = _inputs_of(graph, tensor, reads)
    return found is not None and found <= {*fixed}


def _inputs_of(graph: tf.Graph, tensor: tf.Tensor, reads: bool) -> set[int] | None:
    """The positions of the inputs that a tensor depends on; None if on an effect or a whole list.

    A function that is called is looked into: what it makes of a constant depends on no input.
    """
    places = {t.op: i for i, t in enumerate(graph.inputs)}
    found, seen, todo = set[int](), set[Any](), [tensor]
    while todo:
        t = todo.pop()
        op = t.op
        if op in places:
            if t.dtype == tf.variant:
                return None
            found.add(places[op])
            continue
        if op.type == "TensorListPopBack" and t.value_index == 1:
            handle = op.inputs[0]
            while handle.op.type in ("Identity", "TensorListPopBack") and not handle.value_index:
                handle = handle.op.inputs[0]
            if handle.op not in places:
                return None
            found.add(places[handle.op])
            continue
        if op.type in _tf.CALLS:
            inner = _tf.functions_of(op)[0]
            read = _inputs_of(inner, inner.outputs[t.value_index], reads)
            if read is None:
                return None
            todo += [op.inputs[i] for i in read]
            continue
        schema = _tf.schema(op.type)
        if schema is None or (schema.is_stateful and not (reads and op.type in READS)):
            return None
        if op not in seen:
            seen.add(op)
            todo += op.inputs
    return found
