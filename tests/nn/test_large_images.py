"""Colours of large images by an amount of the row: the kernel on CPUs, elsewhere the formula."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import gradient_of, mapped
from tests.ways import How, check, table_of

RANDOM = np.random.default_rng(0)
IMAGES = tf.constant(RANDOM.uniform(size=[3, 40, 50, 3]), tf.float32)
AMOUNTS = tf.constant([0.3, 0.9, 0.6])
ADJUSTMENTS = {
    "contrast": tf.image.adjust_contrast,
    "hue": tf.image.adjust_hue,
    "saturation": tf.image.adjust_saturation,
}


CLOSE = {"tolerance": (1e-4, 1e-5), "eager": True}
test_table_of_adjustments = table_of(
    ADJUSTMENTS, IMAGES, AMOUNTS, ways=["function", "no rows", "one row"], **CLOSE
)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_elsewhere(name, monkeypatch):
    monkeypatch.setattr(tf.raw_ops, "DeviceIndex", lambda device_names: tf.constant(1))
    check("function", ADJUSTMENTS[name], (IMAGES, AMOUNTS), How(**CLOSE))


def test_gradient_of_the_formula():
    """TensorFlow has none for one image, and none of hues."""
    contrast = lambda: mapped(tf.image.adjust_contrast, IMAGES, AMOUNTS)  # noqa: E731
    found = gradient_of(lambda: tf.reduce_sum(contrast() ** 2), AMOUNTS)
    mean = tf.reduce_mean(IMAGES, [1, 2], keepdims=True)
    squares = tf.reduce_sum((IMAGES - mean) ** 2, [1, 2, 3])
    np.testing.assert_allclose(found, 2 * AMOUNTS * squares, rtol=1e-3)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_halves(name):
    """A half-precision image alone has no kernel on CPUs; the formula has one."""
    found = mapped(ADJUSTMENTS[name], tf.cast(IMAGES, tf.float16), AMOUNTS)
    assert found.dtype == tf.float16
    rows = [ADJUSTMENTS[name](x, a) for x, a in zip(IMAGES, AMOUNTS)]
    np.testing.assert_allclose(found, rows, atol=0.02)
