"""Roots, minima and linear systems."""

import math

import tensorflow as tf

from tests.programs.program import F8, given, normal, program, uniform


def value_and_gradient(f, x):
    """The value and the gradient of a scalar function."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = f(x)
    return value, tape.gradient(value, x)


def dot(a, b):
    return tf.tensordot(a, b, 1)


@program(a=normal())
def newton(a):
    """A root of y^3 - y = |a| + 1, with a break."""
    y, steps = tf.constant(1.5, F8), 0
    for i in tf.range(30):
        value = y**3 - y - tf.abs(a) - 1.0
        if tf.abs(value) < 1e-12:
            break
        y = y - value / (3 * y * y - 1)
        steps = i + 1
    return y, steps


@program(a=uniform(low=1.0, high=2.0), b=normal(scale=0.5))
def bisection(a, b):
    """A root in an interval, and its gradient by one implicit step."""

    def f(x):
        return tf.tanh(a * x) + 0.3 * x - b

    low, high = tf.constant(-3.0, F8), tf.constant(3.0, F8)
    found = False
    for _ in tf.range(80):
        middle = 0.5 * (low + high)
        value = f(middle)
        if tf.abs(value) < 1e-10 or high - low < 1e-9:
            found = True
            break
        elif value * f(low) < 0:
            high = middle
        else:
            low = middle
    root = tf.stop_gradient(0.5 * (low + high))
    value, slope = value_and_gradient(f, root)
    return root - value / tf.stop_gradient(slope), found


@program(c=normal())
def golden_section(c):
    """The least value in an interval, by tf.cond in tf.while_loop."""
    ratio = (math.sqrt(5) - 1) / 2

    def f(x):
        return (x - c) ** 2 + 0.1 * tf.sin(3 * x)

    def goes_on(low, high, *_):
        return high - low > 1e-3 * (1 + tf.abs(c))

    def step(low, high, f1, f2, x1, x2):
        def left():
            x = x2 - ratio * (x2 - low)
            return low, x2, f(x), f1, x, x1

        def right():
            x = x1 + ratio * (high - x1)
            return x1, high, f2, f(x), x2, x

        return tf.cond(f1 < f2, left, right)

    low, high = tf.constant(-4.0, F8), tf.constant(4.0, F8)
    x1, x2 = high - ratio * (high - low), low + ratio * (high - low)
    low, high, least, *_ = tf.while_loop(goes_on, step, [low, high, f(x1), f(x2), x1, x2])
    return (low + high) / 2, least


@program(
    factor=normal(4, 4),
    b=lambda rng, n: rng.normal(size=[n, 4]) * given(0.0, 1.0, 2.0)(rng, n)[:, None],
)
def conjugate_gradients(factor, b):
    """A linear system; one row in three begins at its solution."""
    matrix = factor @ tf.transpose(factor) + tf.eye(4, dtype=F8)
    x = tf.zeros_like(b)
    residual = direction = b
    square, k = dot(residual, residual), tf.constant(0)
    while square > 1e-10 and k < 20:
        image = tf.linalg.matvec(matrix, direction)
        step = square / dot(direction, image)
        x = x + step * direction
        residual = residual - step * image
        new = dot(residual, residual)
        direction = residual + new / square * direction
        square = new
        k += 1
    return {"x": x, "k": k}


@program(
    noise=normal(3, 3, scale=0.3),
    b=lambda rng, n: rng.normal(size=[n, 3]) * given(1.0, 1.0, 0.0)(rng, n)[:, None],
)
def bicgstab(noise, b):
    """A linear system that is not symmetric, with three ways out."""
    matrix = noise + 3.0 * tf.eye(3, dtype=F8)
    x, residual, shadow = tf.zeros([3], F8), b, b
    rho = alpha = omega = tf.ones([], F8)
    image = direction = tf.zeros([3], F8)
    status = 0
    for _ in tf.range(8):
        new = dot(shadow, residual)
        if tf.abs(new) < 1e-14:
            status = 2
            break
        direction = residual + (new / rho) * (alpha / omega) * (direction - omega * image)
        image = tf.linalg.matvec(matrix, direction)
        alpha = new / dot(shadow, image)
        half = residual - alpha * image
        if tf.norm(half) < 1e-6:
            x = x + alpha * direction
            status = 1
            break
        image_of_half = tf.linalg.matvec(matrix, half)
        omega = dot(image_of_half, half) / dot(image_of_half, image_of_half)
        x = x + alpha * direction + omega * half
        residual = half - omega * image_of_half
        rho = new
        if tf.norm(residual) < 1e-6:
            status = 3
            break
    return x, status


@program(x=normal(4), curvature=uniform(4, low=1.0, high=2.0))
def lbfgs(x, curvature):
    """Two TensorArrays of the last three steps, and a backtracking line search."""
    memory = 3

    def f(x):
        bowl = tf.reduce_sum(curvature * x**2) + 0.1 * tf.reduce_sum(tf.cos(x))
        return bowl + 0.5 * tf.reduce_sum(x[1:] * x[:-1])

    options = {"dtype": F8, "size": memory, "clear_after_read": False}
    empty = tf.zeros([memory, 4], F8)
    moves = tf.TensorArray(**options, element_shape=[4]).unstack(empty)
    turns = tf.TensorArray(**options, element_shape=[4]).unstack(empty)
    value, gradient = value_and_gradient(f, x)
    k = 0
    while k < 8 and tf.norm(gradient) > 1e-3:
        count = tf.minimum(k, memory)
        factors = tf.TensorArray(**options, element_shape=[]).unstack(tf.zeros([memory], F8))
        direction = gradient
        for j in tf.range(count):
            i = (k - 1 - j) % memory
            move, turn = moves.read(i), turns.read(i)
            factor = dot(move, direction) / dot(move, turn)
            factors = factors.write(i, factor)
            direction = direction - factor * turn
        scale = tf.constant(0.1, F8)
        if k > 0:
            move, turn = moves.read((k - 1) % memory), turns.read((k - 1) % memory)
            scale = dot(move, turn) / dot(turn, turn)
        direction = scale * direction
        for j in tf.range(count - 1, -1, -1):
            i = (k - 1 - j) % memory
            move, turn = moves.read(i), turns.read(i)
            correction = dot(turn, direction) / dot(move, turn)
            direction = direction + move * (factors.read(i) - correction)
        t, slope = tf.constant(1.0, F8), dot(gradient, direction)
        while f(x - t * direction) > value - 1e-4 * t * slope and t > 1e-4:
            t = t * 0.5
        new = x - t * direction
        value, new_gradient = value_and_gradient(f, new)
        moves = moves.write(k % memory, new - x)
        turns = turns.write(k % memory, new_gradient - gradient)
        x, gradient = new, new_gradient
        k += 1
    return x, value, k


@program(x=normal(3), curvature=uniform(3, low=0.5, high=2.5))
def line_search(x, curvature):
    """Gradient descent with a loop that halves the step."""

    def f(x):
        return tf.reduce_sum(curvature * x**2) + tf.reduce_sum(tf.exp(0.3 * x))

    norm, k = tf.constant(1e3, F8), 0
    while norm > 0.05 and k < 10:
        value, gradient = value_and_gradient(f, x)
        norm = tf.norm(gradient)
        t = tf.constant(1.0, F8)
        while f(x - t * gradient) > value - 0.3 * t * norm * norm:
            t *= 0.5
        x = x - t * gradient
        k += 1
    return x, k


@program(times=uniform(5, high=2.0), noise=normal(5, scale=0.05))
def gauss_newton(times, noise):
    """An exponential decay is fitted, with a Jacobian in each trip."""
    measured = 1.3 * tf.exp(-0.8 * times) + noise
    parameters = tf.constant([1.0, 0.5], F8)
    k, length = 0, tf.constant(1e9, F8)
    while length > 1e-6 and k < 8:
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            residual = parameters[0] * tf.exp(-parameters[1] * times) - measured
        slope = tape.jacobian(residual, parameters)
        normal_matrix = tf.transpose(slope) @ slope + 1e-3 * tf.eye(2, dtype=F8)
        step = tf.linalg.solve(normal_matrix, tf.transpose(slope) @ residual[:, None])[:, 0]
        parameters = parameters - step
        length = tf.norm(step)
        k += 1
    return parameters, k


@program(
    x=normal(4, 2),
    y=normal(4, 3),
    weights={"kernel": normal(2, 3, scale=0.3), "bias": given([0.0, 0.0, 0.0])},
)
def meta_learning(x, y, kernel, bias):
    """MAML: training with momentum, on a task for each row, from weights that all share."""
    weights = {"kernel": tf.convert_to_tensor(kernel), "bias": tf.convert_to_tensor(bias)}
    momentum = tf.nest.map_structure(tf.zeros_like, weights)
    loss, k = tf.constant(1e3, F8), 0
    while loss > 0.5 and k < 5:
        with tf.GradientTape() as tape:
            tape.watch(tf.nest.flatten(weights))
            loss = tf.reduce_mean((tf.tanh(x @ weights["kernel"] + weights["bias"]) - y) ** 2)
        gradients = tape.gradient(loss, weights)
        momentum = tf.nest.map_structure(lambda m, g: 0.9 * m + g, momentum, gradients)
        weights = tf.nest.map_structure(lambda w, m: w - 0.1 * m, weights, momentum)
        k += 1
    return weights, loss, k
