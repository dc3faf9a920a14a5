"""Convolutions by filters that differ per row: images stay in their channels up to the last op."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import assert_close, by_row, check, mapped, strict_map
from tests.ways import table_of

N = 3
RNG = np.random.default_rng(0)
X = tf.constant(RNG.normal(size=[2, 9, 8, 2]))
FILTERS = RNG.normal(size=[N, 3, 3, 2, 4])
BIAS = RNG.normal(size=[N, 4])
MORE = RNG.normal(size=[N, 3, 3, 4, 4])
MASK = RNG.normal(size=[N, 2, 9, 8, 4])


def conv(x, f, strides=1, padding="SAME", **options):
    return tf.nn.conv2d(x, f, strides, padding, **options)


def two_layers(f, b, g):
    y = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(conv(X, f), b)), 2, 2, "VALID")
    return tf.nn.avg_pool2d(tf.tanh(conv(y, g, padding="VALID") + b), 2, 1, "SAME")


def normalized(f, b, g):
    y = conv(X, f, 2, "VALID")
    return tf.nn.batch_normalization(y, b, b * b, b, tf.exp(b), 1e-3) * 2.0


def residual(f, b, g):
    y = tf.nn.relu(conv(X, f))
    return y + conv(y, g)


def several_readers(f, b, g):
    y = conv(X, f)
    return tf.reduce_max(y, [0, 1]), tf.sin(y) * y, tf.where(y > 0.0, y, tf.exp(y))


def across_channels(f, b, g):
    y = conv(X, f)
    return tf.nn.softmax(y), tf.nn.max_pool(y, [1, 1, 1, 2], [1, 1, 1, 2], "VALID")


def in_a_branch(f, b, g):
    y = conv(X, f)
    return tf.cond(b[0] > 0, lambda: tf.nn.relu(y), lambda: conv(y, g))


BODIES = {
    "two_layers": two_layers,
    "normalized": normalized,
    "residual": residual,
    "several_readers": several_readers,
    "in_a_branch": in_a_branch,
    "numbers_per_row": lambda f, b, g: conv(X, f) * b[0] + tf.cast(tf.shape(f)[0], f.dtype),
}
# TensorFlow has no gradients of these on CPUs.
FORWARD = {
    "dilated": lambda f, b, g: conv(
        tf.nn.softplus(conv(X, f, dilations=2)), g, padding=[[0, 0], [1, 2], [0, 1], [0, 0]]),
    "across_channels": across_channels,
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("n", [N, 1, 0])
def test_as_a_loop(name, n):
    check(BODIES[name], FILTERS[:n], BIAS[:n], MORE[:n], unknown=n == N, second=n == N)


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name):
    check(FORWARD[name], FILTERS, BIAS, MORE, grad=False, xla=False)


def test_other_operands():
    check(lambda f, m, b: conv(X, f) * m + tf.reshape(b, [4]), FILTERS, MASK, BIAS)
    check(lambda f, b: conv(X, f) + tf.constant([1.0, 2.0, 3.0, 4.0], tf.float64), FILTERS, BIAS)
    check(lambda f, b: tf.cast(tf.nn.relu(conv(X, f)), tf.float32), FILTERS, BIAS)
    volume = RNG.normal(size=[N, 2, 2, 2, 2, 3])
    check(lambda f: tf.nn.relu(tf.nn.conv3d(tf.stack([X, X], 1), f, [1] * 5, "SAME")), volume)


ARGS = tuple(tf.constant(a) for a in (FILTERS, BIAS, MORE))
TWO_LAYERS = {"two_layers": two_layers}
test_table_of_gradients = table_of(TWO_LAYERS, *ARGS, ways=["inside"], tolerance=(1e-9, 1e-12))
test_table_of_second_gradients = table_of(
    TWO_LAYERS, *ARGS, ways=["inside around"], slopes=(1e-7, 1e-9)
)


def test_a_map_in_a_map():
    filters, x = tf.constant(FILTERS, tf.float32), tf.cast(X, tf.float32)

    def both(f):
        return strict_map(lambda e: tf.nn.relu(conv(x, f * e)), tf.range(1.0, 3.0))

    assert_close(mapped(both, filters), by_row(both, filters), 1e-5, 1e-5)


def test_one_move_of_images():
    """The images of two layers are moved once, behind the last pool; also for unknown batches."""

    @tf.function(autograph=False)
    def run(x, f, b, g):
        def body(f, b, g):
            y = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(conv(x, f), b)), 2, 2, "VALID")
            return tf.nn.relu(conv(y, g) + b)

        return mapped(body, f, b, g)

    graph = run.get_concrete_function(tf.TensorSpec([None, 9, 8, 2], X.dtype), *ARGS).graph
    moves = [op for op in graph.get_operations() if op.type == "Transpose"]
    of_filters = [op for op in moves if op.outputs[0].shape[:2] == [3, 3]]
    assert len(of_filters) == 2
    assert len(moves) == 3
    found = run(X, *ARGS)
    body = lambda f, b, g: tf.nn.relu(  # noqa: E731
        conv(tf.nn.max_pool2d(tf.nn.relu(conv(X, f) + b), 2, 2, "VALID"), g) + b
    )
    assert_close(found, by_row(body, *ARGS))
