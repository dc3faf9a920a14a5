"""Ops that join tensors, and ops that take them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._column_blocks import joined_columns, split_columns
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import leading
from tf_pfor.core.values import Stacked, Value


def _inner_axis(call: Call, name: str, value: Value, extra: int = 0) -> int:
    """The axis input ``name``, which must be a constant, from the front."""
    rank = call.require_rank(value) + extra
    return int(call.constant(name).reshape([])) % rank


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


@RegisterPFor("Unpack", ANY, attrs=("axis", "num"))
def unpack(call: Call, value: Value) -> Any:
    """The axis moves by one."""
    axis = call.attr("axis") % call.require_rank(value)
    form = leading(call, [value], axis)
    made = call.rebuild(value=form.tensors[0], axis=form.axis(axis))
    return _results(call, form, made)


def _results(call: Call, form: Any, made: object) -> list[Value]:
    tensors = made if isinstance(made, list) else [made]
    return [form.result(t, call.output_shape(i)) for i, t in enumerate(tensors)]


@RegisterPFor("ConcatV2", ("values",))
def concat_v2(call: Call, values: list[Value], axis: Value) -> Any:
    """The axis moves by one; axes before it may stay folded."""
    where = _inner_axis(call, "axis", values[0])
    if (found := joined_columns(call, values, where)) is not None:
        return found
    form = leading(call, values, where)
    at = np.asarray(form.axis(where), axis.dtype.as_numpy_dtype)
    return form.result(call.rebuild(values=form.tensors, axis=at))


@RegisterPFor("Concat", ("values",))
def concat(call: Call, concat_dim: Value, values: list[Value]) -> Any:
    """The rule of ConcatV2."""
    where = _inner_axis(call, "concat_dim", values[0])
    form = leading(call, values, where)
    return form.result(call.rebuild(values=form.tensors, concat_dim=np.int32(form.axis(where))))


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


@RegisterPFor("Split", ("value",), attrs=("num_split",))
def split(call: Call, split_dim: Value, value: Value) -> Any:
    """The axis moves by one."""
    where = _inner_axis(call, "split_dim", value)
    count = call.attr("num_split")
    size = None if value.inner_shape is None else value.inner_shape[where]
    if size is not None and (found := split_columns(call, value, where, [size // count] * count)):
        return found
    form = leading(call, [value], where)
    made = call.rebuild(split_dim=np.int32(form.axis(where)), value=form.tensors[0])
    return _results(call, form, made)


@RegisterPFor("SplitV", ("value",), attrs=("num_split",))
def split_v(call: Call, value: Value, size_splits: Value, split_dim: Value) -> Any:
    """The axis moves by one."""
    where = _inner_axis(call, "split_dim", value)
    sizes = call.maybe_constant("size_splits")
    if sizes is not None and (found := split_columns(call, value, where, sizes.tolist())):
        return found
    form = leading(call, [value], where)
    made = call.rebuild(value=form.tensors[0], split_dim=np.int32(form.axis(where)))
    return _results(call, form, made)


@RegisterPFor("ParallelConcat", ANY, attrs=("shape",))
def parallel_concat(call: Call, values: list[Value]) -> Any:
    """A plain concatenation along the first inner axis: its parts are there already."""
    return call.emit("ConcatV2", [call.stacked(v) for v in values], np.int32(1))
