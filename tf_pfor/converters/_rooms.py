"""How much room the lists of gradients get under XLA, which must know it before running."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.call import Call
from tf_pfor.converters._kinds import uses
from tf_pfor.converters._list_lengths import chain
from tf_pfor.converters._loop_graphs import (
    Reach,
    is_only_popped,
    is_pushed,
    known_integer,
    most_trips,
    source,
)
from tf_pfor.errors import Refused
from tf_pfor.loop import Loop
from tf_pfor.values import Layout, Value

NO_BOUND = (
    "under jit_compile, the gradient of a loop needs to know how many trips it makes at most: give "
    "tf.while_loop maximum_iterations, or bound a counter in its condition, as in "
    "t < tf.minimum(k, 100)"
)

_NOT_FIXED = (
    "under jit_compile, how much the gradient of a loop in a loop keeps is not known before "
    "running. If the outer loop computes how many trips the inner one makes: give that one "
    "maximum_iterations. If it is a second gradient in the body: leave out jit_compile"
)

# Ops that do not tell how much room a list has.
_NO_ROOM = frozenset(
    [
        "EmptyTensorList",
        "Identity",
        "PartitionedCall",
        "Placeholder",
        "StatefulPartitionedCall",
        "StatelessWhile",
        "TensorListPopBack",
        "TensorListPushBack",
        "While",
    ]
)


def most_of_all_rows(call: Call, value: Value, room: tf.Tensor) -> tf.Tensor:
    """int32 []: the largest of all rows, also where some are active only.

    Under XLA what the active rows have is not known before running. So it is computed again, of
    what all rows had before the loops and branches around.

    Args:
      call: the op that asks.
      value: what the rows have, stacked.
      room: what the body calls it.
    """
    is_fixed = _tf.in_xla_context(call.emit.graph) and not call.emit.is_trial
    if not is_fixed or call.loop.is_whole:
        return call.emit("Max", value.tensor, np.int32(0))
    emit, graph, loop = call.emit, room.graph, call.loop
    while loop.rows is not None and loop.parent is not None:
        loop = loop.parent
    loop = Loop(loop.length, emit)
    walker = call.enter(loop, emit)
    for i in Reach(graph).inputs_of(room.op):
        value = call.walker.value_of(graph.inputs[i])
        if value is None or (value.is_stacked and value.source is None):
            raise Refused(_NOT_FIXED)
        if value.source is not None:
            value = Value.stacked(value.source.whole.get()).with_inner_shape(value.inner_shape)
        walker.bind(graph.inputs[i], value)
    (found,) = walker.convert([room])
    if found.layout is not Layout.STACKED:
        return found.tensor
    return emit("Max", found.tensor, np.int32(0))


def most_trips_given(call: Call, given: Value, cond: Any) -> tf.Tensor | None:
    """The ``maximum_iterations`` of a While op, of all rows; None if it has none.

    Python's loops over ranges have one. XLA may find a bound of what is no constant.

    Args:
      call: the While op.
      given: its second input, which is the number if the condition compares with it.
      cond: the graph of the condition.
    """
    test = source(cond.outputs[0]).op
    if test.type != "LogicalAnd":
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
        found = most_of_all_rows(call, given, call.op.inputs[1])
    except Refused:
        return None
    return call.emit("Maximum", found, np.int32(0))


def most_pushed(call: Call, made: tf.Tensor) -> int | None:
    """How many items are pushed to an empty list at most, as far as the graph tells.

    Only of a list to which loops push, and which is then popped, as TensorFlow's gradients of
    loops do: nobody sees how much room it has.

    Args:
      call: any op of the body.
      made: the list.
    """
    found: list[int] = []
    for reader in made.consumers():
        if reader.type == "Identity":
            most = most_pushed(call, reader.outputs[0])
            found += [] if most is None else [most]
        elif reader.type in ("StatelessWhile", "While"):
            by_loop = [_by_loop(call, reader, i) for i, t in enumerate(reader.inputs) if t is made]
            found += [x for x in by_loop if x is not None]
    return sum(found) if found and len(found) == len(made.consumers()) else None


def _by_loop(call: Call, loop: tf.Operation, i: int) -> int | None:
    """How many items a loop pushes at most to the list that is its variable ``i``."""
    cond, body = (_tf.function_graph(loop.graph, loop.get_attr(k).name) for k in ("cond", "body"))
    if not (is_pushed(body, i) and _is_only_popped(call, loop.outputs[i])):
        return None
    given = enumerate(map(known_integer, loop.inputs))
    trips = most_trips(cond, body, {j: x for j, x in given if x is not None})
    return None if trips is None else trips * chain(body.outputs[i])[0]


def _is_only_popped(call: Call, tensor: tf.Tensor) -> bool:
    """As ``is_only_popped``, also if a list of lists keeps the list in the meantime."""
    is_kept = any(
        op.type == "TensorListPushBack" and op.inputs[1] is tensor for op in tensor.consumers()
    )
    if not is_kept:
        return is_only_popped(tensor)
    return all(op.type in _NO_ROOM for op, _ in uses(call, tensor))
