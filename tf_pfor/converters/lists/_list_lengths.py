"""The number of items of a list under XLA, where TensorListLength gives the room of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import length_of, list_before, source, value_of
from tf_pfor.converters.analysis._variant_types import Calls, callers_of, calls_around
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize

# They make lists that are full: there is no more room than items.
_FULL = ("TensorListFromTensor", "TensorListReserve")
_STEPS = {"TensorListPushBack": 1, "TensorListPopBack": -1}
_SAME = ("AddN", "TensorListScatterIntoExistingList", "TensorListSetItem", "ZerosLike")


def list_length(call: Call, handle: tf.Tensor) -> tf.Tensor:
    """The number of items that a list holds: an int32 scalar.

    Raises:
      CannotVectorize: if that is not known.
    """
    emit = call.emit
    found = (True, 0) if not _tf.in_xla_context(emit.graph) else _items(handle, emit)
    if found is None:
        raise CannotVectorize(
            "under jit_compile it is not known how long a list is: give the loop that makes it a "
            "number as maximum_iterations, or leave out jit_compile"
        )
    was_full, added = found
    if not was_full:
        return emit.as_tensor(added)
    room = emit("TensorListLength", handle)
    return room if isinstance(added, int) and added == 0 else emit("AddV2", room, _as_input(added))


def is_full(tensor: tf.Tensor, emit: Emitter) -> bool:
    """Whether a list is known to hold as many items as TensorListLength says."""
    return not _tf.in_xla_context(emit.graph) or _items(tensor, emit) == (True, 0)


def _items(tensor: tf.Tensor, emit: Emitter) -> tuple[bool, Dim] | None:
    """Whether a list was made full and not empty, and the number of items added since.

    None where the ops that made or changed the list are not known.
    """
    step, shown = _chain_outwards(tensor)
    made, outside = _called(shown)
    op = made.op
    if op.type == "EmptyTensorList" or op.type in _FULL:
        return op.type in _FULL, step
    if op.type not in _tf.LOOPS:
        return None
    body = _tf.function_graph(op.graph, op.get_attr("body").name)
    k = made.value_index
    per_trip, given = chain(body.outputs[k])
    before = _items(outside(op.inputs[k]), emit)
    if before is None or given is not body.inputs[k]:
        return None
    was_full, count = before
    if per_trip:
        trips = outside(op.outputs[0])
        if not _counts_trips(outside(op.inputs[0]), body) or trips.graph is not shown.graph:
            return None
        more = emit("Mul", trips, np.int32(per_trip))
        count = emit("AddV2", more, _as_input(count))
    if isinstance(count, int):
        return was_full, count + step
    return was_full, count if step == 0 else emit("AddV2", count, np.int32(step))


def _called(made: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """The tensor in the function whose call made it, and a map from inside to outside tensors.

    TensorFlow hides loops in calls when a tape in another function watches.
    """
    call = made.op
    if call.type not in _tf.CALLS:
        return made, lambda t: t
    (graph,) = _tf.functions_of(call)
    pairs = [*zip(graph.inputs, call.inputs), *zip(map(value_of, graph.outputs), call.outputs)]
    known = {id(inside): outside for inside, outside in pairs}
    return value_of(graph.outputs[made.value_index]), lambda t: known.get(id(value_of(t)), t)


def _as_input(count: Dim) -> Any:
    return np.int32(count) if isinstance(count, int) else count


def _chain_outwards(tensor: tf.Tensor) -> tuple[int, tf.Tensor]:
    """The ops of ``_chain``, also through the functions that have captured the list."""
    total, tensor = chain(tensor)
    while True:
        captures = getattr(tensor.graph, "captures", ())
        outside = next((a for a, b in captures if b is tensor), None)
        if outside is None or not tf.is_symbolic_tensor(outside):
            return total, tensor
        step, tensor = chain(outside)
        total += step


def chain(tensor: tf.Tensor) -> tuple[int, tf.Tensor]:
    """The number of items that the ops before ``tensor`` add, and the list that they start with."""
    step, tensor = 0, value_of(tensor)
    while tensor.op.type in (*_SAME, *_STEPS) and tensor.value_index == 0:
        step += _STEPS.get(tensor.op.type, 0)
        tensor = value_of(tensor.op.inputs[0])
    return step, tensor


def _counts_trips(start: tf.Tensor, body: tf.Graph) -> bool:
    """Whether the first variable of a loop, which begins with ``start``, counts its trips."""
    last = value_of(body.outputs[0]).op
    if last.type not in ("Add", "AddV2") or last.inputs[0] is not body.inputs[0]:
        return False
    known = [_tf.static_value(t) for t in (value_of(start), last.inputs[1])]
    return [None if x is None else int(x) for x in known] == [0, 1]


def declared_length(call: Call, tensor: tf.Tensor) -> int | None:
    """The number of items of a list of the body, also if another list gives its length.

    None if it is not known.
    """
    return _declared(call, tensor, calls_around(call, tensor.graph), {})


def _declared(
    call: Call, tensor: tf.Tensor, entered: Calls, seen: dict[Any, int | None]
) -> int | None:
    """``declared_length`` of a tensor in functions that have been ``entered`` by these ops."""
    tensor = list_before(tensor, _SAME)
    op, k = tensor.op, tensor.value_index
    known = length_of(tensor)
    if known is not None:
        return known
    if op.type == "TensorListReserve":
        asked = source(op.inputs[1]).op
        is_as_long = asked.type == "TensorListLength"
        return _declared(call, asked.inputs[0], entered, seen) if is_as_long else None
    if op.type in (*_tf.CALLS, *_tf.BRANCHES):
        key = (op, k, entered)
        if key not in seen:
            inside = [g.outputs[k] for g in _tf.functions_of(op)]
            found = {_declared(call, t, (*entered, op), seen) for t in inside}
            seen[key] = found.pop() if len(found) == 1 else None
        return seen[key]
    if op.type in _tf.LOOPS:
        around = op
    else:
        k = next((i for i, t in enumerate(tensor.graph.inputs) if t is tensor), None)
        callers = entered[-1:] or callers_of(call).get(tensor.graph, [])
        around, entered = callers[0] if len(callers) == 1 else None, entered[:-1]
    if around is None or k is None or not _keeps_length(around, k):
        return None
    return _declared(call, around.inputs[k + int(around.type in _tf.BRANCHES)], entered, seen)


def _keeps_length(op: tf.Operation, k: int) -> bool:
    """Whether list ``k`` of an op that may be a loop is as long after a trip as before."""
    if op.type not in _tf.LOOPS:
        return True
    body = _tf.function_graph(op.graph, op.get_attr("body").name)
    return list_before(body.outputs[k], _SAME) is body.inputs[k]
