"""Batch normalization, written for one example.

An example is normalized by the mean and the variance of the whole batch (Agarwal, 2019). Inside the
mapped function they are two ``pmean``s. Everything else is code for one example, also the gradient
of the loss of one example. The gradient of the loss with respect to an example is taken through the
statistics, to which all examples contribute.

``python -m examples.batch_norm`` trains a small network per example and compares loss and
gradients with the same network written for a batch.
"""

from __future__ import annotations

import os
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor


class Weights(NamedTuple):
    """A hidden layer, normalized and scaled, and an output."""

    hidden: tf.Variable  # [inputs, state]
    scale: tf.Variable  # [state]
    shift: tf.Variable  # [state]
    out: tf.Variable  # [state]


def make_weights(inputs: int, state: int, seed: int = 0) -> Weights:
    """Random weights."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=[inputs, state]) / np.sqrt(inputs)
    out = rng.normal(size=[state]) / np.sqrt(state)
    arrays = (hidden, np.ones([state]), np.zeros([state]), out)
    return Weights(*[tf.Variable(x, dtype=tf.float32) for x in arrays])


def make_data(count: int, inputs: int, seed: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    """Random examples [count, inputs], and what is to be predicted of them [count]."""
    x = np.random.default_rng(seed).normal(1.0, 2.0, size=[count, inputs])
    return tf.constant(x, tf.float32), tf.constant(np.sin(x.sum(1)), tf.float32)


def normalized(x: tf.Tensor, axis_name: str) -> tf.Tensor:
    """One example [state] as the batch along ``axis_name`` sees it."""
    mean = tf_pfor.pmean(x, axis_name)
    variance = tf_pfor.pmean((x - mean) ** 2, axis_name)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def loss_of_one(weights: Weights, x: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """The loss of one example [inputs] of the batch."""
    hidden = tf.linalg.matvec(weights.hidden, x, transpose_a=True)
    hidden = normalized(hidden, "batch") * weights.scale + weights.shift
    return (tf.reduce_sum(tf.nn.relu(hidden) * weights.out) - target) ** 2


losses = tf_pfor.vmap(loss_of_one, in_axes=(None, 0, 0), axis_name="batch", fallback="error")


def losses_of_batch(weights: Weights, x: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """The same, written for a batch."""
    hidden = x @ weights.hidden
    mean, variance = tf.nn.moments(hidden, 0)
    hidden = (hidden - mean) * tf.math.rsqrt(variance + 1e-3) * weights.scale + weights.shift
    return (tf.linalg.matvec(tf.nn.relu(hidden), weights.out) - targets) ** 2


def value_and_gradients(run, weights: Weights, x: tf.Tensor, targets: tf.Tensor):
    """The loss of all examples; its gradients w.r.t. the weights and the examples."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_mean(run(weights, x, targets))
    return [loss, *tape.gradient(loss, [*weights, x])]


def main(count: int = 64, inputs: int = 8, state: int = 32, steps: int = 30) -> float:
    """Trains; returns the largest difference to the network for a batch."""
    weights = make_weights(inputs, state)
    x, targets = make_data(count, inputs)
    print(f"Batch normalization per example, {count} examples, {state} units")
    step = tf.function(lambda: value_and_gradients(losses, weights, x, targets))
    for i in range(steps):
        loss, *gradients = step()
        if i % 10 == 0:
            print(f"  step {i}: loss {float(loss):.4f}")
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(0.05 * gradient)
    found = step()
    expected = value_and_gradients(losses_of_batch, weights, x, targets)
    difference = max(float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(found, expected))
    print(f"  loss {float(found[0]):.4f}")
    print(f"  largest difference of loss and gradients: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
