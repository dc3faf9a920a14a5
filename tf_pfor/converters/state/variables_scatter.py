"""Scatters into resource variables: the updates of all iterations in one op (DESIGN 9)."""

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

_ND = ("bad_indices_policy", "use_locking")


@RegisterPFor("ResourceScatterAdd", ALWAYS)
@RegisterPFor("ResourceScatterDiv", ALWAYS)
@RegisterPFor("ResourceScatterMul", ALWAYS)
@RegisterPFor("ResourceScatterSub", ALWAYS)
def accumulate(call: Call, resource: Value, indices: Value, updates: Value) -> Any:
    """v[k_i] += x_i, in any order; what is invariant counts n times."""
    call.rebuild(indices=call.stacked(indices), updates=_full(call, indices, updates))
    return None


@RegisterPFor("ResourceScatterMax", ALWAYS)
@RegisterPFor("ResourceScatterMin", ALWAYS)
def extremum(call: Call, resource: Value, indices: Value, updates: Value) -> Any:
    """v[k_i] = max(v[k_i], x_i), in any order; what is invariant counts once."""
    if not (indices.is_stacked or updates.is_stacked):
        once(call, lambda: call.rebuild())
        return None
    call.rebuild(indices=call.stacked(indices), updates=_full(call, indices, updates))
    return None


@RegisterPFor("ResourceScatterUpdate", ALWAYS)
def update(call: Call, resource: Value, indices: Value, updates: Value) -> Any:
    """v[k_i] = x_i: the rows k_i must differ between iterations."""
    if not (indices.is_stacked or updates.is_stacked):
        once(call, lambda: call.rebuild())
        return None
    if not indices.is_stacked:
        raise Refused(_clash(call))
    if not updates.is_stacked:  # all rows get the same value: in any order
        if updates.inner_rank == 0 and not _is_row_of_scalars(call, indices):
            call.rebuild()
            return None
        call.rebuild(updates=_full(call, indices, updates))
        return None
    full = _full(call, indices, updates)
    places = call.emit("ExpandDims", indices.tensor, np.int32(-1))  # [n, ..., 1]
    with checked_to_differ(call, indices, places):
        call.rebuild(updates=full)
    return None


@RegisterPFor("ResourceScatterNdAdd", ALWAYS, attrs=_ND)
@RegisterPFor("ResourceScatterNdSub", ALWAYS, attrs=_ND)
def accumulate_nd(call: Call, ref: Value, indices: Value, updates: Value) -> Any:
    """v[k_i, l_i ...] += x_i, in any order; what is invariant counts n times."""
    call.rebuild(indices=call.stacked(indices), updates=call.stacked(updates))
    return None


@RegisterPFor("ResourceScatterNdMax", ALWAYS, attrs=_ND)
@RegisterPFor("ResourceScatterNdMin", ALWAYS, attrs=_ND)
def extremum_nd(call: Call, ref: Value, indices: Value, updates: Value) -> Any:
    """v[k_i, l_i ...] = max(v[...], x_i), in any order; what is invariant counts once."""
    if not (indices.is_stacked or updates.is_stacked):
        once(call, lambda: call.rebuild())
        return None
    call.rebuild(indices=call.stacked(indices), updates=call.stacked(updates))
    return None


@RegisterPFor("ResourceScatterNdUpdate", ALWAYS, attrs=_ND)
def update_nd(call: Call, ref: Value, indices: Value, updates: Value) -> Any:
    """v[k_i, l_i ...] = x_i: the places must differ between iterations."""
    if not (indices.is_stacked or updates.is_stacked):
        once(call, lambda: call.rebuild())
        return None
    if not indices.is_stacked:
        raise Refused(_clash(call))
    if not updates.is_stacked:
        call.rebuild(updates=call.stacked(updates))
        return None
    with checked_to_differ(call, indices, indices.tensor):
        call.rebuild()
    return None


def _clash(call: Call) -> str:
    return f"all iterations write different values to the same rows of {variable_name(call)}"


def _is_row_of_scalars(call: Call, indices: Value) -> bool:
    """Whether one update has no axes because variable rows and indices are scalars."""
    return indices.inner_rank == 0 and static_shape(call).rank == 1


def _full(call: Call, indices: Value, updates: Value) -> tf.Tensor:
    """The updates as [n] + the shape of the indices + that of a row of the variable."""
    stacked = call.stacked(updates)  # [n] + ...
    if call.require_rank(updates, "'updates'") or _is_row_of_scalars(call, indices):
        return stacked
    rows = call.stacked(indices)
    emit = call.emit
    shape = shape_of_variable(call, tf.int32)
    rest = emit(
        "StridedSlice", shape, np.asarray([1], np.int32), np.asarray([0], np.int32),
        np.asarray([1], np.int32), end_mask=1,
    )  # fmt: skip
    full = emit("ConcatV2", [emit.shape_of(rows), rest], np.int32(0))
    rank = call.require_rank(indices, "'indices'")
    if static_shape(call).rank is None:
        raise CannotVectorize("the rank of the variable is unknown")
    missing = rank + static_shape(call).rank - 1
    column = emit.reshape(stacked, [call.loop.length, *[1] * missing])
    return emit("BroadcastTo", column, full)
