"""Reshapes of rows of different shapes: each row must fill its own new shape."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, strict_map


def mapped(body, lengths):
    return strict_map(body, tf.constant(lengths))


@pytest.mark.parametrize("shape", [[2, 2], [-1, 2]])
def test_rows_that_do_not_fill_it(shape):
    """Three and five elements are as many as four and four."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fill its new shape"):
        mapped(lambda k: tf.reshape(tf.range(k), shape), [3, 5])


def test_a_shape_of_the_row():
    def body(k):
        return tf.reshape(tf.range(k), [k // 2, 2])

    assert mapped(body, [2, 4]).to_list() == [[[0, 1]], [[0, 1], [2, 3]]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fill its new shape"):
        mapped(body, [3, 5])


def test_rows_that_fill_it():
    found = mapped(lambda k: tf.reshape(tf.range(8)[:k], [2, 2]), [4, 4])
    assert found.numpy().tolist() == [[[0, 1], [2, 3]]] * 2
    found = mapped(lambda k: tf.reshape(tf.range(k), [-1, 2]), [4, 2])
    assert found.to_list() == [[[0, 1], [2, 3]], [[0, 1]]]


def test_gradients_of_rows_that_were_repeated():
    """The gradients of a broadcast element are added up, in rows with one element."""
    x = tf.range(1.0, 6.0)

    def body(k, m):
        a, b = tf.sin(x[:k]), tf.cos(x[:m])
        return gradient_of(lambda: a * b, [a, b])

    ks, ms = tf.constant([3, 1, 4, 1, 2]), tf.constant([1, 5, 4, 1, 2])
    found = strict_map(lambda e: body(*e), (ks, ms))
    for i in range(5):
        for got, want in zip(found, body(ks[i], ms[i]), strict=True):
            np.testing.assert_allclose(got[i], want, rtol=1e-6)


def jacobian(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**3
    return tape.jacobian(y, x)


@pytest.mark.parametrize("lengths", [[3, 0, 1], [0, 0]])
@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("mapper", [tf_pfor.vmap, None])
def test_jacobians_of_rows_of_no_elements(mapper, is_flat, lengths):
    def body(x):
        return jacobian(tf.reshape(x, [-1]) if is_flat else x)

    values = tf.reshape(tf.range(3.0 * sum(lengths)), [-1, 3])
    rows = tf.RaggedTensor.from_row_lengths(values, lengths)
    with tf.GradientTape() as tape:
        tape.watch(rows.flat_values)
        found = mapper(body)(rows) if mapper else tf_pfor.vectorized_map(body, rows)
        loss = tf.reduce_sum(found.flat_values**2)
    gradient = tape.gradient(loss, rows.flat_values)
    assert found.nrows() == len(lengths)
    for got, row in zip(found, rows):
        want = body(row).numpy()
        np.testing.assert_allclose(got.flat_values.numpy().reshape(want.shape), want, rtol=1e-5)
    np.testing.assert_allclose(gradient, 36 * values**3, rtol=1e-5)


@pytest.mark.parametrize("shape", ["[m, -1]", "[k, m, -1]", "[m, -1, k]"])
def test_what_is_left_of_no_elements(shape):
    def body(k, m):
        sizes = {"[m, -1]": [m, -1], "[k, m, -1]": [k, m, -1], "[m, -1, k]": [m, -1, k]}[shape]
        return tf.shape(tf.reshape(tf.range(24)[: k * 4], sizes))

    ks, ms = tf.constant([3, 0, 0, 2, 0]), tf.constant([2, 2, 0, 4, 0])
    found = strict_map(lambda e: body(*e), (ks, ms))
    assert found.numpy().tolist() == [body(k, m).numpy().tolist() for k, m in zip(ks, ms)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="do not fill its new shape"):
        mapped(lambda k: tf.reshape(tf.range(3), [k, -1]), [3, 0])


def test_gradients_of_frames_that_overlap():
    """The slices of the gradient begin at places that all rows share, known at run time only."""
    frames = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([9, 4], [1, 2]), [3, 1, 5])

    def slopes(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.sin(tf.signal.overlap_and_add(x, 2)))
        return tape.gradient(y, x)

    for got, row in zip(strict_map(slopes, frames), frames):
        np.testing.assert_allclose(got, slopes(row), rtol=1e-5, atol=1e-6)
