"""A physics-informed network for the heat equation, with the laplacian of a function of one point.

The equation is ``u_t = a (u_xx + u_yy)`` on the unit square for times up to 1. The edges have u =
0, and the start is ``u = sin(pi x) sin(pi y)``. The solution is the start times ``exp(-2 pi^2 a
t)``. The network is trained on the residual of the equation at random points alone (Raissi et al.,
2019). The edges and the start are built into its form. Everything is written for one point.

``python -m examples.heat_equation`` trains for some seconds and compares with the solution.
"""

from __future__ import annotations

import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor

DIFFUSIVITY = 0.05


def make_weights(width: int, seed: int = 0) -> list[tf.Variable]:
    """Two hidden layers of (x, y, t)."""
    rng = np.random.default_rng(seed)
    sizes = [3, width, width, 1]
    out: list[tf.Variable] = []
    for rows, columns in itertools.pairwise(sizes):
        kernel = rng.normal(size=[rows, columns]) / np.sqrt(rows)
        out += [tf.Variable(kernel, dtype=tf.float32), tf.Variable(tf.zeros([columns]))]
    return out


def temperature(weights: list[tf.Variable], point: tf.Tensor, time: tf.Tensor) -> tf.Tensor:
    """u at one point [2] and time []: right at the edges and at the start, whatever the weights."""
    x = tf.concat([point, time[None]], 0)
    for i in range(0, len(weights), 2):
        x = tf.linalg.matvec(weights[i], x, transpose_a=True) + weights[i + 1]
        x = tf.tanh(x) if i + 2 < len(weights) else x
    edge = 16 * tf.reduce_prod(point * (1 - point))
    start = tf.reduce_prod(tf.sin(np.pi * point))
    return start + time * edge * x[0]


def residual(weights: list[tf.Variable], point: tf.Tensor, time: tf.Tensor) -> tf.Tensor:
    """u_t - a (u_xx + u_yy) at one point and time."""
    rate = tf.gradients(temperature(weights, point, time), time)[0]
    bend = tf_pfor.laplacian(lambda p: temperature(weights, p, time))(point)
    return rate - DIFFUSIVITY * bend


def loss(weights: list[tf.Variable], points: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
    """The mean square of the residual at points [n, 2] and times [n]."""
    return tf.reduce_mean(tf_pfor.vmap(lambda p, t: residual(weights, p, t))(points, times) ** 2)


def solution(points: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The exact temperatures [n]."""
    decay = np.exp(-2 * np.pi**2 * DIFFUSIVITY * times)
    return np.prod(np.sin(np.pi * points), 1) * decay


def samples(n: int, rng: np.random.Generator) -> tuple[tf.Tensor, tf.Tensor]:
    """Random points [n, 2] and times [n]."""
    points, times = rng.uniform(size=[n, 2]), rng.uniform(size=[n])
    return tf.constant(points, tf.float32), tf.constant(times, tf.float32)


def main(
    width: int = 16, n: int = 256, steps: int = 500, rate: float = 1e-2
) -> tuple[float, float, float]:
    """Trains; returns the loss of the first and of the last step, and the largest error."""
    weights, rng = make_weights(width), np.random.default_rng(1)
    schedule = tf.keras.optimizers.schedules.CosineDecay(rate, steps)
    optimizer = tf.keras.optimizers.Adam(schedule)
    optimizer.build(weights)

    @tf.function(autograph=False)
    def train(points: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(weights, points, times)
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights))
        return value

    losses = [float(train(*samples(n, rng))) for _ in range(steps)]
    points, times = samples(1000, rng)
    found = tf_pfor.vmap(lambda p, t: temperature(weights, p, t))(points, times)
    error = float(np.abs(found.numpy() - solution(points.numpy(), times.numpy())).max())
    print(f"mean squared residual: {losses[0]:.2e} at first, {losses[-1]:.2e} after {steps} steps")
    print(f"largest difference from the solution: {error:.1e}")
    return losses[0], losses[-1], error


if __name__ == "__main__":
    main()
