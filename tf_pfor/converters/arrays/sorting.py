"""Sorting, top_k, searching."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import column
from tf_pfor.converters.math._families import along, table
from tf_pfor.core.call import Call
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product, transpose, unfold
from tf_pfor.core.values import Value

along(table("TopKV2", "sorted") | table("NthElement", "reverse"), "input")

_CHOICES = "recall_target", "reduction_input_size_override", "aggregate_to_topk"


@RegisterPFor("ApproxTopK", ANY, attrs=("k", "reduction_dimension", "is_max_k", *_CHOICES))
def approximate_top_k(call: Call, input: Value) -> Any:
    """The kernel works on one axis; it takes the last one by -1 only."""
    axis = call.attr("reduction_dimension")
    return call.rebuild(reduction_dimension=axis if axis < 0 else axis + 1)


@RegisterPFor("InTopK", ("predictions", "targets"), attrs=("k",))
@RegisterPFor("InTopKV2", ("predictions", "targets"))
def in_top_k(call: Call, predictions: Value, targets: Value, k: Value | None = None) -> Any:
    """Each row of [batch, classes] is for itself: fold the loop into the batch."""
    made = call.rebuild(predictions=fold(call, predictions), targets=fold(call, targets))
    return unfold(call, made, predictions)


@RegisterPFor("InTopKV2", ("k", "predictions", "targets"))
def in_own_top_k(call: Call, predictions: Value, targets: Value, k: Value) -> Any:
    """Fewer than k are above the target's: where one is not finite nothing is among them."""
    emit, classes = call.emit, call.emit.dim(predictions.tensor, -1)
    x, at = call.stacked(predictions), call.stacked(targets)  # [n, b, c], [n, b]
    last, dtype = np.int32(-1), targets.dtype
    size = emit("Cast", emit.as_tensor(classes), DstT=dtype)
    zero = emit.constant(0, dtype)
    is_in = emit("LogicalAnd", emit("GreaterEqual", at, zero), emit("Less", at, size))
    own = emit(
        "GatherV2",
        x,
        emit("ExpandDims", emit("SelectV2", is_in, at, zero), last),
        np.int32(2),
        batch_dims=2,
    )
    above = emit("Sum", emit("Cast", emit("Greater", x, own), DstT=k.dtype), last)
    is_among = emit("Less", above, column(call, k, 1))
    is_known = emit("LogicalAnd", is_in, emit("All", emit("IsFinite", x), last))
    return emit("LogicalAnd", is_among, is_known)


@RegisterPFor("LowerBound UpperBound", ("values",))
def search_shared(call: Call, sorted_inputs: Value, values: Value) -> Any:
    """Invariant rows to search in: the values of all iterations side by side.

    [n, b, m] -> [b, n*m] -> [n, b, m].
    """
    n = call.loop.length
    rows, columns = inner_dims(call, values)
    if isinstance(rows, int) and rows == 1:
        wide = call.emit.reshape(values.any_form, [1, product(call, [n, columns])])
        return call.emit.reshape(call.rebuild(values=wide), [n, 1, columns])
    side = transpose(call, values.tensor, [1, 0, 2])  # [b, n, m]
    wide = call.emit.reshape(side, [rows, product(call, [n, columns])])
    made = call.emit.reshape(call.rebuild(values=wide), [rows, n, columns])
    return transpose(call, made, [1, 0, 2])


@RegisterPFor("LowerBound UpperBound", ("sorted_inputs", "values"))
def search(call: Call, sorted_inputs: Value, values: Value) -> tf.Tensor | Value:
    """Each row is searched for itself: fold the loop into the rows."""
    made = call.rebuild(sorted_inputs=fold(call, sorted_inputs), values=fold(call, values))
    return unfold(call, made, values)
