"""Errors of image ops that must stay errors, which samples cannot say."""

import numpy as np
import pytest
import tensorflow as tf

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
