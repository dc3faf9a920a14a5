"""Convolutions and their gradients.

With one input that varies there is always one op of the same type. The loop goes into the batch,
or into the channels of the side that varies. With both varying, depthwise convolutions take the
loop into their channels; all other convolutions become patches and one batched product (decision
0003).

Words: a convolution has g groups; an input channel is (group, c), an output channel (group, o),
and a filter [...kernel, c, (group, o)].
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor._tf._custom_gradients import attached
from tf_pfor.converters.math._families import fold_batch, table
from tf_pfor.converters.math._in_channels import in_channels, wide_parts
from tf_pfor.converters.nn import filter_gradients as fg
from tf_pfor.converters.nn._channels import (
    at_least_one,
    channel_axis,
    filters_of_rows,
    first_rows_of,
    from_axis,
    image_dims,
    images_of_rows,
    into_axis,
    into_channels,
    is_last,
    known_channels,
    known_shape,
    one_row_more,
    rows_of_filters,
    rows_of_images,
    scaled,
    sizes,
    window,
)
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.late_gradients import convert_later
from tf_pfor.core.pending import InChannels
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product, transpose, unfold
from tf_pfor.core.values import Shape, Value, is_static, size_of

_ATTRS = ("strides", "padding", "explicit_paddings", "data_format", "dilations", "use_cudnn_on_gpu")

Patterns = Mapping[tuple[str, ...], Callable[..., Any]]


def register(names: Mapping[str, tuple[str, ...]], patterns: Patterns) -> None:
    """Registers one function for each pattern of stacked inputs of all op types of a table."""
    for (op_type, attrs), (stacked, function) in itertools.product(names.items(), patterns.items()):
        RegisterPFor(op_type, stacked, attrs=attrs)(function)


# ---------------------------------------------------------------------------
# Forward
# ---------------------------------------------------------------------------


def input_as_batch(call: Call, input: Value, filter: Value) -> Any:
    """x_i * F: the loop goes into the batch."""
    y = call.rebuild(input=fold(call, input), filter=filter.tensor)
    given, taken = input.inner_shape, filter.inner_shape
    if given and taken and given[channel_axis(call, len(given))] != taken[-2]:
        y = unfused(call, y)
    return unfold(call, y, input)


def unfused(call: Call, y: tf.Tensor) -> tf.Tensor:
    """The result of a convolution of groups, behind an op that does nothing.

    TensorFlow's optimizer makes one op of a convolution and the ``BiasAdd`` that follows it. No
    kernel of that op knows groups, so that it fails when it runs.
    """
    return call.emit("EnsureShape", y, shape=y.shape)


def filters_as_channels(call: Call, input: Value, filter: Value) -> Any:
    """X * F_i: n times as many output channels, [b, ..., g*n*o] -> [n, b, ..., g*o]."""
    shape = known_shape(filter, "filter")
    groups = known_channels(call, input, "input") // max(shape[-2], 1)
    y = call.rebuild(input=input.tensor, filter=into_axis(call, filter, len(shape) - 1, groups))
    y = y if groups == 1 else unfused(call, y)
    if groups == 1 and is_last(call) and call.loop.static_length:
        return in_channels(call, y, call.output_shape())
    parts = image_dims(call, y, shape[-1])
    return from_axis(call, y, parts, channel_axis(call, len(parts)), groups)


def both_vary(call: Call, input: Value, filter: Value) -> Any:
    """x_i * F_i, by ``correlate``."""
    if isinstance(input, InChannels) and (w := _window_in_channels(call, input, filter)):
        make = functools.partial(_grouped_in_channels, w=w)
        return in_channels(call, _by_row(call, make, input, filter), call.output_shape())
    return call.like(_by_row(call, _images_by_filters, input, filter))


def _window_in_channels(call: Call, input: InChannels, filter: Value) -> fg.Window | None:
    """The geometry of one convolution of groups; None if there is none."""
    shape = known_shape(filter, "filter")
    has_groups = known_channels(call, input, "input") != shape[-2]
    w = window(call, wide_parts(call, input), shape, 1)
    return None if has_groups or not is_last(call) or not _may_group(call, input, w) else w


def _grouped_in_channels(call: Call, input: InChannels, filter: Value, w: fg.Window) -> tf.Tensor:
    return _grouped(call, input.wide, filter.tensor, w, w.n)


def _images_by_filters(call: Call, input: Value, filter: Value) -> tf.Tensor:
    shape = known_shape(filter, "filter")
    groups = known_channels(call, input, "input") // max(shape[-2], 1)
    w = window(call, inner_dims(call, input), shape, groups)
    x = rows_of_images(call, input, groups)  # [n*g*b, ...spatial, c]
    f = rows_of_filters(call, filter, groups)  # [n*g, ...kernel, c, o]
    y = correlate(call, x, f, w)  # [n*g, b, ...out, o]
    return images_of_rows(call, y, w, groups)


register(
    table("Conv2D Conv3D", *_ATTRS),
    {
        ("input",): input_as_batch,
        ("filter",): filters_as_channels,
        ("input", "filter"): both_vary,
    },
)


def correlate(call: Call, x: tf.Tensor, f: tf.Tensor, w: fg.Window) -> tf.Tensor:
    """[n*b, ...size, c] by [n, ...kernel, c, o] -> [n, b, ...out, o].

    Images: one convolution, each row a group of channels. Any others: patches, and one batched
    product with the filters.
    """
    emit = call.emit
    if _may_group(call, x, w):
        return _as_groups(call, x, f, w)
    seen = fg.patches(emit, x, w)  # [n*b, ...out, taps*c]
    a = emit.reshape(seen, [w.n, w.positions(emit), w.taps * w.depth])
    b = emit.reshape(f, [w.n, w.taps * w.depth, w.features])
    y = emit("BatchMatMulV2", a, b)  # [n, b*out, o]
    return emit.reshape(y, [w.n, w.images, *w.out, w.features])


def _may_group(call: Call, x: tf.Tensor | Value, w: fg.Window) -> bool:
    pads = [p for both in w.pads for p in both]
    is_image = len(w.kernel) == 2 and all(isinstance(p, int) and p >= 0 for p in pads)
    return is_image and x.dtype.is_floating and not _tf.in_body(call.emit.graph)


def _as_groups(call: Call, x: tf.Tensor, f: tf.Tensor, w: fg.Window) -> tf.Tensor:
    """[b, ...size, n*c] by [...kernel, c, n*o] -> [b, ...out, n*o]: no kernel takes no channels."""
    emit, count = call.emit, w.n
    x = emit.reshape(x, [w.n, w.images, *w.size, w.depth])
    may_be_empty = call.loop.static_length in (None, 0)
    if may_be_empty:
        x, f = one_row_more(call, x), one_row_more(call, f)
        count = emit.dim_math("Maximum", w.n, 1)
    wide = emit.reshape(
        transpose(call, x, [1, 2, 3, 0, 4]), [w.images, *w.size, product(call, [count, w.depth])]
    )
    y = emit.reshape(_grouped(call, wide, f, w, count), [w.images, *w.out, count, w.features])
    y = transpose(call, y, [3, 0, 1, 2, 4])
    return first_rows_of(call, y, w.n) if may_be_empty else y


def _grouped(call: Call, wide: tf.Tensor, f: tf.Tensor, w: fg.Window, count: Dim) -> tf.Tensor:
    """[b, ...size, n*c] by [n, ...kernel, c, o] -> [b, ...out, n*o]."""
    filters = call.emit.reshape(
        transpose(call, f, [1, 2, 3, 0, 4]),
        [*w.kernel, w.depth, product(call, [count, w.features])],
    )
    pads = [0, 0, *(int(p) for both in w.pads for p in both), 0, 0]  # type: ignore[arg-type]
    padding: dict[str, Any] = {"padding": "VALID"}
    if any(pads):
        padding = {"padding": "EXPLICIT", "explicit_paddings": pads}
    return call.emit(
        "Conv2D",
        wide,
        filters,
        strides=[1, *w.strides, 1],
        dilations=[1, *w.dilations, 1],
        **padding,
    )


def _by_row(call: Call, make: Callable[..., tf.Tensor], *inputs: Value) -> tf.Tensor:
    """The result of ``make`` for the inputs; its gradient is one row's gradient, vectorized.

    The kernel of convolutions of groups has no gradient on CPUs. Where the images are in channels,
    the result is, too.
    """
    graph = call.emit.graph
    if _tf.in_body(graph):
        return make(call, *inputs)
    varying = [v for v in inputs if v.is_stacked]

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        supply = iter(tensors)
        return [make(call, *[_held(v, next(supply)) if v.is_stacked else v for v in inputs])]

    def gradient(tensors: Sequence[tf.Tensor], upstream: tf.Tensor) -> list[tf.Tensor]:
        shapes = [v.inner_shape if isinstance(v, InChannels) else None for v in varying]
        of_result = call.output_shape() if any(shapes) else None
        values = [
            _images(call, t, s) if s else Value.stacked(t)
            for t, s in zip([*map(_tf.captured, tensors), upstream], [*shapes, of_result])
        ]
        found = _gradients_of_row(call, inputs, values)
        return [_channels_of(v) if s else v.tensor for v, s in zip(found, shapes)]

    with call.emit.as_default():
        tensors = [v.wide if isinstance(v, InChannels) else v.tensor for v in varying]
        (made,) = attached(run, tensors, gradient)
    return made


def _held(value: Value, tensor: tf.Tensor) -> Value:
    """The value with another tensor."""
    if isinstance(value, InChannels):
        return dataclasses.replace(value, wide=tensor)
    return Value.stacked(tensor).with_inner_shape(value.inner_shape)


def _images(call: Call, wide: tf.Tensor, shape: Shape) -> Value:
    """Images that are ``wide``, [b, ...spatial, n*c], for ops of the current graph."""

    def rows() -> tf.Tensor:
        x = tf.reshape(wide, tf.concat([tf.shape(wide)[:-1], [call.loop.length, -1]], 0))
        at = len(wide.shape) - 1
        return tf.transpose(x, [at, *range(at), at + 1])

    return InChannels.deferred(rows, shape, wide.dtype, wide=wide)


def _channels_of(value: Value) -> tf.Tensor:
    """[n, b, ...spatial, c] -> [b, ...spatial, n*c], in the current graph."""
    if isinstance(value, InChannels):
        return value.wide
    at = len(value.tensor.shape) - 2
    x = tf.transpose(value.tensor, [*range(1, at + 1), 0, at + 1])
    return tf.reshape(x, tf.concat([tf.shape(x)[:-2], [-1]], 0))


def _gradients_of_row(call: Call, inputs: Sequence[Value], varying: Sequence[Value]) -> list[Value]:
    """The gradients with respect to the inputs that vary, in the current graph.

    Args:
      call: the call.
      inputs: its inputs.
      varying: the inputs that vary, and the gradient of the result, in the current graph.
    """
    known = set(call.schema.attr_types)  # convolutions of volumes have no explicit paddings
    attrs = {name: call.attr(name) for name in _ATTRS[:-1] if name in known}
    names = list(call.inputs)
    wrt = [i for i, v in enumerate(inputs) if v.is_stacked]
    later = call.walker.later()

    def gradients(*row: tf.Tensor) -> list[tf.Tensor]:
        op = getattr(tf.raw_ops, call.op_type)
        *row_inputs, g = row
        made = op(**dict(zip(names, row_inputs)), **attrs)
        return tf.gradients(made, [row_inputs[i] for i in wrt], g)

    specs = [tf.TensorSpec(t.shape, t.dtype) for t in (*call.op.inputs, call.op.outputs[0])]
    supply = iter(varying)
    values = [next(supply) if v.is_stacked else v for v in inputs]
    values.append(next(supply))
    made = convert_later(later, _graphs.trace("gradient_of_row", gradients, specs), values)
    return [*map(later.tile, made)]


# ---------------------------------------------------------------------------
# Gradient with respect to the input
# ---------------------------------------------------------------------------


def gradient_as_batch(call: Call, input_sizes: Value, filter: Value, out_backprop: Value) -> Any:
    """dy_i by F: the loop goes into the batch."""
    made = call.rebuild(
        input_sizes=_batch_scaled(call, input_sizes),
        filter=filter.tensor,
        out_backprop=fold(call, out_backprop),
    )
    return unfold(call, made, out_backprop)


def _batch_scaled(call: Call, input_sizes: Value) -> Any:
    if input_sizes.inner_shape == (2,):  # Conv2DBackpropInput: height and width only
        return input_sizes.tensor
    return scaled(call, "input_sizes", 0, call.loop.length)


def filters_as_input_channels(
    call: Call, input_sizes: Value, filter: Value, out_backprop: Value
) -> Any:
    """Dy by F_i: n times as many input channels, [b, ..., g*n*c] -> [n, b, ..., g*c]."""
    shape = known_shape(filter, "filter")
    if input_sizes.inner_shape == (2,):
        raise CannotVectorize("'input_sizes' has no channels")
    channels = known_input_channels(call, shape)
    groups = channels // max(shape[-2], 1)
    rank = len(shape)
    wide = into_axis(call, filter, rank - 2)  # [...kernel, n*c, g*o]
    made = call.rebuild(
        input_sizes=scaled(call, "input_sizes", channel_axis(call, rank), at_least_one(call)),
        filter=wide,
        out_backprop=out_backprop.tensor,
    )
    parts = image_dims(call, made, channels)
    return from_axis(call, made, parts, channel_axis(call, rank), groups)


def known_input_channels(call: Call, filter_shape: tuple[int, ...]) -> int:
    """The input's channels, of which a filter without groups has as many."""
    shape = call.output_shape()
    found = shape[channel_axis(call, len(shape))] if shape is not None else None
    if found is None:
        raise CannotVectorize("the number of input channels is unknown")
    return found


