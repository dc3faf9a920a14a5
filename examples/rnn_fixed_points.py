"""Fixed points of a recurrent network, and its linear dynamics around them.

A GRU is written for one state. Its fixed points, states h with ``F(h) = h``, are the states where
the speed ``q(h) = |F(h) - h|^2 / 2`` is zero (Sussillo and Barak, 2013). Gradient descent on q from
many random states finds them. Around a fixed point the network is the linear system given by the
jacobian of F. Directions whose eigenvalue is inside the unit circle decay, others grow.

``python -m examples.rnn_fixed_points`` finds the fixed points of a GRU with random weights, prints
how many directions of each grow and draws the eigenvalues.
"""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor

PICTURE = pathlib.Path("demo_output") / "rnn_fixed_points.png"


class Gru(NamedTuple):
    """The recurrent weights [state, 3 * state] of a GRU without input, and its biases."""

    kernel: tf.Tensor
    bias: tf.Tensor


def make_gru(state: int, gain: float = 3.0, seed: int = 0) -> Gru:
    """Random weights; a gain well above 1 gives several fixed points."""
    rng = np.random.default_rng(seed)
    kernel = rng.normal(size=[state, 3 * state]) * gain / np.sqrt(state)
    return Gru(tf.constant(kernel), tf.constant(rng.normal(size=[3 * state]) * 0.1))


def step(gru: Gru, h: tf.Tensor) -> tf.Tensor:
    """One step from a state [state] to the next."""
    update, reset, candidate = tf.split(gru.kernel, 3, 1)
    bias = tf.split(gru.bias, 3)
    z = tf.sigmoid(tf.linalg.matvec(update, h, transpose_a=True) + bias[0])
    r = tf.sigmoid(tf.linalg.matvec(reset, h, transpose_a=True) + bias[1])
    new = tf.tanh(tf.linalg.matvec(candidate, r * h, transpose_a=True) + bias[2])
    return z * h + (1 - z) * new


def speed(gru: Gru, h: tf.Tensor) -> tf.Tensor:
    """q(h): zero at a fixed point."""
    return tf.reduce_sum((step(gru, h) - h) ** 2) / 2


@tf.function(autograph=False)
def descend(gru: Gru, states: tf.Tensor, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradient descent (Adam) on the speed of each state, and Newton's steps at the end.

    Args:
      gru: the network.
      states: [n, state] starting points.
      steps: the number of steps of gradient descent.

    Returns:
      States [n, state] and their speeds [n].
    """

    def slope(h: tf.Tensor) -> tf.Tensor:
        return tf.gradients(speed(gru, h), h)[0]

    def adam(
        i: tf.Tensor, h: tf.Tensor, mean: tf.Tensor, square: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        grads = tf_pfor.vmap(slope)(h)
        mean, square = 0.9 * mean + 0.1 * grads, 0.99 * square + 0.01 * grads**2
        at = tf.cast(i + 1, h.dtype)
        rate = 0.05 * 0.5 ** (at / 200.0) / (1 - 0.9**at)
        return i + 1, h - rate * mean / (tf.sqrt(square / (1 - 0.99**at)) + 1e-12), mean, square

    def newton(h: tf.Tensor) -> tf.Tensor:
        change = tf_pfor.jacrev(lambda x: step(gru, x) - x)(h)
        return h - tf.linalg.matvec(tf.linalg.pinv(change), step(gru, h) - h)

    zeros = tf.zeros_like(states)
    start = (tf.constant(0), states, zeros, zeros)
    _, states, _, _ = tf.while_loop(lambda i, *_: i < steps, adam, start)
    for _ in range(3):
        states = tf_pfor.vmap(newton)(states)
    return states, tf_pfor.vmap(lambda h: speed(gru, h))(states)


def fixed_points(
    gru: Gru, count: int = 64, steps: int = 600, tolerance: float = 1e-20, seed: int = 1
) -> np.ndarray:
    """The different fixed points [k, state] that ``count`` random states lead to."""
    size = gru.kernel.shape[0]
    states = tf.constant(np.random.default_rng(seed).uniform(-1, 1, [count, size]))
    found, speeds = descend(gru, states, tf.constant(steps))
    points: list[np.ndarray] = []
    for point, q in zip(found.numpy(), speeds.numpy()):
        is_state = q < tolerance and np.abs(point).max() <= 1  # Newton may have left
        if is_state and all(np.abs(point - other).max() > 1e-4 for other in points):
            points.append(point)
    return np.reshape(points, [-1, size])


def jacobians(gru: Gru, points: np.ndarray) -> np.ndarray:
    """The jacobian of a step at each point: [k, state, state]."""
    return tf_pfor.vmap(tf_pfor.jacrev(lambda h: step(gru, h)))(tf.constant(points)).numpy()


def draw(path: pathlib.Path, eigenvalues: np.ndarray) -> None:
    """Writes a picture of the eigenvalues [k, state] in the complex plane."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 5))
    circle = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    axis.plot(circle.real, circle.imag, color="grey", linewidth=1)
    for i, values in enumerate(eigenvalues):
        axis.scatter(values.real, values.imag, s=14, label=f"fixed point {i}")
    axis.set_aspect("equal")
    axis.set_xlabel("real part")
    axis.set_ylabel("imaginary part")
    axis.set_title("Eigenvalues of the jacobian at fixed points")
    if len(eigenvalues) <= 8:
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(
    state: int = 8, count: int = 64, steps: int = 600, picture: pathlib.Path = PICTURE
) -> tuple[np.ndarray, np.ndarray]:
    """Finds, linearizes and draws; returns the fixed points and the eigenvalues."""
    gru = make_gru(state)
    points = fixed_points(gru, count, steps)
    print(f"{len(points)} fixed points from {count} states")
    eigenvalues = np.linalg.eigvals(jacobians(gru, points))
    for i, values in enumerate(eigenvalues):
        growing = int(np.sum(np.abs(values) > 1))
        kind = "stable" if growing == 0 else f"{growing} of {state} directions grow"
        print(f"  fixed point {i}: {kind}, largest eigenvalue {np.abs(values).max():.3f}")
    draw(picture, eigenvalues)
    print(f"picture: {picture}")
    return points, eigenvalues


if __name__ == "__main__":
    main()
