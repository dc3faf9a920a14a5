"""Moves between the loop, the batch and the channels of convolutions.

Words: a convolution has g groups; an input channel is (group, c), an output channel (group, o),
and a filter [...kernel, c, (group, o)].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn.filter_gradients import Window
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.shapes import fold, inner_dims, product, transpose, unfold
from tf_pfor.core.values import Shape, Stacked, Value, is_static


def is_last(call: Call) -> bool:
    """Whether channels stand last."""
    return call.attr("data_format")[-1] in "CT"  # NHWC, NDHWC, CHANNELS_LAST


def channel_axis(call: Call, rank: int) -> int:
    """The channel axis of an inner image tensor."""
    return rank - 1 if is_last(call) else 1


def split_axis(parts: list[Dim], axis: int, outer: Dim, inner: Dim) -> list[Dim]:
    return [*parts[:axis], outer, inner, *parts[axis + 1 :]]


def into_channels(call: Call, value: Value, groups: int = 1) -> tf.Tensor:
    """[n, b, ...spatial, g*c] -> [b, ...spatial, g*n*c]; likewise with channels first."""
    rank = call.require_rank(value)
    return into_axis(call, value, channel_axis(call, rank), groups)


def into_axis(call: Call, value: Value, axis: int, groups: int = 1) -> tf.Tensor:
    """Merges the loop into the inner axis g*c, behind g: [n, ..., g*c] -> [..., g*n*c].

    The kernels refuse a filter without elements: where n may be 0, rows of zeros make it 1.
    """
    parts = inner_dims(call, value)
    size = parts[axis]
    if not isinstance(size, int):
        raise CannotVectorize("the number of channels is unknown")
    x, n = call.stacked(value), at_least_one(call)
    if call.loop.static_length in (None, 0):
        x = one_row_more(call, x)
    if groups > 1:
        x = call.emit.reshape(x, [n, *split_axis(parts, axis, groups, size // groups)])
    rank = len(parts) + (groups > 1)
    to = axis + (groups > 1)  # where n lands: just before c
    perm = [*range(1, to + 1), 0, *range(to + 1, rank + 1)]
    parts[axis] = product(call, [n, size])
    return call.emit.reshape(transpose(call, x, perm), parts)


def at_least_one(call: Call) -> Dim:
    """n, or 1 if it is 0."""
    n = call.loop.static_length
    if n is not None:
        return max(n, 1)
    return call.emit("Maximum", call.loop.length_tensor, np.int32(1))


def from_axis(
    call: Call, tensor: tf.Tensor, parts: list[Dim], axis: int, groups: int = 1
) -> tf.Tensor:
    """The inverse of ``into_axis``; ``parts`` is the inner shape of the result."""
    size = parts[axis]
    if not isinstance(size, int):
        raise CannotVectorize("the number of channels is unknown")
    n, each = at_least_one(call), size // groups
    inner = [n, each] if groups == 1 else [groups, n, each]
    x = call.emit.reshape(tensor, [*parts[:axis], *inner, *parts[axis + 1 :]])
    at = axis + (groups > 1)
    perm = [at, *range(at), *range(at + 1, len(parts) + (1 if groups == 1 else 2))]
    x = call.emit.reshape(transpose(call, x, perm), [n, *parts])
    return first_rows(call, x) if call.loop.static_length in (None, 0) else x


def one_row_more(call: Call, x: tf.Tensor) -> tf.Tensor:
    """Zeros behind the rows of ``x`` where n is 0: [n, ...] -> [max(n, 1), ...]."""
    n = call.emit.as_tensor(at_least_one(call))
    more = call.emit("Sub", n, call.loop.length_tensor)
    places = np.asarray([[0, len(x.shape) - 1], [1, 0]], np.int32)
    return call.emit("Pad", x, call.emit("Pad", call.emit.reshape(more, [1, 1]), places))


def first_rows(call: Call, x: tf.Tensor) -> tf.Tensor:
    """[max(n, 1), ...] -> [n, ...]."""
    return first_rows_of(call, x, call.loop.length)


def first_rows_of(call: Call, x: tf.Tensor, n: Dim) -> tf.Tensor:
    """The first n rows."""
    end = call.emit.shape_vector([n])
    zero, one = np.zeros(1, np.int32), np.ones(1, np.int32)
    return call.emit("StridedSlice", x, zero, end, one, begin_mask=1)


def is_read(tensor: tf.Tensor) -> bool:
    """Whether another op, or the function itself, uses an output of an op of the body."""
    graph: tf.Graph = tensor.graph
    return bool(tensor.consumers()) or any(t is tensor for t in getattr(graph, "outputs", ()))


def unread(call: Call, index: int) -> Value:
    """In place of an output that is not read, and cannot be told for each row."""
    why = f"output {index} of {call.op_type} is not known for each row"

    def refuse() -> tf.Tensor:
        raise CannotVectorize(why)

    return Stacked.deferred(refuse, call.output_shape(index), call.output_dtype(index))


def image_dims(call: Call, tensor: tf.Tensor, channels: int | None) -> list[Dim]:
    """The shape of an image tensor made by a kernel, with this number of channels."""
    rank = len(tensor.shape)
    parts = [call.emit.dim(tensor, i) for i in range(rank)]
    if channels is None:
        raise CannotVectorize("the number of channels is unknown")
    parts[channel_axis(call, rank)] = channels
    return parts


def known_channels(call: Call, value: Value, what: str) -> int:
    shape = value.inner_shape
    found = None if shape is None else shape[channel_axis(call, len(shape))]
    if found is None:
        raise CannotVectorize(f"the number of channels of '{what}' is unknown")
    return found


def known_shape(value: Value, what: str) -> tuple[int, ...]:
    if not is_static(value.inner_shape):
        raise CannotVectorize(f"the shape of '{what}' is unknown")
    return value.inner_shape


def scaled(call: Call, name: str, axis: int, n: Dim) -> Any:
    """The shape input ``name`` with its dimension ``axis`` times ``n``."""
    value = call.value(name)
    found = call.maybe_constant(name)
    if found is not None and isinstance(n, int):
        factor = np.ones_like(found)
        factor[axis] = n
        return found * factor
    rank = value.inner_shape[0] if value.inner_shape else None
    if rank is None:
        raise CannotVectorize(f"the length of '{name}' is unknown")
    parts: list[Dim] = [1] * rank
    parts[axis] = n
    factors = call.emit.shape_vector(parts)
    if value.dtype != tf.int32:
        factors = call.emit("Cast", factors, DstT=value.dtype)
    return call.emit("Mul", value.tensor, factors)


def sizes(call: Call, name: str) -> list[Dim]:
    """The shape that the input ``name`` holds, which the op's output has."""
    tensor, known = call.inputs[name], call.output_shape()
    assert isinstance(tensor, Value)
    if known is None:
        raise CannotVectorize(f"the length of '{name}' is unknown")
    vector = tensor.tensor
    if vector.dtype != tf.int32:
        vector = call.emit("Cast", vector, DstT=tf.int32)
    found: list[Dim] = []
    for axis, size in enumerate(known):
        one = np.asarray([axis], np.int32), np.asarray([axis + 1], np.int32), np.ones(1, np.int32)
        found.append(
            call.emit("StridedSlice", vector, *one, shrink_axis_mask=1) if size is None else size
        )
    return found