def gradients_by_filters(call: Call, input_sizes: Value, filter: Value, out_backprop: Value) -> Any:
    """dy_i by F_i: a convolution of dy_i, spread out by the strides, with the filter reversed."""
    shape = known_shape(filter, "filter")
    groups = known_input_channels(call, shape) // max(shape[-2], 1)
    if input_sizes.inner_shape == (2,) and not is_static(call.output_shape()):
        raise CannotVectorize(
            "the shape of the input is unknown, and 'input_sizes' has a part of it"
        )
    w = window(call, sizes(call, "input_sizes"), shape, groups)
    spread, back = w.transposed(call.emit)

    def in_rows(call: Call, input_sizes: Value, filter: Value, dy: Value) -> tf.Tensor:
        x = rows_of_images(call, dy, groups)  # [n*g*b, ...out, o]
        x = spread_out(call, x, w, spread)
        x = correlate(call, x, turned(call, filter, groups), back)  # [n*g, b, ...size, c]
        return images_of_rows(call, x, w, groups)

    def wide(call: Call, input_sizes: Value, filter: Value, dy: InChannels) -> tf.Tensor:
        return _grouped(call, dy.wide, turned(call, filter, groups), back, back.n)

    inputs, is_dense = (input_sizes, filter, out_backprop), set(w.strides) == {1} and groups == 1
    if isinstance(out_backprop, InChannels) and is_dense and _may_group(call, out_backprop, back):
        return in_channels(call, _by_row(call, wide, *inputs), call.output_shape())
    return call.like(_by_row(call, in_rows, *inputs))


