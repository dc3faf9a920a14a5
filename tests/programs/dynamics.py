"""Differential equations, iterations to a fixed point, and what else moves on step by step."""

import numpy as np
import tensorflow as tf

from tests.programs.program import F8, chances, given, integers, normal, program, uniform

# The tableau of Dormand and Prince: stages, and the difference of the two orders.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
ERROR = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def weighted(coefficients, slopes):
    """A sum of slopes."""
    return sum(c * k for c, k in zip(coefficients, slopes) if c)


@program(
    y=normal(2),
    damping=uniform(high=3.0),
    weights={"linear": given([[0.0, 1.0], [-1.0, -0.1]])},
)
def dormand_prince(y, damping, linear):
    """A van der Pol oscillator, with steps as long as the error allows."""

    def slope(y):
        force = tf.stack([tf.zeros([], F8), (1 - y[0] ** 2) * y[1]])
        return tf.linalg.matvec(linear, y) + damping * force

    t, h = tf.constant(0.0, F8), tf.constant(0.1, F8)
    first, steps = slope(y), 0
    while t < 1.0 and steps < 60:
        h = tf.minimum(h, 1.0 - t)
        slopes = [first]
        for stage in STAGES:
            slopes.append(slope(y + h * weighted(stage, slopes)))
        new = y + h * weighted(STAGES[-1], slopes)
        scale = 1e-6 + 1e-6 * tf.maximum(tf.abs(y), tf.abs(new))
        error = tf.norm(h * weighted(ERROR, slopes) / scale)
        if error <= 1.0:
            t = t + h
            y = new
            first = slopes[-1]
        h = h * tf.clip_by_value(0.9 * (error + 1e-12) ** -0.2, 0.2, 5.0)
        steps += 1
    return y, t, steps


@program(grid=chances(0.4, 5, 6), generations=integers(0, 6))
def game_of_life(grid, generations):
    """Generations on a torus, until nothing changes."""
    alive = tf.cast(grid, tf.uint8)
    while generations > 0:
        near = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        count = sum(tf.roll(alive, shift, [0, 1]) for shift in near)
        new = tf.cast((count == 3) | ((count == 2) & (alive == 1)), tf.uint8)
        if tf.reduce_all(new == alive):
            break
        alive = new
        generations -= 1
    return alive, generations


@program(
    real=normal(shift=-0.5),
    imaginary=normal(),
)
def mandelbrot(real, imaginary):
    """The number of steps for which a point stays near the origin."""
    z, count = tf.zeros([], tf.complex128), 0
    while tf.abs(z) < 2.0 and count < 30:
        z = z * z + tf.complex(real, imaginary)
        count += 1
    return count, z


@program(
    x=normal(scale=0.3),
    y=normal(scale=0.3),
    weights={"center": given([0.0, 0.0, 3.0])},
)
def sphere_tracing(x, y, center):
    """A ray goes on until it meets a sphere or a floor, whose normal is its colour."""

    def distance_at(p):
        return tf.minimum(tf.norm(p - center) - 1.0, p[1] + 1.5)

    ray = tf.stack([x, y, tf.ones([], F8)])
    ray = ray / tf.norm(ray)
    t, hit = tf.constant(0.0, F8), False
    for _ in tf.range(40):
        distance = distance_at(ray * t)
        if distance < 1e-4:
            hit = True
            break
        t += distance
        if t > 20.0:
            break
    colour = tf.zeros([3], F8)
    if hit:
        p = ray * t
        with tf.GradientTape() as tape:
            tape.watch(p)
            distance = distance_at(p)
        colour = tf.nn.relu(tape.gradient(distance, p) * 0.5 + 0.5)
    return t, hit, colour


@program(links=uniform(4, 4, low=0.1), damping=normal())
def pagerank(links, damping):
    """The stationary distribution of a random surfer."""
    links = links / tf.reduce_sum(links, 0, keepdims=True)
    damping = tf.sigmoid(damping)

    def goes_on(rank, change, k):
        return (change > 1e-8) & (k < 40)

    def step(rank, change, k):
        new = damping * tf.linalg.matvec(links, rank) + (1 - damping) / 4
        return new, tf.reduce_sum(tf.abs(new - rank)), k + 1

    start = (tf.fill([4], tf.constant(0.25, F8)), tf.constant(1.0, F8), tf.constant(0, tf.int64))
    rank, _, k = tf.while_loop(goes_on, step, start, maximum_iterations=50)
    return rank, k


