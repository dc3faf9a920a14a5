"""Crops whose place and size differ per row, sums over their axes, and gradients of slices."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

RNG = np.random.default_rng(0)
IMAGES = tf.constant(RNG.normal(size=[6, 7, 5, 3]), tf.float32)
BOXES = tf.constant(
    [[0, 0, 7, 5], [2, 1, 3, 4], [6, 4, 1, 1], [3, 2, 0, 3], [1, 3, 4, 0], [5, 0, 9, 9]]
)
ONE = IMAGES[0]

CROPS = {
    "both axes": lambda x, y0, x0, h, w: x[y0 : y0 + h, x0 : x0 + w],
    "one from the front": lambda x, y0, x0, h, w: x[:h, x0 : x0 + w],
    "the other from the front": lambda x, y0, x0, h, w: x[y0 : y0 + h, :w],
    "to the end": lambda x, y0, x0, h, w: x[y0:, x0:],
    "with strides": lambda x, y0, x0, h, w: x[y0 : y0 + h : 2, x0 : x0 + w : 3],
    "the second axis": lambda x, y0, x0, h, w: x[:, x0 : x0 + w],
    "a fixed axis between": lambda x, y0, x0, h, w: x[y0 : y0 + h, 1:4, : w - w // 2],
    "three axes": lambda x, y0, x0, h, w: x[y0 : y0 + h, x0 : x0 + w, : 1 + w // 3],
    "of what all share": lambda x, y0, x0, h, w: ONE[y0 : y0 + h, x0 : x0 + w] * x[0, 0],
    "no channels": lambda x, y0, x0, h, w: x[y0 : y0 + h, x0 : x0 + w, :0],
    "negative": lambda x, y0, x0, h, w: x[-(h + 1) : -1, x0 : x0 + w],
}


def mapped(fn, **options):
    def one(row):
        x, box = row
        return fn(x, *tf.unstack(box))

    return lambda x: tf_pfor.vectorized_map(
        one, (x, BOXES), fallback_to_while_loop=False, **options
    )


def looped(fn):
    return lambda x: [fn(x[i], *tf.unstack(BOXES[i])) for i in range(len(BOXES))]


@pytest.mark.parametrize("name", CROPS)
def test_values_and_sizes(name):
    fn = CROPS[name]
    wanted = looped(fn)(IMAGES)
    shapes = mapped(lambda *a: tf.shape(fn(*a)))(IMAGES)
    assert shapes.numpy().tolist() == [w.shape.as_list() for w in wanted]
    found = mapped(fn)(IMAGES)
    padded = mapped(fn, out_shapes="padded")(IMAGES)
    for i, want in enumerate(wanted):
        if want.shape.num_elements():
            row = found[i]
            row = row.to_tensor() if isinstance(row, tf.RaggedTensor) else row
            np.testing.assert_array_equal(row, want)
        here = padded[i].numpy()
        inside = tuple(slice(0, k) for k in want.shape)
        np.testing.assert_array_equal(here[inside], want)
        here[inside] = 0
        assert not here.any()


REDUCED = {
    "sum": lambda x: tf.reduce_sum(x, [0, 1]),
    "mean": lambda x: tf.reduce_mean(x, [0, 1]),
    "all": lambda x: tf.reduce_sum(x * x),
    "mean of all": lambda x: tf.reduce_mean(x),
    "kept": lambda x: tf.reduce_sum(x, [0, 1], keepdims=True),
    "kept mean": lambda x: tf.reduce_mean(tf.exp(x), [0, 1, 2], keepdims=True),
    "standardized": lambda x: tf.reduce_sum((x - tf.reduce_mean(x, [0, 1])) ** 2, [0, 1]),
    "first axis": lambda x: tf.reduce_sum(tf.reduce_sum(x, 0) ** 2, 0),
}


@pytest.mark.parametrize("crop", ["both axes", "one from the front", "with strides"])
@pytest.mark.parametrize("name", REDUCED)
def test_reduced_with_gradients(name, crop):
    def fn(*args):
        return REDUCED[name](CROPS[crop](*args))

    totals = []
    for run in (mapped(fn), lambda x: tf.stack(looped(fn)(x))):
        with tf.GradientTape() as outer:
            outer.watch(IMAGES)
            with tf.GradientTape() as tape:
                tape.watch(IMAGES)
                found = run(IMAGES)
                total = tf.reduce_sum(tf.where(tf.math.is_finite(found), found, 0.0) ** 2)
            first = tf.convert_to_tensor(tape.gradient(total, IMAGES))
            again = tf.reduce_sum(tf.where(tf.math.is_finite(first), first, 0.0) ** 2)
        second = tf.convert_to_tensor(outer.gradient(again, IMAGES))
        totals.append((found, first, second))
    for got, want in zip(*totals):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)


def test_unknown_sizes_and_no_rows():
    fn = CROPS["both axes"]
    specs = [tf.TensorSpec([None, None, None, 3]), tf.TensorSpec([None, 4], tf.int32)]

    @tf.function(input_signature=specs)
    def run(x, boxes):
        return tf_pfor.vectorized_map(
            lambda r: REDUCED["standardized"](fn(r[0], *tf.unstack(r[1]))), (x, boxes)
        )

    wanted = [REDUCED["standardized"](fn(IMAGES[i], *tf.unstack(BOXES[i]))) for i in range(6)]
    np.testing.assert_allclose(run(IMAGES, BOXES), tf.stack(wanted), rtol=1e-4, atol=1e-5)
    assert run(IMAGES[:0], BOXES[:0]).shape == [0, 3]


def test_crops_of_a_height_of_the_row():
    """The batch, whose size of one the op itself puts in front, is known to be one."""

    def body(x, y0, x0, h, w):
        del x0, w
        return tf.image.crop_to_bounding_box(x, tf.minimum(y0, 7 - h), 1, h, 3)

    boxes = tf.constant([[0, 0, 7, 5], [2, 1, 3, 4], [6, 4, 1, 1]])
    found = tf_pfor.vectorized_map(
        lambda e: body(e[0], *tf.unstack(e[1])), (IMAGES[:3], boxes), fallback="error"
    )
    for row, x, box in zip(found, IMAGES, boxes):
        np.testing.assert_array_equal(row, body(x, *tf.unstack(box)))


# ---------------------------------------------------------------------------
# Gradients in the body of slices that cut rows and do other things as well
# ---------------------------------------------------------------------------

ROWS = tf.random.stateless_normal([4, 6, 5, 3], [1, 2])
B, K = tf.constant([1, 0, 2, 4]), tf.constant([3, 6, 1, 0])

SLICES = {
    "a column": lambda x, b, k: x[:k, 0],
    "an element of columns": lambda x, b, k: x[:k, -1, 1],
    "columns": lambda x, b, k: x[:k, 1:3],
    "every second": lambda x, b, k: x[b:k:2, ::2],
    "the last axis": lambda x, b, k: x[:k, ..., 0],
    "behind an index": lambda x, b, k: x[0, b:k, None, : k // 2],
    "backwards": lambda x, b, k: x[::-1, :k],
    "a new axis": lambda x, b, k: x[None, :k],
}
SPECS = {
    "known": [None, 6, 5, 3],
    "unknown": [None, None, None, None],
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("sizes", SPECS)
@pytest.mark.parametrize("name", SLICES)
def test_gradients_inside_of_slices_that_do_more(name, sizes, jit):
    def gradient(row):
        with tf.GradientTape() as tape:
            tape.watch(row[0])
            total = tf.reduce_sum(tf.sin(SLICES[name](*row)))
        return tape.gradient(total, row[0])

    numbers = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[tf.TensorSpec(SPECS[sizes]), numbers, numbers])
    def run(*rows):
        return tf_pfor.vmap(gradient, jit_compile=jit, fallback="error")(rows)

    wanted = tf.stack([gradient(row) for row in zip(*map(tf.unstack, (ROWS, B, K)))])
    np.testing.assert_allclose(run(ROWS, B, K), wanted, rtol=1e-5, atol=1e-6)
    assert run(ROWS[:0], B[:0], K[:0]).shape == [0, 6, 5, 3]
