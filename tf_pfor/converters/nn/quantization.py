"""Quantization: ranges that all rows share, and ranges that differ per row, as of channels.

The kernels know one range, or one range for each entry of an axis. Rows whose range differs are
such an axis. A tensor [n, a, d, b], with the axis d that has ranges already, becomes [n*d, a*b]
with n*d ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn._quantized_values import as_dtype, plain, uniform_attrs
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, product, transpose
from tf_pfor.core.values import Value

# ---------------------------------------------------------------------------
# Rows as channels
# ---------------------------------------------------------------------------


class _Channels:
    """The way of a tensor of each row to a tensor with n*d channels, and back.

    Kernels with ranges along an axis refuse an empty axis, and give a scalar for one channel. Where
    there may be so few channels, two more are computed and dropped.

    Args:
      call: the call.
      like: an input of the shape of the data.
      axis: its inner axis with a range for each entry, None if a row has one range.
    """

    def __init__(self, call: Call, like: Value, axis: int | None):
        self.call, self.axis = call, axis
        self.rank = call.require_rank(like)
        self.parts = inner_dims(call, like)
        self.size: Dim = 1 if axis is None else self.parts[axis]
        self.rows = product(call, [call.loop.length, self.size])
        self.more = call.loop.static_length in (None, 0, 1)
        self.others = [d for i, d in enumerate(self.parts) if i != axis]

    @property
    def _order(self) -> list[int]:
        """[n, ..., d, ...] -> [n, d, ...]."""
        if self.axis is None:
            return [*range(self.rank + 1)]
        at = self.axis + 1
        return [0, at, *[i for i in range(1, self.rank + 1) if i != at]]

    def folded(self, value: Value, *, last: bool = False) -> tf.Tensor:
        """[n*d, all the rest], or [all the rest, n*d]."""
        call = self.call
        moved = transpose(call, plain(call, call.stacked(value)), self._order)
        flat = call.emit.reshape(moved, [self.rows, product(call, self.others)])
        if last:
            return transpose(call, flat, [1, 0])
        if self.more:
            flat = call.emit("Pad", flat, np.asarray([[0, 2], [0, 0]], np.int32))
        return as_dtype(call, flat, value.dtype)

    def unfolded(self, tensor: tf.Tensor, *, last: bool = False) -> tf.Tensor:
        """Back to [n, ...]."""
        call, dtype = self.call, tensor.dtype
        tensor = transpose(call, tensor, [1, 0]) if last else self._own(plain(call, tensor))
        own = [] if self.axis is None else [self.size]
        wide = call.emit.reshape(tensor, [call.loop.length, *own, *self.others])
        back = [int(i) for i in np.argsort(self._order)]
        return as_dtype(call, transpose(call, wide, back), dtype)

    def _own(self, tensor: tf.Tensor) -> tf.Tensor:
        """Without the channels that no row has."""
        if not self.more:
            return tensor
        emit, rank = self.call.emit, tensor.shape.rank or 0
        size = emit.shape_vector([self.rows, *[-1] * (rank - 1)])
        return emit("Slice", tensor, np.zeros([rank], np.int32), size)

    def ranges(self, value: Value, other: float = 0, *, last: bool = False) -> tf.Tensor:
        """The bounds of all channels, [n*d]; one bound stands for all channels of a row.

        Args:
          value: the bound of a row, or the bounds of its channels.
          other: the bound of a channel that no row has.
          last: whether channels are the last axis of the data.
        """
        call, shape = self.call, value.inner_shape
        if shape is None or len(shape) > 1 or (shape == () and self.axis is not None):
            raise CannotVectorize("the number of ranges is unknown")
        flat = call.emit.reshape(call.stacked(value), [self.rows])
        if last or not self.more:
            return flat
        return call.emit(
            "PadV2", flat, np.asarray([[0, 2]], np.int32), call.emit.constant(other, value.dtype)
        )

    def bounds(self, tensor: tf.Tensor, like: Value, *, last: bool = False) -> tf.Tensor:
        """Bounds that the kernel gives for all channels, [n*d], in the shape of rows' bounds."""
        call, emit = self.call, self.call.emit
        tensor = tensor if last else self._own(tensor)
        target = emit.shape_vector([call.loop.length, *inner_dims(call, like)])
        return emit("Reshape", tensor, target)


