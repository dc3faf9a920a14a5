"""Ops that join tensors, and ops that take them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._column_blocks import joined_columns, split_columns
from tf_pfor.converters.math._families import along, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import leading
from tf_pfor.core.values import Stacked, Value


def _inner_axis(call: Call, name: str, value: Value) -> int:
    """The axis input ``name``, which must be a constant, from the front."""
    return int(call.constant(name).reshape([])) % call.require_rank(value)


@RegisterPFor("Pack", ANY, attrs=("axis",))
def pack(call: Call, values: list[Value]) -> Any:
    """[n, ...] each -> [n, ..., k, ...]: the axis moves by one."""
    axis = call.attr("axis")
    if axis < 0:
        axis += call.require_rank(values[0]) + 1
    if call.output_dtype().is_integer and axis == 0 and values[0].inner_rank == 0:
        # An index: a slice by it may need only its parts.
        return Stacked.deferred(
            lambda: call.rebuild(values=[call.stacked(v) for v in values], axis=1),
            call.output_shape(),
            call.output_dtype(),
        )
    form = leading(call, values, axis)
    return form.result(call.rebuild(values=form.tensors, axis=form.axis(axis)))


@RegisterPFor("XlaSplitND", ("input",), attrs=("N", "num_splits", "paddings"))
def split_grid(call: Call, input: Value) -> Any:
    """A grid of blocks of each row: one block along the first axis."""
    counts, paddings = _grid(call, "num_splits", call.require_rank(input))
    made: list[tf.Tensor] = call.rebuild(num_splits=[1, *counts], paddings=[0, *paddings])
    shape: Any = input.inner_shape
    for tensor in made:  # TensorFlow knows no shape of them
        sizes = zip(shape, counts, paddings, strict=True)
        block = [None if d is None else (d + more) // k for d, k, more in sizes]
        tensor.set_shape([call.loop.static_length, *block])
    return made


@RegisterPFor("XlaConcatND", ANY, attrs=("num_concats", "paddings"))
def concat_grid(call: Call, inputs: list[Value]) -> Any:
    """A grid of blocks, joined for each row."""
    counts, paddings = _grid(call, "num_concats", call.require_rank(inputs[0]))
    blocks = [call.stacked(v) for v in inputs]
    made: tf.Tensor = call.rebuild(inputs=blocks, num_concats=[1, *counts], paddings=[0, *paddings])
    sizes = zip(blocks[0].shape[1:], counts, paddings, strict=True)
    made.set_shape([call.loop.static_length, *[d and d * k - less for d, k, less in sizes]])
    return made


def _grid(call: Call, name: str, rank: int) -> tuple[list[int], list[int]]:
    """The number of blocks along each axis, and the size of the padding in the last blocks."""
    return call.attr(name), call.attr("paddings") or [0] * rank


def _as_columns(call: Call) -> list[Value] | None:
    values = call.inputs["values"]
    assert isinstance(values, list)
    found = joined_columns(call, values, _inner_axis(call, "axis", values[0]))
    return None if found is None else [found]


along(table("Unpack", "axis", "num"), "value", "axis")
along(table("Concat"), "values", "concat_dim")
along(table("ConcatV2"), "values", "axis", unless=_as_columns)


@RegisterPFor("ConcatOffset", ("shape",))
def concat_offset(call: Call, concat_dim: Value, shape: list[Value]) -> Any:
    """The sizes along ``concat_dim`` summed up over the inputs before; zero elsewhere."""
    rank = shape[0].inner_shape[0] if shape[0].inner_shape else None
    if rank is None:
        raise CannotVectorize("the rank is unknown")
    at = int(call.constant("concat_dim")) % rank
    dtype = shape[0].dtype
    packed = call.emit("Pack", [v.tensor for v in shape], axis=0)  # [k, n, rank]
    sums = call.emit("Cumsum", packed, np.int32(0), exclusive=True)
    only = call.emit.constant(np.eye(rank, dtype=dtype.as_numpy_dtype)[at], dtype)
    made = call.emit("Unpack", call.emit("Mul", sums, only), num=len(shape), axis=0)
    return made if isinstance(made, list) else [made]


def _of_columns(call: Call) -> list[Value] | None:
    value, count = call.value("value"), call.attr("num_split")
    where = _inner_axis(call, "split_dim", value)
    if "size_splits" in call.inputs:
        given = call.maybe_constant("size_splits")
        sizes = None if given is None else given.tolist()
    else:
        size = None if value.inner_shape is None else value.inner_shape[where]
        sizes = None if size is None else [size // count] * count
    return None if sizes is None else split_columns(call, value, where, sizes) or None


along(table("Split SplitV", "num_split"), "value", "split_dim", unless=_of_columns)


@RegisterPFor("ParallelConcat", ANY, attrs=("shape",))
def parallel_concat(call: Call, values: list[Value]) -> Any:
    """A plain concatenation along the first inner axis: its parts are there already."""
    return call.emit("ConcatV2", [call.stacked(v) for v in values], np.int32(1))
