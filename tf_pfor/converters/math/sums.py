"""Sums: elementwise, except sums of matrix products or of gradients of slices, and biases."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._broadcast import broadcast, same_shape
from tf_pfor.converters.math._column_blocks import added_columns, biased_columns
from tf_pfor.converters.math._in_channels import on_channels
from tf_pfor.converters.math._products import sum_of_products
from tf_pfor.converters.math._slice_gradients import sum_of_pieces
from tf_pfor.core.call import Call
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, unfold
from tf_pfor.core.values import Value, is_static


@RegisterPFor("Add AddV2", ANY)
def add(call: Call, x: Value, y: Value) -> Any:
    """x_i + y_i."""
    found = sum_of_products(call) or sum_of_pieces(call) or added_columns(call, x, y)
    found = found or on_channels(call) or _biased(call, x, y)
    return broadcast(call) if found is None else found


def _biased(call: Call, x: Value, y: Value) -> Value | None:
    """x_i + b for a vector b, of which a tape will take the gradient; None if it is no such sum.

    Where x_i is in blocks b is added to each.
    The kernel of BiasAdd's gradient takes half the time of the Sum that is the gradient of Add.
    """
    x, b = (y, x) if y.is_stacked else (x, y)
    shape = x.inner_shape
    if b.is_stacked or not shape or not is_static(shape) or shape[-1:] != b.inner_shape:
        return None
    if (found := biased_columns(call, x, b)) is not None:
        return found
    if x.dtype not in (tf.float32, tf.float64) or not _tf.may_record_gradients():
        return None
    axes = len(shape) - 1
    return unfold(call, call.emit("BiasAdd", fold(call, x, axes), b.tensor), x, axes)


@RegisterPFor("AddN", ANY)
def add_n(call: Call, inputs: list[Value]) -> Any:
    """The sum of tensors of one shape."""
    found = sum_of_products(call) or sum_of_pieces(call)
    return same_shape(call) if found is None else found


@RegisterPFor("AccumulateNV2", ANY, attrs=("shape",))
def accumulate_n(call: Call, inputs: list[Value]) -> Any:
    """A sum like AddN, which needs no shape to be told."""
    return call.emit("AddN", [call.stacked(v) for v in inputs])
