"""Variables in the body of a map over replicas: all replicas share the copies of the first one.

So a gradient by a variable is the sum over all replicas, and updates of all rows meet in one place.
The ops of the replicas stand in the graph one replica behind the other. TensorFlow orders what
touches one variable by that, so rows change a variable in their order. At the end the other copies
get the last value (``update_copies``).
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _strategies
from tf_pfor.core.accesses import READS, Access, Accesses
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.errors import UnsupportedStateError
from tf_pfor.fallback.ordered_updates import groups
from tf_pfor.tracing.trace import Body, changed_variables

_SUMS = ("AssignAddVariableOp", "AssignSubVariableOp")


def check_variables(body: Body, *, is_local: bool) -> None:
    """Refuses what would be wrong if the rows were split.

    Args:
      body: the body, traced with the first copies.
      is_local: all replicas are on this machine.

    Raises:
      UnsupportedStateError: for the first variable that would be wrong.
    """
    for handle, _ in body.captures:
        if _strategies.is_summed_when_read(handle):
            name = _strategies.name_of(handle)
            raise UnsupportedStateError(
                f"The body reads or changes the variable '{name}', whose value is made of the "
                "values on all replicas (VariableSynchronization.ON_READ). Expected: one value for "
                "all rows. Read it before, v.read_value(), and update it after the map."
            )
    changed = changed_variables(body)
    for handle, writes in changed:
        name = f"'{_strategies.name_of(handle)}' ({_place(writes[0].op)})"
        if not is_local:
            raise UnsupportedStateError(
                f"The body changes the variable {name}, and "
                "each machine of the strategy would change its own by its own rows. Return what it "
                "is changed by, and change it after the map. For random numbers call a stateless "
                "function with the seed of a row: tf.random.stateless_normal(shape, seed)."
            )
        if has_collective(body.graph) and not _is_sum(body, writes):
            raise UnsupportedStateError(
                f"The body changes the variable {name} and "
                "calls a collective, for which replicas wait for each other: rows would not change "
                "the variable in their order. Change it in a map of its own, or leave strategy "
                "out. For random numbers call a stateless function with the seed of a row."
            )
    read = _read_of_all_rows(body.graph, body.outputs) if changed else None
    if read is not None:
        names = ", ".join(f"'{_strategies.name_of(handle)}'" for handle, _ in changed)
        raise UnsupportedStateError(
            f"The body reads a variable ({_place(read)}) that it changes for all rows at once, and "
            f"would see the rows of one replica only. It changes {names}. Expected under a "
            "strategy: updates that nobody reads in the body (read the variable after the map, or "
            "sum with tf_pfor.psum), or an update made of the variable's own value, "
            "v.assign(f(v)). Or leave strategy out."
        )


def _place(op: tf.Operation) -> str:
    return f"{op.type}, {_tf.user_line(op) or 'line unknown'}"


def _is_sum(body: Body, writes: list[Access]) -> bool:
    """Whether a variable is only added to, and nobody reads it: then the order does not matter."""
    mine = Accesses(body.graph).of(writes[0].handle)
    return all(a.op.type in _SUMS for a in mine)


def _read_of_all_rows(graph: tf.Graph, outputs: Sequence[tf.Tensor]) -> tf.Operation | None:
    """An op that reads what lock-step makes of a variable for all rows, if somebody needs it.

    Args:
      graph: the graph of the body, or of a function in it.
      outputs: its outputs.
    """
    known = Accesses(graph)
    in_order = {op for group in groups(known, frozenset()) for op in group.ops}
    needed = _needed(graph, outputs)
    for access in known.all:
        op = access.op
        if op in in_order:
            continue
        if not access.writes and op in needed and known.changed(access):
            return op
        for inner in _tf.functions_of(op):
            found = _read_of_all_rows(inner, inner.outputs)
            if found is not None:
                return found
    return None


def _needed(graph: tf.Graph, outputs: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """The ops whose values reach an output, or an op that does more than to read."""
    todo = [t.op for t in outputs]
    todo += [op for op in graph.get_operations() if op.type not in READS and not op.outputs]
    found: set[tf.Operation] = set()
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += [t.op for t in op.inputs]
    return found
