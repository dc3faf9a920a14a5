"""Variables in the body of a map over replicas: all replicas share the copies of the first one.

So a gradient by a variable is the sum over all replicas, and updates of all rows meet in one place.
The ops of the replicas stand in the graph one replica behind the other. TensorFlow orders what
touches one variable by that, so rows change a variable in their order. At the end the other copies
get the last value (``update_copies``).
"""

from __future__ import annotations

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _strategies
from tf_pfor.core.accesses import SUMS, Access, Accesses
from tf_pfor.core.collectives import has_collective
from tf_pfor.core.errors import UnsupportedStateError
from tf_pfor.tracing.trace import Body, changed_variables


def check_variables(body: Body, *, is_local: bool) -> None:
    """Refuses what would be wrong if the rows were split."""
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


def _place(op: tf.Operation) -> str:
    return f"{op.type}, {_tf.user_line(op) or 'line unknown'}"


def _is_sum(body: Body, writes: list[Access]) -> bool:
    """Whether a variable is only added to, and nobody reads it: then the order does not matter."""
    mine = Accesses(body.graph).of(writes[0].handle)
    return all(a.op.type in SUMS for a in mine)
