"""Images whose size differs per row, and images that are resized to a size that differs.

A resize reads two places of each axis, which depend on the sizes of the row. It gathers from the
padded form, one axis after the other. Where it reads more places, it is a product with a matrix of
weights for each axis, in the arithmetic of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn import _colours as colours
from tf_pfor.converters.ragged._forms import (
    agreed,
    from_padded,
    gradient_of,
    row_ids,
    size_when_run,
    zeros_of,
)
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import Size

_RESIZES = "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate"
_LARGE = 1 << 10  # from here on the kernel, row by row, is faster than gathers of all rows


@ragged_rule(_RESIZES, is_source=True, large=_LARGE)
def resize(call: Call, images: Value, size: Value, *moved: Value) -> Any:
    """[b, h_i, w_i, c] to [b, H, W, c], or to [b, H_i, W_i, c]; scaled and ``moved``."""
    if images.rank != 4 or not isinstance(images.size_at(0), int):
        raise CannotVectorize("the number of images is not known")
    out = target_sizes(call, size, 1)
    if any(isinstance(s, RowSizes) for s in out) and not call.uses_packed:
        raise CannotVectorize(f"the new size differs between iterations, {call.where_padded}")
    return _resized(call, images, out, moved)


@ragged_rule("ResizeBicubicGrad ResizeBilinearGrad ScaleAndTranslateGrad")
def resize_gradient(call: Call, grads: Value, original_image: Value, *moved: Value) -> Any:
    """Gradients of the pixels that each new one is made of."""
    out = [grads.size_at(axis) for axis in (1, 2)]
    return gradient_of(call, lambda x: _resized(call, x, out, moved), original_image, grads)


@ragged_rule("ResizeNearestNeighborGrad", of_shapes=True)
def nearest_gradient(call: Call, grads: Value, size: Value) -> Any:
    """Gradients of the pixels that were read."""
    images, channels = grads.size_at(0), grads.size_at(3)
    sizes = [images, *target_sizes(call, size, 1), channels]
    if not all(isinstance(s, (int, RowSizes)) for s in sizes):
        raise CannotVectorize("the number of images, or of channels, is not known")
    out = [grads.size_at(axis) for axis in (1, 2)]
    input = zeros_of(call, sizes, grads.dtype)
    return gradient_of(call, lambda x: _resized(call, x, out), input, grads)


def _resized(call: Call, images: Value, out: Sequence[Any], moved: Sequence[Value] = ()) -> Value:
    """Images of a new height and width: ints, or ``RowSizes``; scaled and moved as given."""
    x = images.in_rows if isinstance(images, Ragged) else call.stacked(images)
    x = _after_check(call, x, [images.size_at(1), images.size_at(2), *out])
    numbers = [v.tensor if v.is_stacked else v.tensor[None] for v in moved]  # [1 or n, 2] each
    for axis in (0, 1):
        own = [t[:, axis, None] for t in numbers]
        x = _along_rows(call, x, images.size_at(axis + 1), out[axis], own)
        x = tf.transpose(x, [0, 1, 3, 2, 4])
    return from_padded(x, [images.size_at(0), *out])


def _after_check(call: Call, x: tf.Tensor, sizes: Sequence[Any]) -> tf.Tensor:
    """Images after a check that each row has pixels, and is to have some; none for a gradient."""
    own = dict.fromkeys(s for s in sizes if isinstance(s, RowSizes))
    is_gradient = call.op_type not in _RESIZES.split()
    if not own or is_gradient:
        return x
    each = tf.stack([s.tensor for s in own])
    text = "an image has no pixels, or is resized to none, in some iterations. The sizes are"
    return call.after_check(each > 0, text, [each], x)


@ragged_rule("AdjustContrastv2 AdjustHue AdjustSaturation")
def adjust(call: Call, images: Value, amount: Value) -> Any:
    """Colours of pixels: by the kernel if it computes each pixel for itself, else by a formula."""
    if not isinstance(images, Ragged) or images.n_leading == images.rank:
        raise CannotVectorize("the channels, or the amounts alone, differ between iterations")
    is_contrast, rank = call.op_type == "AdjustContrastv2", images.rank
    is_packed = call.uses_packed and not (is_contrast and rank > 3)  # batches have several means
    x = images.tensor if is_packed else images.in_rows
    ids = row_ids(images.sizes) if is_packed else None
    if is_contrast:
        made = colours.contrast(x, _of_rows(amount, x, ids), _means(images, ids))
    elif amount.is_stacked:
        formula = colours.hue if call.op_type == "AdjustHue" else colours.saturation
        made = formula(x, _of_rows(amount, x, ids))
    else:  # the kernel wants three axes
        flat = tf.reshape(x, tf.stack([1, -1, tf.shape(x)[-1]]))
        made = tf.reshape(call.rebuild(images=flat), tf.shape(x))
    made.set_shape(x.shape)
    return images.with_elements(made) if is_packed else from_padded(made, images.sizes)


def _of_rows(number: Value, x: tf.Tensor, ids: tf.Tensor | None) -> tf.Tensor:
    """A number of each row, for the packed form (``ids`` are its rows) or for the padded one."""
    if not number.is_stacked:
        return number.tensor
    each = number.tensor if ids is None else tf.gather(number.tensor, ids)
    return tf.reshape(each, [-1, *[1] * (len(x.shape) - 1)])


def _means(images: Ragged, ids: tf.Tensor | None) -> tf.Tensor:
    """The mean of each channel of an image: [n, ..., 1, 1, c], or beside the packed form."""
    rank, rows = images.rank, images.in_rows
    height, width = (_column(size_when_run(images, axis)) for axis in (rank - 3, rank - 2))
    pixels = tf.cast(tf.reshape(height * width, [-1, *[1] * rank]), rows.dtype)
    mean = tf.math.divide_no_nan(tf.reduce_sum(rows, [-3, -2], keepdims=True), pixels)
    if ids is None:
        return mean
    mean = mean[:, 0] if len(images.sizes) == 1 else mean[:, 0, 0]
    return tf.gather(mean, ids)


def _along_rows(
    call: Call, x: tf.Tensor, old: tf.Tensor, new: tf.Tensor, moved: Sequence[tf.Tensor]
) -> tf.Tensor:
    """[n, b, h, ...] resized along axis 2, from ``old`` to ``new`` elements."""
    if old is None:
        old = tf.shape(x)[2]
    room = new
    if isinstance(new, RowSizes):
        room = tf.maximum(largest(new), 1)  # gathers of nothing have no gradient
    last = tf.maximum(tf.minimum(_column(old), tf.shape(x)[2]) - 1, 0)
    if moved:
        weights = _spans(call, _column(old), room, tf.shape(x)[2], *moved)
        return _weighted(x, weights)
    at = _places(call, _column(old), _column(new), room)  # [1 or n, room]
    if "Bicubic" in call.op_type:
        return _weighted(x, _cubic(call, at, last, tf.shape(x)[2]))
    if "Area" in call.op_type:
        upto = _places(call, _column(old), _column(new), room + 1)[:, 1:]
        return _weighted(x, _areas(at, upto, last, tf.shape(x)[2]))
    at = tf.broadcast_to(at, tf.stack([tf.shape(x)[0], room]))

    def read(index: tf.Tensor) -> tf.Tensor:
        places = tf.clip_by_value(tf.cast(index, tf.int32), 0, last)
        return tf.gather(x, places, axis=2, batch_dims=1)

    if _is_nearest(call):
        return read(at)
    below = tf.floor(at)
    part = tf.reshape(at - below, tf.stack([-1, 1, room, 1, 1]))
    low, high = (tf.cast(read(i), tf.float32) for i in (below, tf.math.ceil(at)))
    return low + (high - low) * part


def _weighted(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[n, b, h, ...] by [1 or n, new, h]: sums of the elements along axis 2."""
    flat = tf.reshape(tf.cast(x, tf.float32), tf.concat([tf.shape(x)[:3], [-1]], 0))
    made = tf.matmul(weights[:, None], flat)
    shape = tf.concat([tf.shape(x)[:2], tf.shape(weights)[1:2], tf.shape(x)[3:]], 0)
    full = tf.reshape(made, shape)
    full.set_shape([*x.shape[:2], weights.shape[1], *x.shape[3:]])
    return full


