"""Pooling and its gradients: the loop goes into the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._families import fold_batch, table
from tf_pfor.converters.math._in_channels import each_channel
from tf_pfor.converters.nn._channels import at_least_one, folded_rows, scaled, unfolded_rows
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import fold, unfold
from tf_pfor.core.values import Value, is_static

_POOL = ("ksize", "strides", "padding", "data_format")
_THREE = ("orig_input", "orig_output", "grad")

_BY_CHANNEL = functools.partial(each_channel, sizes=("ksize", "strides"))
fold_batch(table("AvgPool", *_POOL), "value", unless=_BY_CHANNEL)
fold_batch(table("AvgPool3D MaxPool3D MaxPoolV2", *_POOL), "input")
fold_batch(table("MaxPool", *_POOL, "explicit_paddings"), "input", unless=_BY_CHANNEL)
fold_batch(table("MaxPoolGradGradV2 MaxPoolGradV2", *_POOL), _THREE)


@RegisterPFor("MaxPoolGradGrad", _THREE, attrs=_POOL)
def max_pool_second_gradient(call: Call, orig_input: Value, orig_output: Value, grad: Value) -> Any:
    """In the batch; by the places of the maxima where the pool has the size of its input.

    There TensorFlow's kernel writes over the gradient that it reads, and gives zeros in graphs.
    """
    ksize, strides, padding = (call.attr(name) for name in ("ksize", "strides", "padding"))
    has_its_size = set(strides) == {1} and (padding == "SAME" or set(ksize) == {1})
    in_order = call.attr("data_format") == "NHWC" and not _tf.in_xla_context(call.emit.graph)
    if not (has_its_size and in_order):
        values = {"orig_input": orig_input, "orig_output": orig_output, "grad": grad}
        made = call.rebuild(**{name: fold(call, value) for name, value in values.items()})
        return unfold(call, made, grad)
    _, places = call.emit(
        "MaxPoolWithArgmax",
        folded_rows(call, orig_input),
        ksize=ksize,
        strides=strides,
        padding=padding,
        include_batch_in_index=True,
    )
    flat = call.emit.reshape(folded_rows(call, grad), [-1])
    made = call.emit("GatherV2", flat, places, np.int32(0))
    return unfolded_rows(call, made, grad)


@RegisterPFor("MaxPool3DGrad MaxPool3DGradGrad", _THREE, attrs=_POOL)
def not_empty(call: Call, orig_input: Value, orig_output: Value, grad: Value) -> Any:
    """In the batch; an empty one is refused by the kernel, or kills the process (oneDNN)."""
    values = {"orig_input": orig_input, "orig_output": orig_output, "grad": grad}
    made = call.rebuild(**{k: folded_rows(call, v) for k, v in values.items()})
    return unfolded_rows(call, made, grad if "GradGrad" in call.op_type else orig_input)


@RegisterPFor("MaxPoolGrad", _THREE, attrs=(*_POOL, "explicit_paddings"))
def max_pool_grad(call: Call, orig_input: Value, orig_output: Value, grad: Value) -> Any:
    """In the batch; where n may be 0 through MaxPoolGradV2, which takes an empty one."""
    may_be_empty = call.loop.static_length in (None, 0)
    if not may_be_empty or call.attr("padding") == "EXPLICIT" or call.attr("data_format") != "NHWC":
        return not_empty(call, orig_input, orig_output, grad)
    made = call.emit(
        "MaxPoolGradV2",
        fold(call, orig_input),
        fold(call, orig_output),
        fold(call, grad),
        call.attr("ksize"),
        call.attr("strides"),
        padding=call.attr("padding"),
    )
    return unfold(call, made, orig_input)


@RegisterPFor("AvgPool3DGrad AvgPoolGrad", ("grad",), attrs=_POOL)
def average_pool_gradient(call: Call, orig_input_shape: Value, grad: Value) -> Any:
    """In the batch: the shape of the input has n times the images."""
    shape = scaled(call, "orig_input_shape", 0, call.loop.length)
    return unfold(call, call.rebuild(orig_input_shape=shape, grad=fold(call, grad)), grad)


# ---------------------------------------------------------------------------
# Positions of the maxima
# ---------------------------------------------------------------------------

_ARGMAX = ("ksize", "strides", "padding", "include_batch_in_index")


@RegisterPFor("MaxPoolWithArgmax", ("input",), attrs=_ARGMAX)
def max_pool_with_argmax(call: Call, input: Value) -> Any:
    """In the batch, positions counted within an image; then each iteration's own offsets."""
    offsets = image_offsets(call, input, call.output_dtype(1))
    made, argmax = call.rebuild(input=folded_rows(call, input), include_batch_in_index=False)
    where = unfolded_rows(call, argmax, input, call.output_shape(1))
    if offsets is not None:
        where = call.emit("AddV2", where.tensor, offsets())
    return [unfolded_rows(call, made, input, call.output_shape(0)), where]


@RegisterPFor("MaxPoolGradWithArgmax", ("input", "grad", "argmax"), attrs=_ARGMAX)
def max_pool_grad_with_argmax(call: Call, input: Value, grad: Value, argmax: Value) -> Any:
    """In the batch, with positions counted within an image."""
    offsets = image_offsets(call, input, argmax.dtype)
    if offsets is not None:
        argmax = Value.stacked(call.emit("Sub", argmax.tensor, offsets()))
    made = call.rebuild(
        input=fold(call, input),
        grad=fold(call, grad),
        argmax=fold(call, argmax),
        include_batch_in_index=False,
    )
    return unfold(call, made, input)


def image_offsets(call: Call, input: Value, dtype: tf.DType) -> Callable[[], tf.Tensor] | None:
    """[b, 1, 1, 1]: where each image of an iteration begins; None if positions ignore that."""
    if not call.attr("include_batch_in_index"):
        return None
    shape = input.inner_shape
    rest = None if shape is None else shape[1:]
    if shape is None or not is_static(rest):
        raise CannotVectorize("the shape of an image is unknown")
    if shape[0] == 1:
        return None
    size = int(np.prod(rest))

    def make() -> tf.Tensor:
        images = call.emit.as_tensor(call.emit.dim(input.tensor, 1))
        index = call.emit("Range", np.int32(0), images, np.int32(1))
        each = call.emit(
            "Mul", call.emit("Cast", index, DstT=dtype), call.emit.constant(size, dtype)
        )
        return call.emit.reshape(each, [call.emit.dim(input.tensor, 1), 1, 1, 1])

    return make


# ---------------------------------------------------------------------------
# Gradients of fractional pools: with the same regions for all iterations
# ---------------------------------------------------------------------------

_BACK = ("orig_input", "orig_output", "out_backprop")


@RegisterPFor("FractionalMaxPoolGrad", _BACK, attrs=("overlapping",))
def fractional_max_gradient(call: Call, orig_input: Value, *_: Value) -> Any:
    """In the batch, when the regions are the same for all iterations; not an empty one."""
    made = call.rebuild(**{k: folded_rows(call, call.value(k)) for k in _BACK})
    return unfolded_rows(call, made, orig_input)


@RegisterPFor("FractionalAvgPoolGrad", ("out_backprop",), attrs=("overlapping",))
def fractional_average_gradient(
    call: Call, orig_input_tensor_shape: Value, out_backprop: Value, *_: Value
) -> Any:
    """In the batch, when the regions are the same for all iterations; not an empty one."""
    made = call.rebuild(
        orig_input_tensor_shape=scaled(call, "orig_input_tensor_shape", 0, at_least_one(call)),
        out_backprop=folded_rows(call, out_backprop),
    )
    return unfolded_rows(call, made, out_backprop)
