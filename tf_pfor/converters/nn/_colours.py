"""Colours of pixels [..., 3], as formulas in which an amount may differ between rows."""

from __future__ import annotations

import tensorflow as tf


def contrast(x: tf.Tensor, factor: tf.Tensor, mean: tf.Tensor | None = None) -> tf.Tensor:
    """(x - mean) * factor + mean, the mean of each channel over the two axes before it."""
    if mean is None:
        mean = tf.reduce_mean(x, [-3, -2], keepdims=True)
    return (x - mean) * tf.cast(factor, x.dtype) + mean


def hue(x: tf.Tensor, delta: tf.Tensor) -> tf.Tensor:
    """Turns the hue of (x - min) / (max - min); least and greatest channel stay what they are."""
    low = tf.reduce_min(x, -1, keepdims=True)
    spread = tf.reduce_max(x, -1, keepdims=True) - low
    pure = tf.raw_ops.RGBToHSV(images=tf.math.divide_no_nan(x - low, spread))
    hue = pure[..., :1] + tf.cast(delta, x.dtype)
    hue -= tf.floor(hue)
    one = tf.ones_like(hue)
    turned = tf.raw_ops.HSVToRGB(images=tf.concat([hue, one, one], -1))
    return turned * spread + low


def saturation(x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """The saturation times ``scale``, clipped to [0, 1]."""
    hue, saturation, value = tf.split(tf.raw_ops.RGBToHSV(images=x), 3, -1)
    scaled = tf.clip_by_value(saturation * tf.cast(scale, x.dtype), 0, 1)
    # Grey and black pixels stay as they are: their hue and saturation are zero.
    hue, value = (t + tf.zeros_like(scaled) for t in (hue, value))
    return tf.raw_ops.HSVToRGB(images=tf.concat([hue, scaled, value], -1))
