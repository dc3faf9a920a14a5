"""Eager programs for ``tf_pfor.lazy``: ten of small ops, and five of 10^5 elements.

A program is a start and a step. The step takes the state, a tuple of tensors, to the next state.
Weights are in variables where optimizers write them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

State: TypeAlias = tuple[tf.Tensor, ...]
LARGE = 100_000


@dataclasses.dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
      start: makes the first state, and sets variables.
      step: the next state.
    """

    start: Callable[[], State]
    step: Callable[..., State]


def normal(*shape: int, seed: int = 0) -> tf.Tensor:
    """Normal numbers, the same ones each time."""
    return tf.random.stateless_normal(shape, [seed, 7])


def descent() -> Program:
    """Linear regression by gradient descent."""
    x, w = normal(32, 4), tf.Variable(tf.zeros([4, 1]))
    y = tf.reduce_sum(x, 1, keepdims=True)

    def start() -> State:
        w.assign(tf.zeros([4, 1]))
        return (tf.constant(0.0),)

    def step(_: tf.Tensor) -> State:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, w) - y) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return (loss,)

    return Program(start, step)


def momentum() -> Program:
    """Logistic regression with momentum."""
    x, w, m = normal(32, 4), tf.Variable(tf.zeros([4])), tf.Variable(tf.zeros([4]))
    y = tf.cast(x[:, 0] > 0.0, tf.float32)

    def start() -> State:
        w.assign(tf.zeros([4]))
        m.assign(tf.zeros([4]))
        return (tf.constant(0.0),)

    def step(_: tf.Tensor) -> State:
        with tf.GradientTape() as tape:
            logits = tf.linalg.matvec(x, w)
            loss = tf.reduce_mean(tf.nn.softplus(logits) - y * logits)
        m.assign(0.9 * m + tape.gradient(loss, w))
        w.assign_sub(0.5 * m)
        return (loss,)

    return Program(start, step)


def adam() -> Program:
    """Rosenbrock's function by Adam, written by hand."""

    def start() -> State:
        return tf.constant([-1.0, 2.0]), tf.zeros([2]), tf.zeros([2]), tf.constant(0.0)

    def step(w: tf.Tensor, m: tf.Tensor, v: tf.Tensor, k: tf.Tensor) -> State:
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = (1.0 - w[0]) ** 2 + 100.0 * (w[1] - w[0] ** 2) ** 2
        g = tape.gradient(loss, w)
        k = k + 1.0
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        mean, square = m / (1.0 - 0.9**k), v / (1.0 - 0.999**k)
        return w - 0.01 * mean / (tf.sqrt(square) + 1e-8), m, v, k

    return Program(start, step)


def perceptron() -> Program:
    """A training step of a network with two layers."""
    x, y = normal(16, 8), tf.constant([0, 1, 2, 3] * 4)
    shapes = [8, 16], [16], [16, 4], [4]
    variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]

    def start() -> State:
        for k, variable in enumerate(variables):
            variable.assign(0.1 * normal(*shapes[k], seed=k))
        return (tf.constant(0.0),)

    def step(_: tf.Tensor) -> State:
        first, bias, second, other = variables
        with tf.GradientTape() as tape:
            h = tf.nn.relu(tf.matmul(x, first) + bias)
            logits = tf.matmul(h, second) + other
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            loss = tf.reduce_mean(losses)
        for variable, g in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.1 * g)
        return (loss,)

    return Program(start, step)