def hermitian(rng, n):
    """Complex matrices with real eigenvalues, none below zero."""
    half = rng.normal(size=[n, 3, 3]) + 0.3j * rng.normal(size=[n, 3, 3])
    return half @ half.conj().transpose(0, 2, 1)


@program(matrix=hermitian)
def power_iteration(matrix):
    """The largest eigenvalue of a complex matrix."""
    v, eigenvalue = tf.ones([3], tf.complex128), tf.constant(0, tf.complex128)
    k, change = 0, tf.constant(1.0, F8)
    while change > 1e-6 and k < 25:
        image = tf.linalg.matvec(matrix, v)
        new = tf.reduce_sum(tf.math.conj(v) * image)
        v = image / tf.cast(tf.norm(image), tf.complex128)
        change = tf.abs(new - eigenvalue)
        eigenvalue = new
        k += 1
    return eigenvalue, k


@program(x=normal(3), weights={"w": normal(3, 3)})
def tangent_of_a_network(x, w):
    """A forward-mode derivative in each trip, until the tangent dies out."""
    tangent, k = tf.ones_like(x), 0
    while tf.norm(tangent) > 1e-2 and k < 6:
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            y = tf.tanh(tf.linalg.matvec(w, x)) * 0.5
        tangent = accumulator.jvp(y)
        x = y
        k += 1
    return x, tangent, k


@program(x=normal(scale=3.0), y=normal())
def relaxation(x, y):
    """The state is a dict of dicts."""
    state = {
        "flag": tf.constant(False),
        "log": {"n": tf.constant(0), "e": tf.zeros([2], tf.float32)},
        "x": x,
    }
    while not state["flag"]:
        n, e = state["log"]["n"], state["log"]["e"]
        state = {
            "flag": (tf.abs(state["x"]) < 0.3) | (n > 7),
            "log": {"n": n + 1, "e": e + tf.cast(tf.stack([state["x"], y]), tf.float32)},
            "x": state["x"] * 0.7 + 0.1 * y,
        }
    return state


@program(x=normal(2), k=integers(0, 9), weights={"w": normal(2, 2)})
def integer_powers(x, k, w):
    """Powers by squaring, in a tf.function with a loop that a loop calls."""

    @tf.function
    def power(x, k):
        result = tf.ones_like(x)
        while k > 0:
            if k % 2 == 1:
                result = result * x
            x = x * x
            k = k // 2
        return result

    @tf.function
    def image(x, k):
        return power(tf.linalg.matvec(w, x), k)

    y = x
    while tf.reduce_max(tf.abs(y)) < 5.0 and k < 9:
        y = y + 0.1 * image(x, k)
        k += 1
    return y, k


@program(x=normal(), scale=given(1.0, 0.3, 2.0))
def checked_growth(x, scale):
    """Asserts in the loop, of which some hold on one side of a branch only."""
    i = 0
    while tf.abs(x) < 100.0:
        tf.debugging.assert_less(i, 50, message="too long")
        tf.debugging.check_numerics(x, "x")
        if x > 0:
            tf.debugging.assert_positive(x)
            x = x * (2 + scale) + 1
        else:
            x = x * (3 + scale) - 1
        i += 1
    return x, i


@program(x=normal(3), weights={"w": normal(3)})
def compound_interest(x, w):
    """A loop that reads a variable."""
    k = 0
    while tf.reduce_sum(x * x) < 20.0 and k < 9:
        x = x + w * x
        k += 1
    return x, k


@program(cells=normal(4, 3), steps=lambda rng, n: np.arange(n, dtype=np.int32) % 4)
def heat_equation(cells, steps):
    """A loop over time of a tf.while_loop over lines."""
    for _ in tf.range(steps):
        padded = tf.pad(cells, [[1, 1], [0, 0]], "SYMMETRIC")
        lines = tf.TensorArray(F8, 4, element_shape=[3])
        for i in tf.range(4):
            lines = lines.write(i, 0.5 * padded[i + 1] + 0.25 * (padded[i] + padded[i + 2]))
        cells = lines.stack()
    return cells
