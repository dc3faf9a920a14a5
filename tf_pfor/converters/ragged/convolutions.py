"""Convolutions and pooling of variable-length rows, and of images whose size differs per row.

They run on the padded form. The padding behind the end of a row is neutral: zeros, or for a maximum
the least number. With strides the paddings of ``SAME`` depend on the size of a row. Then each row
stands behind the paddings for its size, and the op is ``VALID``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    from_padded,
    gradient_of,
    row_sizes,
    with_room,
    zeros_of,
)
from tf_pfor.converters.ragged.padding import placed
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import lowest
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.packing import masked
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import dim


@ragged_rule("Conv2D DepthwiseConv2dNative")
def convolution(call: Call, input: Value, filter: Value) -> Any:
    """One filter for all rows, zeros behind the end of each; or a filter for each."""
    if not isinstance(input, Ragged) or not is_static(filter.inner_shape):
        raise CannotVectorize("the images have one shape, or the size of the filter is not known")
    dilations = call.attr("dilations")
    reach = [(k - 1) * dilations[i + 1] + 1 for i, k in enumerate(filter.inner_shape[:2])]
    if filter.is_stacked:
        return _of_own_filters(call, _Windows(call, input, reach, in_frames=True), filter.tensor)
    windows = _Windows(call, input, reach)
    return windows.result(_run(call, windows, windows.framed(0), filter.tensor))


def _of_own_filters(call: Call, windows: _Windows, filter: tf.Tensor) -> Value:
    """A filter for each row, [n, height, width, c, c'].

    Depthwise, the channels of all rows are channels of one convolution. Else it is one product with
    what all taps see.
    """
    sizes = [d for d in filter.shape[1:] if d is not None]
    if len(sizes) < 4:
        raise CannotVectorize("the size of the filters is unknown")
    height, width, depth, channels = sizes
    if windows.input.size_at(3) != depth:
        raise CannotVectorize("the filter is of groups of channels")
    framed = windows.framed(0)
    if "Depthwise" in call.op_type:
        rows = windows.unfolded(framed)
        rows, filter = with_room(rows, 0, 1), with_room(filter, 0, 1)
        n, images = tf.shape(rows)[0], tf.shape(rows)[1]
        x = _joined(tf.transpose(rows, [1, 2, 3, 0, 4]), n * depth)
        own = tf.reshape(
            tf.transpose(filter, [1, 2, 0, 3, 4]), [height, width, n * depth, channels]
        )
        made = _run(call, windows, x, own)
        shape = tf.concat([tf.shape(made)[:3], [n, depth * channels]], 0)
        made = tf.transpose(tf.reshape(made, shape), [3, 0, 1, 2, 4])
        return windows.result(tf.reshape(made, tf.concat([[n * images], tf.shape(made)[2:]], 0)))
    call.read.update(["explicit_paddings", "use_cudnn_on_gpu"])  # without a meaning here
    seen = tf.concat(windows.taps(framed, [height, width], call.attr("dilations")[1:3]), -1)
    flat = tf.reshape(filter, [-1, 1, 1, height * width * depth, channels])
    return windows.result(_folded(tf.matmul(seen, flat)))


def _joined(x: tf.Tensor, channels: Dim) -> tf.Tensor:
    """[..., n, c] -> [..., n * c]."""
    return tf.reshape(x, tf.concat([tf.shape(x)[:-2], [channels]], 0))


@ragged_rule("Conv2DBackpropInput DepthwiseConv2dNativeBackpropInput", of_shapes=True)
def input_gradient(call: Call, input_sizes: Value, filter: Value, out_backprop: Value) -> Any:
    """The gradient for the rows; also a transposed convolution of rows."""
    input = _zeros(call, input_sizes, out_backprop.dtype)
    return gradient_of(call, lambda x: convolution(call, x, filter), input, out_backprop)


@ragged_rule("Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter")
def filter_gradient(call: Call, input: Value, filter_sizes: Value, out_backprop: Value) -> Any:
    """[n, kh, kw, c, c']: what each tap has seen, by what flows back to it."""
    filter = zeros_of(call, call.constant("filter_sizes").tolist(), out_backprop.dtype)
    return gradient_of(call, lambda x: convolution(call, input, x), filter, out_backprop)


@ragged_rule("MaxPool")
def max_pool(call: Call, input: Value) -> Any:
    """The least number behind the end of each row."""
    windows = _Windows(call, input, call.attr("ksize")[1:3])
    return windows.result(_run(call, windows, windows.framed(lowest(input.dtype))))


@ragged_rule("AvgPool")
def average_pool(call: Call, value: Value) -> Any:
    """Sums of what is there, by how much of it there is."""
    windows = _Windows(call, value, call.attr("ksize")[1:3])
    made = _run(call, windows, windows.framed(0))
    if windows.padding == "SAME" or windows.may_be_cut:  # a window at the edge has less in it
        ones = tf.ones_like(windows.input.in_rows[:, :, :, :, :1])
        made = tf.math.divide_no_nan(made, _run(call, windows, windows.framed(0, ones)))
    return windows.result(made)


@ragged_rule("ExtractImagePatches")
def patches(call: Call, images: Value) -> Any:
    """The pixels of each window as channels, zeros behind the end of each row."""
    sizes, rates = call.attr("ksizes")[1:3], call.attr("rates")[1:3]
    windows = _Windows(call, images, [(k - 1) * rate + 1 for k, rate in zip(sizes, rates)])
    return windows.result(_run(call, windows, windows.framed(0)))


@ragged_rule("AvgPoolGrad", of_shapes=True)
def average_pool_gradient(call: Call, orig_input_shape: Value, grad: Value) -> Any:
    """Each element's part of what flows back to its windows."""
    input = _zeros(call, orig_input_shape, grad.dtype)
    return gradient_of(call, lambda x: average_pool(call, x), input, grad)


@ragged_rule("MaxPoolGrad")
def max_pool_gradient(call: Call, orig_input: Value, orig_output: Value, grad: Value) -> Any:
    """Gradients of the elements that are the maximum of a window."""
    return gradient_of(call, lambda x: max_pool(call, x), orig_input, grad)


@ragged_rule("MaxPoolGradGrad")
def max_pool_maxima(call: Call, orig_input: Value, orig_output: Value, grad: Value) -> Any:
    """Elements at the maxima: the gradient of ``max_pool_gradient``, which is linear."""

    def back(upstream: Value) -> Any:
        return max_pool_gradient(call, orig_input, orig_output, upstream)

    return gradient_of(call, back, orig_output, grad)


def _zeros(call: Call, shape: Value, dtype: tf.DType) -> Value:
    """Images of zeros, of the shape that a gradient op gets, and its result has."""
    sizes, known = target_sizes(call, shape, 0), call.output_shape() or [None] * 4
    return zeros_of(call, [s if k is None else k for s, k in zip(sizes, known)], dtype)


_OPS = {
    "Conv2DBackpropInput": "Conv2D",
    "DepthwiseConv2dNativeBackpropFilter": "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropInput": "DepthwiseConv2dNative",
    "AvgPoolGrad": "AvgPool",
    "MaxPoolGrad": "MaxPool",
    "MaxPoolGradGrad": "MaxPool",
}
"""The ops whose gradients these are."""


_FORWARD = ("AvgPool", "Conv2D", "DepthwiseConv2dNative", "ExtractImagePatches", "MaxPool")
"""The ops that check the sizes of rows. Their gradients come after them."""


def _run(call: Call, windows: _Windows, *inputs: tf.Tensor) -> tf.Tensor:
    """The op on framed images; for a gradient op the op whose gradient it is."""
    call.read.update(["explicit_paddings", "use_cudnn_on_gpu"])  # without a meaning here
    known = ("dilations", "ksize", "ksizes", "rates", "strides")
    names = [k for k in known if k in call.schema.attr_types]
    attrs = {k: call.attr(k) for k in names}
    op_type = _OPS.get(call.op_type, call.op_type)
    return call.emit(op_type, *inputs, padding=windows.padding, **attrs)


def _folded(x: tf.Tensor) -> tf.Tensor:
    """[n, images, ...] -> [n * images, ...], of one row of zeros if there is none.

    Kernels of oneDNN make an empty batch of another shape, or end the process.
    """
    x = with_room(x, 0, 1)
    shape = tf.shape(x)
    folded = tf.reshape(x, tf.concat([[shape[0] * shape[1]], shape[2:]], 0))
    folded.set_shape([None, *x.shape[2:]])
    return folded


def _unfolded(made: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """[n, images, ...] of what a kernel made of folded rows, [n, images, ...]."""
    n, images = dim(rows, 0), dim(rows, 1)
    full = tf.reshape(made, tf.concat([[tf.maximum(n, 1), images], tf.shape(made)[1:]], 0))
    full = full if isinstance(n, int) and n else full[:n]
    full.set_shape([*rows.shape[:2], *made.shape[1:]])
    return full


@dataclasses.dataclass(frozen=True, slots=True)
class _NumberOfWindows:
    """The rule for the numbers of windows along an axis: rows of the same sizes have as many."""

    stride: int
    less: int

    def on(self, sizes: Sequence[tf.Tensor]) -> tf.Tensor:
        """int32 [n]: one number for each size."""
        return tf.maximum(-(-(sizes[0] - self.less) // self.stride), np.int32(0))


class _Windows:
    """The windows of images [n, images, height, width, channels], the sizes of which may differ.

    Args:
      call: the op.
      input: its images.
      reach: the height and width of a window, with its dilations.
      in_frames: whether all paddings are to stand around the framed images.

    Attributes:
      input: its images.
      padding: the padding of the op on framed images.
      may_be_cut: whether a window may reach past the edge of an image.
    """

    def __init__(self, call: Call, input: Value, reach: Sequence[int], *, in_frames: bool = False):
        if not isinstance(input, Ragged):
            raise CannotVectorize("the images have one shape")
        last = call.attr("data_format") if "data_format" in call.schema.attr_types else "NHWC"
        if last != "NHWC" or call.attr("padding") not in ("SAME", "VALID"):
            raise CannotVectorize("the channels are not the last axis, or paddings are given")
        self._strides = call.attr("strides")[1:3]
        sizes = [input.size_at(axis) for axis in range(4)] if input.rank == 4 else []
        is_known = sizes and not any(isinstance(s, RowSizes) for s in (sizes[0], sizes[3]))
        if not is_known or not all(isinstance(s, (int, RowSizes)) for s in sizes[:3]):
            raise CannotVectorize("the number of images, or the size of an axis, is not known")
        self._call, self.input, self._reach = call, input, reach
        self._images, self._sizes = sizes[0], sizes[1:3]
        self.may_be_cut = call.attr("padding") == "SAME"
        depend = any(
            isinstance(s, RowSizes) and stride > 1 for s, stride in zip(self._sizes, self._strides)
        )
        # MaxPoolGradGrad may write its result over an input of the same size, before it reads that.
        in_frames |= depend or call.op_type.startswith("MaxPool")
        self._frames = self.may_be_cut and in_frames
        self.padding = "VALID" if self._frames else call.attr("padding")

    def framed(self, filler: object, images: tf.Tensor | None = None) -> tf.Tensor:
        """[n * images, height, width, channels], with a filler behind the end of each row.

        Args:
          filler: a number.
          images: in place of the input, with anything in the padding.
        """
        if images is None and filler == 0:
            x = self.input.in_rows
        else:
            x = self.input.in_any_rows if images is None else images
            x = masked(x, self.input.sizes, filler)
        for axis, size in enumerate(self._sizes):  # all rows may have no room for a window
            if isinstance(size, RowSizes):
                x = self._after_check(x, axis, size)
                x = with_room(x, axis + 2, 1 if self.may_be_cut else self._reach[axis])
        if self._frames:
            for axis in (0, 1):
                x = self._behind_paddings(x, axis, filler)
        return _folded(x)

    def _after_check(self, x: tf.Tensor, axis: int, size: RowSizes) -> tf.Tensor:
        """Rows of a forward op that may be so short that its kernel refuses them."""
        least = self._reach[axis] - 2 * self._strides[axis] + 1  # one less makes -1 windows
        is_checked = not self.may_be_cut and least > 0 and self._call.op_type in _FORWARD
        if not is_checked:
            return x
        text = f"a row has not the {least} elements that windows need along axis {axis + 1}, but"
        return self._call.after_check(size.tensor >= least, text, [size.tensor], x)

    def _behind_paddings(self, x: tf.Tensor, axis: int, filler: object) -> tf.Tensor:
        """The rows with the paddings of SAME around an axis, as large as each size asks for."""
        size, stride, reach = self._sizes[axis], self._strides[axis], self._reach[axis]
        at = axis + 2
        number = tf.constant(np.asarray(filler, x.dtype.as_numpy_dtype))
        if not isinstance(size, RowSizes) or stride == 1:
            room = size if isinstance(size, int) else 1  # of stride 1, whatever the size
            total = max((-(-room // stride) - 1) * stride + reach - room, 0)
            front = total // 2
            around = [[front, total - front] if k == at else [0, 0] for k in range(5)]
            return tf.pad(x, around, constant_values=number)
        rest = size.tensor % stride
        total = tf.maximum(reach - tf.where(tf.equal(rest, 0), stride, rest), 0)
        room = tf.shape(x)[at]
        places = tf.range(room + reach - 1)[None] - (total // 2)[:, None]
        is_there = (places >= 0) & (places < size.tensor[:, None])
        more = tf.pad(x, [[0, 1] if k == at else [0, 0] for k in range(5)], constant_values=number)
        return tf.gather(more, tf.where(is_there, places, room), axis=at, batch_dims=1)

    def taps(
        self, framed: tf.Tensor, kernel: Sequence[int], rates: Sequence[int]
    ) -> list[tf.Tensor]:
        """[n, images, height, width, c] for each place in a filter: what it sees of the images."""
        framed, ranges = self.unfolded(framed), list[Any]()
        for axis in (0, 1):
            stride = self._strides[axis]
            span = dim(framed, axis + 2) - self._reach[axis] + 1
            firsts = [k * rates[axis] for k in range(kernel[axis])]
            ranges.append([slice(first, first + span, stride) for first in firsts])
        return [framed[:, :, i, j] for i in ranges[0] for j in ranges[1]]

    def unfolded(self, made: tf.Tensor) -> tf.Tensor:
        """[n, images, ...] of what the op made of framed images."""
        return _unfolded(made, self.input.in_rows)

    def result(self, made: tf.Tensor) -> Value:
        """The rows, of what the op made of framed images."""
        full = self.unfolded(made)
        out = [self._of_windows(axis) for axis in (0, 1)]
        return from_padded(full, [self._images, *out])

    def _of_windows(self, axis: int) -> Any:
        """The number of windows along an axis."""
        size, stride, reach = self._sizes[axis], self._strides[axis], self._reach[axis]
        less = 0 if self.may_be_cut else reach - 1
        if isinstance(size, int):
            return max(-(-(size - less) // stride), 0)
        if stride == 1 and not less:
            return size
        most = None if size.most is None else max(-(-(size.most - less) // stride), 0)
        return RowSizes.following([size], _NumberOfWindows(stride, less), most)


# ---------------------------------------------------------------------------
# Dilated convolutions of sequences
# ---------------------------------------------------------------------------
#
# TensorFlow's convolutions of one axis take every k-th step as a sequence of its own. How much is
# padded and cropped for that depends on the length of the row.


def _sequence(call: Call, input: Value, block_shape: Value, ends: Value) -> Any:
    """Batch and steps of a row, how many parts they are taken into, and numbers of both ends."""
    block = call.maybe_constant("block_shape")
    if not isinstance(input, Ragged) or not call.uses_packed or block is None or block.size != 1:
        raise CannotVectorize("blocks of several axes, or rows of several axes that differ")
    if len(input.sizes) != 2 or not isinstance(input.sizes[0], int):
        raise CannotVectorize("blocks of rows of several axes that differ")
    numbers = tf.cast(call.stacked(ends), tf.int32)[:, 0]
    numbers = tf.broadcast_to(numbers, [call.loop.length_tensor, 2])
    return *input.sizes, int(block[0]), numbers[:, 0], numbers[:, 1]


@ragged_rule("SpaceToBatchND")
def space_to_batch(call: Call, input: Value, block_shape: Value, paddings: Value) -> Any:
    """[n, b, steps, ...] -> [n, k * b, steps / k, ...]: every k-th step as a sequence."""
    batch, size, block, front, back = _sequence(call, input, block_shape, paddings)
    assert isinstance(input, Ragged)
    total = size.tensor + front + back
    text = f"padded sizes are no multiples of the block, {block}. They are"
    total = call.after_check(tf.equal(total % block, 0), text, [total], total)
    room = tf.reduce_max(tf.concat([total, [0]], 0))
    wide = placed(input, 1, front, room)
    n, rest = tf.shape(wide)[0], tf.shape(wide)[3:]
    apart = tf.reshape(wide, tf.concat([[n, batch, room // block, block], rest], 0))
    axes = [0, 3, 1, 2, *range(4, len(wide.shape) + 1)]
    made = tf.reshape(
        tf.transpose(apart, axes), tf.concat([[n, block * batch, room // block], rest], 0)
    )
    made.set_shape([None, block * batch, None, *wide.shape[3:]])
    return from_padded(made, [block * batch, row_sizes(call, total // block)], is_clean=True)


@ragged_rule("BatchToSpaceND")
def batch_to_space(call: Call, input: Value, block_shape: Value, crops: Value) -> Any:
    """The inverse: the steps in order, without those at the ends that were padded."""
    parts, size, block, front, back = _sequence(call, input, block_shape, crops)
    assert isinstance(input, Ragged)
    rows = input.in_rows
    n, room, rest, batch = tf.shape(rows)[0], tf.shape(rows)[2], tf.shape(rows)[3:], parts // block
    apart = tf.reshape(rows, tf.concat([[n, block, batch, room], rest], 0))
    axes = [0, 2, 3, 1, *range(4, len(rows.shape) + 1)]
    wide = tf.reshape(tf.transpose(apart, axes), tf.concat([[n, batch, room * block], rest], 0))
    length = size.tensor * block - front - back
    text = "more is cropped than there is. Sizes would be"
    length = call.after_check(length >= 0, text, [length], length)
    most = tf.reduce_max(tf.concat([length, [0]], 0))
    at = tf.minimum(tf.range(most)[None] + front[:, None], tf.maximum(room * block - 1, 0))
    made = tf.gather(wide, at, axis=2, batch_dims=1)
    made.set_shape([None, batch, None, *rows.shape[3:]])
    return from_padded(made, [batch, row_sizes(call, length)])
