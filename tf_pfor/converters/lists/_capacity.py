"""Facts that XLA needs of lists before running: the room of gradients' lists, and items."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import Reach, is_pushed, known_integer, pushes, source
from tf_pfor.converters.analysis._variant_types import item_shape
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import Refused
from tf_pfor.core.facts import facts_of
from tf_pfor.core.loop import Loop
from tf_pfor.core.values import Cell, Stacked, Value, as_shape, is_static
from tf_pfor.layouts.repeated import RepeatedList

NO_BOUND = (
    "under jit_compile, the gradient of a loop needs to know how many trips it makes at most: give "
    "tf.while_loop maximum_iterations, or bound a counter in its condition, as in "
    "t < tf.minimum(k, 100), or in t < x.shape[0] where that size is static"
)

_NOT_FIXED = (
    "under jit_compile, how much the gradient of a loop in a loop keeps is not known before "
    "running. If the outer loop computes how many trips the inner one makes: give that one "
    "maximum_iterations. If it is a second gradient in the body: leave out jit_compile"
)

# The name that TensorFlow's gradients of loops give to the lists that they keep.
_OF_GRADIENTS = "accumulator"


def most_of_all_rows(call: Call, value: Value, room: tf.Tensor) -> tf.Tensor:
    """int32 []: the largest number of all rows, also where only some rows are active.

    Under XLA the numbers of the active rows are not known before running. So the largest is
    computed again, from the numbers of all rows before the outer loops and branches.
    """
    is_fixed = _tf.in_xla_context(call.emit.graph) and not call.emit.is_trial
    if not is_fixed or call.loop.is_whole:
        return most_room(call.emit, value.tensor)
    emit, graph, loop = call.emit, room.graph, call.loop
    while loop.rows is not None and loop.parent is not None:
        loop = loop.parent
    loop = Loop(loop.length, emit)
    walker = call.enter(loop, emit)
    for i in Reach(graph).inputs_of(room.op):
        given = call.walker.value_of(graph.inputs[i])
        origin = given.source if isinstance(given, Stacked) else None
        is_carried = origin is not None and origin.variable is not None
        if given is None or is_carried or (given.is_stacked and origin is None):
            raise Refused(_NOT_FIXED)
        if origin is not None:
            given = Value.stacked(origin.whole.get()).with_inner_shape(given.inner_shape)
        walker.bind(graph.inputs[i], given)
    (found,) = walker.convert([room])
    if not isinstance(found, Stacked):
        return fixed(found.tensor)
    return most_room(emit, found.tensor)


def most_trips_given(call: Call, given: Value, cond: tf.Graph) -> tf.Tensor | None:
    """The ``maximum_iterations`` of a While op, of all rows; None if it has none.

    Python's loops over ranges have one: the second input, if the condition compares with that. XLA
    may find a bound of a number that is no constant.
    """
    test = source(cond.outputs[0]).op
    if test.type != "LogicalAnd" or not _tf.in_xla_context(call.emit.graph):
        return None
    count, most = cond.inputs[:2]
    if not any(
        t.op.type == "Less" and t.op.inputs[0] is count and t.op.inputs[1] is most
        for t in test.inputs
    ):
        return None
    if not given.is_stacked:
        return given.tensor
    try:
        return most_of_all_rows(call, given, call.op.inputs[1])
    except Refused:
        return None


def _is_known(op: tf.Operation) -> bool:
    """Whether XLA knows the result: it knows shapes, and how much room lists have."""
    return facts_of(op.type).is_of_shapes or op.type == "TensorListLength"


def fixed(room: tf.Tensor) -> tf.Tensor:
    """``room``, which must not depend on the variables of an outer loop."""
    todo, seen = [room], set[Any]()
    while todo:
        t = todo.pop()
        if t.op in seen or _is_known(t.op):
            continue
        seen.add(t.op)
        outside = next((a for a, b in getattr(t.graph, "captures", ()) if b is t), None)
        if outside is not None:
            todo += [outside] if tf.is_symbolic_tensor(outside) else []
        elif t.op.type == "Placeholder" and _tf.is_loop_body(t.graph):
            raise Refused(_NOT_FIXED)
        todo += t.op.inputs
    return room


def most_room(emit: Emitter, room: tf.Tensor) -> tf.Tensor:
    """int32 []: the largest of ``room`` (int32 [n]); under XLA one at least, to push to."""
    most = emit("Max", room, np.int32(0))
    return emit("Maximum", fixed(most), np.int32(1)) if _tf.in_xla_context(emit.graph) else most


def with_room(
    call: Call, args: Sequence[Value], graph: tf.Graph, most: int | tf.Tensor | None
) -> list[Value]:
    """The inputs of a loop; empty lists that have no room with as much as trips push.

    Only lists that TensorFlow's gradients of loops keep: nobody sees how much room they have.
    """
    emit, out = call.emit, list(args)
    for i, arg in enumerate(args):
        if most is None or not lacks_room(arg, graph, i):
            continue
        made = source(arg.tensor).op
        if not made.name.rpartition("/")[2].startswith(_OF_GRADIENTS):
            continue
        room = emit("Mul", emit.as_tensor(most), np.int32(pushes(graph, i)))
        dtype = tf.as_dtype(made.get_attr("element_dtype"))
        empty = emit("EmptyTensorList", made.inputs[0], room, element_dtype=dtype)
        out[i] = dataclasses.replace(arg, cell=Cell(empty))
    return out


def lacks_room(arg: Value, graph: tf.Graph, i: int) -> bool:
    """Whether variable ``i`` of a loop is a list without room, to which trips push."""
    if arg.dtype != tf.variant or isinstance(arg, RepeatedList):
        return False
    made = source(arg.tensor).op
    has_none = made.type == "EmptyTensorList" and known_integer(made.inputs[1]) == 0
    return has_none and is_pushed(graph, i) and pushes(graph, i) > 0


def item_of_unset(call: Call) -> list[int] | None:
    """Under XLA the shape of items that are written to a new list without a shape; else None.

    Under XLA a list without a shape has no items at all before the first is written. Such a list
    cannot be given to a branch that some rows take.
    """
    told = call.maybe_constant("element_shape")
    if not _tf.in_xla_context(call.emit.graph) or call.attr("element_dtype") == tf.variant:
        return None
    if told is None or (told.ndim and (told >= 0).all()):
        return None
    item = as_shape(item_shape(call, call.op.outputs[0]))
    return list(item) if is_static(item) else None
