"""Random programs over variable-length rows, against a loop: values and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import compare_around, compare_rows
from tests.ways import LOOP

N, T, D = 4, 5, 3
W = tf.random.stateless_normal([D, D], [3, 1], dtype=tf.float64) / 2.0
V = tf.random.stateless_normal([D], [3, 2], dtype=tf.float64)
X = tf.random.stateless_normal([N, T, D], [3, 3], dtype=tf.float64)


def convolved(x):
    return tf.nn.conv1d(x[None], W[None], 1, "SAME")[0]


UNARY = [tf.tanh, tf.sin, tf.nn.relu, tf.negative, lambda a: a * a, lambda a: tf.exp(-tf.abs(a))]
# name -> what it does with a value [k, D] and another one of the same length
SAME = {
    "unary": lambda rng, a, b: UNARY[rng.integers(len(UNARY))](a),
    "add": lambda rng, a, b: a + b,
    "multiply": lambda rng, a, b: a * b,
    "choose": lambda rng, a, b: tf.where(a > b, a, -b),
    "bias": lambda rng, a, b: a + V,
    "weights": lambda rng, a, b: a @ W,
    "reverse": lambda rng, a, b: a[::-1],
    "cumsum": lambda rng, a, b: tf.cumsum(a, reverse=bool(rng.integers(2))),
    "softmax": lambda rng, a, b: tf.nn.softmax(a, int(rng.integers(2))),
    "attention": lambda rng, a, b: tf.nn.softmax(tf.matmul(a, b, transpose_b=True)) @ b,
    "centered": lambda rng, a, b: a - tf.reduce_mean(a, int(rng.integers(2)), keepdims=True),
    "flat": lambda rng, a, b: tf.reshape(tf.reshape(a, [-1]) * 2.0, [-1, D]),
    "expanded": lambda rng, a, b: tf.squeeze(a[None] * b[None], 0),
    "flipped": lambda rng, a, b: tf.transpose(tf.tanh(tf.transpose(a))),
    "outer": lambda rng, a, b: tf.reduce_sum(a[:, None] * b[None], 1),
    "numbered": lambda rng, a, b: a * tf.cast(tf.range(tf.shape(a)[0]), a.dtype)[:, None],
    "scaled": lambda rng, a, b: a / tf.cast(tf.shape(b)[0], a.dtype),
    # One row more: TensorFlow's gradient of a convolution of no rows is memory that nobody wrote.
    "convolved": lambda rng, a, b: convolved(tf.concat([a, V[None]], 0))[:-1],
    "columns": lambda rng, a, b: tf.concat([a[:, 1:], b[:, :1]], 1),
    "largest": lambda rng, a, b: a - tf.reduce_max(b, 0),
}
OTHER = {
    "rest": lambda rng, a: a[1:],
    "part": lambda rng, a: a[: int(rng.integers(1, 4))],
    "twice": lambda rng, a: tf.concat([a, tf.sin(a)], 0),
    "with more": lambda rng, a: tf.concat([V[None], a], 0),
}
ENDS = {
    "sum": lambda rng, a: tf.reduce_sum(a, int(rng.integers(2))),
    "total": lambda rng, a: tf.reduce_sum(a),
    "prod": lambda rng, a: tf.reduce_prod(tf.tanh(a), 0),
    "gram": lambda rng, a: tf.matmul(a, a, transpose_a=True),
    "norm": lambda rng, a: tf.sqrt(tf.reduce_sum(a * a) + 1.0),
    "all": lambda rng, a: a,
}


def program(seed):
    """A body of a row [T, D] and its length; the same for the same seed."""

    def body(x, k):
        rng = np.random.default_rng(seed)
        values = [x[:k], x[:k] * 2.0]
        for _ in range(rng.integers(2, 10)):
            a, b = (values[rng.integers(len(values))] for _ in range(2))
            if rng.random() < 0.85:
                name = rng.choice(sorted(SAME))
                values.append(SAME[name](rng, a, b))
            else:
                name = rng.choice(sorted(OTHER))
                made = OTHER[name](rng, a)
                values = [made, tf.tanh(made)]
        ends = rng.choice(sorted(ENDS), 2)
        return [ENDS[name](rng, values[rng.integers(len(values))]) for name in ends]

    return body


def check(seed):
    ks = tf.constant(np.random.default_rng(seed).integers(1, T + 1, N), tf.int32)
    body = program(seed)
    compare_rows(body, X, ks, rtol=1e-7, atol=1e-9, **LOOP)
    # None for numbers so large that rounding shows.
    tame = lambda x: tf.where(tf.abs(x) < 1e3, x, 0.0)  # noqa: E731
    tamed = lambda *row: [tame(part) for part in body(*row)]  # noqa: E731
    compare_around(tamed, X, ks, by=[W, V], rtol=1e-6, atol=1e-7, **LOOP)


@pytest.mark.parametrize("block", range(4))
def test_programs(block):
    for seed in range(6 * block, 6 * block + 6):
        check(seed)


@pytest.mark.parametrize("block", range(50))
def test_many_programs(block):
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        check(seed)
