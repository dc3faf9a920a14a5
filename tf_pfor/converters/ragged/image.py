"""Images whose size differs per row, and images that are resized to a size that differs.

A resize reads two places of each axis, which depend on the sizes of the row. It gathers from the
padded form, one axis after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    after_check,
    from_padded,
    gradient_of,
    rank_of,
    size_at,
    uses_packed,
    zeros_of,
)
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import LARGE, ragged_rule, source
from tf_pfor.layouts.row_sizes import Size

_RESIZES = "ResizeBilinear ResizeNearestNeighbor"


# Elements of an image from which on the kernel, row by row, is faster than gathers of all rows.
LARGE.update(dict.fromkeys(_RESIZES.split(), 1 << 10))


@ragged_rule(_RESIZES)
@source(_RESIZES)
def resize(call: Call, images: Value, size: Value) -> Any:
    """[b, h_i, w_i, c] to [b, H, W, c], or to [b, H_i, W_i, c]."""
    if rank_of(images) != 4 or not isinstance(size_at(images, 0), int):
        raise CannotVectorize("the number of images is not known")
    out = target_sizes(call, size, 1)
    if any(isinstance(s, RowSizes) for s in out) and not uses_packed(call):
        raise CannotVectorize("the new size differs between iterations, under jit_compile")
    return _resized(call, images, out)


@ragged_rule("ResizeBilinearGrad")
def bilinear_gradient(call: Call, grads: Value, original_image: Value) -> Any:
    """Gradients of the four pixels that each new one is made of."""
    out = [size_at(grads, axis) for axis in (1, 2)]
    return gradient_of(call, lambda x: _resized(call, x, out), original_image, grads)


@ragged_rule("ResizeNearestNeighborGrad", of_shapes=True)
def nearest_gradient(call: Call, grads: Value, size: Value) -> Any:
    """Gradients of the pixels that were read."""
    images, channels = size_at(grads, 0), size_at(grads, 3)
    sizes = [images, *target_sizes(call, size, 1), channels]
    if not all(isinstance(s, (int, RowSizes)) for s in sizes):
        raise CannotVectorize("the number of images, or of channels, is not known")
    out = [size_at(grads, axis) for axis in (1, 2)]
    input = zeros_of(call, sizes, grads.dtype)
    return gradient_of(call, lambda x: _resized(call, x, out), input, grads)


def _resized(call: Call, images: Value, out: Sequence[Any]) -> Value:
    """Images of a new height and width: ints, or ``RowSizes``."""
    x = images.in_rows if isinstance(images, Ragged) else call.stacked(images)
    x = _along_rows(call, x, size_at(images, 1), out[0])  # [n, b, H, w, c]
    flipped = tf.transpose(x, [0, 1, 3, 2, 4])
    x = tf.transpose(_along_rows(call, flipped, size_at(images, 2), out[1]), [0, 1, 3, 2, 4])
    return from_padded(call, x, [size_at(images, 0), *out])


def _along_rows(call: Call, x: tf.Tensor, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """[n, b, h, ...] resized along axis 2, from ``old`` to ``new`` elements."""
    if old is None:
        old = tf.shape(x)[2]
    room = new
    if isinstance(new, RowSizes):
        room = tf.maximum(largest(new), 1)  # gathers of nothing have no gradient
    at = _places(call, _column(old), _column(new), room)  # [1 or n, room]
    at = tf.broadcast_to(at, tf.stack([tf.shape(x)[0], room]))
    last = tf.maximum(tf.minimum(_column(old), tf.shape(x)[2]) - 1, 0)

    def read(index: tf.Tensor) -> tf.Tensor:
        places = tf.clip_by_value(tf.cast(index, tf.int32), 0, last)
        return tf.gather(x, places, axis=2, batch_dims=1)

    if _is_nearest(call):
        return read(at)
    below = tf.floor(at)
    part = tf.reshape(at - below, tf.stack([-1, 1, room, 1, 1]))
    low, high = (tf.cast(read(i), tf.float32) for i in (below, tf.math.ceil(at)))
    return low + (high - low) * part


def _is_nearest(call: Call) -> bool:
    return call.op_type.startswith("ResizeNearestNeighbor")


def _column(size: Size) -> Any:
    """int32 [n, 1] for sizes that differ per row; a number for a size that all share."""
    return size.tensor[:, None] if isinstance(size, RowSizes) else size


def _places(call: Call, old: tf.Tensor, new: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
    """float32 [1 or n, room]: where the elements of the result lie in what is resized."""
    i = tf.cast(tf.range(room), tf.float32)[None]
    old, new = (tf.cast(s, tf.float32) for s in (old, new))
    aligns, is_nearest = call.attr("align_corners"), _is_nearest(call)
    scale = old / tf.maximum(new, 1.0)
    if aligns:
        scale = tf.where(new > 1.0, (old - 1.0) / tf.maximum(new - 1.0, 1.0), scale)
    if call.attr("half_pixel_centers"):
        at = (i + np.float32(0.5)) * scale
        return tf.floor(at) if is_nearest else at - np.float32(0.5)
    at = i * scale
    if is_nearest:  # as C rounds: halves away from zero
        return tf.floor(at + 0.5) if aligns else tf.floor(at)
    return at


# ---------------------------------------------------------------------------
# Crops
# ---------------------------------------------------------------------------


@ragged_rule("CropAndResize")
def crop_and_resize(
    call: Call, image: Value, boxes: Value, box_ind: Value, crop_size: Value
) -> Any:
    """[b, h_i, w_i, c] and [m, 4] boxes to [m, H, W, c]."""
    del crop_size
    out, filler = call.constant("crop_size").tolist(), call.attr("extrapolation_value")
    return call.like(_crops(call, image, boxes, box_ind, out, filler))


@ragged_rule("CropAndResizeGradImage", of_shapes=True)
def crop_gradient(call: Call, grads: Value, boxes: Value, box_ind: Value, image_size: Value) -> Any:
    """Gradients of the pixels that were read."""
    input = zeros_of(call, target_sizes(call, image_size, 3), call.output_dtype())
    out = [size_at(grads, axis) for axis in (1, 2)]
    return gradient_of(
        call, lambda x: Value.stacked(_crops(call, x, boxes, box_ind, out)), input, grads
    )


@ragged_rule("CropAndResizeGradBoxes")
def box_gradient(call: Call, grads: Value, image: Value, boxes: Value, box_ind: Value) -> Any:
    """Gradients of the edges of boxes."""
    out = [size_at(grads, axis) for axis in (1, 2)]
    return gradient_of(
        call, lambda x: Value.stacked(_crops(call, image, x, box_ind, out)), boxes, grads
    )


def _crops(
    call: Call, image: Value, boxes: Value, box_ind: Value, out: Sequence[Any], filler: float = 0.0
) -> tf.Tensor:
    """[n, m, H, W, c]: four reads for each new pixel, and a filler outside of the image."""
    if not isinstance(image, Ragged) or any(isinstance(v, Ragged) for v in (boxes, box_ind)):
        raise CannotVectorize("the number of boxes differs between iterations")
    is_bilinear = call.attr("method") in ("bilinear", b"bilinear")
    known = [*out, size_at(image, 1), size_at(image, 2)]
    if not is_bilinear or not uses_packed(call) or any(k is None for k in known):
        raise CannotVectorize("the nearest pixels, or boxes that cannot be checked")
    x = image.in_rows
    n, images, height, width, channels = tf.unstack(tf.shape(x), 5)
    ids, (y1, x1, y2, x2) = call.stacked(box_ind), tf.unstack(call.stacked(boxes), 4, -1)
    sizes = [_column(size_at(image, axis)) for axis in (1, 2)]
    checks = [(ids >= 0) & (ids < images), *[tf.convert_to_tensor(s > 0) for s in sizes]]
    is_right = tf.reduce_all(tf.stack([*map(tf.reduce_all, checks)]))
    text = "a box is of no image, or an image has no pixels. Numbers of images are"
    ids = after_check(call, is_right, text, [ids], ids)
    y, y_part, has_y = _in_boxes(y1, y2, sizes[0], int(out[0]))
    x_, x_part, has_x = _in_boxes(x1, x2, sizes[1], int(out[1]))
    flat = tf.reshape(x, tf.stack([-1, channels]))
    first = (tf.range(n)[:, None] * images + ids)[..., None, None] * height

    def read(row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        at = (first + tf.expand_dims(row, 3)) * width + tf.expand_dims(column, 2)
        return tf.cast(tf.gather(flat, at), tf.float32)

    across = tf.expand_dims(x_part, 2)[..., None]
    top, bottom = (a + (b - a) * across for a, b in [(read(r, x_[0]), read(r, x_[1])) for r in y])
    made = top + (bottom - top) * tf.expand_dims(y_part, 3)[..., None]
    is_there = (tf.expand_dims(has_y, 3) & tf.expand_dims(has_x, 2))[..., None]
    return tf.where(is_there, made, filler)


def _in_boxes(low: tf.Tensor, high: tf.Tensor, size: Any, count: int) -> Any:
    """Places of new pixels along an axis, [n, m, count], as the kernel computes it.

    Returns:
      The places before and behind, the part of the way between them, and what is inside.
    """
    last = tf.cast(size, tf.float32) - 1.0
    if count > 1:
        step = (high - low) * last / np.float32(count - 1)
        at = (low * last)[..., None] + tf.range(count, dtype=tf.float32) * step[..., None]
    else:
        at = (0.5 * (low + high) * last)[..., None]
    most = last[..., None] if isinstance(size, tf.Tensor) else last
    is_inside = (at >= 0.0) & (at <= most)
    at = tf.where(is_inside, at, 0.0)
    below = tf.floor(at)
    places = [tf.cast(i, tf.int32) for i in (below, tf.math.ceil(at))]
    return places, at - tf.stop_gradient(below), is_inside
