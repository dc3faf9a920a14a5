"""Fractional pools: every iteration draws pooling regions of its own.

Ben Graham, "Fractional Max-Pooling", 2015. With ``deterministic`` the kernel draws the same regions
whenever it is called: then the loop goes into the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn._channels import folded_rows, unfolded_rows
from tf_pfor.core.call import Call
from tf_pfor.core.emit import seeds
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import ALWAYS, RegisterPFor
from tf_pfor.core.values import Value

_ATTRS = ("pooling_ratio", "pseudo_random", "overlapping", "deterministic", "seed", "seed2")


@RegisterPFor("FractionalAvgPool FractionalMaxPool", ALWAYS, attrs=_ATTRS)
def fractional_pool(call: Call, value: Value) -> Any:
    """Windows of all rows, [n, b, h', w', c, k * k], reduced along the last axis."""
    if call.attr("deterministic") or call.settings.randomness == "same":
        return _of_shared_regions(call, value)
    if call.settings.randomness == "error":
        raise Refused("it draws pooling regions, and randomness is 'error'")
    shape = value.inner_shape
    if shape is None or None in shape:
        raise CannotVectorize("the shape of its images is not known before running")
    with call.emit.as_default():
        ratios = call.attr("pooling_ratio")
        sides = [_Side(call, axis, shape[axis] or 0, ratios[axis]) for axis in (1, 2)]
        made = _pooled(call, call.stacked(value), sides)
        return [made, *(_of_own_length(s.ends) for s in sides)]


def _of_shared_regions(call: Call, value: Value) -> list[Value]:
    """The batch takes all rows."""
    x = folded_rows(call, value) if value.is_stacked else value.tensor
    made, *sides = call.rebuild(value=x)
    pooled = Value.unstacked(made)
    if value.is_stacked:
        pooled = unfolded_rows(call, made, value, call.output_shape(0))
    with call.emit.as_default():
        count = tf.stack([call.loop.length, 1])
        ends = [_of_own_length(tf.tile(side[None], count)) for side in sides]
        return [pooled, *map(Value.stacked, ends)]


def _of_own_length(ends: tf.Tensor) -> tf.Tensor:
    """TensorFlow says that there are as many ends as regions, but there is one more."""
    return tf.raw_ops.PlaceholderWithDefault(input=ends, shape=[None, None])


class _Side:
    """The regions along one axis of the images, of each row.

    Attributes:
      ends: int64 [n, pooled + 1], where regions begin; the last one ends at ``size``.
      places: int32 [n, pooled, k], the elements of each region, its last one again and again.
      counted: whether a place is no repetition.
    """

    def __init__(self, call: Call, axis: int, size: int, ratio: float):
        self.pooled = math.floor(size / ratio)
        if self.pooled < 1:
            raise CannotVectorize("the pooling ratio is larger than the image")
        lengths = _lengths(call, axis, size, self.pooled)
        self.ends = tf.cumsum(tf.pad(lengths, [[0, 0], [1, 0]]), 1)
        self.ends.set_shape([call.loop.static_length, self.pooled + 1])
        overlaps = int(call.attr("overlapping"))
        self.width = size // self.pooled + int(size % self.pooled > 0) + overlaps
        last = tf.minimum(self.ends[:, 1:] - 1 + overlaps, size - 1)[..., None]
        at = self.ends[:, :-1, None] + tf.range(self.width, dtype=tf.int64)
        self.places = tf.cast(tf.minimum(at, last), tf.int32)
        self.counted = at <= last


def _lengths(call: Call, axis: int, size: int, pooled: int) -> tf.Tensor:
    """int64 [n, pooled]: the lengths of regions; each is one of two numbers that follow."""
    n = call.loop.length
    least, longer = divmod(size, pooled)
    own = seeds(call.attr("seed"), call.attr("seed2"), axis)
    if call.attr("pseudo_random"):
        alpha = size / pooled
        most = min((least + 2) / alpha - 1, (size + 1 - least) / alpha - (pooled - 1))
        u = tf.raw_ops.RandomUniform(shape=tf.stack([n, 1]), dtype=tf.float64, **own) * most
        inner = tf.math.ceil(alpha * (tf.range(1, pooled, dtype=tf.float64) + u))
        ends = tf.pad(tf.cast(inner, tf.int64), [[0, 0], [1, 0]], constant_values=1)
        ends = tf.pad(ends, [[0, 0], [0, 1]], constant_values=size + 1)
        return ends[:, 1:] - ends[:, :-1]
    keys = tf.raw_ops.RandomUniform(shape=tf.stack([n, pooled]), dtype=tf.float64, **own)
    _, order = tf.math.top_k(keys, pooled)
    counts = np.full([pooled], least, np.int64)
    counts[:longer] += 1
    return tf.gather(tf.constant(counts), order)


def _pooled(call: Call, images: tf.Tensor, sides: list[_Side]) -> tf.Tensor:
    """[n, b, h, w, c] -> [n, b, h', w', c]."""
    rows, columns = sides
    n = call.loop.length
    flat = [tf.reshape(s.places, tf.stack([n, s.pooled * s.width])) for s in sides]
    x = tf.gather(tf.gather(images, flat[0], axis=2, batch_dims=1), flat[1], axis=3, batch_dims=1)
    batch, channels = images.shape[1], images.shape[4]
    parts = [n, batch, rows.pooled, rows.width, columns.pooled, columns.width, channels]
    x = tf.transpose(tf.reshape(x, tf.stack(parts)), [0, 1, 2, 4, 6, 3, 5])
    window = rows.width * columns.width
    x = tf.reshape(x, tf.stack([n, batch, rows.pooled, columns.pooled, channels, window]))
    if call.op_type == "FractionalMaxPool":  # of equal ones the first, as the gradient's kernel
        return tf.math.top_k(x, 1)[0][..., 0]
    counted = rows.counted[:, :, None, :, None] & columns.counted[:, None, :, None, :]
    shape = tf.stack([n, 1, rows.pooled, columns.pooled, 1, window])
    weights = tf.cast(tf.reshape(counted, shape), x.dtype)
    total, count = tf.reduce_sum(x * weights, -1), tf.reduce_sum(weights, -1)
    return total / count if x.dtype.is_floating else tf.truncatediv(total, count)
