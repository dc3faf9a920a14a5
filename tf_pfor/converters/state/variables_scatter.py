"""Scatters into resource variables: the updates of all iterations in one op."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.state._state import (
    checked_to_differ,
    once,
    shape_of_variable,
    static_shape,
    variable_name,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.values import Value
from tf_pfor.fallback import ordered_updates
from tf_pfor.layouts.ragged import Ragged, same_sizes
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.ragged_rules import ragged_rule

_ND = ("bad_indices_policy", "use_locking")


@RegisterPFor("ResourceScatterAdd ResourceScatterDiv ResourceScatterMul ResourceScatterSub", ALWAYS)
@RegisterPFor("ResourceScatterNdAdd ResourceScatterNdSub", ALWAYS, attrs=_ND)
def accumulate(call: Call, resource: Value, indices: Value, updates: Value) -> Any:
    """v[k_i] += x_i, in any order; what is invariant counts n times."""
    call.rebuild(indices=call.stacked(indices), updates=_full(call, indices, updates))


@RegisterPFor("ResourceScatterMax ResourceScatterMin", ALWAYS)
@RegisterPFor("ResourceScatterNdMax ResourceScatterNdMin", ALWAYS, attrs=_ND)
def extremum(call: Call, resource: Value, indices: Value, updates: Value) -> Any:
    """v[k_i] = max(v[k_i], x_i), in any order; what is invariant counts once."""
    if not (indices.is_stacked or updates.is_stacked):
        return once(call, lambda: call.rebuild())
    return accumulate(call, resource, indices, updates)


@RegisterPFor("ResourceScatterUpdate", ALWAYS)
@RegisterPFor("ResourceScatterNdUpdate", ALWAYS, attrs=_ND)
def update(call: Call, resource: Value, indices: Value, updates: Value) -> Any:
    """v[k_i] = x_i: the places k_i must differ between iterations."""
    if not (indices.is_stacked or updates.is_stacked):
        return once(call, lambda: call.rebuild())
    if not indices.is_stacked:
        raise Refused(_clash(call))
    is_nd = "Nd" in call.op_type
    if not updates.is_stacked:  # all rows get the same value: in any order
        is_number = updates.inner_rank == 0 and not _is_row_of_scalars(call, indices)
        call.rebuild(
            **{} if is_number and not is_nd else {"updates": _full(call, indices, updates)}
        )
        return None
    full, places = _full(call, indices, updates), indices.tensor
    if not is_nd:
        places = call.emit("ExpandDims", places, np.int32(-1))  # [n, ..., 1]
    with checked_to_differ(call, indices, places):
        call.rebuild(updates=full)
    return None


@ragged_rule(
    "ResourceScatterAdd ResourceScatterMax ResourceScatterMin ResourceScatterNdAdd "
    "ResourceScatterNdSub ResourceScatterSub"
)
def scatter_rows(call: Call, resource: Value, indices: Value, updates: Value) -> None:
    """v[k] += x for the elements k of all rows, in any order."""
    rank = call.require_rank(indices, "'indices'")
    rank -= int("Nd" in call.op_type)  # the last axis is a place in the variable
    if ordered_updates.group_of(call.op, call.walker) is not None:
        raise CannotVectorize("the order of what rows do to the variable counts")
    if not isinstance(indices, Ragged) or len(indices.sizes) > rank:
        raise CannotVectorize("the rows differ in more than the number of updates")
    places = packed_to(indices, rank)
    if not isinstance(updates, Ragged):
        if updates.is_stacked or updates.inner_shape != ():
            raise CannotVectorize("all rows have equally many updates, but not as many indices")
        call.rebuild(indices=places)
        return
    if len(updates.sizes) > rank:
        raise CannotVectorize("an update differs in shape between rows")
    checks: list[Any] = []
    if not same_sizes(indices.sizes, updates.sizes):
        same = tf.equal(indices.shape_tensor()[:, :rank], updates.shape_tensor()[:, :rank])
        text = f"There are other numbers of indices than of updates: {indices.name}, {updates.name}"
        checks.append(tf.debugging.Assert(tf.reduce_all(same), [text]))
    with tf.control_dependencies(checks):
        call.rebuild(indices=places, updates=packed_to(updates, rank))


def _clash(call: Call) -> str:
    return f"all iterations write different values to the same rows of {variable_name(call)}"


def _is_row_of_scalars(call: Call, indices: Value) -> bool:
    """Whether one update has no axes because variable rows and indices are scalars."""
    return indices.inner_rank == 0 and static_shape(call).rank == 1


def _full(call: Call, indices: Value, updates: Value) -> tf.Tensor:
    """The updates as [n] + the shape of the indices + the shape of a row of the variable."""
    stacked = call.stacked(updates)  # [n] + ...
    if (
        "Nd" in call.op_type
        or call.require_rank(updates, "'updates'")
        or _is_row_of_scalars(call, indices)
    ):
        return stacked
    rows = call.stacked(indices)
    emit = call.emit
    shape = shape_of_variable(call, tf.int32)
    rest = emit("StridedSlice", shape, [1], [0], [1], end_mask=1)
    full = emit("ConcatV2", [emit.shape_of(rows), rest], np.int32(0))
    rank = call.require_rank(indices, "'indices'")
    if static_shape(call).rank is None:
        raise CannotVectorize("the rank of the variable is unknown")
    missing = rank + static_shape(call).rank - 1
    column = emit.reshape(stacked, [call.loop.length, *[1] * missing])
    return emit("BroadcastTo", column, full)
