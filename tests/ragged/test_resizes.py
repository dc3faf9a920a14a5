"""Resizes, crops and colours of images of different sizes, against a loop."""

import pytest
import tensorflow as tf

from tests.comparisons import assert_close, gradient_of, mapped
from tests.ways import errors_of, table_of

v1 = tf.compat.v1.image
IMAGES = tf.random.stateless_uniform([4, 9, 8, 3], [1, 9])
HEIGHT_WIDTH = tf.constant([[4, 5], [9, 8], [1, 3], [7, 1]])
NEW = tf.constant([[3, 9], [2, 2], [7, 1], [5, 5]])
RESIZED = {
    "to one size": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6]),
    "nearest": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], method="nearest"),
    "to own sizes": lambda im, s, new: tf.image.resize(im, new),
    "own to own sizes": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], new),
    "corners": lambda im, s, new: v1.resize_bilinear(
        im[None, : s[0], : s[1]], [4, 6], align_corners=True),
    "nearest corners": lambda im, s, new: v1.resize_nearest_neighbor(
        im[None, : s[0], : s[1]], new, align_corners=True),
    "of integers": lambda im, s, new: tf.image.resize(
        tf.cast(im[: s[0], : s[1]] * 250.0, tf.uint8), [4, 6]),
    "bicubic": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], "bicubic"),
    "bicubic with the edge": lambda im, s, new: v1.resize_bicubic(
        im[None, : s[0], : s[1]], new),
    "bicubic corners": lambda im, s, new: v1.resize_bicubic(
        im[None, : s[0], : s[1]], new, align_corners=True),
    "lanczos3": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], "lanczos3"),
    "lanczos5": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], new, "lanczos5"),
    "gaussian": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], "gaussian"),
    "mitchell": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], new, "mitchellcubic"),
    "smoothed": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], antialias=True),
    "smoothed cubic": lambda im, s, new: tf.image.resize(
        im[: s[0], : s[1]], new, "bicubic", antialias=True),
    "moved": lambda im, s, new: tf.raw_ops.ScaleAndTranslate(
        images=im[None, : s[0], : s[1]], size=[5, 6], scale=[0.7, 1.9],
        translation=tf.cast(s, tf.float32) / 2.5, kernel_type="lanczos1"),
    "moved box": lambda im, s, new: tf.raw_ops.ScaleAndTranslate(
        images=im[None, : s[0], : s[1]], size=[5, 6], scale=[0.7, 1.9], translation=[0.3, -0.2],
        kernel_type="box", antialias=False),
}  # fmt: skip
ROWS = (IMAGES, HEIGHT_WIDTH, NEW)
CLOSE = {"tolerance": (1e-4, 1e-4), "slopes": (1e-3, 1e-3), "eager": True}
OF_FLOATS = [name for name in RESIZED if name != "of integers"]
FEW = ["no rows", "one row"]
test_table_of_resizes = table_of(
    RESIZED, *ROWS,
    ways=[
        "eager", *FEW, "around", "no rows around", "one row around", "inside", "no rows inside",
        "one row inside", "compiled inside",
    ],
    only={
        **{way: OF_FLOATS for way in ("inside", "no rows inside", "one row inside")},
        "compiled inside": ["to one size", "nearest"],
    }, **CLOSE,
)  # fmt: skip

COLOURS = {
    "contrast": tf.image.adjust_contrast, "hue": tf.image.adjust_hue,
    "saturation": tf.image.adjust_saturation,
}  # fmt: skip
test_table_of_colours = table_of(
    {
        **{f"{k} of one amount": lambda im, s, a, f=f: f(im[: s[0], : s[1]], 0.4)
           for k, f in COLOURS.items()},
        **{f"{k} of rows": lambda im, s, a, f=f: f(im[: s[0], : s[1]], a)
           for k, f in COLOURS.items()},
        **{f"{k} of a height": lambda im, s, a, f=f: f(im[: s[0]], a) for k, f in COLOURS.items()},
        **{f"{k} of pairs": lambda im, s, a, f=f: f(tf.stack([im, im * 0.5])[:, : s[0]], a)
           for k, f in COLOURS.items()},
    },
    IMAGES, HEIGHT_WIDTH, tf.constant([0.3, 0.9, 0.6, 0.5]), ways=["eager", *FEW],
    tolerance=(1e-4, 1e-5), eager=True,
)  # fmt: skip
test_table_of_colours_of_one_size = table_of(
    {
        k: lambda im, s, a, f=f: tf.image.resize(f(im[: s[0], : s[1]], a), [4, 6])
        for k, f in COLOURS.items()
    },
    IMAGES, HEIGHT_WIDTH, tf.constant([0.3, 0.9, 0.6, 0.5]), ways=["eager", "compiled"],
    tolerance=(1e-4, 1e-5), eager=True,
)  # fmt: skip


