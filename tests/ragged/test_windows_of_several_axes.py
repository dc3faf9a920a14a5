"""Crops whose place and size differ per row, sums over their axes, and gradients of slices."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import mapped, rows_of
from tests.ways import table_of

RNG = np.random.default_rng(0)
IMAGES = tf.constant(RNG.normal(size=[6, 7, 5, 3]), tf.float32)
NUMBERS = [[0, 0, 7, 5], [2, 1, 3, 4], [6, 4, 1, 1], [3, 2, 0, 3], [1, 3, 4, 0], [5, 0, 9, 9]]
BOXES = tuple(tf.constant(column) for column in zip(*NUMBERS))
ONE = IMAGES[0]

CROPS = {
    "both axes": lambda x, y0, x0, h, w: x[y0 : y0 + h, x0 : x0 + w],
    "one from the front": lambda x, y0, x0, h, w: x[:h, x0 : x0 + w],
    "the other from the front": lambda x, y0, x0, h, w: x[y0 : y0 + h, :w],
    "to the end": lambda x, y0, x0, h, w: x[y0:, x0:],
    "with strides": lambda x, y0, x0, h, w: x[y0 : y0 + h : 2, x0 : x0 + w : 3],
    "the second axis": lambda x, y0, x0, h, w: x[:, x0 : x0 + w],
    "a fixed axis between": lambda x, y0, x0, h, w: x[y0 : y0 + h, 1:4, : w - w // 2],
    "three axes": lambda x, y0, x0, h, w: x[y0 : y0 + h, x0 : x0 + w, : 1 + w // 3],
    "of what all share": lambda x, y0, x0, h, w: ONE[y0 : y0 + h, x0 : x0 + w] * x[0, 0],
    "no channels": lambda x, y0, x0, h, w: x[y0 : y0 + h, x0 : x0 + w, :0],
    "negative": lambda x, y0, x0, h, w: x[-(h + 1) : -1, x0 : x0 + w],
}


@pytest.mark.parametrize("name", CROPS)
def test_values_and_sizes(name):
    crop = CROPS[name]
    wanted = rows_of(crop, IMAGES, *BOXES)
    shapes = mapped(lambda *row: tf.shape(crop(*row)), IMAGES, *BOXES)
    assert shapes.numpy().tolist() == [w.shape.as_list() for w in wanted]
    padded = mapped(crop, IMAGES, *BOXES, out_shapes="padded")
    for here, want in zip(padded.numpy(), wanted):
        inside = tuple(slice(0, k) for k in want.shape)
        np.testing.assert_array_equal(here[inside], want)
        here[inside] = 0
        assert not here.any()


def of_box(x, y0, x0, h, w):
    """The batch, whose size of one the op itself puts in front, is known to be one."""
    return tf.image.crop_to_bounding_box(x, tf.minimum(y0, 7 - h), 1, h, 3)


THREE = (IMAGES[:3], *(column[:3] for column in BOXES))
test_table_of_crops = table_of(
    {**CROPS, "box": (of_box, THREE)}, IMAGES, *BOXES, ways=["eager"], tolerance=(0, 0)
)

REDUCED = {
    "sum": lambda x: tf.reduce_sum(x, [0, 1]),
    "mean": lambda x: tf.reduce_mean(x, [0, 1]),
    "all": lambda x: tf.reduce_sum(x * x),
    "mean of all": lambda x: tf.reduce_mean(x),
    "kept": lambda x: tf.reduce_sum(x, [0, 1], keepdims=True),
    "kept mean": lambda x: tf.reduce_mean(tf.exp(x), [0, 1, 2], keepdims=True),
    "standardized": lambda x: tf.reduce_sum((x - tf.reduce_mean(x, [0, 1])) ** 2, [0, 1]),
    "first axis": lambda x: tf.reduce_sum(tf.reduce_sum(x, 0) ** 2, 0),
}
REDUCED_CROPS = {
    f"{name}, {crop}": lambda *row, f=f, crop=crop: f(CROPS[crop](*row))
    for name, f in REDUCED.items()
    for crop in ("both axes", "one from the front", "with strides")
}
UNKNOWN = "unknown sizes, few rows"
test_table_of_reduced_crops = table_of(
    REDUCED_CROPS, IMAGES, *BOXES, ways=["eager", "around", "twice around", UNKNOWN],
    only={UNKNOWN: ["standardized, both axes"]}, looped=[UNKNOWN],
    specs=(tf.TensorSpec([None, None, None, 3]), *[tf.TensorSpec([None], tf.int32)] * 4),
    tolerance=(1e-4, 1e-5), slopes=(2e-4, 1e-4),
)  # fmt: skip

# Gradients in the body of slices that cut rows and do other things as well

ROWS = tf.random.stateless_normal([4, 6, 5, 3], [1, 2])
B, K = tf.constant([1, 0, 2, 4]), tf.constant([3, 6, 1, 0])

SLICES = {
    "a column": lambda x, b, k: x[:k, 0],
    "an element of columns": lambda x, b, k: x[:k, -1, 1],
    "columns": lambda x, b, k: x[:k, 1:3],
    "every second": lambda x, b, k: x[b:k:2, ::2],
    "the last axis": lambda x, b, k: x[:k, ..., 0],
    "behind an index": lambda x, b, k: x[0, b:k, None, : k // 2],
    "backwards": lambda x, b, k: x[::-1, :k],
    "a new axis": lambda x, b, k: x[None, :k],
}
SIZES = [f"{place}unknown {size}" for place in ("", "compiled, ") for size in ("n", "sizes")]
test_table_of_slices = table_of(
    SLICES, ROWS, B, K, ways=[f"{way}, few rows, inside" for way in SIZES]
)
