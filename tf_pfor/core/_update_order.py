"""Updates of a variable that only the order of the loop gives a meaning, whatever is read.

Lock-step makes each update for all iterations before the next one. The sum of all updates does not
show it, nor does one value that all iterations assign. Two kinds of updates show it (a reset and a
sum), and so do values that are assigned in several branches, or from trip to trip.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf

_SET = "assigns"
_KINDS = {
    "AssignVariableOp": _SET,
    "ResourceScatterNdUpdate": _SET,
    "ResourceScatterUpdate": _SET,
    "ResourceStridedSliceAssign": _SET,
    "AssignAddVariableOp": "adds",
    "AssignSubVariableOp": "adds",
    "ResourceScatterAdd": "adds",
    "ResourceScatterNdAdd": "adds",
    "ResourceScatterNdSub": "adds",
    "ResourceScatterSub": "adds",
    "ResourceScatterDiv": "multiplies",
    "ResourceScatterMul": "multiplies",
    "ResourceScatterMax": "takes the largest",
    "ResourceScatterNdMax": "takes the largest",
    "ResourceScatterMin": "takes the smallest",
    "ResourceScatterNdMin": "takes the smallest",
}

Calls = tuple[tuple[tf.Operation, Any], ...]
"""From the outermost in: the ops that call functions, and the functions."""


def updates_in_order(handle: Any, writers: Iterable[tf.Operation]) -> str:
    """Why the updates of a variable must run in the order of the loop; "" if they need not.

    Args:
      handle: the key of its handle.
      writers: the ops that change it, themselves or in functions that they call.
    """
    leaves = [leaf for op in writers for leaf in _leaves(op, handle, ())]
    kinds = [_KINDS.get(op.type) for op, _ in leaves]
    if None in kinds:
        return ""  # no variable, or an op with rules of its own
    if len({*kinds}) > 1:
        types = sorted({op.type for op, _ in leaves})
        return f"the body changes the variable in several ways ({', '.join(types)})"
    sets = [(op, calls) for op, calls in leaves if _KINDS[op.type] == _SET]
    around = [op for _, calls in sets for op, _ in calls if op.type not in _tf.CALLS]
    if len(sets) > 1 and around:
        return "the body assigns to the variable in several places, some in branches or loops"
    if any(not all(_stays(t, calls) for t in op.inputs[1:]) for op, calls in sets):
        return "a loop in the body assigns to the variable what changes from trip to trip"
    return ""


def _leaves(op: tf.Operation, handle: Any, calls: Calls) -> list[tuple[tf.Operation, Calls]]:
    """The ops that change a variable, each with the calls that lead to it."""
    if op.type in _KINDS:
        return [(op, calls)]
    graphs = _tf.functions_of(op)
    found = [] if graphs else [(op, calls)]
    for graph in graphs:
        first = len(op.inputs) - len(graph.inputs)
        mine = [i for t, i in zip(op.inputs[first:], graph.inputs) if _key(t) == handle]
        for own in map(_key, mine):
            users = [
                o for o in graph.get_operations()
                if o.type not in _READERS and any(_key(t) == own for t in o.inputs)
            ]  # fmt: skip
            found += [x for o in users for x in _leaves(o, own, (*calls, (op, graph)))]
    return found


_READERS = frozenset([
    "Identity", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp",
    "VariableShape",
])  # fmt: skip


def _stays(tensor: tf.Tensor, calls: Calls) -> bool:
    """Whether a tensor has one value in all trips of the loops that it is in."""
    if not any(op.type.endswith("While") for op, _ in calls):
        return True
    op, graph = calls[-1]
    todo, seen, given = [tensor], set[Any](), set[int]()
    for t in todo:  # grows
        if t.op in seen:
            continue
        seen.add(t.op)
        given.update(i for i, x in enumerate(graph.inputs) if x is t)
        todo += t.op.inputs
    if op.type.endswith("While") and any(
        _key(graph.outputs[i]) != _key(graph.inputs[i]) for i in given
    ):
        return False
    first = len(op.inputs) - len(graph.inputs)
    return all(_stays(op.inputs[first + i], calls[:-1]) for i in given)


def _key(tensor: tf.Tensor) -> Any:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return (tensor.op, tensor.value_index)