def _cubic(call: Call, at: tf.Tensor, last: Any, room: tf.Tensor) -> tf.Tensor:
    """float32 [1 or n, new, room]: four weights, from tables of 1024 steps as in the kernel.

    Half pixels leave out what lies outside of the image; else the edge is repeated.
    """
    leaves_out = bool(call.attr("half_pixel_centers"))
    a = np.float32(-0.5 if leaves_out else -0.75)
    below = tf.floor(at)
    part = tf.round((at - below) * 1024.0) / 1024.0
    parts: list[tuple[tf.Tensor, tf.Tensor]] = []
    for step, x in ((-1, part + 1.0), (0, part), (1, 1.0 - part), (2, 2.0 - part)):
        near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
        far = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
        place = tf.cast(below, tf.int32) + step
        inside = tf.clip_by_value(place, 0, last)
        weight = near if step in (0, 1) else far
        if leaves_out:
            weight = tf.where(tf.equal(place, inside), weight, 0.0)
        parts.append((inside, weight))
    total = tf.add_n([w for _, w in parts])
    scale = 1.0 / total if leaves_out else tf.ones_like(total)
    return tf.add_n([tf.one_hot(i, room) * tf.expand_dims(w * scale, -1) for i, w in parts])


def _areas(begin: tf.Tensor, end: tf.Tensor, last: Any, room: tf.Tensor) -> tf.Tensor:
    """float32 [1 or n, new, room]: how much of each new pixel each old one covers."""
    place = tf.range(room)
    low = tf.cast(place, tf.float32)
    behind = tf.where(place >= tf.expand_dims(last, -1), np.float32(np.inf), low + 1.0)
    covered = tf.minimum(behind, tf.expand_dims(end, -1)) - tf.maximum(
        low, tf.expand_dims(begin, -1)
    )
    part = tf.maximum(covered, 0.0) / tf.expand_dims(end - begin, -1)
    # corners that are aligned in an image of one pixel: an area of nothing is that pixel
    return tf.where(tf.expand_dims(end > begin, -1), part, tf.one_hot(0, room))


