"""Resource variables: reads, assignments, sums of updates (Agarwal and Ganichev, 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._strided_slices import MASKS
from tf_pfor.converters.math._families import run_once, table
from tf_pfor.converters.state import recurrences
from tf_pfor.converters.state._state import (
    checked_to_differ,
    once,
    shape_of_variable,
    static_shape,
    total,
    variable_name,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank
from tf_pfor.core.values import Value
from tf_pfor.fallback import randomness
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_shapes import dense_of_shape

# The same for all iterations: asking, making.
run_once(table("DestroyResourceOp VarIsInitializedOp VariableShape"))
run_once({"VarHandleOp": ("allowed_devices", "container", "debug_name", "shape", "shared_name")})


@RegisterPFor("ReadVariableOp", ALWAYS)
def read(call: Call, resource: Value) -> Any:
    """Once; the read of a read-modify-write sees its own iteration's value."""
    before = recurrences.assigned_before(call)
    if before is not None:
        return before
    found = recurrences.of(call)
    if found is None:
        return Value.unstacked(call.rebuild())
    return found.seen_by(call)


@ragged_rule("AssignVariableOp")
@RegisterPFor("AssignVariableOp", ALWAYS, attrs=("validate_shape",))
def assign(call: Call, resource: Value, value: Value) -> Any:
    """A loop-invariant value: once. v.assign(f(v, x_i)): the value after the last update."""
    if recurrences.is_overwritten(call):
        return None
    found = recurrences.of(call)
    if found is not None:
        position = [u.assign for u in found.updates].index(call.op)
        call.rebuild(value=found.final[position])
        return None
    if value.is_stacked:
        raise Refused(
            f"it assigns a value that differs between iterations to {variable_name(call)}: which "
            "iteration's value is to stay? Sum or reduce after the loop and assign there, use "
            "assign_add, or assign a function of the variable's own value. A variable that the "
            "body makes is to be made outside of it, once"
        )
    once(call, lambda: call.rebuild())
    return None


@ragged_rule("AssignAddVariableOp AssignSubVariableOp")
@RegisterPFor("AssignAddVariableOp AssignSubVariableOp", ALWAYS)
def add_all(call: Call, resource: Value, value: Value) -> Any:
    """v += sum_i x_i; an invariant x counts n times. v += f(v, x_i): one after the other."""
    found = recurrences.of(call)
    if found is None and not value.is_stacked and randomness.moves_once(call.op, call.walker):
        once(call, lambda: call.rebuild())
        return None
    if found is None:
        call.rebuild(value=total(call, _as_large(call, value)))
        return None
    if call.loop.real is not None:
        raise Refused(
            f"a branch reads {variable_name(call)} and adds to it, under jit_compile: move the "
            "read out of the branch"
        )
    position = [u.assign for u in found.updates].index(call.op)
    handle = resource.tensor
    call.emit("AssignVariableOp", handle, found.final[position])
    return None


def _as_large(call: Call, value: Value) -> Value:
    """Rows that are added to a variable: as large as that, which is checked when it runs."""
    if not isinstance(value, Ragged):
        return value
    shape = static_shape(call)
    if not shape.is_fully_defined():
        return value.standard(call.emit)
    with call.emit.graph.as_default():
        line = _tf.user_line(call.op) or "line unknown"
        name = variable_name(call).replace("'", "")
        return dense_of_shape(value, shape, f"{name} has ({call.op_type}, {line})")


@RegisterPFor("ResourceGather", ALWAYS, attrs=("batch_dims", "validate_indices"))
def gather(call: Call, resource: Value, indices: Value) -> Any:
    """Rows of a shared table: one gather."""
    _no_recurrence(call)
    if not indices.is_stacked:
        return Value.unstacked(call.rebuild())
    if call.attr("batch_dims"):
        whole = call.emit("ReadVariableOp", resource.tensor, dtype=call.attr("dtype"))
        rows = call.stacked(Value.unstacked(whole))
        batch = call.attr("batch_dims") + 1
        return call.emit("GatherV2", rows, indices.tensor, np.int32(batch), batch_dims=batch)
    return call.rebuild()


