"""Diagonals and bands of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype, column
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, product
from tf_pfor.core.values import Value, dims, is_static


@RegisterPFor("Diag", ANY)
def diag(call: Call, diagonal: Value) -> Any:
    """[n, d...] -> [n, D] -> MatrixDiag [n, D, D] -> [n, d..., d...]."""
    parts = inner_dims(call, diagonal)
    flat = call.emit.reshape(diagonal.any_form, [call.loop.length, product(call, parts)])
    return call.emit.reshape(call.emit("MatrixDiag", flat), [call.loop.length, *parts, *parts])


@RegisterPFor("DiagPart", ANY)
def diag_part(call: Call, input: Value) -> Any:
    """[n, d..., d...] -> [n, D, D] -> MatrixDiagPart [n, D] -> [n, d...]."""
    parts = inner_dims(call, input)
    half = parts[: len(parts) // 2]
    size: Dim = product(call, half)
    square = call.emit.reshape(input.any_form, [call.loop.length, size, size])
    return call.emit.reshape(call.emit("MatrixDiagPart", square), [call.loop.length, *half])


# The kernels take any leading dimensions; which diagonals, and the padding, must be the same.


@RegisterPFor("MatrixDiag MatrixDiagV2", ("diagonal",))
@RegisterPFor("MatrixDiagPart MatrixDiagPartV2", ("input",))
@RegisterPFor("MatrixDiagPartV3", ("input",), attrs=("align",))
@RegisterPFor("MatrixDiagV3", ("diagonal",), attrs=("align",))
@RegisterPFor("MatrixSetDiag", ("diagonal", "input"))
def of_every_matrix(call: Call, *_: Value) -> Any:
    """The same op, with the loop as one more leading dimension."""
    return call.rebuild()


@RegisterPFor("MatrixDiagPartV2", ("input", "padding_value"))
@RegisterPFor("MatrixDiagPartV3", ("input", "padding_value"), attrs=("align",))
@RegisterPFor("MatrixDiagV2", ("diagonal", "padding_value"))
@RegisterPFor("MatrixDiagV3", ("diagonal", "padding_value"), attrs=("align",))
def padded_by_row(call: Call, *_: Value) -> Any:
    """Padded with zeros; then the row's own number wherever the same of ones has a zero.

    As in TensorFlow, the padding has no gradient.
    """
    emit, first = call.emit, next(iter(call.inputs))  # "diagonal", or "input"
    given, padding = call.inputs[first], call.inputs["padding_value"]
    assert isinstance(given, Value)
    assert isinstance(padding, Value)
    rank = call.op.outputs[0].shape.rank
    if rank is None or not (given.dtype.is_floating or given.dtype.is_integer):
        raise CannotVectorize("which diagonals there are is unknown, or they are no real numbers")
    zero = emit.constant(0, given.dtype)
    made = call.rebuild(padding_value=zero)
    ones = call.rebuild(**{first: emit("OnesLike", given.tensor), "padding_value": zero})
    own = emit("StopGradient", column(call, padding, rank))
    return emit("SelectV2", emit("NotEqual", ones, zero), made, own)


@RegisterPFor("MatrixSetDiagV2", ("diagonal", "input"))
@RegisterPFor("MatrixSetDiagV3", ("diagonal", "input"), attrs=("align",))
def set_band_of_every_matrix(call: Call, input: Value, diagonal: Value, k: Value) -> Any:
    """The same op, with the loop as one more leading dimension."""
    if input.inner_rank == diagonal.inner_rank and not is_static(dims(input.tensor)):
        # TensorFlow's shape function then takes the band for one diagonal, and refuses.
        raise CannotVectorize("MatrixSetDiag of several diagonals needs a static shape")
    return call.rebuild()


@RegisterPFor("MatrixBandPart", ("input",))
def band_part(call: Call, input: Value, num_lower: Value, num_upper: Value) -> Any:
    """The same op, with the loop as one more leading dimension."""
    return call.rebuild()


@RegisterPFor("MatrixBandPart", ANY)
def band_part_by_row(call: Call, input: Value, num_lower: Value, num_upper: Value) -> Any:
    """A mask [n, rows, columns] of the band; all else is zero."""
    emit, rank, dtype = call.emit, call.require_rank(input), num_lower.dtype
    if rank < 2:
        raise CannotVectorize("the input is no matrix")
    sizes = inner_dims(call, input)[-2:]
    rows, columns = (_numbers(call, part, dtype) for part in sizes)
    below = emit("Sub", emit("ExpandDims", rows, np.int32(1)), columns)  # [rows, columns]
    keep: list[tf.Tensor] = []
    sides = (num_lower, below), (num_upper, emit("Neg", below))
    for (limit, distance), size in zip(sides, sizes):
        bound = column(call, limit, rank)  # [n, 1, ..., 1], or a scalar
        if limit.is_stacked:
            is_right = emit("LessEqual", bound, as_dtype(call, size, dtype))
            text = "the band is wider than the matrix in some iterations. It is"
            bound = call.after_check(is_right, text, [limit.tensor], bound, by_row=True)
        is_open = emit("Less", bound, emit.constant(0, dtype))
        keep.append(emit("LogicalOr", is_open, emit("LessEqual", distance, bound)))
    zero = emit.constant(np.zeros([], input.dtype.as_numpy_dtype), input.dtype)
    return emit("SelectV2", emit("LogicalAnd", *keep), input.tensor, zero)


def _numbers(call: Call, count: Dim, dtype: tf.DType) -> tf.Tensor:
    if isinstance(count, int):
        return call.emit.constant(np.arange(count), dtype)
    size = as_dtype(call, count, dtype)
    return call.emit("Range", call.emit.constant(0, dtype), size, call.emit.constant(1, dtype))