def turned(call: Call, filter: Value, groups: int) -> tf.Tensor:
    """Filters for the way back: [n*g, ...kernel, o, c], reversed along the axes of the kernel."""
    f = rows_of_filters(call, filter, groups)  # [n*g, ...kernel, c, o]
    kernel = known_shape(filter, "filter")[:-2]
    rank = len(kernel)
    if size_of(kernel) > 1:
        f = call.emit("ReverseV2", f, np.arange(1, rank + 1, dtype=np.int32))
    return transpose(call, f, [0, *range(1, rank + 1), rank + 2, rank + 1])


def spread_out(call: Call, dy: tf.Tensor, w: fg.Window, size: tuple[Dim, ...]) -> tf.Tensor:
    """Zeros behind each position of [rows, ...out, o], up to the next stride, cut to ``size``."""
    if set(w.strides) == {1}:
        return dy
    rows, x = call.emit.dim(dy, 0), dy
    long = list(w.out)
    for axis, stride in enumerate(w.strides):
        if stride == 1:
            continue
        head = product(call, [rows, *long[:axis], w.out[axis]])
        tail = product(call, [*long[axis + 1 :], w.features])
        x = call.emit.reshape(x, [head, 1, tail])  # low rank: Pad ends at 8
        x = call.emit("Pad", x, np.asarray([(0, 0), (0, stride - 1), (0, 0)], np.int32))
        long[axis] = call.emit.dim_math("Mul", long[axis], stride)
    x = call.emit.reshape(x, [rows, *long, w.features])
    if all(isinstance(a, int) and a == b for a, b in zip(long, size)):
        return x
    rank = len(size) + 2
    mask = 1 | 1 << (rank - 1)  # all rows, all channels
    return call.emit(
        "StridedSlice",
        x,
        np.zeros(rank, np.int32),
        call.emit.shape_vector([0, *size, 0]),
        np.ones(rank, np.int32),
        begin_mask=mask,
        end_mask=mask,
    )


