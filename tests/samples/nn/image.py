"""Samples of tf_pfor/converters/nn/image.py."""

import numpy as np
import tensorflow as tf

from tests.sample import drawn, fixed, ints, normal, sample, uniform

raw = tf.raw_ops
IMAGES = normal(2, 4, 5, 3)
FACTOR = uniform(low=0.5, high=2.0)


def boxes(*shape):
    """Boxes [y1, x1, y2, x2] with y1 < y2 and x1 < x2."""

    def draw(rng):
        first = rng.uniform(0.0, 0.4, (*shape, 2))
        return np.concatenate([first, first + rng.uniform(0.3, 0.7, (*shape, 2))], -1).astype("f")

    return drawn((*shape, 4), draw)


def transforms(count):
    def draw(rng):
        x = np.tile([1.0, 0, 0, 0, 1, 0, 0, 0], (count, 1))
        return (x + rng.uniform(-0.2, 0.2, x.shape) * [1, 1, 1, 1, 1, 1, 0, 0]).astype("f")

    return drawn((count, 8), draw)


def resize(name, **attrs):
    return lambda x: getattr(raw, name)(images=x, size=[6, 7], **attrs)


def resize_grad(name, **attrs):
    return lambda g, x: getattr(raw, name)(grads=g, original_image=x, **attrs)


def crop(**attrs):
    return lambda x, b, i: raw.CropAndResize(image=x, boxes=b, box_ind=i, crop_size=[2, 3], **attrs)


def project(name, **inputs):
    return lambda x, t: getattr(raw, name)(
        images=x, transforms=t, output_shape=[5, 4], interpolation="BILINEAR", **inputs
    )


def scaled(x):
    return raw.ScaleAndTranslate(
        images=x, size=[6, 7], scale=[1.5, 1.2], translation=[0.5, -0.5],
        kernel_type="lanczos3", antialias=True,
    )  # fmt: skip


def scaled_grad(g, x):
    return raw.ScaleAndTranslateGrad(
        grads=g, original_image=x, scale=[1.5, 1.2], translation=[0.5, -0.5],
        kernel_type="triangle", antialias=False,
    )  # fmt: skip


def dilation(name="Dilation2D", padding="SAME", strides=1, rates=1):
    names = ("input", "filter", "out_backprop")
    return lambda *inputs: getattr(raw, name)(
        **dict(zip(names, inputs)), strides=[1, strides, strides, 1], rates=[1, rates, rates, 1],
        padding=padding,
    )  # fmt: skip


def combined(b, s):
    return tuple(
        raw.CombinedNonMaxSuppression(
            boxes=b, scores=s, max_output_size_per_class=3, max_total_size=4, iou_threshold=0.4,
            score_threshold=0.2, clip_boxes=False,
        )
    )  # fmt: skip


def suppressed(version):
    common = {"max_output_size": 3, "iou_threshold": 0.4, "score_threshold": 0.2,
              "pad_to_max_output_size": True}  # fmt: skip
    if version == "V5":
        common["soft_nms_sigma"] = 0.1
    return lambda b, s: tuple(
        getattr(raw, f"NonMaxSuppression{version}")(boxes=b, scores=s, **common)
    )


COLOURS = [
    sample("AdjustContrastv2", tf.image.adjust_contrast, IMAGES, FACTOR, grad=False),
    sample("AdjustContrastv2", tf.image.adjust_contrast, normal(4, 5, 3), FACTOR, grad=False,
           label="rank3"),
    # Negative channels too: the result must be the kernel's, not the result of a detour by HSV.
    # XLA's AdjustHue takes the detour, and differs from the kernel there.
    sample("AdjustHue", lambda x, d: raw.AdjustHue(images=x, delta=d), IMAGES,
           uniform(low=-0.9, high=0.9), grad=False, xla=False, max_ops=16, rtol=1e-4, atol=1e-4),
    sample("AdjustHue", lambda x, d: raw.AdjustHue(images=x, delta=d), ints(
        2, 2, 3, high=2, dtype=np.float32), uniform(low=0.0, high=0.9), grad=False, max_ops=16,
        label="edges", rtol=1e-4, atol=1e-4),  # hue is a quotient of small differences
    sample("AdjustSaturation", lambda x, f: raw.AdjustSaturation(images=x, scale=f),
           uniform(2, 4, 5, 3), FACTOR, grad=False, rtol=1e-4, atol=1e-4),
    sample("AdjustSaturation", lambda x, f: raw.AdjustSaturation(images=x, scale=f), IMAGES,
           FACTOR, grad=False, label="negative", rtol=1e-4, atol=1e-4, xla=False),
    sample("HSVToRGB", tf.image.hsv_to_rgb, uniform(2, 3), grad=False),
    sample("RGBToHSV", tf.image.rgb_to_hsv, uniform(4, 5, 3), rtol=1e-4, atol=1e-4),
]  # fmt: skip