def _keys_cubic(x: tf.Tensor) -> tf.Tensor:
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return _in_halves(x, ((1.5 * x - 2.5) * x) * x + 1.0, far)


def _mitchell_cubic(x: tf.Tensor) -> tf.Tensor:
    near = ((7.0 * x - 12.0) * x * x + 16.0 / 3.0) / 6.0
    return _in_halves(x, near, (((-7.0 / 3.0 * x + 12.0) * x - 20.0) * x + 32.0 / 3.0) / 6.0)


def _lanczos(x: tf.Tensor, radius: float) -> tf.Tensor:
    far = tf.maximum(x, 1e-3)
    product = tf.sin(np.pi * far) * tf.sin(np.pi * far / radius)
    weight = radius * product / (np.pi**2 * far * far)
    return tf.where(x > radius, 0.0, tf.where(x <= 1e-3, 1.0, weight))


def _in_halves(x: tf.Tensor, near: tf.Tensor, far: tf.Tensor) -> tf.Tensor:
    return tf.where(x >= 2.0, 0.0, tf.where(x >= 1.0, far, near))


_KERNELS: dict[str, tuple[float, Callable[[tf.Tensor], tf.Tensor]]] = {
    "lanczos1": (1.0, lambda x: _lanczos(x, 1.0)),
    "lanczos3": (3.0, lambda x: _lanczos(x, 3.0)),
    "lanczos5": (5.0, lambda x: _lanczos(x, 5.0)),
    "gaussian": (1.5, lambda x: tf.where(x < 1.5, tf.exp(x * x * -2.0), 0.0)),
    "box": (1.0, lambda x: tf.where(x < 0.5, 1.0, tf.where(tf.equal(x, 0.5), 0.5, 0.0))),
    "triangle": (1.0, lambda x: tf.maximum(1.0 - x, 0.0)),
    "keyscubic": (2.0, _keys_cubic),
    "mitchellcubic": (2.0, _mitchell_cubic),
}
"""The radius of each kernel, and its weights for distances."""


