"""Trips of a loop that make rows of other sizes, with a gradient in the body."""

import numpy as np
import tensorflow as tf

from tests.ways import table_of

N, T, D = 4, 6, 2
X = tf.constant(np.random.default_rng(0).normal(size=[N, T, D]))
LENGTHS, TRIPS = tf.constant([6, 2, 3, 5]), tf.constant([2, 0, 3, 1])
KERNEL = tf.constant(np.random.default_rng(1).normal(size=[2, D, D]))

# One trip's rows, of rows y and a number s.
MADE = {
    "appended": lambda y, s: tf.concat([y, y[:1] * s], 0),
    "cut": lambda y, s: y[1:] * y[:-1],
    "doubled": lambda y, s: tf.concat([y, y], 0),
    "flat": lambda y, s: tf.reshape(y, [-1]),
    "head": lambda y, s: y[:3],
    "padded": lambda y, s: tf.pad(y, [[1, 2], [0, 0]]) + s,
    "pairs": lambda y, s: tf.reshape(y[:, None] * y[None], [-1, D]),
    "pooled": lambda y, s: tf.nn.avg_pool1d(y[None], 2, 2, "SAME")[0],
    "ranges": lambda y, s: s * tf.cast(tf.range(tf.shape(y)[0] - 1), y.dtype),
    "repeated": lambda y, s: tf.repeat(y, 2, axis=0),
    "strided": lambda y, s: y[::2],
    "windows": lambda y, s: tf.nn.conv1d(y[None], KERNEL, 1, "VALID")[0],
}


def summed(made, trips):
    def one(x, k, m):
        y = x[:k]
        step = lambda t, s: (t + 1, tf.sin(s) + tf.reduce_sum(tf.tanh(made(y * s, s))))
        count = m if trips is None else trips
        return tf.while_loop(lambda t, _: t < count, step, (0, tf.reduce_sum(y)))[1]

    return one


def chained(x, k, m):
    """A size that follows from a size that the trip has made."""
    y = x[:k]

    def step(t, s):
        z = tf.tanh(tf.concat([y, y], 0) * s)
        return t + 1, tf.sin(s) + tf.reduce_sum(tf.tanh(z[1:] * s))

    return tf.while_loop(lambda t, _: t < 2, step, (0, tf.reduce_sum(y)))[1]


def in_two_loops(x, k, m):
    y = x[:k]

    def step(t, s):
        inner = lambda j, r: (j + 1, tf.sin(r) + tf.reduce_sum(tf.tanh(y[1:] * r)))
        return t + 1, tf.while_loop(lambda j, _: j < t, inner, (0, s))[1]

    return tf.while_loop(lambda t, _: t < 3, step, (0, tf.reduce_sum(y)))[1]


BODIES = {name: summed(made, 2) for name, made in MADE.items()}
BODIES |= {f"{name}, own trips": summed(MADE[name], None) for name in ("cut", "padded", "flat")}
BODIES |= {"chained": chained, "in two loops": in_two_loops}


def also_outside(made):
    """The same size before the loop and in its trips, which neither XLA nor a map can compare."""

    def one(x, k, m):
        y = x[:k]
        outside = made(y, 1.0)
        step = lambda t, s: (t + 1, tf.sin(s) + tf.reduce_sum(made(y * s, s) * outside))
        start = (0, tf.reduce_sum(y))
        return tf.while_loop(lambda t, _: t < 2, step, start, maximum_iterations=2)[1]

    return one


test_table_of_sizes_outside = table_of(
    {name: also_outside(MADE[name]) for name in ("pooled", "windows")}, X, LENGTHS, TRIPS,
    ways=["compiled", "inside, compiled", "inside, two maps"],
    tolerance=(1e-7, 1e-12), places=(0,),
)  # fmt: skip
LOOPED = {
    "inside": ["padded, own trips"],
    "inside, compact": ["padded, own trips"],
    "inside, mask": ["cut, own trips", "flat, own trips", "padded, own trips"],
    "inside, unknown n": ["padded", "padded, own trips", "ranges", "repeated"],
    "inside, no rows": ["padded", "padded, own trips", "ranges", "repeated"],
    "inside, around": ["padded, own trips"],
    "inside, two maps": ["padded, own trips"],
    "inside, one row": ["padded, own trips"],
}
test_table_of_gradients_in_the_body = table_of(
    BODIES, X, LENGTHS, TRIPS, ways=[*LOOPED], looped=LOOPED,
    only={
        "inside, compact": ["cut, own trips", "flat, own trips", "padded, own trips"],
        "inside, mask": ["cut, own trips", "flat, own trips", "padded, own trips"],
    },
    tolerance=(1e-7, 1e-12), places=(0,),
)  # fmt: skip