register(
    table("Conv2DBackpropInput Conv3DBackpropInputV2", *_ATTRS),
    {
        ("out_backprop",): gradient_as_batch,
        ("filter",): filters_as_input_channels,
        ("filter", "out_backprop"): gradients_by_filters,
    },
)


# ---------------------------------------------------------------------------
# Gradient with respect to the filter
# ---------------------------------------------------------------------------


def static_filter_shape(call: Call) -> tuple[int, ...]:
    found = call.output_shape()
    if is_static(found):
        return found
    return tuple(int(size) for size in call.constant("filter_sizes"))


def images_as_channels(call: Call, input: Value, filter_sizes: Value, out_backprop: Value) -> Any:
    """x_i, dy: n times as many input channels, [...kernel, n*c, g*o]."""
    shape = static_filter_shape(call)
    groups = known_channels(call, input, "input") // max(shape[-2], 1)
    rank = len(shape)
    made = call.rebuild(
        input=into_channels(call, input, groups),
        filter_sizes=scaled(call, "filter_sizes", rank - 2, at_least_one(call)),
        out_backprop=out_backprop.tensor,
    )
    return from_axis(call, made, list(shape), rank - 2)


def gradients_as_channels(
    call: Call, input: Value, filter_sizes: Value, out_backprop: Value
) -> Any:
    """x, dy_i: n times as many output channels, [...kernel, c, g*n*o]."""
    shape = static_filter_shape(call)
    groups = known_channels(call, input, "input") // max(shape[-2], 1)
    rank = len(shape)
    made = call.rebuild(
        input=input.tensor,
        filter_sizes=scaled(call, "filter_sizes", rank - 1, at_least_one(call)),
        out_backprop=into_channels(call, out_backprop, groups),
    )
    return from_axis(call, made, list(shape), rank - 1, groups)