def metropolis() -> Program:
    """A sampler of a mixture by Metropolis."""

    def density(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_logsumexp(tf.stack([-((x - 1.0) ** 2), -((x + 1.0) ** 2)]), 0)

    def step(x: tf.Tensor, k: tf.Tensor) -> State:
        other = x + 0.5 * tf.random.normal([16])
        ratio = tf.exp(density(other) - density(x))
        return tf.where(tf.random.uniform([16]) < ratio, other, x), k + 1.0

    return Program(lambda: (tf.zeros([16]), tf.constant(0.0)), step)


def langevin() -> Program:
    """Langevin dynamics in a double well."""

    def step(x: tf.Tensor) -> State:
        with tf.GradientTape() as tape:
            tape.watch(x)
            energy = tf.reduce_sum((x**2 - 1.0) ** 2)
        noise = tf.random.normal([16])
        return (x - 0.01 * tape.gradient(energy, x) + 0.14 * noise,)

    return Program(lambda: (tf.zeros([16]),), step)


def pendulum() -> Program:
    """Sixteen double pendulums, without the coupling that needs a solve."""

    def step(angle: tf.Tensor, speed: tf.Tensor) -> State:
        force = -9.81 * tf.sin(angle) - 0.1 * speed + 0.5 * tf.sin(angle - tf.reverse(angle, [0]))
        speed = speed + 0.01 * force
        return angle + 0.01 * speed, speed

    return Program(lambda: (normal(16), tf.zeros([16])), step)


def lorenz() -> Program:
    """Lorenz' equations by Runge and Kutta."""

    def slope(s: tf.Tensor) -> tf.Tensor:
        x, y, z = s[0], s[1], s[2]
        return tf.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    def step(s: tf.Tensor) -> State:
        a = slope(s)
        b = slope(s + 0.005 * a)
        c = slope(s + 0.005 * b)
        d = slope(s + 0.01 * c)
        return (s + 0.01 / 6.0 * (a + 2.0 * b + 2.0 * c + d),)

    return Program(lambda: (tf.constant([1.0, 1.0, 1.0]),), step)


def kalman() -> Program:
    """A Kalman filter of a moving point."""
    move = tf.constant([[1.0, 0.1], [0.0, 1.0]])
    see = tf.constant([[1.0, 0.0]])
    noise, eye = 0.01 * tf.eye(2), tf.eye(2)

    def step(x: tf.Tensor, p: tf.Tensor, k: tf.Tensor) -> State:
        x = tf.matmul(move, x)
        p = tf.matmul(move, tf.matmul(p, move, transpose_b=True)) + noise
        seen = tf.reshape(tf.sin(k), [1, 1])
        spread = tf.matmul(see, tf.matmul(p, see, transpose_b=True)) + 0.1
        gain = tf.matmul(p, see, transpose_b=True) / spread
        x = x + gain * (seen - tf.matmul(see, x))
        return x, tf.matmul(eye - tf.matmul(gain, see), p), k + 0.1

    return Program(lambda: (tf.zeros([2, 1]), tf.eye(2), tf.constant(0.0)), step)


def power() -> Program:
    """The largest eigenvalue of a matrix by power iteration."""
    matrix = normal(16, 16)
    matrix = matrix + tf.transpose(matrix)

    def step(x: tf.Tensor, _: tf.Tensor) -> State:
        y = tf.linalg.matvec(matrix, x)
        value = tf.reduce_sum(x * y)
        return y / tf.norm(y), value

    return Program(lambda: (tf.ones([16]) / 4.0, tf.constant(0.0)), step)


SMALL_PROGRAMS = [
    descent,
    momentum,
    adam,
    perceptron,
    metropolis,
    langevin,
    pendulum,
    lorenz,
    kalman,
    power,
]


def options() -> Program:
    """Prices of options by the formula of Black and Scholes."""
    strike = tf.exp(0.1 * normal(LARGE))

    def step(spot: tf.Tensor, total: tf.Tensor) -> State:
        d = (tf.math.log(spot / strike) + 0.045) / 0.3
        cdf = 0.5 * (1.0 + tf.math.erf(d / 1.4142135))
        other = 0.5 * (1.0 + tf.math.erf((d - 0.3) / 1.4142135))
        price = spot * cdf - strike * tf.exp(-0.03) * other
        return spot * 1.0001, total + tf.reduce_mean(price)

    return Program(lambda: (tf.exp(0.1 * normal(LARGE, seed=1)), tf.constant(0.0)), step)


def wave() -> Program:
    """A wave equation on a line."""

    def step(u: tf.Tensor, before: tf.Tensor) -> State:
        bend = tf.roll(u, 1, 0) - 2.0 * u + tf.roll(u, -1, 0)
        return 2.0 * u - before + 0.25 * bend - 0.001 * (u - before), u

    def start() -> State:
        u = tf.exp(-(tf.linspace(-5.0, 5.0, LARGE) ** 2))
        return u, u

    return Program(start, step)


def large_adam() -> Program:
    """A step of Adam, written by hand, for a quadratic function."""
    goal = normal(LARGE)

    def step(w: tf.Tensor, m: tf.Tensor, v: tf.Tensor, k: tf.Tensor) -> State:
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_mean(tf.square(w - goal) * 0.5 + tf.abs(w) * 0.01)
        g = tape.gradient(loss, w)
        k = k + 1.0
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * tf.square(g)
        mean, square = m / (1.0 - 0.9**k), v / (1.0 - 0.999**k)
        return w - 0.01 * mean / (tf.sqrt(square) + 1e-8), m, v, k

    zeros = tf.zeros([LARGE])
    return Program(lambda: (zeros, zeros, zeros, tf.constant(0.0)), step)


def mandelbrot() -> Program:
    """Iterations of z * z + c."""
    a, b = normal(LARGE), normal(LARGE, seed=1)

    def step(x: tf.Tensor, y: tf.Tensor, count: tf.Tensor) -> State:
        for _ in range(4):
            x, y = x * x - y * y + a, 2.0 * x * y + b
            x, y = tf.clip_by_value(x, -9.0, 9.0), tf.clip_by_value(y, -9.0, 9.0)
            count = count + tf.cast(x * x + y * y < 4.0, tf.float32)
        return x, y, count

    zeros = tf.zeros([LARGE])
    return Program(lambda: (zeros, zeros, zeros), step)


def mixture() -> Program:
    """A step of expectation and maximization for a mixture of two."""
    x = normal(LARGE) + 2.0 * tf.sign(normal(LARGE, seed=1))

    def step(means: tf.Tensor, total: tf.Tensor) -> State:
        first, second = -0.5 * (x - means[0]) ** 2, -0.5 * (x - means[1]) ** 2
        share = tf.sigmoid(first - second)
        rest = 1.0 - share
        left = tf.reduce_sum(share * x) / tf.reduce_sum(share)
        right = tf.reduce_sum(rest * x) / tf.reduce_sum(rest)
        both = tf.maximum(first, second)
        density = both + tf.math.log(tf.exp(first - both) + tf.exp(second - both))
        return tf.stack([left, right]), total + tf.reduce_mean(density)

    return Program(lambda: (tf.constant([-0.5, 0.5]), tf.constant(0.0)), step)


LARGE_PROGRAMS = [options, wave, large_adam, mandelbrot, mixture]