def window(call: Call, parts: Sequence[Dim], filter_shape: tuple[int, ...], groups: int) -> Window:
    """The geometry for images of this inner shape, the groups as iterations of their own."""
    rank = len(parts)
    pick = slice(1, rank - 1) if is_last(call) else slice(2, rank)
    return Window.of(
        call.emit,
        n=product(call, [call.loop.length, groups]),
        images=parts[0],
        size=tuple(parts[pick]),
        kernel=filter_shape[:-2],
        strides=tuple(call.attr("strides")[pick]),
        dilations=tuple(call.attr("dilations")[pick]),
        padding=call.attr("padding"),
        explicit=explicit_pads(call)[pick],
        depth=filter_shape[-2],
        features=filter_shape[-1] // groups,
    )


def explicit_pads(call: Call) -> list[tuple[int, int]]:
    """explicit_paddings as pairs; zeros where the attribute is empty or absent."""
    schema = call.schema
    flat = call.attr("explicit_paddings") if "explicit_paddings" in schema.attr_types else []
    rank = len(call.attr("strides"))
    return list(zip(flat[::2], flat[1::2])) or [(0, 0)] * rank


def rows_of_images(call: Call, value: Value, groups: int) -> tf.Tensor:
    """Channels last, groups as rows: [n, b, ...spatial, g*c] -> [n*g*b, ...spatial, c]."""
    if is_last(call) and groups == 1:
        return fold(call, value)
    rank = call.require_rank(value)
    x = call.stacked(value)
    parts = inner_dims(call, value)
    if not is_last(call):
        x = transpose(call, x, [0, 1, *range(3, rank + 1), 2])
        parts = [parts[0], *parts[2:], parts[1]]
    if groups > 1:
        each = known_channels(call, value, "input") // groups
        x = call.emit.reshape(x, [call.loop.length, *parts[:-1], groups, each])
        x = transpose(call, x, [0, rank, *range(1, rank), rank + 1])
        parts[-1] = each
    rows = product(call, [call.loop.length, groups, parts[0]])
    return call.emit.reshape(x, [rows, *parts[1:]])