def images_by_gradients(call: Call, input: Value, filter_sizes: Value, out_backprop: Value) -> Any:
    """x_i, dy_i: a batched product that sums over the positions (``filter_gradients``)."""
    shape = static_filter_shape(call)
    groups = known_channels(call, input, "input") // max(shape[-2], 1)
    w = window(call, inner_dims(call, input), shape, groups)
    x = rows_of_images(call, input, groups)  # [n*g*b, ...size, c]
    dy = rows_of_images(call, out_backprop, groups)  # [n*g*b, ...out, o]
    made = fg.choose(w)(call.emit, x, dy, w)  # [n*g, ...kernel, c, o]
    return filters_of_rows(call, made, shape, groups)


register(
    table("Conv2DBackpropFilter Conv3DBackpropFilterV2", *_ATTRS),
    {
        ("input",): images_as_channels,
        ("out_backprop",): gradients_as_channels,
        ("input", "out_backprop"): images_by_gradients,
    },
)


# ---------------------------------------------------------------------------
# Depthwise: the loop always fits into the channels
# ---------------------------------------------------------------------------


def multiplied(call: Call, input: Value, filter: Value) -> Any:
    """X * F_i: n times the channel multiplier, [b, ..., c*n*m] -> [n, b, ..., c*m]."""
    shape = known_shape(filter, "filter")
    y = call.rebuild(input=input.tensor, filter=into_axis(call, filter, 3))
    parts = image_dims(call, y, shape[2] * shape[3])
    return from_axis(call, y, parts, channel_axis(call, 4), shape[2])


