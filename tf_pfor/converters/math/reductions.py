"""Reductions and scans over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tf_pfor.converters.math._axis_by_row import cube_rank, own_axis, to_front, to_place
from tf_pfor.converters.math._families import along, reduction, shifted_axes, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import REDUCTION, SCAN, facts_of, table_of
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value, is_static

reduction(table_of(REDUCTION))
along(table_of(SCAN), "x", "axis")


def _reduce_by_row(call: Call, *_: Value) -> Any:
    """Along an axis of the row, moved to the front."""
    (name_x, x), (name_axis, axis) = call.inputs.items()
    assert isinstance(x, Value)
    assert isinstance(axis, Value)
    if "keep_dims" in call.attrs and call.attr("keep_dims"):
        raise CannotVectorize("the axis that is kept differs between iterations")
    rank = cube_rank(call, x)
    moved = to_front(call, call.stacked(x), own_axis(call, axis, rank), rank)
    return call.rebuild(**{name_x: moved, name_axis: np.int32(1)})


def _scan_by_row(call: Call, x: Value, axis: Value) -> Any:
    """Along an axis of the row, moved to the front and back."""
    rank = cube_rank(call, x)
    own = own_axis(call, axis, rank)
    made = call.rebuild(x=to_front(call, call.stacked(x), own, rank), axis=np.int32(1))
    return to_place(call, made, own, rank)


for _op_type, _attrs in (table_of(REDUCTION) | table_of(SCAN) | table("ArgMax ArgMin")).items():
    _is_scan = facts_of(_op_type).family == SCAN
    (_axis,), _x = facts_of(_op_type).axes, "x" if _is_scan else "input"
    _rule, _family = (_scan_by_row, "axis") if _is_scan else (_reduce_by_row, "reduction")
    for _stacked in ((_axis,), (_x, _axis)):
        RegisterPFor(_op_type, _stacked, attrs=_attrs, family=f"{_family}_by_row")(_rule)

_ARG_MAX_RANK = 7  # the kernels take no more


@RegisterPFor("ArgMax ArgMin", ("input",))
def arg_max(call: Call, input: Value, dimension: Value) -> Any:
    """The axis shifted by one; from rank 7 on the other axes are merged to [before, d, after]."""
    if input.inner_rank is None or input.inner_rank < _ARG_MAX_RANK:
        return call.rebuild(dimension=shifted_axes(call, input, "dimension"))
    shape = input.inner_shape
    if not is_static(shape):
        raise CannotVectorize(f"the kernel takes rank {_ARG_MAX_RANK} at most")
    axis = int(call.constant("dimension")) % len(shape)
    before, size, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    n = call.loop.length
    merged = call.emit.reshape(input.any_form, [n, before, size, after])
    found = call.rebuild(input=merged, dimension=np.asarray(2, np.int32))  # [n, before, after]
    return call.emit.reshape(found, [n, *shape[:axis], *shape[axis + 1 :]])
