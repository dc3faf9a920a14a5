"""The comparison of a vectorized model with a loop over its rows, for all examples."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def value_and_gradients(run: Callable[..., tf.Tensor], weights: Any, *data: Any) -> list[tf.Tensor]:
    """The results of ``run`` for all rows, and the gradients of their loss by the weights."""
    with tf.GradientTape() as tape:
        states = run(weights, *data)
        loss = tf.reduce_mean(tf.reduce_sum(states * tf.cos(states), -1))
    return [states, *map(tf.convert_to_tensor, tape.gradient(loss, weights))]


def largest_difference(found: list[tf.Tensor], expected: list[tf.Tensor]) -> float:
    """The largest absolute difference between two lists of tensors."""
    return max(float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(found, expected, strict=True))


def compare(
    mapped: Callable[..., tf.Tensor], looped: Callable[..., tf.Tensor], weights: Any, *data: Any
) -> float:
    """Runs both, prints times, returns the largest difference of values and gradients."""
    found: list[list[tf.Tensor]] = []
    for name, run in {
        "tf_pfor.vectorized_map": tf.function(mapped),
        "Python loop": looped,
    }.items():
        value_and_gradients(run, weights, *data)  # the first time it is traced
        began = time.perf_counter()
        found.append(value_and_gradients(run, weights, *data))
        print(f"  {name}: {1e3 * (time.perf_counter() - began):.1f} ms")
    difference = largest_difference(*found)
    print(f"  largest difference of values and gradients of the weights: {difference:.1e}")
    return difference
