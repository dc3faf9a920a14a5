"""Recurrent cells and layers with kernels of their own: the loop in the batch, shared weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn._channels import is_read, unread
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product, transpose, unfold
from tf_pfor.core.values import Value

# One step: [b, ...] -> [n*b, ...] -----------------------------------------------------------------


def _fold(call: Call, value: Value) -> tf.Tensor:
    """[n*b, ...], and one row more where there may be none: the kernels refuse an empty batch."""
    flat = fold(call, value)
    if call.loop.static_length not in (None, 0):
        return flat
    more = np.asarray([[0, 1], *[[0, 0]] * (call.require_rank(value) - 1)], np.int32)
    return call.emit("Pad", flat, more)


def _unfold(call: Call, tensor: tf.Tensor, like: Value, index: int) -> Value:
    """The inverse, of output number ``index``."""
    batch, *_ = inner_dims(call, like)
    if tensor.shape.rank is None:  # of NearestNeighbors TensorFlow knows no shape: a matrix
        tensor.set_shape([None, None])
    shape = call.output_shape(index) or (None, None)
    emit, rows = call.emit, product(call, [call.loop.length, batch])
    rest = [emit.dim(tensor, i) for i in range(1, len(shape))]
    if call.loop.static_length in (None, 0):
        begin = np.zeros([len(shape)], np.int32)
        tensor = emit("Slice", tensor, begin, emit.shape_vector([rows, *[-1] * len(rest)]))
    return unfold(call, tensor, like, inner_shape=shape)


def _step(op_type: str, inputs: str, attrs: str = "") -> None:
    """Registers a cell: the inputs of the row, in the batch."""

    def convert(call: Call, *_: Value) -> Any:
        names = inputs.split()
        made = call.rebuild(**{k: _fold(call, call.value(k)) for k in names})
        like = call.inputs[names[0]]
        assert isinstance(like, Value)
        return [_unfold(call, t, like, i) for i, t in enumerate(made)]

    RegisterPFor(op_type, inputs.split(), attrs=attrs.split(), family="cell")(convert)


_step("LSTMBlockCell", "x cs_prev h_prev", "forget_bias cell_clip use_peephole")
_step("GRUBlockCell", "x h_prev")
_step("GRUBlockCellGrad", "x h_prev r u c d_h")
_step("NearestNeighbors", "points")

_STATES = ("i", "cs", "f", "o", "ci", "co")


@RegisterPFor(
    "LSTMBlockCellGrad",
    ("x", "cs_prev", "h_prev", *_STATES, "cs_grad", "h_grad"),
    attrs=("use_peephole",),
)
def lstm_cell_gradient(call: Call, *_: Value) -> Any:
    """The same; with peepholes the gradients of their weights are sums over the batch."""
    if call.attr("use_peephole"):
        raise CannotVectorize("the gradients of the peepholes are summed over the batch")
    stacked = {k: v for k, v in call.inputs.items() if isinstance(v, Value) and v.is_stacked}
    made = call.rebuild(**{k: _fold(call, v) for k, v in stacked.items()})
    rows = [_unfold(call, t, stacked["x"], i) for i, t in enumerate(made[:2])]
    return [*rows, *map(Value.unstacked, made[2:])]  # without peepholes these are zeros


# All steps: [t, b, ...] -> [t, n*b, ...] ----------------------------------------------------------


def _side_by_side(call: Call, value: Value, axis: int) -> tf.Tensor:
    """The loop merged with the batch: axis 1 of a sequence, axis 0 of a state."""
    if axis == 0:
        return fold(call, value)
    frames, batch, size = inner_dims(call, value)
    wide = transpose(call, call.stacked(value), [1, 0, 2, 3])
    return call.emit.reshape(wide, [frames, product(call, [call.loop.length, batch]), size])


@RegisterPFor(
    "BlockLSTM", ("x", "cs_prev", "h_prev"), attrs=("forget_bias", "cell_clip", "use_peephole")
)
@RegisterPFor("BlockLSTMV2", ("x", "cs_prev", "h_prev"), attrs=("cell_clip", "use_peephole"))
def block_lstm(call: Call, *_: Value) -> Any:
    """A layer whose weights all rows share."""
    axes = {"x": 1, "cs_prev": 0, "h_prev": 0}
    made = call.rebuild(**{k: _side_by_side(call, call.value(k), axis) for k, axis in axes.items()})
    x = call.value("x")
    frames, batch = inner_dims(call, x)[:2]
    found: list[tf.Tensor] = []
    for tensor in made:
        split = [frames, call.loop.length, batch, call.emit.dim(tensor, 2)]
        found.append(transpose(call, call.emit.reshape(tensor, split), [1, 0, 2, 3]))
    return found


_LSTM_BATCHED = ("x", "cs_prev", "h_prev")
_OF_ROWS = (*_LSTM_BATCHED, *_STATES, "h", "cs_grad", "h_grad")


@RegisterPFor("BlockLSTMGrad BlockLSTMGradV2", _OF_ROWS, attrs=("use_peephole",))
def block_lstm_gradient(call: Call, *_: Value) -> Any:
    """The gradients of inputs and states; gradients of the weights are sums over a batch."""
    if any(is_read(t) for t in call.op.outputs[len(_LSTM_BATCHED) :]):
        raise CannotVectorize("the gradients of the weights are sums over the batch")
    inputs: Any = call.inputs
    axes = {k: 0 if k in _LSTM_BATCHED[1:] else 1 for k in _OF_ROWS}
    made = call.rebuild(**{k: _side_by_side(call, inputs[k], axis) for k, axis in axes.items()})
    frames, batch = inner_dims(call, inputs["x"])[:2]
    split = [frames, call.loop.length, batch, call.emit.dim(made[0], 2)]
    steps = transpose(call, call.emit.reshape(made[0], split), [1, 0, 2, 3])
    states = [
        unfold(call, made[i], inputs["cs_prev"], inner_shape=call.output_shape(i)) for i in (1, 2)
    ]
    return [steps, *states, *[unread(call, i) for i in range(3, len(made))]]


# Others ------------------------------------------------------------------------------------------


@RegisterPFor("IsotonicRegression", ("input",), attrs=("output_dtype",))
def isotonic_regression(call: Call, input: Value) -> Any:
    """Along the last axis of a matrix: all axes before it are its rows, also if there are none."""
    rank = call.require_rank(input)
    made = call.rebuild(input=fold(call, input, rank - 1))
    return [
        unfold(call, t, input, rank - 1, inner_shape=call.output_shape(i))
        for i, t in enumerate(made)
    ]


def _fused_convolution(call: Call, image: Value, *_: Value) -> Any:
    """The ops that it fuses, one after the other; the kernel computes one image of a batch."""
    if image.inner_shape is None or image.inner_shape[0] != 1:
        raise CannotVectorize("of several images the kernel computes the first one only")
    emit, x = call.emit, _fold(call, image)
    shared = {k: v.tensor for k, v in call.inputs.items() if isinstance(v, Value)}
    if "size" in shared:
        align = call.attr("resize_align_corners")
        x = emit("ResizeBilinear", x, shared["size"], align_corners=align)
    x = emit("MirrorPad", x, shared["paddings"], mode=call.attr("mode"))
    strides, padding = call.attr("strides"), call.attr("padding")
    made = emit("Conv2D", x, shared["filter"], strides=strides, padding=padding)
    return _unfold(call, made, image, 0)


_PADDED = ("mode", "strides", "padding")
RegisterPFor("FusedPadConv2D", ("input",), attrs=_PADDED)(_fused_convolution)
RegisterPFor("FusedResizeAndPadConv2D", ("input",), attrs=(*_PADDED, "resize_align_corners"))(
    _fused_convolution
)