def _spans(
    call: Call, old: Any, new: Any, room: tf.Tensor, scale: tf.Tensor, translation: tf.Tensor
) -> tf.Tensor:
    """float32 [1 or n, new, room]: weights by the distance from where a new pixel lies."""
    radius, kernel = _KERNELS[call.attr("kernel_type")]
    inverse = 1.0 / scale  # [1 or n, 1]
    wide = tf.maximum(inverse, 1.0) if call.attr("antialias") else tf.ones_like(inverse)
    at = (tf.range(new, dtype=tf.float32) + 0.5) * inverse - inverse * translation
    size = tf.cast(old, tf.float32)
    place = tf.range(room, dtype=tf.float32)
    first = tf.maximum(tf.math.ceil(at - radius * wide - 0.5), 0.0)
    last = tf.minimum(tf.floor(at + radius * wide - 0.5), size - 1.0)
    is_read = (place >= first[..., None]) & (place <= last[..., None])
    is_read &= ((at >= 0.0) & (at <= size))[..., None]
    distance = tf.abs((place + 0.5 - tf.expand_dims(at, -1)) / tf.expand_dims(wide, -1))
    weights = tf.where(is_read, kernel(distance), 0.0)
    total = tf.reduce_sum(weights, -1, keepdims=True)
    is_any = tf.abs(total) >= 1000.0 * np.finfo(np.float32).tiny
    return tf.where(is_any, weights / tf.where(is_any, total, 1.0), weights)


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
    has_halves = "half_pixel_centers" in call.schema.attr_types
    scale = old / tf.maximum(new, 1.0)
    if aligns:
        scale = tf.where(new > 1.0, (old - 1.0) / tf.maximum(new - 1.0, 1.0), scale)
    if has_halves and call.attr("half_pixel_centers"):
        at = (i + np.float32(0.5)) * scale
        return tf.floor(at) if is_nearest else at - np.float32(0.5)
    at = i * scale
    if is_nearest:
        return _rounded(at) if aligns else tf.floor(at)
    return at


def _rounded(at: tf.Tensor) -> tf.Tensor:
    """Numbers that are not negative, rounded as in C: halves away from zero."""
    below = tf.floor(at)
    return tf.where(at - below >= 0.5, below + 1.0, below)


# ---------------------------------------------------------------------------
# Crops
# ---------------------------------------------------------------------------


@ragged_rule("CropAndResize")
def crop_and_resize(
    call: Call, image: Value, boxes: Value, box_ind: Value, crop_size: Value
) -> Any:
    """[b, h_i, w_i, c] and [m_i, 4] boxes to [m_i, H, W, c]."""
    out, filler = call.constant("crop_size").tolist(), call.attr("extrapolation_value")
    return _crops(call, image, boxes, box_ind, out, filler)


@ragged_rule("CropAndResizeGradImage", of_shapes=True)
def crop_gradient(call: Call, grads: Value, boxes: Value, box_ind: Value, image_size: Value) -> Any:
    """Gradients of the pixels that were read."""
    input = zeros_of(call, target_sizes(call, image_size, 3), call.output_dtype())
    out = [grads.size_at(axis) for axis in (1, 2)]
    return gradient_of(call, lambda x: _crops(call, x, boxes, box_ind, out), input, grads)


@ragged_rule("CropAndResizeGradBoxes")
def box_gradient(call: Call, grads: Value, image: Value, boxes: Value, box_ind: Value) -> Any:
    """Gradients of the edges of boxes."""
    out = [grads.size_at(axis) for axis in (1, 2)]
    return gradient_of(call, lambda x: _crops(call, image, x, box_ind, out), boxes, grads)


def _crops(
    call: Call, image: Value, boxes: Value, box_ind: Value, out: Sequence[Any], filler: float = 0.0
) -> Value:
    """[m_i, H, W, c] for each row: the boxes of all rows are boxes of all their images."""
    if isinstance(boxes, Ragged) is not isinstance(box_ind, Ragged):
        raise CannotVectorize("boxes and the numbers of their images differ in how many there are")
    known = [*out, *[image.size_at(k) for k in (1, 2)]]
    if not call.uses_packed or any(k is None for k in known):
        raise CannotVectorize("sizes of boxes or images that are not known, or cannot be checked")
    x = image.in_rows if isinstance(image, Ragged) else call.stacked(image)
    n, images = tf.unstack(tf.shape(x)[:2])
    if isinstance(boxes, Ragged) and isinstance(box_ind, Ragged):
        boxes, box_ind = agreed(call, (boxes, 0), (box_ind, 0))
        corners, ids, rows = boxes.tensor, box_ind.tensor, row_ids(boxes.sizes)
    else:
        corners, ids = (call.stacked(v) for v in (boxes, box_ind))
        rows = tf.repeat(tf.range(n), tf.shape(ids)[1])
        corners, ids = tf.reshape(corners, [-1, 4]), tf.reshape(ids, [-1])
    sizes = [tf.convert_to_tensor(_column(image.size_at(k))) for k in (1, 2)]
    checks = [(ids >= 0) & (ids < images), *[s > 0 for s in sizes]]
    is_right = tf.reduce_all(tf.stack([*map(tf.reduce_all, checks)]))
    text = "a box is of no image, or an image has no pixels. Numbers of images are"
    ids = rows * images + call.after_check(is_right, text, [ids], ids)
    flat = tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0))
    if isinstance(image, Ragged):
        own = [tf.gather(s[:, 0], rows) if s.shape.rank else s for s in sizes]
        is_nearest = call.attr("method") == "nearest"
        made = _boxes_of_own_images(flat, corners, ids, own, out, filler, is_nearest=is_nearest)
    else:
        flat.set_shape([None, *x.shape[2:]])
        method = call.attr("method")
        made = tf.image.crop_and_resize(flat, corners, ids, out, method, filler)
    if isinstance(boxes, Ragged):
        return Ragged.packed(made, boxes.sizes)
    many = size_when_run(box_ind, 0)
    return call.like(tf.reshape(made, tf.concat([tf.stack([n, many]), tf.shape(made)[1:]], 0)))


