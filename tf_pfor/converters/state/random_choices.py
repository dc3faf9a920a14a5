"""Random choices by seeds of the rows: classes, and places of a shuffle, as the kernels choose."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.math._families import loop_on_purpose, table
from tf_pfor.converters.state import _philox as philox
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.values import Value

loop_on_purpose(
    {**table("RandomIndexShuffle", "rounds"), **table("StatelessMultinomial")}, philox.KERNEL
)


@RegisterPFor("StatelessMultinomial", ("seed",))
@RegisterPFor("StatelessMultinomial", ("logits",))
@RegisterPFor("StatelessMultinomial", ("logits", "seed"))
def categorical(call: Call, logits: Value, num_samples: Value, seed: Value) -> Any:
    """A class where the cumulative weights of a row pass a number that is drawn from its seed.

    Of several rows of logits in one row of the loop the kernel draws as its threads share them.
    """
    if _tf.in_xla_context(call.emit.graph) or tf.config.list_logical_devices("GPU"):
        raise CannotVectorize("kernels of other devices than CPUs draw other numbers")
    shape = call.output_shape()
    if shape is None or shape[0] != 1 or shape[1] is None or shape[1] > philox.SMALL:
        raise CannotVectorize("not a few choices by one row of logits")
    with call.emit.graph.as_default():
        key, counter = philox.scramble(seed.tensor if seed.is_stacked else seed.tensor[None])
        words = philox.numbers(key, counter, philox.blocks_for(shape[1], tf.float64))
        drawn = philox.drawn(words, tf.float64, shape[1])  # [n or 1, samples]
        passed = _cumulative(logits.tensor)  # [n, 1, classes], or without n
        places = drawn[:, :, None] * tf.reduce_max(passed, -1, keepdims=True)
        chosen = tf.reduce_sum(tf.cast(passed <= places, call.output_dtype()), -1)
    return call.emit.reshape(chosen, [call.loop.length, 1, shape[1]])


def _cumulative(logits: tf.Tensor) -> tf.Tensor:
    """float64: the sums of the weights up to each class; what is not finite weighs nothing."""
    is_finite = tf.math.is_finite(logits)
    lowest = tf.constant(logits.dtype.min, logits.dtype)
    most = tf.reduce_max(tf.where(is_finite, logits, lowest), -1, keepdims=True)
    weights = tf.exp(tf.cast(logits, tf.float64) - tf.cast(most, tf.float64))
    return tf.cumsum(tf.where(is_finite, weights, np.float64(0.0)), -1)


def _places(call: Call, index: Value, seed: Value, max_index: Value) -> Any:
    """The kernel takes vectors of indices, with a seed and a limit of each."""
    if index.inner_rank != 0 or seed.inner_rank != 1 or max_index.inner_rank != 0:
        raise CannotVectorize("several indices in a row")
    given = {"index": index, "seed": seed, "max_index": max_index}
    return call.rebuild(**{name: call.stacked(value) for name, value in given.items()})


for _count in (1, 2, 3):
    for _names in itertools.combinations(("index", "seed", "max_index"), _count):
        RegisterPFor("RandomIndexShuffle", _names, attrs=("rounds",))(_places)
