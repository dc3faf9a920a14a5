"""Boxes drawn at random: crops that cover enough of an object, the attempts of all rows at once.

The kernel draws crops until one will do. Attempts do not depend on each other. So all attempts that
the kernel may make are drawn, and each row takes its first attempt that will do.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim, seeds
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.values import Value

_ATTRS = (
    "seed",
    "seed2",
    "min_object_covered",
    "aspect_ratio_range",
    "area_range",
    "max_attempts",
    "use_image_if_no_bounding_boxes",
)


@RegisterPFor("SampleDistortedBoundingBox", ALWAYS, attrs=_ATTRS)
@RegisterPFor(
    "SampleDistortedBoundingBoxV2", ALWAYS, attrs=[a for a in _ATTRS if a != "min_object_covered"]
)
def distorted_box(call: Call, image_size: Value, bounding_boxes: Value, *covered: Value) -> Any:
    """[n, attempts] crops; the first that will do, or else the whole image."""
    with call.emit.as_default():
        size = tf.cast(call.stacked(image_size), tf.int32)
        sides = size[:, 0, None], size[:, 1, None]  # [n, 1]
        crops, will_do = _crops(call, *sides)
        objects = _objects(call, call.stacked(bounding_boxes), *sides)
        least = call.attr("min_object_covered") if not covered else covered[0].tensor
        if covered and covered[0].is_stacked:
            least = least[:, None, None]
        will_do &= _covers(crops, objects, least)
        found, first = tf.math.top_k(tf.cast(will_do, tf.int32), 1)
        whole = tf.concat([tf.zeros_like(size[:, :2]), size[:, :2]], 1)
        crop = tf.gather(tf.stack(crops, -1), first[:, 0], batch_dims=1)  # y, x, y end, x end
        crop = tf.where(found > 0, crop, whole)
        made = _results(call, crop, size)
    return made


def _results(call: Call, crop: Any, size: Any) -> list[tf.Tensor]:
    """Begins and sizes for a slice [n, 3], and boxes [n, 1, 1, 4] relative to the image."""
    first, last, dtype = crop[:, :2], crop[:, 2:], call.output_dtype()
    begins = tf.pad(first, [[0, 0], [0, 1]])
    sizes = tf.pad(last - first, [[0, 0], [0, 1]], constant_values=-1)
    sides = tf.cast(tf.tile(size[:, :2], [1, 2]), tf.float32)
    boxes = (tf.cast(crop, tf.float32) / sides)[:, None, None]
    return [tf.cast(begins, dtype), tf.cast(sizes, dtype), boxes]


def _crops(call: Call, tall: tf.Tensor, wide: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The four sides of crops, int32 [n, attempts] each, and whether they keep to the bounds."""
    n = call.loop.length
    own = seeds(call.attr("seed"), call.attr("seed2"))
    shape = tf.stack([4, n, call.attr("max_attempts")])
    drawn = tf.unstack(tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float64, **own))
    low, high = call.attr("aspect_ratio_range")
    ratio = tf.cast(drawn[0], tf.float32) * (high - low) + low
    pixels = tf.cast(wide, tf.float32), tf.cast(tall, tf.float32)
    least, most = (area * pixels[0] * pixels[1] for area in call.attr("area_range"))

    def width_of(height: tf.Tensor) -> Any:
        return tf.cast(tf.round(tf.cast(height, tf.float32) * ratio), tf.int32)

    def area_of(height: tf.Tensor) -> Any:
        return tf.cast(height * width_of(height), tf.float32)

    def below(u: tf.Tensor, count: tf.Tensor) -> Any:
        """An integer from 0 to ``count``, without it."""
        return tf.cast(tf.floor(u * tf.cast(tf.maximum(count, 0), tf.float64)), tf.int32)

    lowest, highest = (tf.cast(tf.round(tf.sqrt(a / ratio)), tf.int32) for a in (least, most))
    fitting = tf.cast(
        (tf.cast(wide, tf.float64) + 0.4999999) / tf.cast(ratio, tf.float64), tf.int32
    )
    fitting = tf.where(width_of(fitting) > wide, fitting - 1, fitting)
    highest = tf.where(width_of(highest) > wide, fitting, highest)
    highest = tf.minimum(highest, tall)
    lowest = tf.minimum(lowest, highest)
    height = lowest + below(drawn[1], highest - lowest + 1)
    height = tf.where(area_of(height) < least, height + 1, height)  # rounded to too little
    height = tf.where(area_of(height) > most, height - 1, height)  # or to too much
    width, area = width_of(height), area_of(height)
    is_in = (area >= least) & (area <= most) & (width <= wide) & (height <= tall)
    is_in &= (width > 0) & (height > 0)
    top, left = below(drawn[2], tall - height), below(drawn[3], wide - width)
    return [top, left, top + height, left + width], is_in


def _objects(call: Call, boxes: tf.Tensor, tall: tf.Tensor, wide: tf.Tensor) -> list[Any]:
    """The sides of objects in pixels, int32 [n, 1, boxes + 1] each.

    The last object is the whole image if there are no boxes, and else has no pixels.
    """
    n = call.loop.length
    count = tf.reduce_prod(tf.shape(boxes)[1:3])
    boxes = tf.reshape(boxes, tf.stack([n, count, 4]))
    is_whole = tf.cast(count == 0, boxes.dtype)
    last = tf.fill(tf.stack([n, 1, 2]), is_whole)
    boxes = tf.concat([boxes, tf.concat([tf.zeros_like(last), last], 2)], 1)
    checks = [
        tf.debugging.Assert(
            tf.reduce_all((boxes >= 0.0) & (boxes <= 1.0)),
            ["All bounding box coordinates must be in [0.0, 1.0]:", boxes],
        )
    ]
    if not call.attr("use_image_if_no_bounding_boxes"):
        why = "No bounding boxes provided as input; use_image_if_no_bounding_boxes is not set."
        checks.append(tf.debugging.Assert((count > 0) | tf.equal(n, 0), [why]))
    with tf.control_dependencies(checks):
        sides = tf.unstack(tf.identity(boxes)[:, None], axis=-1)
    scales = [tf.cast(s, tf.float32)[:, None] for s in (tall, wide, tall, wide)]
    return [tf.cast(side * scale, tf.int32) for side, scale in zip(sides, scales)]


def _covers(crops: list[tf.Tensor], objects: list[Any], least: Dim) -> tf.Tensor:
    """bool [n, attempts]: whether a crop covers so much of one of the objects."""
    y1, x1, y2, x2 = (tf.expand_dims(c, -1) for c in crops)  # [n, attempts, 1]
    top, left, bottom, right = objects
    size = tf.cast((bottom - top) * (right - left), tf.float32)
    height = tf.maximum(tf.minimum(y2, bottom) - tf.maximum(y1, top), 0)
    width = tf.maximum(tf.minimum(x2, right) - tf.maximum(x1, left), 0)
    part = tf.cast(height * width, tf.float32) / size
    return tf.reduce_any((size >= 1.0) & (part >= least), -1)