def _axis_of(call: Call, name: str = "axis") -> int | None:
    axis = call.attr(name)
    if axis < -1:
        raise CannotVectorize(f"'{name}' is {axis}")
    return None if axis == -1 else axis


def _is_any_stacked(values: Mapping[str, Any], *names: str) -> bool:
    return any(values[name].is_stacked for name in names)


# ---------------------------------------------------------------------------
# Fake quantization
# ---------------------------------------------------------------------------

_FAKE = ("num_bits", "narrow_range")


@RegisterPFor("FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel", ANY, attrs=_FAKE)
def fake_quantize(call: Call, inputs: Value, min: Value, max: Value) -> Any:
    """One range is elementwise; ranges that differ per row are ranges of n (times d) channels."""
    if not (min.is_stacked or max.is_stacked):
        return call.rebuild()
    channels = _fake_channels(call, inputs)
    made = call.emit(
        "FakeQuantWithMinMaxVarsPerChannel",
        channels.folded(inputs, last=True),
        channels.ranges(min, last=True),
        channels.ranges(max, last=True),
        **{k: call.attr(k) for k in _FAKE},
    )
    return channels.unfolded(made, last=True)


@RegisterPFor(
    "FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannelGradient", ANY, attrs=_FAKE
)
def fake_quantize_gradient(
    call: Call, gradients: Value, inputs: Value, min: Value, max: Value
) -> Any:
    """The same, with sums for each channel: the gradients of the bounds."""
    channels = _fake_channels(call, inputs)
    made = call.emit(
        "FakeQuantWithMinMaxVarsPerChannelGradient",
        channels.folded(gradients, last=True),
        channels.folded(inputs, last=True),
        channels.ranges(min, last=True),
        channels.ranges(max, last=True),
        **{k: call.attr(k) for k in _FAKE},
    )
    return [
        channels.unfolded(made[0], last=True),
        channels.bounds(made[1], min, last=True),
        channels.bounds(made[2], max, last=True),
    ]


def _fake_channels(call: Call, inputs: Value) -> _Channels:
    has_channels = "PerChannel" in call.op_type
    return _Channels(call, inputs, call.require_rank(inputs) - 1 if has_channels else None)


# ---------------------------------------------------------------------------
# Quantize and dequantize
# ---------------------------------------------------------------------------

_ROUND_TRIP = ("signed_input", "num_bits", "range_given", "round_mode", "narrow_range", "axis")


@RegisterPFor(
    "QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4",
    ANY,
    attrs=_ROUND_TRIP,
)
def quantize_and_dequantize(
    call: Call, input: Value, input_min: Value, input_max: Value, num_bits: Value | None = None
) -> Any:
    """One given range needs no change; ranges that differ, or are found, are of channels.

    Only the kernel of V3 takes given ranges along an axis; it rounds halves to even. The gradient
    of V4 is cut off at the bounds, also where they are not given to the kernel.
    """
    if num_bits is not None and num_bits.is_stacked:
        raise CannotVectorize("'num_bits' differs between iterations")
    axis, emit, given = _axis_of(call), call.emit, call.attr("range_given")
    if given and not (input_min.is_stacked or input_max.is_stacked):
        return call.rebuild() if axis is None else call.rebuild(axis=axis + 1)
    is_third = call.op_type.endswith("V3")
    if not is_third and call.attr("round_mode") != "HALF_TO_EVEN" and given:
        raise CannotVectorize("the kernel with ranges along an axis rounds halves to even")
    channels = _Channels(call, input, axis)
    x = channels.folded(input)
    if call.op_type.endswith("V4") or given:
        low, high = channels.ranges(input_min, -1), channels.ranges(input_max, 1)
    else:  # the kernel looks at their shape only, and there is no gradient that reads them
        low = high = emit("Fill", emit.shape_vector([emit.dim(x, 0)]), emit.constant(0, x.dtype))
    if is_third or not given:
        made = call.rebuild(input=x, input_min=low, input_max=high, axis=0)
        return channels.unfolded(made)
    options = {k: call.attr(k) for k in ("signed_input", "range_given", "narrow_range")}
    bits = emit.constant(call.attr("num_bits"), tf.int32)
    made = emit("QuantizeAndDequantizeV3", x, low, high, bits, **options, axis=0)
    if call.op_type.endswith("V4"):  # its gradient is V3's, cut off at the bounds
        made = emit.identities([made, x, low, high], _GRADIENT)[0]
    return channels.unfolded(made)


