"""Colours of large images by an amount of the row: the kernel on CPUs, elsewhere the formula."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

RANDOM = np.random.default_rng(0)
IMAGES = tf.constant(RANDOM.uniform(size=[3, 40, 50, 3]), tf.float32)
AMOUNTS = tf.constant([0.3, 0.9, 0.6])
ADJUSTMENTS = {
    "contrast": tf.image.adjust_contrast,
    "hue": tf.image.adjust_hue,
    "saturation": tf.image.adjust_saturation,
}


def mapped(name, x=IMAGES, amounts=AMOUNTS):
    return tf_pfor.vectorized_map(lambda e: ADJUSTMENTS[name](*e), (x, amounts))


def one_by_one(name):
    return tf.stack([ADJUSTMENTS[name](x, a) for x, a in zip(IMAGES, AMOUNTS)])


@pytest.mark.parametrize("place", ["here", "elsewhere"])
@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_values(name, place, monkeypatch):
    if place == "elsewhere":
        monkeypatch.setattr(tf.raw_ops, "DeviceIndex", lambda device_names: tf.constant(1))
    found = tf.function(lambda: mapped(name))()
    np.testing.assert_allclose(found, one_by_one(name), rtol=1e-4, atol=1e-5)


def test_gradient_of_the_formula():
    """TensorFlow has none for one image, and none of hues."""
    found = gradient_of(lambda: tf.reduce_sum(mapped("contrast") ** 2), AMOUNTS)
    mean = tf.reduce_mean(IMAGES, [1, 2], keepdims=True)
    squares = tf.reduce_sum((IMAGES - mean) ** 2, [1, 2, 3])
    np.testing.assert_allclose(found, 2 * AMOUNTS * squares, rtol=1e-3)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_halves_and_few_rows(name):
    """A half-precision image alone has no kernel on CPUs; the formula has one."""
    half = tf.cast(IMAGES, tf.float16)
    found = tf_pfor.vectorized_map(lambda e: ADJUSTMENTS[name](*e), (half, AMOUNTS))
    assert found.dtype == tf.float16
    np.testing.assert_allclose(found, one_by_one(name), atol=0.02)
    assert mapped(name, IMAGES[:0], AMOUNTS[:0]).shape == (0, 40, 50, 3)
    np.testing.assert_allclose(
        mapped(name, IMAGES[:1], AMOUNTS[:1]), one_by_one(name)[:1], rtol=1e-4, atol=1e-5
    )