RESIZES = [
    sample("ResizeArea", resize("ResizeArea"), IMAGES, grad=False, xla=False),
    sample("ResizeBicubic", resize("ResizeBicubic", half_pixel_centers=True), IMAGES, xla=False),
    sample("ResizeBicubicGrad", resize_grad("ResizeBicubicGrad"), normal(2, 6, 7, 3), IMAGES,
           grad=False, xla=False),
    sample("ResizeBilinear", resize("ResizeBilinear", half_pixel_centers=True), IMAGES),
    sample("ResizeBilinear", resize("ResizeBilinear", align_corners=True), ints(1, 4, 5, 1),
           label="int32"),
    sample("ResizeBilinearGrad", resize_grad("ResizeBilinearGrad", half_pixel_centers=True),
           normal(2, 6, 7, 3), IMAGES, grad=False),
    sample("ResizeNearestNeighbor", resize("ResizeNearestNeighbor"), IMAGES),
    sample("ResizeNearestNeighborGrad",
        lambda g: raw.ResizeNearestNeighborGrad(grads=g, size=[4, 5]), normal(2, 6, 7, 3),
        grad=False, xla=False),
    sample("ScaleAndTranslate", scaled, IMAGES, xla=False),
    sample("ScaleAndTranslateGrad", scaled_grad, normal(2, 6, 7, 3), IMAGES, grad=False, xla=False),
]  # fmt: skip

BOXES = [
    sample("CombinedNonMaxSuppression", combined, boxes(2, 6, 1), uniform(2, 6, 3), grad=False,
           xla=False),
    sample("CropAndResize", crop(), IMAGES, boxes(5), ints(5, high=2), xla=False, max_ops=16),
    sample("CropAndResize", crop(method="nearest", extrapolation_value=2.0), IMAGES, boxes(5),
           ints(5, high=2), xla=False, label="nearest", grad=False, max_ops=16),
    sample("CropAndResizeGradBoxes",
        lambda g, x, b, i: raw.CropAndResizeGradBoxes(grads=g, image=x, boxes=b, box_ind=i),
        normal(5, 2, 3, 3), IMAGES, boxes(5), ints(5, high=2), grad=False, xla=False, max_ops=16),
    sample("CropAndResizeGradImage",
        lambda g, b, i: raw.CropAndResizeGradImage(grads=g, boxes=b, box_ind=i,
        image_size=[2, 4, 5, 3], T=tf.float32), normal(5, 2, 3, 3), boxes(5), ints(5, high=2),
        grad=False, xla=False, max_ops=16),
    sample("DrawBoundingBoxes", lambda x, b: raw.DrawBoundingBoxes(images=x, boxes=b),
           normal(2, 8, 8, 3), boxes(2, 2), grad=False, xla=False),
    sample("DrawBoundingBoxesV2",
        lambda x, b, c: raw.DrawBoundingBoxesV2(images=x, boxes=b, colors=c), normal(2, 8, 8, 3),
        boxes(2, 2), fixed(np.eye(3, dtype=np.float32)), grad=False, xla=False),
    # What XLA leaves in the padding differs from what the kernel does.
    sample("NonMaxSuppressionV4", suppressed("V4"), boxes(6), uniform(6), grad=False,
           xla=False, max_ops=60, steps="boxes, the best one of each row that is left"),
    sample("NonMaxSuppressionV5", suppressed("V5"), boxes(6), uniform(6), grad=False,
           xla=False, max_ops=60, steps="boxes, the best one of each row that is left"),
]  # fmt: skip

TRANSFORMS = [
    sample(
        "ImageProjectiveTransformV2", project("ImageProjectiveTransformV2"), IMAGES,
        transforms(2), xla=False,
    ),
    sample(
        "ImageProjectiveTransformV3",
        project("ImageProjectiveTransformV3", fill_value=0.5, fill_mode="CONSTANT"), IMAGES,
        transforms(1), label="one", xla=False,
    ),
    sample(
        "ImageProjectiveTransformV3",
        project("ImageProjectiveTransformV3", fill_value=0.5, fill_mode="NEAREST"), IMAGES,
        transforms(2), xla=False,
    ),
]  # fmt: skip

DILATIONS = [
    sample("Dilation2D", dilation(), IMAGES, normal(3, 2, 3), xla=False),
    sample("Dilation2D", dilation(padding="VALID", strides=2, rates=2), normal(2, 7, 8, 3),
           normal(3, 2, 3), label="strides", xla=False),
    sample("Dilation2DBackpropFilter", dilation("Dilation2DBackpropFilter"), IMAGES,
           normal(3, 2, 3), IMAGES, grad=False, xla=False),
    sample("Dilation2DBackpropInput", dilation("Dilation2DBackpropInput"), IMAGES,
           normal(3, 2, 3), IMAGES, grad=False, xla=False),
]  # fmt: skip

SIGNALS = [
    *[
        sample(name, lambda x, o, name=name: getattr(raw, name)(
                   input=x, size=[3, 3], offsets=o, noise="zero", uniform_noise=False),
               normal(2, 6, 6, 1), uniform(2, 2, low=-0.3, high=0.3), grad=False, xla=False)
        for name in ("ExtractGlimpse", "ExtractGlimpseV2")
    ],
    sample("Mfcc", lambda x: raw.Mfcc(
               spectrogram=x, sample_rate=8000, filterbank_channel_count=5,
               dct_coefficient_count=3, upper_frequency_limit=3000.0),
           uniform(2, 3, 33), grad=False, xla=False, rtol=1e-4),
]  # fmt: skip

SAMPLES = [*BOXES, *COLOURS, *DILATIONS, *RESIZES, *SIGNALS, *TRANSFORMS]
