"""Kernels that take scalars or tensors of one shape, on variable-length rows, against a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, gradient_of, strict_map, value_and_gradient

LENGTHS = [3, 0, 1, 4]
VALUES = tf.random.stateless_normal([8, 2], [1, 2])
LOW, HIGH = VALUES * 0.5 - 0.3, tf.abs(VALUES) * 0.6
clip = tf.raw_ops.ClipByValue


def ragged(values):
    return tf.RaggedTensor.from_row_lengths(values, LENGTHS)


def clipped(x, low, high):
    return clip(t=x, clip_value_min=low, clip_value_max=high)


def betainc(x, low, high):
    x, low, high = (tf.sigmoid(v) for v in (x, low, high))
    return tf.math.betainc(tf.stop_gradient(low) + 0.5, tf.stop_gradient(high) + 0.5, x)


FORMS = {  # a limit of each row, or the same one for all
    "shared scalar": (lambda values, sign: tf.constant(0.4 * sign), False),
    "own scalar": (lambda values, sign: tf.constant([0.1, 0.2, 0.6, 0.4]) * sign, True),
    "own": (lambda values, sign: ragged(values), True),
}


def held(body, x, limits, is_own):
    """Compares values and gradients of all inputs with a loop over the rows."""
    leaves = [v.flat_values if isinstance(v, tf.RaggedTensor) else v for v in (x, *limits)]

    def run(by_loop):
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            args = [
                v.with_flat_values(leaf) if isinstance(v, tf.RaggedTensor) else leaf
                for v, leaf in zip((x, *limits), leaves)
            ]
            if by_loop:
                rows = [
                    body(*(a[i] if own else a for a, own in zip(args, (True, *is_own))))
                    for i in range(len(LENGTHS))
                ]
                found = tf.concat([tf.reshape(r, [-1, *r.shape[1:]]) for r in rows], 0)
            else:
                axes = tuple(0 if own else None for own in (True, *is_own))
                made = tf_pfor.vmap(body, in_axes=axes, fallback="error")
                found = made(*args)
                found = found.flat_values if isinstance(found, tf.RaggedTensor) else found
            loss = tf.reduce_sum(tf.cast(found, tf.float32) ** 2)
        return [found, *tape.gradient(loss, leaves, unconnected_gradients="zero")]

    for got, want in zip(tf.function(run)(False), run(True), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(got), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("low", FORMS)
@pytest.mark.parametrize("high", FORMS)
@pytest.mark.parametrize("body", [clipped, betainc])
def test_limits(body, low, high):
    (make_low, low_own), (make_high, high_own) = FORMS[low], FORMS[high]
    held(body, ragged(VALUES), (make_low(LOW, -1), make_high(HIGH, 1)), (low_own, high_own))


@pytest.mark.parametrize("is_own", [False, True])
def test_limits_of_one_shape(is_own):
    """All rows must have it."""
    x = tf.RaggedTensor.from_row_lengths(VALUES, [2] * 4)
    low = tf.reshape(LOW, [4, 2, 2]) if is_own else LOW[:2]

    def run(rows):
        made = tf_pfor.vmap(clipped, in_axes=(0, 0 if is_own else None, 0))
        return made(rows, low, tf.constant([0.1, 0.2, 0.6, 0.4]))

    found = run(x)
    for i, high in enumerate([0.1, 0.2, 0.6, 0.4]):
        want = clipped(x[i], low[i] if is_own else low, high)
        np.testing.assert_allclose(found[i], want)
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(ragged(VALUES))


def test_limits_of_another_length_fail():
    other = tf.RaggedTensor.from_row_lengths(VALUES, [1, 3, 0, 4])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vmap(clipped, in_axes=(0, 0, None))(ragged(VALUES), other, tf.constant(1.0))
    ones = tf.RaggedTensor.from_row_lengths(VALUES[:4], [1] * 4)  # the kernel repeats no element
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vmap(clipped, in_axes=(0, 0, None))(ragged(VALUES), ones, tf.constant(1.0))


@pytest.mark.parametrize("is_inner", [False, True])
def test_casts_and_gradients_in_the_body(is_inner):
    def cast(x):
        images = tf.image.convert_image_dtype(x, tf.uint8, saturate=True)
        return tf.cast(images, tf.float32) + tf.cast(tf.saturate_cast(x * 9e3, tf.int8), tf.float32)

    def gradient(x, low, high):
        return gradient_of(lambda: clipped(x, low, high) ** 3, x)

    rows = ragged(VALUES)
    if is_inner:
        limits = (tf.constant([-0.1, -0.2, -0.6, -0.4]), ragged(HIGH))
        held(gradient, rows, limits, (True, True))
    else:
        found = strict_map(cast, rows)
        np.testing.assert_allclose(found.flat_values, cast(VALUES))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("body", [clipped, betainc])
def test_under_xla(body, form):
    make, is_own = FORMS[form]

    def one(x, k, high):
        limit = tf.abs(x[:k]) * 0.6 if form == "own" else high
        return tf.reduce_sum(body(x[:k], tf.constant(-0.5), limit), 0)

    x, ks = tf.reshape(VALUES, [2, 4, 2]), tf.constant([3, 0])
    highs = [0.3, 0.1] if is_own else [0.3, 0.3]

    def run(function):
        return value_and_gradient(lambda: function(x), x)

    @tf.function(jit_compile=True)
    def at_once():
        axes = (0, 0, 0 if is_own else None)
        high = tf.constant(highs) if is_own else tf.constant(0.3)
        return run(lambda x: tf_pfor.vmap(one, in_axes=axes)(x, ks, high))

    wanted = run(lambda x: tf.stack([one(x[i], ks[i], tf.constant(highs[i])) for i in range(2)]))
    assert_close(at_once(), wanted, rtol=1e-4, atol=0)
