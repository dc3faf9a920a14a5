"""Images whose channels hold the rows, [b, ...spatial, n*c]: no row is moved between kernels.

A convolution by filters that differ per row leaves this form, and grouped convolutions take it.
Between them are biases, activations and pools, which treat each channel alone. An op keeps the form
only where nothing else reads its images: two forms of one tensor would cost two moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.pending import InChannels
from tf_pfor.core.shapes import product, transpose
from tf_pfor.core.values import Shape, Value, is_static, known_dims


def in_channels(call: Call, wide: tf.Tensor, shape: Shape) -> Value:
    """The stacked value that ``wide`` holds; ``shape`` is its inner shape, of known channels."""
    *head, channels = _parts(call, wide, shape)
    at = len(head)

    def make() -> tf.Tensor:
        x = call.emit.reshape(wide, [*head, call.loop.length, channels])
        return transpose(call, x, [at, *range(at), at + 1])

    return InChannels.deferred(make, shape, wide.dtype, wide=wide)


def wide_parts(call: Call, value: InChannels) -> list[Dim]:
    """The inner shape of images, read from the form that they have."""
    return _parts(call, value.wide, value.inner_shape)


def _parts(call: Call, wide: tf.Tensor, shape: Shape) -> list[Dim]:
    head = [call.emit.dim(wide, i) for i in range(len(wide.shape) - 1)]
    return [*head, known_dims(shape)[-1]]


def is_read_once(call: Call, value: Value) -> bool:
    """Whether this call alone reads the tensor of the body that ``value`` is."""
    graph: tf.Graph = call.op.graph
    values = call.flat_inputs()
    mine = [t for v, t in zip(values, call.op.inputs) if v is value]
    outputs = getattr(graph, "outputs", ())
    return all(
        {op.name for op in t.consumers()} == {call.op.name} and all(t is not o for o in outputs)
        for t in mine
    )


def on_channels(call: Call, **attrs: object) -> Value | None:
    """An elementwise op on images in this form; None if an operand has no place in it."""
    values = call.flat_inputs()
    like = next((v for v in values if isinstance(v, InChannels)), None)
    if like is None or not all(is_read_once(call, v) for v in values if isinstance(v, InChannels)):
        return None
    operands = [_operand(call, v, like) for v in values]
    if any(t is None for t in operands):
        return None
    made = call.rebuild(**dict(zip(call.inputs, operands)), **attrs)
    return in_channels(call, made, call.output_shape())


def _operand(call: Call, value: Value, like: InChannels) -> tf.Tensor | None:
    """An operand beside ``like``: other images, one number, or a number for each channel."""
    shape = value.inner_shape
    if isinstance(value, InChannels):
        is_same = is_static(shape) and shape == like.inner_shape
        return value.wide if value is like or is_same else None
    if not value.is_stacked:
        return value.tensor if shape == () else None
    *head, channels = known_dims(like.inner_shape)
    is_vector = is_static(shape) and 0 < len(shape) <= len(head) + 1
    if not is_vector or shape != (*[1] * (len(known_dims(shape)) - 1), channels):
        return None
    return vector_of_channels(call, value)


def vector_of_channels(call: Call, value: Value) -> tf.Tensor:
    """The numbers of the channels of all rows, [n*c]."""
    channels = known_dims(value.inner_shape)[-1]
    return call.emit.reshape(value.any_form, [product(call, [call.loop.length, channels])])


def each_channel(call: Call, value: Value, sizes: Sequence[str]) -> Value | None:
    """A kernel over windows of each channel alone, on images in this form; None for others.

    Args:
      call: the call, whose first input is ``value``.
      value: the images.
      sizes: the attributes that say how far a window reaches along each axis.
    """
    if not isinstance(value, InChannels) or not is_read_once(call, value):
        return None
    if call.attr("data_format") != "NHWC" or any(call.attr(a)[-1] != 1 for a in sizes):
        return None
    (name, *_) = call.inputs
    return in_channels(call, call.rebuild(**{name: value.wide}), call.output_shape())
