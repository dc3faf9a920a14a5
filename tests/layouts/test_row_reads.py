"""Reads of ``x[k]`` where only some rows are active: one gather, at places from either end."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import mapped, strict_map

X = tf.constant(np.random.default_rng(0).normal(size=[6, 4, 3]))


def branch(x, k):
    return tf.cond(x[0, 0] > 0, lambda: tf.reduce_sum(x[k] * x[0]), lambda: tf.reduce_prod(x[k]))


def loop(x, k):
    def step(t, s):
        return t + 1, tf.sin(s) + x[k] * x[t]

    most = 1 + tf.cast(tf.abs(x[0, 0]) * 4.0, tf.int32) % 4
    return tf.while_loop(lambda t, _: t < most, step, (0, x[1]))[1]


def from_the_end(x, k):
    """The place is computed in the loop, and negative."""

    def step(t, s):
        return t + 1, tf.sin(s) + x[-1 - t] * x[k]

    most = 1 + tf.cast(tf.abs(x[0, 0]) * 4.0, tf.int32) % 4
    return tf.while_loop(lambda t, _: t < most, step, (0, x[1]))[1]


def parts(x, k):
    """Parts of what is read: of some axes all, of others a range, an element or a new axis."""
    y = tf.stack([x, 2.0 * x], 1)

    def step(t, s):
        return t + 1, tf.sin(s) + y[t, :, 1:] * y[k, 0, None, ::2] + y[t, ..., :2][1]

    most = 1 + tf.cast(tf.abs(x[0, 0]) * 4.0, tf.int32) % 4
    return tf.while_loop(lambda t, _: t < most, step, (0, y[1, :, 1:]))[1]


@pytest.mark.parametrize("size", [4, None])
@pytest.mark.parametrize("one", [branch, loop, from_the_end, parts])
def test_table_of_reads_of_some_rows(one, size):
    """Reads of tensors of a known size, and of an unknown size."""
    assert len({int(1 + abs(x[0, 0]) * 4) % 4 for x in X}) > 2

    def body(x):
        return [one(x, k) for k in (-4, -1, 2)]

    @tf.function(input_signature=[tf.TensorSpec([6, size, 3], X.dtype)])
    def run(xs):
        return strict_map(body, xs)

    for found, *wanted in zip(run(X), *[body(x) for x in X]):
        np.testing.assert_allclose(found, wanted)


def test_slices_of_items_end_anywhere():
    """Some rows read a slice of one item, up to a number that int32 does not hold."""
    most = tf.constant(1 << 40, tf.int64)

    def body(x):
        return tf.cond(x[0, 0] > 0, lambda: x[most - most + 2, 1:most], lambda: x[0, :2])

    found = strict_map(body, X)
    np.testing.assert_array_equal(found, [body(x) for x in X])


@pytest.mark.parametrize("strategy", ["in a branch", "in a loop"])
def test_indices_that_int32_does_not_hold(strategy):
    """They are outside, like in TensorFlow; cut to 32 bits, 1 << 32 would be the first item."""

    def branch(x, k):
        return tf.cond(x[0, 0] < 10.0, lambda: x[k] * 2.0, lambda: x[0])

    def loop(x, k):
        def step(t, x):
            return t + 1, tf.tensor_scatter_nd_update(x, [[t]], x[k][None])

        most, start = tf.minimum(k, 2), tf.constant(0, k.dtype)
        return tf.while_loop(lambda t, _: t < most, step, (start, x))[1]

    one = branch if strategy == "in a branch" else loop
    x, k = tf.tile(X[:2], [1, 1, 12]), tf.constant([1, 3], tf.int64)
    expected = [one(*row) for row in zip(x, k)]
    np.testing.assert_allclose(mapped(one, x, k, while_strategy="compact"), expected)
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(one, x, k + tf.constant([0, 1 << 32], tf.int64), while_strategy="compact")


@pytest.mark.parametrize("place", ["branch", "loop"])
def test_a_gather_does_not_count_from_the_end(place):
    """In rows that are active, as without a branch or a loop; in others it is not made."""

    def gathered(x, k):
        if place == "branch":
            return tf.cond(k < 9, lambda: tf.gather(x, k), lambda: x[0])
        return tf.while_loop(
            lambda t, _: t < tf.abs(k) % 3, lambda t, s: (t + 1, s + tf.gather(x, k)), (0, x[0])
        )[1]

    fine, negative = tf.constant([1, 2, 9, 3, 0, 9]), tf.constant([1, 2, 9, -1, 0, 9])
    wanted = [gathered(x, k) for x, k in zip(X, fine, strict=True)]
    np.testing.assert_allclose(strict_map(lambda e: gathered(*e), (X, fine)), wanted)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        strict_map(lambda e: gathered(*e), (X, negative))
