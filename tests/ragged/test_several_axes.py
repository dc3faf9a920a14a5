"""Rows that differ along several axes: slices, joins, repeats, paddings, and gradients inside."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_rows, compare_rows, gradient_of, strict_map

N = 4
IMAGES = tf.random.stateless_normal([N, 7, 6, 3], [1, 2])
SIZES = tf.constant([[3, 5], [7, 2], [5, 5], [1, 1]])
ROWS = tf.random.stateless_normal([N, 5, 6], [1, 3])
LENGTHS = tf.constant([3, 1, 5, 2])
LABELS = tf.constant(np.random.default_rng(0).integers(0, 6, [N, 5]))
W = tf.random.stateless_normal([6, 4], [1, 4])
KERNEL = tf.random.stateless_normal([3, 3, 3, 4], [1, 5]) * 0.1
BIAS = tf.ones([4])


def gradient(function, *sources):
    return gradient_of(function, sources)


def attention(x):
    h = x @ W
    return tf.reduce_mean(tf.nn.softmax(h @ tf.transpose(h)) @ h)


def filtered(x, strides=1, padding="SAME"):
    return tf.reduce_sum(tf.nn.conv2d(x[None], KERNEL, strides, padding) ** 2)


def around(x):
    return tf.pad(x, [[1, 1], [1, 1], [0, 0]])


def difference(x):
    down, right = x[1:] - x[:-1], x[:, 1:] - x[:, :-1]
    return tf.reduce_sum(tf.abs(down)) + tf.reduce_sum(tf.abs(right))


OF_IMAGES = {
    "flipped": lambda x: x[:, ::-1],
    "turned": lambda x: x[::-1, ::-1],
    "first": lambda x: x[0],
    "last column": lambda x: x[:, -1],
    "one pixel": lambda x: x[-1, 0],
    "inner": lambda x: x[1:, :-1],
    "every other": lambda x: x[::2],
    "new axes": lambda x: x[None, ::-1, :, 0],
    "joined": lambda x: tf.concat([x, x * 2.0], 1),
    "joined in front": lambda x: tf.concat([x, x[:1]], 0),
    "joined channels": lambda x: tf.concat([x, x * 2.0], 2),
    "tiled": lambda x: tf.tile(x, [2, 3, 1]),
    "repeated": lambda x: tf.repeat(x, 2, 1),
    "padded": lambda x: tf.pad(x, [[1, 2], [0, 1], [0, 0]]),
    "differences": difference,
    "gray": tf.image.rgb_to_grayscale,
    "colours": tf.image.rgb_to_hsv,
    "filter gradient": lambda x: gradient(lambda: filtered(x), KERNEL)[0],
    "with strides": lambda x: gradient(lambda: filtered(x, 2), KERNEL)[0],
    "valid": lambda x: gradient(lambda: filtered(around(x), padding="VALID"), KERNEL)[0],
    "saliency": lambda x: gradient(lambda: filtered(x), x)[0],
    "pixels": lambda x: tf.gather_nd(x, [[0, 0], [0, 0]]),
    "loss": tf.nn.l2_loss,
    "checked": lambda x: tf.debugging.check_numerics(x, "x"),
}
OF_ROWS = {
    "dense layer": lambda x, _: gradient(
        lambda: tf.reduce_mean(tf.nn.bias_add(x[None] @ W[None], BIAS) ** 2), W, BIAS),
    "attention": lambda x, _: gradient(lambda: attention(x), W)[0],
    "directions": lambda x, _: tf.concat([x[None], x[None, ::-1]], -1)[0],
    "cross entropy": lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
    "its gradient": lambda x, y: gradient(
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), x)[0],
    "parts": lambda x, y: tf.dynamic_partition(x, tf.cast(y % 2, tf.int32), 2)[1],
}  # fmt: skip
CASES = [*(("images", k) for k in OF_IMAGES), *(("rows", k) for k in OF_ROWS)]
NOT_UNDER_XLA = ("repeated", "gray", "pixels", "parts", "its gradient")
"""Sizes multiplied, places by number, ones of own shape."""


def case(kind, name):
    """The function of a row, and the rows."""
    if kind == "images":
        return lambda r: OF_IMAGES[name](r[0][: r[1][0], : r[1][1]]), (IMAGES, SIZES)
    return (lambda r: OF_ROWS[name](r[0][: r[2]], r[1][: r[2]])), (ROWS, LABELS, LENGTHS)


def row(rows, i):
    return [t[i] for t in rows]


def total(found):
    return tf.add_n([tf.reduce_sum(t * tf.cos(t)) for t in tf.nest.flatten(found)])


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_values(kind, name):
    body, rows = case(kind, name)
    assert_rows(strict_map(body, rows), [body(row(rows, i)) for i in range(N)], 1e-3, 1e-4)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_reduced(kind, name, jit):
    """To a number, with the gradient of a tape around; under XLA too."""
    body, rows = case(kind, name)
    if jit and name in NOT_UNDER_XLA:
        pytest.skip("it has no padded form")

    def run(data, *others):
        with tf.GradientTape() as tape:
            tape.watch(data)
            y = strict_map(lambda r: total(body(r)), (data, *others))
        return y, tape.gradient(y, data, unconnected_gradients="zero")

    found, of_data = tf.function(run, jit_compile=jit)(*rows)
    with tf.GradientTape() as tape:
        tape.watch(rows[0])
        want = tf.stack([total(body(row(rows, i))) for i in range(N)])
    np.testing.assert_allclose(found, want, rtol=2e-3, atol=1e-3)
    of_rows = tape.gradient(want, rows[0], unconnected_gradients="zero")
    np.testing.assert_allclose(
        tf.convert_to_tensor(of_data), tf.convert_to_tensor(of_rows), rtol=5e-3, atol=5e-3
    )


SLICES = {
    "inner": lambda m: m[1:, :-1],
    "behind": lambda m: m[:, 1:],
    "every other": lambda m: m[::2, 1:],
    "row": lambda m: m[0],
    "last column": lambda m: m[:, -1],
    "part of a column": lambda m: m[1:, 0],
    "new axis": lambda m: m[1:, None, :-1],
    "turned": lambda m: m[::-1, 1:],
    "window": lambda m: m[1:3, ::2],
    "end": lambda m: m[-1, -2:],
    "of a stack": lambda m: tf.stack([m, m * m])[1, :, 1:],
    "turned stack": lambda m: tf.stack([m, m * m])[::-1, 1:, 0],
}


@pytest.mark.parametrize("name", SLICES)
def test_gradients_of_slices_of_own_matrices(name):
    def slope(r):
        made = tf.sin(r[:, None]) * r[None]
        (found,) = gradient(lambda: tf.reduce_sum(tf.sin(3.0 * SLICES[name](made))), made)
        return tf.linalg.matvec(found, r)

    rows = tf.RaggedTensor.from_row_lengths(ROWS[0, 0, :3].numpy().tolist() * 4, [3, 5, 2, 2])
    compare_rows(slope, rows, rtol=1e-4, atol=1e-5)


PRODUCTS = {
    "one axis more": lambda r: r[None] @ W[None],
    "several axes more": lambda r: tf.stack([r, r])[:, None] @ W[None, None],
    "transposed": lambda r: tf.matmul(r[None] @ W[None], W[None], transpose_b=True),
    "shared in front": lambda r: tf.transpose(W)[None] @ tf.transpose(r)[None],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_one_matrix(name):
    """TensorFlow's kernel for batches of which one is [1, 1] ends the process."""
    total = lambda r, k: tf.reduce_sum(PRODUCTS[name](r[:k]) ** 2)  # noqa: E731
    compare_rows(total, ROWS, LENGTHS, rtol=1e-4, atol=0)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("lengths", [[3, 4, 5, 3], [3, 1, 5, 2], [2, 0, 1, 1]])
