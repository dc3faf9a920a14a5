"""Products that were made in blocks of columns: biases and splits take them block by block.

The gates of a recurrent step are one product, a bias, and a Split. Where the product is made in
blocks (``_weights.py``) nothing joins them if the Split would only take them apart again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._weights import in_columns
from tf_pfor.core.call import Call
from tf_pfor.core.shapes import fold, unfold
from tf_pfor.core.values import Value, dims, folded_form, is_static, known_dims

_PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "Einsum", "MatMul")


def biased_columns(call: Call, x: Value, b: Value) -> Value | None:
    """x_i + b for an invariant vector b; None if x_i is not in blocks."""
    columns = _columns(x)
    widths = _widths(columns)
    if not columns or b.is_stacked or b.inner_shape != (sum(widths),):
        return None
    biases = in_columns(call, b.tensor, widths)
    made = tuple(call.emit("BiasAdd", c, v) for c, v in zip(columns, biases))
    return unfold(call, made, x, _axes(x))


def added_columns(call: Call, x: Value, y: Value) -> Value | None:
    """x_i + y_i of two products, block by block; None if neither is in blocks."""
    widths = _widths(_columns(x) or _columns(y))
    if not widths or not (x.is_stacked and y.is_stacked) or x.inner_shape != y.inner_shape:
        return None
    like = x if _columns(x) else y
    axes, sides = _axes(like), list[Sequence[tf.Tensor]]()
    for value, tensor in zip((x, y), call.op.inputs):
        columns = _columns(value)
        if not columns and tensor.op.type in _PRODUCTS:
            columns = _taken_apart(call, fold(call, value, axes), widths)
        if _widths(columns) != widths:
            return None
        sides.append(columns)
    return unfold(call, tuple(call.emit("AddV2", a, b) for a, b in zip(*sides)), like, axes)


def joined_columns(call: Call, values: Sequence[Value], axis: int) -> Value | None:
    """Values side by side on inner axis ``axis``; None if no product is going to read them."""
    axes = call.require_rank(values[0]) - 1
    if (
        axis != axes
        or axes != 1
        or not all(v.is_stacked and is_static(v.inner_shape) for v in values)
    ):
        return None
    result = call.op.outputs[0]
    if not any(c.type == "MatMul" and c.inputs[0] is result for c in result.consumers()):
        return None
    return unfold(call, tuple(fold(call, v) for v in values), values[0])


def split_columns(call: Call, x: Value, axis: int, sizes: Sequence[int]) -> list[Value] | None:
    """x_i taken apart on its last axis; None if it is not in blocks.

    Args:
      call: a split.
      x: the value.
      axis: the inner axis.
      sizes: the sizes of the results.
    """
    columns = _columns(x)
    if not columns or axis != call.require_rank(x) - 1 or min(sizes) < 1:
        return None
    ends, end, pieces = np.cumsum(sizes).tolist(), 0, list[tf.Tensor]()
    for column, width in zip(columns, _widths(columns)):
        start, end = end, end + width
        cuts = [e for e in ends if start < e < end]
        widths = np.diff([start, *cuts, end]).tolist()
        pieces += _taken_apart(call, column, widths) if cuts else [column]
    made: list[Value] = []
    for i, size in enumerate(sizes):
        block: list[tf.Tensor] = []
        while sum(_widths(block)) < size:
            block.append(pieces.pop(0))
        held = tuple(block) if block[1:] else block[0]
        made.append(unfold(call, held, x, _axes(x), call.output_shape(i)))
    return made


def _taken_apart(call: Call, tensor: tf.Tensor, widths: Sequence[int]) -> list[tf.Tensor]:
    sizes, axis = np.asarray(widths, np.int32), np.int32(len(dims(tensor) or ()) - 1)
    return call.emit("SplitV", tensor, sizes, axis, num_split=len(widths))


def _columns(x: Value) -> tuple[tf.Tensor, ...]:
    form = folded_form(x)
    return () if form is None else form.columns


def _axes(x: Value) -> int:
    form = folded_form(x)
    assert form is not None
    return form.axes


def _widths(columns: Sequence[tf.Tensor]) -> list[int]:
    return [known_dims(dims(c))[-1] for c in columns]