_GRADIENT = "TfPforQuantizeAndDequantize"


@tf.RegisterGradient(_GRADIENT)
def _gradient(op: tf.Operation, *grads: tf.Tensor) -> list[Any]:
    _, x, low, high = op.inputs
    made = tf.raw_ops.QuantizeAndDequantizeV4Grad(
        gradients=grads[0], input=x, input_min=low, input_max=high, axis=0
    )
    return [None, *made]


@RegisterPFor("QuantizeAndDequantizeV4Grad", ANY, attrs=("axis",))
def quantize_and_dequantize_gradient(
    call: Call, gradients: Value, input: Value, input_min: Value, input_max: Value
) -> Any:
    """Rows as channels, each with gradients of its bounds."""
    channels = _Channels(call, input, _axis_of(call))
    made = call.rebuild(
        gradients=channels.folded(gradients),
        input=channels.folded(input),
        input_min=channels.ranges(input_min, -1),
        input_max=channels.ranges(input_max, 1),
        axis=0,
    )
    return [
        channels.unfolded(made[0]),
        channels.bounds(made[1], input_min),
        channels.bounds(made[2], input_max),
    ]


def _check_mode(call: Call) -> None:
    if call.attr("mode") == "MIN_FIRST":
        raise CannotVectorize("the kernel has no ranges along an axis in mode MIN_FIRST")
    if call.op_type != "QuantizeV2":
        return
    if (call.attr("mode"), call.attr("round_mode")) == ("SCALED", "HALF_TO_EVEN"):
        raise CannotVectorize("the kernels of one range and of several scale differently")


def _not_empty(call: Call, input: Value, changes: dict[str, Any]) -> tf.Tensor:
    """The op again. Its kernel ends the process if there is nothing to do: then of one row more."""
    if call.loop.static_length not in (None, 0):
        return call.rebuild(**changes)
    emit, rank = call.emit, call.require_rank(input)
    more = np.asarray([[0, 1], *[[0, 0]] * rank], np.int32)
    wide = as_dtype(call, emit("Pad", plain(call, input.tensor), more), input.dtype)
    size = emit.shape_vector([call.loop.length, *[-1] * rank])
    made = call.rebuild(input=wide, **changes)
    return emit("Slice", made, np.zeros([rank + 1], np.int32), size)


@RegisterPFor("Dequantize", ANY, attrs=("mode", "narrow_range", "axis", "dtype"))
def dequantize(call: Call, input: Value, min_range: Value, max_range: Value) -> Any:
    """By one range elementwise, by ranges of the rows as channels."""
    axis = _axis_of(call)
    if not (min_range.is_stacked or max_range.is_stacked):
        return _not_empty(call, input, {} if axis is None else {"axis": axis + 1})
    _check_mode(call)
    channels = _Channels(call, input, axis)
    made = call.rebuild(
        input=channels.folded(input),
        min_range=channels.ranges(min_range, -1),
        max_range=channels.ranges(max_range, 1),
        axis=0,
    )
    return channels.unfolded(made)


