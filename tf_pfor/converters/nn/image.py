"""Image ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math import _row_kernels as row_kernels
from tf_pfor.converters.math._families import fold_batch, native_batch, table
from tf_pfor.converters.nn import _colours as colours
from tf_pfor.converters.nn._channels import from_axis, into_axis
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims, product, unfold
from tf_pfor.core.values import Value, is_static

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
_LIMITS = ("upper_frequency_limit", "lower_frequency_limit")
_COUNTS = ("filterbank_channel_count", "dct_coefficient_count")
fold_batch(table("Mfcc", *_LIMITS, *_COUNTS), "spectrogram")


@RegisterPFor(
    "ExtractGlimpse ExtractGlimpseV2",
    ("input", "offsets"),
    attrs=("centered", "normalized", "uniform_noise", "noise"),
)
def extract_glimpse(call: Call, input: Value, size: Value, offsets: Value) -> Any:
    """The loop goes into the batch; what is random beyond the edge is of each iteration its own."""
    if call.attr("noise") not in ("zero", b"zero"):
        raise CannotVectorize("beyond the edge each iteration draws noise of its own")
    made = call.rebuild(input=fold(call, input), offsets=fold(call, offsets))
    return unfold(call, made, input)


# ---------------------------------------------------------------------------
# Crops
# ---------------------------------------------------------------------------


def _boxes(call: Call, batch: Dim | None) -> dict[str, tf.Tensor]:
    """The boxes of all iterations, and the images they refer to, offset by those before.

    Args:
      call: has the inputs "boxes" and "box_ind".
      batch: the number of images of an iteration; None if all refer to the same images.
    """
    boxes, box_ind = call.value("boxes"), call.value("box_ind")
    flat = fold(call, boxes)  # [n*boxes, 4]
    if batch is None:
        return {"boxes": flat, "box_ind": fold(call, box_ind)}
    emit, ids = call.emit, call.stacked(box_ind)  # [n, boxes]
    each = emit.as_tensor(batch)
    first = emit("Mul", emit.reshape(call.loop.places, [call.loop.length, 1]), each)
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


@RegisterPFor("AdjustContrastv2 AdjustHue AdjustSaturation", ("images",))
def adjust(call: Call, images: Value, amount: Value) -> Any:
    """The kernels take any leading dimensions."""
    return call.rebuild()


@RegisterPFor("AdjustContrastv2", ANY)
def adjust_contrast(call: Call, images: Value, contrast_factor: Value) -> Any:
    """(x - mean) * factor_i + mean, the mean of each channel over rows and columns."""
    return _adjusted(call, images, contrast_factor, tf.raw_ops.AdjustContrastv2, colours.contrast)


@RegisterPFor("AdjustHue", ANY)
def adjust_hue(call: Call, images: Value, delta: Value) -> Any:
    """Turns the hue of (x - min) / (max - min); least and greatest channel stay what they are."""
    return _adjusted(call, images, delta, tf.raw_ops.AdjustHue, colours.hue)


@RegisterPFor("AdjustSaturation", ANY)
def adjust_saturation(call: Call, images: Value, scale: Value) -> Any:
    """The saturation times scale_i, clipped to [0, 1]."""
    return _adjusted(call, images, scale, tf.raw_ops.AdjustSaturation, colours.saturation)


_LARGE = 1 << 11  # elements of an image: these kernels compute more than they copy


def _adjusted(
    call: Call, images: Value, amount: Value, op: Any, formula: Callable[..., Any]
) -> Value:
    """One amount for each iteration: the formula; large images by the kernel, one by one."""
    rank = call.require_rank(images)
    shape: Any = images.inner_shape
    is_large = is_static(shape) and np.prod(shape) >= _LARGE and images.is_stacked
    is_large = is_large and images.dtype == tf.float32  # all that the kernels take on CPUs

    def wide(x: tf.Tensor, scalar: tf.Tensor) -> tf.Tensor:
        return formula(x, tf.reshape(scalar, [-1, *[1] * rank]))

    with call.emit.as_default():
        if is_large and row_kernels.may_be_used(call):
            call.note("large images: each by the kernel on a CPU, else by a formula for all")
            names = list(call.inputs)
            made = row_kernels.with_gradient_of_formula(
                lambda *row: op(**dict(zip(names, row))),
                wide,
                [images.tensor, call.stacked(amount)],
                shape,
            )
        else:
            made = wide(images.tensor, amount.tensor)
            lead = [call.loop.static_length, *(shape or [None] * rank)]
            made.set_shape(lead)
    return Value.stacked(made)


# ---------------------------------------------------------------------------
# Transforms
# ---------------------------------------------------------------------------


@RegisterPFor(
    "ImageProjectiveTransformV2 ImageProjectiveTransformV3",
    ANY,
    attrs=("interpolation", "fill_mode"),
)
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


fold_batch(table("Dilation2D", *DILATION), "input")
fold_batch(table("Dilation2DBackpropInput", *DILATION), ("input", "out_backprop"))


@RegisterPFor("Dilation2D", ("input", "filter"), attrs=DILATION)
@RegisterPFor("Dilation2DBackpropInput", ("input", "filter", "out_backprop"), attrs=DILATION)
@RegisterPFor("Dilation2DBackpropFilter", ANY, attrs=DILATION)
def dilation_by_channels(call: Call, *inputs: Value) -> Any:
    """Channels are for themselves: [n, ..., c] -> [..., n*c] for all inputs and the result."""
    made = call.rebuild(
        **{k: into_axis(call, v, call.require_rank(v) - 1) for k, v in call.values().items()}
    )
    channels = inner_dims(call, inputs[0])[-1]
    rank = len(made.shape)
    parts = [*[call.emit.dim(made, i) for i in range(rank - 1)], channels]
    return from_axis(call, made, parts, rank - 1)