def images_of_rows(call: Call, x: tf.Tensor, w: Window, groups: int) -> tf.Tensor:
    """The inverse: [n*g, b, ...spatial, c] -> [n, b, ...spatial, g*c] in the op's layout."""
    rank = len(x.shape) - 1
    parts = [call.emit.dim(x, i + 1) for i in range(rank)]
    if groups > 1:
        x = call.emit.reshape(x, [call.loop.length, groups, *parts])
        x = transpose(call, x, [0, *range(2, rank + 1), 1, rank + 1])
        parts[-1] = parts[-1] * groups
        x = call.emit.reshape(x, [call.loop.length, *parts])
    return x if is_last(call) else transpose(call, x, [0, 1, rank, *range(2, rank)])


def rows_of_filters(call: Call, filter: Value, groups: int) -> tf.Tensor:
    """Groups as rows: [n, ...kernel, c, g*o] -> [n*g, ...kernel, c, o]."""
    f = call.stacked(filter)
    if groups == 1:
        return f
    shape = known_shape(filter, "filter")
    each, rank = shape[-1] // groups, len(shape)
    f = call.emit.reshape(f, [call.loop.length, *shape[:-1], groups, each])
    f = transpose(call, f, [0, rank, *range(1, rank), rank + 1])
    return call.emit.reshape(f, [product(call, [call.loop.length, groups]), *shape[:-1], each])


def filters_of_rows(call: Call, f: tf.Tensor, shape: tuple[int, ...], groups: int) -> tf.Tensor:
    """The inverse: [n*g, ...kernel, c, o] -> [n, ...kernel, c, g*o]."""
    if groups == 1:
        return f
    each, rank = shape[-1] // groups, len(shape)
    f = call.emit.reshape(f, [call.loop.length, groups, *shape[:-1], each])
    f = transpose(call, f, [0, *range(2, rank + 1), 1, rank + 1])
    return call.emit.reshape(f, [call.loop.length, *shape])


# ---------------------------------------------------------------------------
# Kernels that refuse an empty batch
# ---------------------------------------------------------------------------


def folded_rows(call: Call, value: Value) -> tf.Tensor:
    """``fold`` with one row of zeros where n may be 0: [n, b, ...] -> [max(n, 1) * b, ...]."""
    if call.loop.static_length not in (None, 0):
        return fold(call, value)
    x = one_row_more(call, call.stacked(value))
    parts = inner_dims(call, value)
    rows = product(call, [at_least_one(call), parts[0]])
    return call.emit.reshape(x, [rows, *parts[1:]])


def unfolded_rows(call: Call, tensor: tf.Tensor, like: Value, inner_shape: Shape = None) -> Any:
    """The inverse: [max(n, 1) * b, ...] -> [n, b, ...]."""
    if call.loop.static_length not in (None, 0):
        return unfold(call, tensor, like, inner_shape=inner_shape)
    parts = [call.emit.dim(tensor, i) for i in range(len(tensor.shape))]
    parts[0] = inner_dims(call, like)[0]
    x = call.emit.reshape(tensor, [at_least_one(call), *parts])
    return Value.stacked(first_rows(call, x))