@RegisterPFor(
    "QuantizeV2",
    ANY,
    attrs=("T", "mode", "round_mode", "narrow_range", "axis", "ensure_minimum_range"),
)
def quantize(call: Call, input: Value, min_range: Value, max_range: Value) -> Any:
    """The same; the resulting ranges differ per row, or are shared."""
    axis = _axis_of(call)
    if not (min_range.is_stacked or max_range.is_stacked):
        made, low, high = call.rebuild() if axis is None else call.rebuild(axis=axis + 1)
        return [made, Value.unstacked(low), Value.unstacked(high)]
    _check_mode(call)
    channels = _Channels(call, input, axis)
    made, low, high = call.rebuild(
        input=channels.folded(input),
        min_range=channels.ranges(min_range, -1),
        max_range=channels.ranges(max_range, 1),
        axis=0,
    )
    like = min_range
    return [channels.unfolded(made), channels.bounds(low, like), channels.bounds(high, like)]


# ---------------------------------------------------------------------------
# Uniform quantization
# ---------------------------------------------------------------------------


@RegisterPFor("UniformQuantize UniformDequantize", ANY, attrs=("Tout", *uniform_attrs("")))
def uniform_quantize(call: Call, input: Value, scales: Value, zero_points: Value) -> Any:
    """Scales of the rows are scales of channels."""
    axis = _axis_of(call, "quantization_axis")
    if not (scales.is_stacked or zero_points.is_stacked):
        return call.rebuild() if axis is None else call.rebuild(quantization_axis=axis + 1)
    channels = _Channels(call, input, axis)
    made = call.rebuild(
        input=channels.folded(input),
        scales=channels.ranges(scales, 1),
        zero_points=channels.ranges(zero_points),
        quantization_axis=0,
    )
    return channels.unfolded(made)


@RegisterPFor("UniformQuantizedClipByValue", ANY, attrs=uniform_attrs(""))
def uniform_clip(
    call: Call, operand: Value, min: Value, max: Value, scales: Value, zero_points: Value
) -> Any:
    """Bounds of the rows are bounds of channels."""
    axis = _axis_of(call, "quantization_axis")
    if not _is_any_stacked(call.inputs, "min", "max", "scales", "zero_points"):
        return call.rebuild() if axis is None else call.rebuild(quantization_axis=axis + 1)
    channels = _Channels(call, operand, axis)
    made = call.rebuild(
        operand=channels.folded(operand),
        min=channels.ranges(min),
        max=channels.ranges(max),
        scales=channels.ranges(scales, 1),
        zero_points=channels.ranges(zero_points),
        quantization_axis=0,
    )
    return channels.unfolded(made)


@RegisterPFor(
    "UniformRequantize",
    ("input",),
    attrs=("Tout", *uniform_attrs("input_"), *uniform_attrs("output_")),
)
def uniform_requantize(call: Call, input: Value, *_: Value) -> Any:
    """The axes move by one."""
    return _behind_the_loop(call, "input", "output")


@RegisterPFor(
    "UniformQuantizedAdd",
    ("lhs", "rhs"),
    attrs=(*uniform_attrs("lhs_"), *uniform_attrs("rhs_"), *uniform_attrs("output_")),
)
def uniform_add(call: Call, lhs: Value, rhs: Value, *_: Value) -> Any:
    """Elementwise with one scale for each tensor; ranks must agree, as the kernel aligns them."""
    if call.require_rank(lhs) != call.require_rank(rhs):
        raise CannotVectorize("the operands differ in rank")
    return _behind_the_loop(call, "lhs", "rhs", "output")


def _behind_the_loop(call: Call, *names: str) -> Any:
    """The op with each axis of ranges one further."""
    axes = {k: _axis_of(call, k) for k in (f"{name}_quantization_axis" for name in names)}
    return call.rebuild(**{k: a + 1 for k, a in axes.items() if a is not None})