def test_factors_of_matrices_of_different_heights(lengths, full):
    """QR of matrices with more or fewer rows than columns."""

    def factors(row):
        return tf.linalg.qr(row[0][: row[1], :3], full_matrices=full)

    def total(q, r):
        return tf.reduce_sum(tf.sin(q)) + tf.reduce_sum(tf.cos(r) * r)

    has_gradient = not full and 0 not in lengths  # TensorFlow has no others
    for n in (0, 1, N):
        rows = (ROWS[:n], tf.constant(lengths[:n], tf.int32))
        with tf.GradientTape() as tape, tf.GradientTape() as again:
            if has_gradient:
                tape.watch(rows[0])
                again.watch(rows[0])
            found = tf_pfor.vectorized_map(factors, rows, fallback="error")
            mine = total(*(t.flat_values for t in found))
            wanted = [factors(row) for row in zip(*(tf.unstack(t, n) for t in rows))]
            by_row = tf.add_n([total(*pair) for pair in wanted] or [0.0])
        for q, r, pair in zip(*found, wanted, strict=True):
            for got, want in zip((q, r), pair):
                dense = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
                np.testing.assert_allclose(dense, want, rtol=1e-4, atol=1e-5)
        if has_gradient and n:
            back = tape.gradient(mine, rows[0])
            np.testing.assert_allclose(back, again.gradient(by_row, rows[0]), rtol=1e-3, atol=1e-4)
