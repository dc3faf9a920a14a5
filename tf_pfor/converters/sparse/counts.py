"""Counts of the numbers of ragged tensors with as many entries in all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype, row_numbers
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims
from tf_pfor.core.values import Value


def _weights(call: Call, weights: Value) -> tf.Tensor:
    """A weight for each entry of all rows, or none at all."""
    if weights.inner_shape is None or None in weights.inner_shape:
        raise CannotVectorize("the shape of the weights is unknown")
    if 0 in weights.inner_shape:
        return call.emit.constant(np.zeros([0]), weights.dtype)
    return fold(call, weights)


@RegisterPFor("RaggedBincount", ANY, attrs=("binary_output",))
def ragged_bincount(call: Call, splits: Value, values: Value, size: Value, weights: Value) -> Any:
    """The ragged rows of all rows, one behind the other: [n*b, bins]."""
    if size.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    emit = call.emit
    (count,), (many,) = inner_dims(call, values), inner_dims(call, splits)
    first = emit("Mul", row_numbers(call, tf.int64, 2), as_dtype(call, count, tf.int64))
    ends = emit("AddV2", call.stacked(splits), first)  # [n, b + 1]
    ends = emit("Reshape", emit("Slice", ends, [0, 1], [-1, -1]), [-1])
    zero = emit.constant(np.zeros([1], np.int64))
    made = call.rebuild(
        splits=emit("ConcatV2", [zero, ends], np.int32(0)),
        values=fold(call, values),
        weights=_weights(call, weights),
    )
    rows = emit.dim_math("Sub", many, 1)
    bins = as_dtype(call, size.tensor, tf.int32)
    return call.like(emit.reshape(made, [call.loop.length, rows, bins]))
