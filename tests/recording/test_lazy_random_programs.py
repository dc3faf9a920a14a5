"""Random eager programs in ``lazy``: with barriers, variables, errors and tapes, bit for bit."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import gradient_of
from tf_pfor import lazy, mark_step

SIZE = 3


class World:
    """The variables and functions of one run of a program."""

    def __init__(self):
        self.vector = tf.Variable([0.5, -0.25, 1.5])
        self.matrix = tf.Variable(tf.random.stateless_normal([SIZE, SIZE], [1, 2]) * 0.5)
        self.count = tf.Variable(0, dtype=tf.int64)
        self.seen = []
        self.mixed = tf.function(lambda a, b: (tf.sigmoid(a) * b, a - self.vector * b))
        self.written = tf.function(lambda a: self.vector.assign_add(a * 0.1))


def slope(world, a):
    return gradient_of(lambda: tf.reduce_sum(tf.tanh(tf.linalg.matvec(world.matrix, a)) ** 2), a)


def slopes_of_variables(world, a):
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(world.mixed(a, world.vector * 2.0)[1] * a) + world.matrix[0, 1]
    found = tape.gradient(y, [world.vector, world.matrix])
    return found[0] + tf.reduce_sum(tf.convert_to_tensor(found[1]))


second = lambda world, a: gradient_of(lambda: slope(world, a), a)


def gathered(world, a):
    found = gradient_of(lambda: tf.reduce_sum(tf.gather(world.matrix, [0, 2, 0]) * a), world.matrix)
    assert isinstance(found, tf.IndexedSlices)
    return found.values[1]


def step(world, a):
    """A step of momentum by hand."""
    with tf.GradientTape() as tape:
        y = tf.reduce_mean(tf.square(tf.linalg.matvec(world.matrix, a) - world.vector))
    world.vector.assign_sub(0.05 * tape.gradient(y, world.vector))
    world.count.assign_add(1)
    return a + y


def halved(world, a):
    while tf.reduce_max(tf.abs(a)) > 0.5:
        a = a * 0.5
    return a


def caught(world, a):
    """An error that the program catches; what comes before it has happened."""
    b = a * 1.5
    world.vector.assign_add(b * 0.01)
    try:
        c = tf.gather(a, tf.cast(tf.reduce_sum(tf.abs(a)), tf.int32) + 5)
        world.seen.append(float(c))
    except tf.errors.InvalidArgumentError:
        world.seen.append("error")
    return b


def wrong_shape(world, a):
    try:
        return a + tf.zeros([SIZE + 1])
    except tf.errors.InvalidArgumentError as error:
        world.seen.append(type(error).__name__)
    return a * 0.25


clipped = tf.custom_gradient(lambda x: (x * 2.0, lambda dy: tf.clip_by_value(dy, -0.1, 0.1)))
of_clipped = lambda world, a: gradient_of(lambda: tf.reduce_sum(clipped(a) * a), a)


def drawn(world, a):
    generator = tf.random.Generator.from_seed(int(tf.reduce_sum(tf.abs(a)) * 3))
    return a + generator.normal([SIZE]) + tf.random.stateless_uniform([SIZE], [3, 4])


def printed(world, a):
    world.seen.append(f"{a[0]:.6f} {a.shape} {a.dtype.name}")
    world.seen.append(str(a))
    return a


in_numpy = lambda world, a: tf.constant(np.sin(a) + np.asarray(a)) * np.float32(0.5)


def sizes(world, a):
    picked = tf.boolean_mask(a, a > 0.0)
    return tf.fill([SIZE], tf.reduce_sum(picked)) * tf.cast(tf.shape(picked)[0], tf.float32)


def looped(world, a):
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.9 + 0.1), (0, a))[1]


OPS = [
    slope,
    slopes_of_variables,
    second,
    gathered,
    step,
    halved,
    caught,
    wrong_shape,
    of_clipped,
    drawn,
    printed,
    in_numpy,
    sizes,
    looped,
    lambda w, a: tf.tanh(a) * 2.0 + 1,
    lambda w, a: a if tf.reduce_sum(a) > 0.0 else 1.0 - a,
    lambda w, a: tf.nn.softmax(a) - tf.reduce_mean(a),
    lambda w, a: tf.concat([a[1:], a[:1]], 0) / 1.25,
    lambda w, a: tf.stack(list(a))[::-1] * a[-1],
    lambda w, a: w.mixed(a, a + 0.1)[0],
    lambda w, a: w.written(a) * 1.0,
    lambda w, a: w.vector.assign(a * 0.5) + w.vector,
    lambda w, a: tf.gather(w.matrix, tf.argmax(a)) * 0.5,
    lambda w, a: tf.py_function(lambda x: x * 3.0, [a], tf.float32) * 0.3,
    lambda w, a: tf.map_fn(lambda x: x * x, a) if a.shape == [SIZE] else a,
    lambda w, a: tf.reduce_sum(tf.reshape(tf.tile(a, [2]), [2, -1]), 0) * tf.constant(0.5),
    lambda w, a: tf.cast(tf.cast(a * 10.0, tf.int32) // 3 % 2, tf.float32) + a,
    lambda w, a: mark_step() or tf.where(a > 0.2, a, a * a),
]
PAIRS = [
    lambda w, a, b: a + 0.5 * b,
    lambda w, a, b: tf.where(a > b, a, 0.5 * b),
    lambda w, a, b: tf.einsum("i,i,ij->j", a, b, w.matrix),
    lambda w, a, b: tf.stack([a, b])[int(tf.argmax([a[0], b[0]]))],
    lambda w, a, b: w.mixed(b, a)[1] * 0.5,
    lambda w, a, b: tf.minimum(a, b) - tf.maximum(a, -b),
]


def program(rng):
    """Steps: (the number of a function, the numbers of its inputs)."""
    steps = []
    for k in range(rng.integers(4, 16)):
        which = int(rng.integers(len(OPS) + len(PAIRS)))
        steps.append((which, rng.integers(k + 1, size=2).tolist()))
    return steps


def run(world, steps, around):
    """All values of a program and its variables, as arrays."""
    with around():
        with tf.GradientTape() as tape:
            values = [tf.constant([0.1, -0.7, 0.4]) + world.vector]
            for which, (first, second_) in steps:
                a, b = values[first], values[second_]
                values.append(
                    OPS[which](world, a)
                    if which < len(OPS)
                    else PAIRS[which - len(OPS)](world, a, b)
                )
            total = tf.add_n(values[-3:])
        slopes = tape.gradient(total, [world.vector, world.matrix], unconnected_gradients="zero")
        values += map(tf.convert_to_tensor, slopes)
    values += [world.vector, world.matrix, world.count]
    return [x.numpy() for x in values], world.seen


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    steps = program(np.random.default_rng(seed))
    expected, events = run(World(), steps, contextlib.nullcontext)
    found, seen = run(World(), steps, lazy)
    assert seen == events
    # A third derivative adds up its parts in another order.
    is_third = any(which < len(OPS) and OPS[which] is second for which, _ in steps)
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        assert f.dtype == e.dtype
        np.testing.assert_allclose(f, e, 1e-5 if is_third else 0, err_msg=f"value {k} of {steps}")