def depthwise_channels(call: Call, input: Value, filter: Value) -> Any:
    """x_i * F_i: n times as many channels, [b, ..., n*c] by [kh, kw, n*c, m]."""
    shape = known_shape(filter, "filter")
    y = call.rebuild(input=into_channels(call, input), filter=into_axis(call, filter, 2))
    return from_axis(call, y, image_dims(call, y, shape[2] * shape[3]), channel_axis(call, 4))


def depthwise_input_gradient(
    call: Call, input_sizes: Value, filter: Value, out_backprop: Value
) -> Any:
    """dy_i by F_i: n times as many channels."""
    shape = known_shape(filter, "filter")
    made = call.rebuild(
        input_sizes=scaled(call, "input_sizes", channel_axis(call, 4), at_least_one(call)),
        filter=into_axis(call, filter, 2),
        out_backprop=into_channels(call, out_backprop),
    )
    return from_axis(call, made, image_dims(call, made, shape[2]), channel_axis(call, 4))


def depthwise_multiplied_gradient(
    call: Call, input: Value, filter_sizes: Value, out_backprop: Value
) -> Any:
    """x, dy_i: n times the channel multiplier, [kh, kw, c, n*m]."""
    shape = static_filter_shape(call)
    made = call.rebuild(
        input=input.tensor,
        filter_sizes=scaled(call, "filter_sizes", 3, at_least_one(call)),
        out_backprop=into_channels(call, out_backprop, groups=shape[2]),
    )
    return from_axis(call, made, list(shape), 3)


def depthwise_filter_gradient(
    call: Call, input: Value, filter_sizes: Value, out_backprop: Value
) -> Any:
    """x_i, dy_i: n times as many channels, [kh, kw, n*c, m]."""
    shape = static_filter_shape(call)
    made = call.rebuild(
        input=into_channels(call, input),
        filter_sizes=scaled(call, "filter_sizes", 2, at_least_one(call)),
        out_backprop=into_channels(call, out_backprop),
    )
    return from_axis(call, made, list(shape), 2)


_DEPTHWISE = ("strides", "padding", "explicit_paddings", "data_format", "dilations")
register(
    table("DepthwiseConv2dNative", *_DEPTHWISE),
    {
        ("input",): input_as_batch,
        ("filter",): multiplied,
        ("input", "filter"): depthwise_channels,
    },
)
register(
    table("DepthwiseConv2dNativeBackpropInput", *_DEPTHWISE),
    {
        ("out_backprop",): gradient_as_batch,
        ("filter", "out_backprop"): depthwise_input_gradient,
    },
)
register(
    table("DepthwiseConv2dNativeBackpropFilter", *_DEPTHWISE),
    {
        ("out_backprop",): depthwise_multiplied_gradient,
        ("input", "out_backprop"): depthwise_filter_gradient,
    },
)


# ---------------------------------------------------------------------------
# Others
# ---------------------------------------------------------------------------

_WINDOWS = ("ksizes", "strides", "rates", "padding")
fold_batch(table("ExtractImagePatches", *_WINDOWS), "images")
fold_batch(table("ExtractVolumePatches", "ksizes", "strides", "padding"), "input")


@RegisterPFor(
    "Conv",
    ("input",),
    attrs="strides padding explicit_paddings data_format dilations batch_dims groups",
)
def conv_with_batch_dims(call: Call, input: Value, filter: Value) -> Any:
    """x_i * F: the loop is one more batch dimension."""
    return call.rebuild(
        input=input.tensor, filter=filter.tensor, batch_dims=call.attr("batch_dims") + 1
    )
