"""Image ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._families import fold_batch, loop_on_purpose, native_batch, table
from tf_pfor.converters.nn._channels import from_axis, into_axis
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank, fold, inner_dims, product, unfold
from tf_pfor.core.values import Value

native_batch(table("HSVToRGB RGBToHSV"))

RESIZE = ("align_corners", "half_pixel_centers")
fold_batch(
    {
        **table("ResizeArea", "align_corners"),
        **table("ResizeBicubic ResizeBilinear ResizeNearestNeighbor", *RESIZE),
        **table("ScaleAndTranslate", "kernel_type", "antialias"),
    },
    "images",
)
fold_batch(table("ResizeNearestNeighborGrad", *RESIZE), "grads")
fold_batch(
    {
        **table("ResizeBicubicGrad ResizeBilinearGrad", *RESIZE),
        **table("ScaleAndTranslateGrad", "kernel_type", "antialias"),
    },
    ("grads", "original_image"),
)
fold_batch(table("CombinedNonMaxSuppression", "pad_per_class", "clip_boxes"), ("boxes", "scores"))
fold_batch(table("DrawBoundingBoxes DrawBoundingBoxesV2"), ("images", "boxes"))

loop_on_purpose(
    table("NonMaxSuppressionV4 NonMaxSuppressionV5", "pad_to_max_output_size"),
    "which boxes are suppressed is decided one after the other",
)


# ---------------------------------------------------------------------------
# Crops
# ---------------------------------------------------------------------------


def _boxes(call: Call, batch: Dim | None) -> dict[str, tf.Tensor]:
    """The boxes of all iterations, and the images they refer to, offset by those before.

    Args:
      call: has the inputs "boxes" and "box_ind".
      batch: how many images an iteration has; None if all refer to the same images.
    """
    boxes, box_ind = call.inputs["boxes"], call.inputs["box_ind"]
    assert isinstance(boxes, Value)
    assert isinstance(box_ind, Value)
    flat = fold(call, boxes)  # [n*boxes, 4]
    if batch is None:
        return {"boxes": flat, "box_ind": fold(call, box_ind)}
    emit, ids = call.emit, call.stacked(box_ind)  # [n, boxes]
    each = emit.as_tensor(batch)
    first = emit("Mul", emit.reshape(call.loop.index, [call.loop.length, 1]), each)
    inside = emit("LogicalAnd", emit("GreaterEqual", ids, np.int32(0)), emit("Less", ids, each))
    # The kernel must still refuse an image that the iteration does not have.
    moved = emit("SelectV2", inside, emit("AddV2", ids, first), np.int32(-1))
    rows = product(call, [call.loop.length, *inner_dims(call, box_ind)])
    return {"boxes": flat, "box_ind": emit.reshape(moved, [rows])}


@RegisterPFor("CropAndResize", ANY, attrs=("method", "extrapolation_value"))
def crop_and_resize(
    call: Call, image: Value, boxes: Value, box_ind: Value, crop_size: Value
) -> Any:
    """[n*b] images and [n*boxes] boxes; shared images stay as they are."""
    if crop_size.is_stacked:
        raise CannotVectorize("'crop_size' differs between iterations")
    batch = inner_dims(call, image)[0] if image.is_stacked else None
    images = fold(call, image) if image.is_stacked else image.tensor
    made = call.rebuild(image=images, **_boxes(call, batch))  # [n*boxes, h, w, c]
    return unfold(call, made, boxes if boxes.is_stacked else _tiled(call, boxes))


@RegisterPFor("CropAndResizeGradImage", ANY, attrs=("method",))
def crop_and_resize_grad_image(
    call: Call, grads: Value, boxes: Value, box_ind: Value, image_size: Value
) -> Any:
    """The gradients of [n*b] images."""
    size = call.constant("image_size")
    n = call.loop.length
    full = [product(call, [n, int(size[0])]), *map(int, size[1:])]
    made = call.rebuild(
        grads=fold(call, grads),
        image_size=call.emit.shape_vector(full),
        **_boxes(call, int(size[0])),
    )
    return call.emit.reshape(made, [n, *map(int, size)])


@RegisterPFor("CropAndResizeGradBoxes", ANY, attrs=("method",))
def crop_and_resize_grad_boxes(
    call: Call, grads: Value, image: Value, boxes: Value, box_ind: Value
) -> Any:
    """The gradients of [n*boxes] boxes; shared images stay as they are."""
    batch = inner_dims(call, image)[0] if image.is_stacked else None
    images = fold(call, image) if image.is_stacked else image.tensor
    made = call.rebuild(grads=fold(call, grads), image=images, **_boxes(call, batch))
    return unfold(call, made, boxes if boxes.is_stacked else _tiled(call, boxes))


def _tiled(call: Call, value: Value) -> Value:
    return Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)


# ---------------------------------------------------------------------------
# Colours
# ---------------------------------------------------------------------------


@RegisterPFor("AdjustContrastv2", ("images",))
@RegisterPFor("AdjustHue", ("images",))
@RegisterPFor("AdjustSaturation", ("images",))
def adjust(call: Call, images: Value, amount: Value) -> Any:
    """The kernels take any leading dimensions."""
    return call.rebuild()


@RegisterPFor("AdjustContrastv2", ANY)
def adjust_contrast(call: Call, images: Value, contrast_factor: Value) -> Any:
    """(x - mean) * factor_i + mean, the mean of each channel over rows and columns."""
    rank = call.require_rank(images)
    emit, x = call.emit, images.tensor
    mean = emit("Mean", x, np.asarray([-3, -2], np.int32), keep_dims=True)
    spread = emit("Mul", *_aligned(call, images, emit("Sub", x, mean), contrast_factor, rank))
    return emit("AddV2", spread, mean)


@RegisterPFor("AdjustHue", ANY)
def adjust_hue(call: Call, images: Value, delta: Value) -> Any:
    """Turns the hue of (x - min) / (max - min); least and greatest channel stay what they are."""
    rank = call.require_rank(images)
    emit, x = call.emit, images.tensor
    last = np.asarray([-1], np.int32)
    low = emit("Min", x, last, keep_dims=True)
    spread = emit("Sub", emit("Max", x, last, keep_dims=True), low)
    pure = emit("RGBToHSV", emit("DivNoNan", emit("Sub", x, low), spread))
    hue, _, _ = emit("Split", np.int32(-1), pure, num_split=3)
    hue = emit("AddV2", *_aligned(call, images, hue, delta, rank))
    hue = emit("Sub", hue, emit("Floor", hue))
    one = emit("OnesLike", hue)
    turned = emit("HSVToRGB", emit("ConcatV2", [hue, one, one], np.int32(-1)))
    return emit("AddV2", emit("Mul", turned, spread), low)


@RegisterPFor("AdjustSaturation", ANY)
def adjust_saturation(call: Call, images: Value, scale: Value) -> Any:
    """The saturation times scale_i, clipped to [0, 1]."""
    rank = call.require_rank(images)
    emit = call.emit
    hue, saturation, value = emit(
        "Split", np.int32(-1), emit("RGBToHSV", images.tensor), num_split=3
    )
    zero, one = (emit.constant(v, images.dtype) for v in (0, 1))
    scaled = emit("Mul", *_aligned(call, images, saturation, scale, rank))
    scaled = emit("Minimum", emit("Maximum", scaled, zero), one)
    # Grey and black pixels stay as they are: their hue and saturation are zero.
    hue, value = (_spread(call, images, t) for t in (hue, value))
    return emit("HSVToRGB", emit("ConcatV2", [hue, scaled, value], np.int32(-1)))


def _aligned(
    call: Call, images: Value, tensor: tf.Tensor, amount: Value, rank: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """``tensor``, made from the images, and one number for each iteration to combine it with."""
    scalar = amount.tensor
    if amount.dtype != tensor.dtype:
        scalar = call.emit("Cast", scalar, DstT=tensor.dtype)
    return tensor, expand_to_rank(call, Value.stacked(scalar), rank)


def _spread(call: Call, images: Value, tensor: tf.Tensor) -> tf.Tensor:
    """``tensor``, made from the images, for each iteration."""
    if images.is_stacked:
        return tensor
    shape = [call.loop.length, *[call.emit.dim(tensor, i) for i in range(len(tensor.shape))]]
    return call.emit("BroadcastTo", tensor, call.emit.shape_vector(shape))


# ---------------------------------------------------------------------------
# Transforms
# ---------------------------------------------------------------------------


@RegisterPFor("ImageProjectiveTransformV2", ANY, attrs=("interpolation", "fill_mode"))
@RegisterPFor("ImageProjectiveTransformV3", ANY, attrs=("interpolation", "fill_mode"))
def projective_transform(
    call: Call,
    images: Value,
    transforms: Value,
    output_shape: Value,
    fill_value: Value | None = None,
) -> Any:
    """[n*b] images; one invariant transform serves all, else there is one for each image."""
    if output_shape.is_stacked or (fill_value is not None and fill_value.is_stacked):
        raise CannotVectorize("'output_shape' or 'fill_value' differs between iterations")
    batch, count = inner_dims(call, images)[0], inner_dims(call, transforms)[0]
    flat = fold(call, images)
    like = images if images.is_stacked else _tiled(call, images)
    if not transforms.is_stacked and isinstance(count, int) and count == 1:
        return unfold(call, call.rebuild(images=flat), like)
    if isinstance(batch, int) and batch == count:
        each = fold(call, transforms)  # [n*b, 8]
    elif isinstance(count, int) and count == 1:
        shape = call.emit.shape_vector([call.loop.length, batch, 8])
        each = call.emit("BroadcastTo", call.stacked(transforms), shape)
        each = call.emit.reshape(each, [product(call, [call.loop.length, batch]), 8])
    else:
        raise CannotVectorize("it is unknown whether there is one transform for each image")
    return unfold(call, call.rebuild(images=flat, transforms=each), like)


# ---------------------------------------------------------------------------
# Morphology
# ---------------------------------------------------------------------------

DILATION = ("strides", "rates", "padding")


@RegisterPFor("Dilation2D", ("input",), attrs=DILATION)
def dilation(call: Call, input: Value, filter: Value) -> Any:
    """A shared filter: [n*b] images."""
    return unfold(call, call.rebuild(input=fold(call, input)), input)


@RegisterPFor("Dilation2DBackpropInput", ("input", "out_backprop"), attrs=DILATION)
def dilation_grad_input(call: Call, input: Value, filter: Value, out_backprop: Value) -> Any:
    """A shared filter: [n*b] images."""
    made = call.rebuild(input=fold(call, input), out_backprop=fold(call, out_backprop))
    return unfold(call, made, input)


@RegisterPFor("Dilation2D", ("input", "filter"), attrs=DILATION)
@RegisterPFor("Dilation2DBackpropInput", ("input", "filter", "out_backprop"), attrs=DILATION)
@RegisterPFor("Dilation2DBackpropFilter", ANY, attrs=DILATION)
def dilation_by_channels(call: Call, *inputs: Value) -> Any:
    """Channels are for themselves: [n, ..., c] -> [..., n*c] for all inputs and the result."""
    made = call.rebuild(
        **{k: into_axis(call, v, call.require_rank(v) - 1) for k, v in call.inputs.items()}  # type: ignore[union-attr, arg-type]
    )
    channels = inner_dims(call, inputs[0])[-1]
    rank = len(made.shape)
    parts = [*[call.emit.dim(made, i) for i in range(rank - 1)], channels]
    return from_axis(call, made, parts, rank - 1)