def _boxes_of_own_images(
    images: tf.Tensor,
    boxes: tf.Tensor,
    ids: tf.Tensor,
    sizes: Sequence[tf.Tensor],
    out: Sequence[int],
    filler: float,
    *,
    is_nearest: bool,
) -> tf.Tensor:
    """[m, H, W, c]: the reads for each new pixel, and a filler outside of the image.

    Args:
      images: [b, room, room, c].
      boxes: [m, 4].
      ids: int32 [m], of which image each box is.
      sizes: height and width of the image of each box, [m] or [].
      out: H and W.
      filler: the number outside.
      is_nearest: whether the nearest pixel is read, not four.
    """
    height, width = tf.unstack(tf.shape(images)[1:3], 2)
    y1, x1, y2, x2 = tf.unstack(boxes, 4, -1)
    y, y_part, has_y = _in_boxes(y1, y2, sizes[0], int(out[0]))
    x, x_part, has_x = _in_boxes(x1, x2, sizes[1], int(out[1]))
    flat = tf.reshape(images, tf.concat([[-1], tf.shape(images)[3:]], 0))
    first = ids[:, None, None] * height

    def read(table: tf.Tensor, row: tf.Tensor, column: tf.Tensor) -> tf.Tensor:
        at = (first + row[:, :, None]) * width + column[:, None]
        return tf.cast(tf.gather(table, at), tf.float32)

    def mixed(table: tf.Tensor) -> tf.Tensor:
        across, down = x_part[:, None, :, None], y_part[:, :, None, None]
        pairs = [(read(table, row, x[0]), read(table, row, x[1])) for row in y]
        top, bottom = (a + (b - a) * across for a, b in pairs)
        return top + (bottom - top) * down

    if is_nearest:  # the edges of boxes have the slopes of four reads, as in TensorFlow
        places = [tf.where(part < 0.5, *at) for at, part in ((y, y_part), (x, x_part))]
        made = mixed(tf.stop_gradient(flat))
        slopes = made - tf.stop_gradient(made)
        made = read(flat, *places) + tf.where(tf.math.is_finite(slopes), slopes, 0.0)
    else:
        made = mixed(flat)
    return tf.where((has_y[:, :, None] & has_x[:, None])[..., None], made, filler)


def _in_boxes(low: tf.Tensor, high: tf.Tensor, size: Any, count: int) -> Any:
    """Places of new pixels along an axis, [m, count], as the kernel computes it.

    Returns:
      The places before and behind, the part of the way between them, and what is inside.
    """
    last = tf.cast(size, tf.float32) - 1.0
    if count > 1:
        step = (high - low) * last / np.float32(count - 1)
        at = (low * last)[:, None] + tf.range(count, dtype=tf.float32) * step[:, None]
    else:
        at = (0.5 * (low + high) * last)[:, None]
    is_inside = (at >= 0.0) & (at <= tf.reshape(last, [-1, 1]))
    at = tf.where(is_inside, at, 0.0)
    below = tf.floor(at)
    places = [tf.cast(i, tf.int32) for i in (below, tf.math.ceil(at))]
    return places, at - tf.stop_gradient(below), is_inside
