"""Reductions and scans over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tf_pfor.converters.math._families import axis_input, reduction, shifted_axes, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value, is_static

reduction(table("All Any EuclideanNorm Max Mean Min Prod Sum", "keep_dims"))
axis_input(table("Cumprod Cumsum CumulativeLogsumexp", "exclusive", "reverse"), "x", "axis")

_ARG_MAX_RANK = 7  # the kernels take no more


@RegisterPFor("ArgMax", ("input",))
@RegisterPFor("ArgMin", ("input",))
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