HAS_NONE = tf.constant([[4, 5], [9, 8], [0, 3], [7, 1]])
OF_PIXELS = ("to one size", "to own sizes", "nearest", "bicubic", "lanczos3", "of integers")
test_images_of_no_pixels = errors_of(
    {
        **{name: RESIZED[name] for name in OF_PIXELS},
        "areas": lambda im, s, new: tf.image.resize(im[: s[0]], [4, 6], "area"),
    },
    IMAGES, HAS_NONE, HAS_NONE,
    match=r"test_resizes.py:\d+\): an image has no pixels, or is resized to none",
)  # fmt: skip


def if_pixels(name):
    def one(image, size, new):
        made = lambda: tf.reduce_sum(RESIZED[name](image, size, new))  # noqa: E731
        return tf.cond(size[0] > 0, made, lambda: 0.0)

    return one


test_table_of_images_with_pixels = table_of(
    {name: if_pixels(name) for name in OF_PIXELS[:2]}, IMAGES, HAS_NONE, HAS_NONE,
    ways=["eager", "unknown n", "around"], tolerance=(1e-4, 1e-4), slopes=(1e-3, 1e-3),
)  # fmt: skip


@pytest.mark.parametrize("name", OF_FLOATS)
def test_second_gradients(name):
    """TensorFlow does not have them: for sums of squares of A x it is 2 (A^T A) v."""
    v = tf.cos(IMAGES)

    def slope(image, *sizes):
        total = lambda: tf.reduce_sum(tf.cast(RESIZED[name](image, *sizes), tf.float32) ** 2)  # noqa: E731
        return gradient_of(total, image)

    of_map = lambda: tf.reduce_sum(mapped(slope, *ROWS) * v)  # noqa: E731
    again = tf.stack([slope(*row) for row in zip(v, HEIGHT_WIDTH, NEW)])  # it is linear
    assert_close(gradient_of(of_map, IMAGES), again, rtol=1e-3, atol=1e-3)


# TensorFlow has no gradient of them.
test_table_of_areas = table_of(
    {
        f"{size}, {align}": lambda im, s, new, is_own=size == "own", align=align: v1.resize_area(
            im[None, : s[0], : s[1]], new if is_own else [4, 6], align)
        for size in ("own", "one")
        for align in (False, True)
    },
    *ROWS, ways=["eager"], tolerance=(1e-5, 1e-5),
)  # fmt: skip

BOXES = tf.random.stateless_uniform([4, 3, 4], [1, 11], -0.2, 1.2)
IDS = tf.constant([[0, 0, 0]] * 4)


def crops(image, size, boxes, ids, out=(3, 4)):
    cut = tf.stack([image[: size[0], : size[1]]] * 2)
    return tf.image.crop_and_resize(cut, boxes, ids, out, extrapolation_value=0.5)


test_table_of_crops = table_of(
    {"small": crops, "smaller": lambda *row: crops(*row, out=(1, 2))},
    IMAGES, HEIGHT_WIDTH, BOXES, IDS,
    ways=["eager", *FEW, "around", "one row around", "inside", "no rows inside", "one row inside"],
    tolerance=(1e-5, 1e-5), slopes=(1e-3, 1e-4), eager=True,
)  # fmt: skip

OF_SOME = {
    "images and boxes": lambda im, s, boxes, ids, k, method: tf.image.crop_and_resize(
        im[None, : s[0], : s[1]], boxes[:k], ids[:k], [3, 2], method, 0.5),
    "boxes": lambda im, s, boxes, ids, k, method: tf.image.crop_and_resize(
        tf.stack([im, im**2]), boxes[:k], 1 - ids[:k], [3, 2], method, 0.5),
    "images": lambda im, s, boxes, ids, k, method: tf.image.crop_and_resize(
        im[None, : s[0], : s[1]], boxes, ids, [3, 2], method, 0.5),
}  # fmt: skip
test_table_of_some_boxes = table_of(
    {
        f"{name}, {method}": lambda *row, body=body, method=method: body(*row, method)
        for name, body in OF_SOME.items()
        for method in ("bilinear", "nearest")
    },
    IMAGES, HEIGHT_WIDTH, BOXES, IDS, tf.constant([2, 0, 3, 1]),
    ways=["eager", "inside", "around"], tolerance=(1e-3, 1e-4), eager=True,
)  # fmt: skip
test_crops_of_no_image = errors_of(
    {
        "a box of no image": (
            crops, (IMAGES, HEIGHT_WIDTH, BOXES, IDS + 2), "a box is of no image"),
        "no pixels": (
            crops, (IMAGES, HEIGHT_WIDTH * [[1, 1], [0, 1], [1, 1], [1, 1]], BOXES, IDS),
            "an image has no pixels"),
    },
)  # fmt: skip
