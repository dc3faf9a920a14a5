"""Errors of image ops that must stay errors, which samples cannot say."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ways import table_of
from tf_pfor import vectorized_map

X = np.arange(3 * 2 * 4 * 4, dtype=np.float32).reshape([3, 2, 4, 4, 1])


@pytest.mark.parametrize("image", [-1, 2])
def test_a_crop_never_reads_the_image_of_another_iteration(image):
    def crop(args):
        x, box_ind = args
        return tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], box_ind, [2, 2])

    box_ind = np.array([[0], [image], [1]], np.int32)
    with pytest.raises(tf.errors.OutOfRangeError):
        vectorized_map(crop, (tf.constant(X), tf.constant(box_ind)))


CORNERS = tf.random.uniform([3, 2, 4], seed=1)
BOXES = tf.constant([[0.0, 0.0, 0.5, 0.5], [0.2, 0.1, 0.9, 1.0]])
MASKS = {"ends": [1, 0, 1], "not the first": [0, 1, 1], "the last": [0, 0, 1]}
_resized = lambda x, boxes: tf.image.crop_and_resize(x, boxes, [1, 0], [2, 2])


def _in_branch(x, boxes, count):
    return tf.reduce_sum(_resized(x, boxes) ** 2) if count > 0 else -1.0


def _of_shared_boxes(x, boxes, count):
    return tf.reduce_sum(_resized(x * boxes[0, 0], BOXES) ** 2) if count > 0 else -1.0


def _in_loop(x, boxes, count):
    total = 0.0
    for _ in tf.range(count):
        tf.autograph.experimental.set_loop_options(maximum_iterations=2)
        total = tf.sin(total) + tf.reduce_sum(_resized(x * (1.0 + 0.01 * total), boxes))
    return total


# The kernel is told the place of an image among the rows that take the branch.
test_table_of_crops_of_some_rows = table_of(
    {
        f"{f.__name__.strip('_').replace('_', ' ')}, {name}": (f, (tf.constant(X), CORNERS, counts))
        for f, masks in (
            (_in_branch, MASKS), (_of_shared_boxes, MASKS), (_in_loop, {"trips": [2, 0, 1]})
        )
        for name, counts in ((k, tf.constant(v)) for k, v in masks.items())
    },
    ways=["function", "function inside", "function around"], tolerance=(1e-4, 1e-4),
)  # fmt: skip
