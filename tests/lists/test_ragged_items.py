"""Lists of items whose shape differs between rows: what loops, map_fn and scan keep."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, warn
from tests.comparisons import compare_rows, mapped, value_and_gradient

ROWS = tf.ragged.constant([[0.1, 0.2], [0.3], [0.5, 0.6, -0.7], [0.8, -0.9]], dtype=tf.float64)
K = tf.constant([2, 0, 3, 1])


def smoothed(r, k):
    """Each row leaves when it wants to."""
    v = r
    for _ in tf.range(k):
        v = tf.nn.softmax(v * r) + tf.sin(v)
    return tf.reduce_sum(v)


def smoothed_thrice(r, k):
    v = r
    for _ in tf.range(3):
        v = tf.sin(v) * v
    return tf.reduce_sum(v) * tf.cast(k, tf.float64)


def only_read(r, k):
    s = tf.constant(0.0, tf.float64)
    for _ in tf.range(k):
        s += tf.reduce_sum(tf.abs(r) * s + tf.sin(r)) + tf.reduce_max(r)
    return s


def matrices(r, k):
    m = tf.stack([r, r * 2], 1)
    for _ in tf.range(k):
        m = tf.matmul(m, tf.matmul(m, m, transpose_a=True)) * 0.1 + m
    return tf.reduce_sum(m)


def loop_in_a_loop(r, k):
    v = r
    for t in tf.range(k):
        for _ in tf.range(t + 1):
            v = tf.sin(v) * r
    return tf.reduce_sum(v)


def map_of_rows(r, k):
    made = tf.map_fn(lambda e: tf.sin(r) * e, r)
    return tf.reduce_sum(made**2) + tf.reduce_sum(made[-1])


map_of_maps = lambda r, k: tf.reduce_sum(tf.map_fn(lambda e: tf.map_fn(lambda q: q * e * r, r), r))


def scan_of_rows(r, k):
    made = tf.scan(lambda c, e: c * 0.5 + e * r, r, tf.zeros_like(r))
    return tf.reduce_sum(made**2) + tf.reduce_sum(made[-1])


def fold_of_rows(r, k):
    return tf.reduce_sum(tf.foldl(lambda c, e: c * 0.5 + e * r, r, tf.zeros_like(r)))


def array_of_rows(r, k):
    array = tf.TensorArray(tf.float64, 3, element_shape=[None], clear_after_read=False)
    for t in tf.range(3):
        array = array.write(t, r * tf.cast(t, tf.float64))
    whole = array.stack()
    return tf.reduce_sum(array.read(1) * whole[2] + whole**2)


def growing_array(r, k):
    array = tf.TensorArray(tf.float64, 0, dynamic_size=True, element_shape=[None])
    array = array.write(0, r)
    for t in tf.range(k):
        array = array.write(t + 1, tf.sin(r) * tf.cast(t, tf.float64))
    return tf.reduce_sum(array.stack() ** 2)


def numbers_in_loops(r, k):
    """Loops keep the lists of inner loops, which are as long as the row."""
    total = lambda s: tf.tanh(tf.reduce_sum(tf.map_fn(lambda e: tf.sin(s * e), r)))
    s = tf.constant(0.3, tf.float64)
    for _ in tf.range(2):
        s = total(s)
        for _ in tf.range(k):
            s += total(s)
    return s


BODIES = (
    smoothed, smoothed_thrice, only_read, matrices, map_of_rows, scan_of_rows, fold_of_rows,
    array_of_rows, loop_in_a_loop, numbers_in_loops,
)  # fmt: skip
with_gradient = lambda body: lambda r, k: value_and_gradient(lambda: body(r, k), r)


def compare(body, *args, **options):
    compare_rows(body, *args, rtol=1e-9, atol=1e-12, **options)


@pytest.mark.parametrize("body", [*BODIES, map_of_maps, growing_array])
def test_values(body):
    compare(body, ROWS, K)


@pytest.mark.parametrize("body", BODIES)
def test_gradients_in_the_body(body):
    compare(with_gradient(body), ROWS, K)


@pytest.mark.parametrize("body", [smoothed, scan_of_rows, array_of_rows])
def test_gradients_around_and_in_the_body(body):
    values = tf.Variable(ROWS.flat_values)
    inner = with_gradient(body)

    def total(r, k):
        y, dy = inner(r, k)
        return y + tf.reduce_sum(dy**2)

    with tf.GradientTape() as tape:
        rows = ROWS.with_flat_values(tf.identity(values))
        y = tf.reduce_sum(mapped(total, rows, K))
    found = tape.gradient(y, values)
    with tf.GradientTape() as tape:
        rows = ROWS.with_flat_values(tf.identity(values))
        y = sum(tf.function(total, reduce_retracing=True)(rows[i], K[i]) for i in range(4))
    np.testing.assert_allclose(found, tape.gradient(y, values), rtol=1e-8)


@pytest.mark.parametrize("body", [smoothed, map_of_rows])
def test_chunks_and_unknown_numbers_of_rows(body):
    compare(with_gradient(body), ROWS, K, chunk_size=3)
    compare(with_gradient(body), ROWS, K, unknown=True)


def test_windows_of_a_dense_row():
    x = tf.constant(np.random.default_rng(0).normal(size=[4, 5]))

    compare(lambda row, k: with_gradient(smoothed)(row[: k + 1], k)[1], x, K)


def test_maps_in_maps():
    """Each row of a dense outer map has the same ragged rows inside."""
    scales = tf.constant([1.0, 0.5], tf.float64)
    inner = lambda s: mapped(lambda r, k: with_gradient(scan_of_rows)(r * s, k)[0], ROWS, K)
    found = tf_pfor.vectorized_map(inner, scales, fallback_to_while_loop=True)
    for i in range(2):
        one = tf.function(lambda r, k, s=scales[i]: scan_of_rows(r * s, k), reduce_retracing=True)
        expected = [one(ROWS[j], K[j]) for j in range(4)]
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)


@case(warn, ROWS, K, match="TensorListSetItem", by=compare)
def test_an_array_of_items_of_two_kinds(r, k):
    """Rows of different shapes and others of one shape: a loop, and right."""
    array = tf.TensorArray(tf.float64, 2, element_shape=[None], infer_shape=False)
    array = array.write(0, r)
    array = array.write(1, tf.ones([2], tf.float64))
    return tf.reduce_sum(array.read(0)) * tf.reduce_sum(array.read(1))
