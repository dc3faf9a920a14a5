"""Rows that differ along several axes: slices, joins, repeats, paddings, and gradients inside."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tests.ways import table_of

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
    "differences": lambda x: 0.01 * difference(x),
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
BODIES = {
    **{
        f"{name} of images": (lambda x, s, f=f: f(x[: s[0], : s[1]]), (IMAGES, SIZES))
        for name, f in OF_IMAGES.items()
    },
    **{
        f"{name} of rows": (lambda x, y, k, f=f: f(x[:k], y[:k]), (ROWS, LABELS, LENGTHS))
        for name, f in OF_ROWS.items()
    },
}
# Sizes are multiplied, places are numbers, or ones have the shape of the row.
NOT_UNDER_XLA = [
    "repeated of images", "gray of images", "pixels of images", "parts of rows",
    "its gradient of rows",
]  # fmt: skip
test_table_of_rows = table_of(BODIES, ways=["eager"], tolerance=(1e-3, 1e-4))
test_table_of_reduced_rows = table_of(
    BODIES, ways=["function sum", "function sum around", "compiled sum", "compiled sum around"],
    but={"compiled sum": NOT_UNDER_XLA, "compiled sum around": NOT_UNDER_XLA},
    tolerance=(2e-3, 1e-3), slopes=(5e-3, 5e-3),
)  # fmt: skip

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


def slope_of(cut):
    """The gradient of a slice of a matrix whose size differs."""

    def slope(r):
        made = tf.sin(r[:, None]) * r[None]
        (found,) = gradient(lambda: tf.reduce_sum(tf.sin(3.0 * cut(made))), made)
        return tf.linalg.matvec(found, r)

    return slope


PRODUCTS = {
    "one axis more": lambda r: r[None] @ W[None],
    "several axes more": lambda r: tf.stack([r, r])[:, None] @ W[None, None],
    "transposed": lambda r: tf.matmul(r[None] @ W[None], W[None], transpose_b=True),
    "shared in front": lambda r: tf.transpose(W)[None] @ tf.transpose(r)[None],
}
OF_RAGGED = tf.RaggedTensor.from_row_lengths(ROWS[0, 0, :3].numpy().tolist() * 4, [3, 5, 2, 2])
test_table_of_slices_and_products = table_of(
    {
        **{f"gradient of {name}": (slope_of(cut), OF_RAGGED) for name, cut in SLICES.items()},
        # TensorFlow's kernel for batches of which one is [1, 1] ends the process.
        **{
            f"product, {name}": (
                lambda r, k, f=f: tf.reduce_sum(f(r[:k]) ** 2), (ROWS, LENGTHS))
            for name, f in PRODUCTS.items()
        },
    },
    ways=["eager"], tolerance=(1e-4, 1e-5),
)  # fmt: skip


# QR of matrices with more or fewer rows than columns; TensorFlow has no gradients of others.
FACTORS = {
    f"{lengths}, {'full' if full else 'thin'}": (
        lambda x, k, full=full: tf.linalg.qr(x[:k, :3], full_matrices=full),
        (ROWS, tf.constant(lengths)))
    for lengths in ([3, 4, 5, 3], [3, 1, 5, 2], [2, 0, 1, 1])
    for full in (False, True)
}  # fmt: skip
WITH_GRADIENTS = [name for name in FACTORS if "0" not in name and "thin" in name]
test_table_of_factors = table_of(
    FACTORS, ways=["eager, few rows", "around", "one row around"],
    only={"around": WITH_GRADIENTS, "one row around": WITH_GRADIENTS},
    tolerance=(1e-4, 1e-5), slopes=(1e-3, 1e-4), eager=True,
)  # fmt: skip


def scores(x):
    return x @ tf.transpose(x)


def slope_of_attention(x):
    value = lambda: tf.reduce_sum(tf.sin(tf.nn.softmax(scores(x) / 2.0) @ x))
    return tf.reduce_sum(tf.cos(gradient(value, x)[0]))


# What is in the padding of scores must reach no number and no gradient.
OF_SCORES = {
    "scaled": lambda x: tf.nn.softmax(scores(x) / 8.0) @ x,
    "scaled up": lambda x: (scores(x) * 3.0) @ x,
    "exp": lambda x: tf.exp(-tf.square(scores(x))) @ x,
    "shifted": lambda x: tf.nn.relu(scores(x) + 0.3) @ x,
    "masked": lambda x: tf.nn.softmax(tf.where(scores(x) > 0, scores(x), -1e9)) @ x,
    "masked by infinity": lambda x: tf.nn.softmax(
        tf.where(scores(x) > 0, scores(x) / 2.0, -np.inf)) @ x,
    "with infinite biases": lambda x: tf.nn.softmax(
        scores(x) / 2.0 + tf.where(scores(x) > 0, 0.0, -np.inf)) @ x,
    "causal": lambda x: tf.nn.softmax(
        scores(x) - 1e9 * (1 - tf.linalg.band_part(tf.ones_like(scores(x)), -1, 0))) @ x,
    "quotient": lambda x: (scores(x) / (tf.square(scores(x)) + 1.0)) @ x,
    "reciprocal": lambda x: (1.0 / (scores(x) + 20.0)) @ x,
    "logarithm": lambda x: tf.math.log(tf.square(scores(x)) + 1e-3) @ x,
    "one minus": lambda x: (scores(x) - tf.reduce_mean(scores(x), -1, keepdims=True)) @ x,
    "least": lambda x: tf.reduce_min(scores(x) * 0.5 + 3.0),
    "product": lambda x: tf.reduce_prod(tf.tanh(scores(x) * 0.1) + 1.0),
    "flat": lambda x: tf.reduce_sum(tf.reshape(scores(x) / 2.0 + 1.0, [-1])),
    "sums so far": lambda x: tf.cumsum(scores(x) * 0.5 + 1.0, 1) @ x,
    "slope": slope_of_attention,
}  # fmt: skip
test_table_of_scores = table_of(
    {k: (lambda x, n, f=f: tf.reduce_sum(tf.sin(f(x[:n]))), (ROWS, LENGTHS))
     for k, f in OF_SCORES.items()},
    ways=["function", "function around"], tolerance=(1e-4, 1e-5), slopes=(1e-3, 1e-4),
)  # fmt: skip


def test_scores_stay_padded():
    """Scores were packed to be scaled, and padded again, which took longer than the products."""
    rows = tf.RaggedTensor.from_row_lengths(ROWS[0, :, :4], [2, 3])
    run = tf.function(lambda r: tf_pfor.vectorized_map(OF_SCORES["scaled"], r))
    types = {op.type for op in run.get_concrete_function(rows).graph.get_operations()}
    assert "BatchMatMulV2" in types
    assert not types & {"GatherNd", "ScatterNd"}


POWERS = {
    "square of float16": ("float16", 2, 300, 1),
    "cube of float16": ("float16", 3, 300, 1),
    "square of float32": ("float32", 2, 1e20, 2.0**44),
    "cube of float32": ("float32", 3, 1e14, 2.0**27),
}


@pytest.mark.parametrize("name", POWERS)
def test_table_of_powers_that_overflow_in_the_padding_alone(name):
    """Differences of a row's numbers are small; from the zeros of the padding they are large."""
    dtype, power, at, step = POWERS[name]
    x = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 2.0]) * step + at

    def body(r):
        apart = r[:, None] - r[None]
        made = tf.square(apart) if power == 2 else tf.square(apart) * apart
        return tf.reduce_sum(made @ (r / at)[:, None])

    def slope(run, x):
        rows = lambda: tf.RaggedTensor.from_row_lengths(x, [2, 1, 3])
        return gradient_of(lambda: tf.reduce_sum(run(rows())), x)

    loop = lambda r: tf.stack([body(r[i]) for i in range(3)])
    mapped = lambda r: tf_pfor.vectorized_map(body, r, fallback="error")
    rows = tf.RaggedTensor.from_row_lengths(x, [2, 1, 3])
    found, expected = mapped(tf.cast(rows, dtype)), loop(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2 * step**power)
    found, expected = slope(mapped, tf.constant(x, dtype)), slope(loop, tf.constant(x))
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2 * power * step ** (power - 1))