@RegisterPFor("ResourceGatherNd", ALWAYS)
def gather_nd(call: Call, resource: Value, indices: Value) -> Any:
    """Slices of a shared table: one gather."""
    _no_recurrence(call)
    made = call.rebuild()
    return made if indices.is_stacked else Value.unstacked(made)


@ragged_rule("ResourceGather ResourceGatherNd")
def gather_own(call: Call, resource: Value, indices: Value) -> Any:
    """From a shared table by ragged indices: an embedding, or elements at places."""
    graph, is_nd = call.emit.graph, call.op_type == "ResourceGatherNd"
    rank = call.require_rank(indices)
    if not isinstance(indices, Ragged) or (not is_nd and call.attr("batch_dims")):
        raise CannotVectorize("the table differs between iterations")
    if indices.n_leading > rank - is_nd:
        raise CannotVectorize("how many axes are indexed differs between iterations")
    _no_recurrence(call)
    origin = call.op.outputs[0]
    if _tf.in_xla_context(graph) or _tf.in_body(graph):  # the padding reads the first element
        made = call.rebuild(indices=indices.in_rows)
        return Ragged.from_padded(made, indices.sizes, origin, is_clean=False)
    return Ragged.packed(call.rebuild(indices=indices.tensor), indices.sizes, origin)


def _no_recurrence(call: Call) -> None:
    if recurrences.of(call) is not None:
        raise Refused("it reads a variable that the body assigns a function of itself")


@RegisterPFor("ResourceCountUpTo", ALWAYS, attrs=("limit",))
def count_up_to(call: Call, resource: Value) -> Any:
    """Refused: the iterations within the limit depend on the order of iterations."""
    raise Refused("a counter with a limit has no meaning for iterations that run at once")


@RegisterPFor("ResourceStridedSliceAssign", ALWAYS, attrs=MASKS)
def strided_slice_assign(
    call: Call, ref: Value, begin: Value, end: Value, strides: Value, value: Value
) -> Any:
    """v[i] = x_i: one scatter, of rows that must differ; an invariant slice and value: once."""
    if not any(v.is_stacked for v in (begin, end, strides, value)):
        once(call, lambda: call.rebuild())
        return None
    if not begin.is_stacked:
        raise Refused(
            f"all iterations assign different values to the same slice of {variable_name(call)}"
        )
    (count,) = begin.inner_shape or (None,)
    shrinks = count is not None and call.attr("shrink_axis_mask") == (1 << count) - 1
    masks = ("begin_mask", "ellipsis_mask", "new_axis_mask")
    if not shrinks or any(call.attr(m) for m in masks):
        raise Refused(
            f"it assigns to slices of {variable_name(call)} whose place differs between "
            "iterations; only v[i] and v[i, j] are supported there"
        )
    emit, at = call.emit, begin.tensor
    shape = shape_of_variable(call, begin.dtype)
    size = emit("StridedSlice", shape, [0], [count], [1])
    zero = emit.constant(0, begin.dtype)
    is_negative, wrapped = emit("Less", at, zero), emit("AddV2", at, size)
    where = emit("SelectV2", is_negative, wrapped, at)
    rest = emit("StridedSlice", shape, [count], [0], [1], end_mask=1)
    head = emit.shape_vector([call.loop.length])
    head = head if begin.dtype == tf.int32 else emit("Cast", head, DstT=begin.dtype)
    full = emit("ConcatV2", [head, rest], np.int32(0))  # [n] + v.shape[count:]
    stacked = Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)
    updates = expand_to_rank(call, stacked, rest.shape[0] or 0)
    updates = emit("BroadcastTo", updates, full)
    with checked_to_differ(call, begin, where):
        emit("ResourceScatterNdUpdate", ref.tensor, where, updates)
    return None
