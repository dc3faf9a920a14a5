"""Samples of tf_pfor/converters/nn/distortion.py; tests/nn/test_drawn_regions.py has the laws."""

import tensorflow as tf

from tests.sample import ints, sample
from tests.samples.nn.image import boxes

raw = tf.raw_ops
_DRAWN = {"random": True, "grad": False, "xla": False, "max_ops": 200}


def _inside(shape):
    return tf.clip_by_value(shape, 0.0, 1.0)


SAMPLES = [
    sample(
        "SampleDistortedBoundingBox",
        lambda size, x: list(raw.SampleDistortedBoundingBox(
            image_size=size, bounding_boxes=_inside(x), max_attempts=20)),
        ints(3, low=20, high=40), boxes(1, 2), **_DRAWN,
    ),
    sample(
        "SampleDistortedBoundingBoxV2",
        lambda size, x: list(tf.image.sample_distorted_bounding_box(
            size, _inside(x), min_object_covered=0.3, max_attempts=20)),
        ints(3, low=20, high=40), boxes(1, 2), **_DRAWN,
    ),
]  # fmt: skip
