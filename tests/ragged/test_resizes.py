"""Reshapes of variable-length rows, and resizes of images of different sizes, against a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_around, compare_rows, gradient_of, mapped

D = 3
X = tf.random.stateless_normal([5, 6, D], [1, 2])


def flat(result):
    return result.flat_values if isinstance(result, tf.RaggedTensor) else result


RESHAPES = {
    "as many in all": lambda x, k, m: tf.reshape(x[:k, 0], [m, 1]),
    "to one shape": lambda x, k, m: tf.reshape(x[:k, 0], [3]),
    "what is left": lambda x, k, m: tf.reshape(x[:k, 0], [-1, 2]),
    "of dense rows": lambda x, k, m: tf.reshape(x[:, 0], [k, m]),
}


@pytest.mark.parametrize("name", RESHAPES)
def test_reshapes_to_another_number_of_elements(name):
    """A row fails; it must not take elements of the row beside it."""
    x, k, m = X[:2], tf.constant([2, 4]), tf.constant([4, 2])
    if name == "what is left":
        k = tf.constant([3, 5])
    with pytest.raises(tf.errors.InvalidArgumentError, match="fill its new shape|6 values"):
        tf_pfor.vectorized_map(lambda e: RESHAPES[name](*e), (x, k, m))


def test_a_reshape_of_no_elements_may_name_any_size():
    k, m = tf.constant([0, 2]), tf.constant([5, D])
    found = tf_pfor.vectorized_map(lambda e: tf.reshape(e[0][: e[1]], [e[1], e[2]]), (X[:2], k, m))
    np.testing.assert_allclose(found[1].to_tensor(), X[1, :2])
    assert found[0].to_list() == []


def test_dense_rows_reshaped_to_own_sizes():
    a, b = tf.constant([2, 3, 1]), tf.constant([3, 2, 6])
    found = tf_pfor.vectorized_map(
        lambda e: tf.reshape(e[0][:, 0], [e[1], e[2]]) * 2.0, (X[:3], a, b),
        fallback_to_while_loop=False,
    )  # fmt: skip
    for got, row, rows, columns in zip(found, X, a, b):
        np.testing.assert_allclose(got.to_tensor(), tf.reshape(row[:, 0] * 2.0, [rows, columns]))


IMAGES = tf.random.stateless_uniform([4, 9, 8, 3], [1, 9])
HEIGHT_WIDTH = tf.constant([[4, 5], [9, 8], [1, 3], [7, 1]])
NEW = tf.constant([[3, 9], [2, 2], [7, 1], [5, 5]])
RESIZED = {
    "to one size": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6]),
    "nearest": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], method="nearest"),
    "to own sizes": lambda im, s, new: tf.image.resize(im, new),
    "own to own sizes": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], new),
    "corners": lambda im, s, new: tf.compat.v1.image.resize_bilinear(
        im[None, : s[0], : s[1]], [4, 6], align_corners=True),
    "nearest corners": lambda im, s, new: tf.compat.v1.image.resize_nearest_neighbor(
        im[None, : s[0], : s[1]], new, align_corners=True),
    "of integers": lambda im, s, new: tf.image.resize(
        tf.cast(im[: s[0], : s[1]] * 250.0, tf.uint8), [4, 6]),
    "bicubic": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], "bicubic"),
    "bicubic with the edge": lambda im, s, new: tf.compat.v1.image.resize_bicubic(
        im[None, : s[0], : s[1]], new),
    "bicubic corners": lambda im, s, new: tf.compat.v1.image.resize_bicubic(
        im[None, : s[0], : s[1]], new, align_corners=True),
    "lanczos3": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], "lanczos3"),
    "lanczos5": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], new, "lanczos5"),
    "gaussian": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], "gaussian"),
    "mitchell": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], new, "mitchellcubic"),
    "smoothed": lambda im, s, new: tf.image.resize(im[: s[0], : s[1]], [4, 6], antialias=True),
    "smoothed cubic": lambda im, s, new: tf.image.resize(
        im[: s[0], : s[1]], new, "bicubic", antialias=True),
    "moved": lambda im, s, new: tf.raw_ops.ScaleAndTranslate(
        images=im[None, : s[0], : s[1]], size=[5, 6], scale=[0.7, 1.9],
        translation=tf.cast(s, tf.float32) / 2.5, kernel_type="lanczos1"),
    "moved box": lambda im, s, new: tf.raw_ops.ScaleAndTranslate(
        images=im[None, : s[0], : s[1]], size=[5, 6], scale=[0.7, 1.9], translation=[0.3, -0.2],
        kernel_type="box", antialias=False),
}  # fmt: skip


@pytest.mark.parametrize("name", RESIZED)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_resized_images(name, n):
    given = (IMAGES[:n], HEIGHT_WIDTH[:n], NEW[:n])

    def run(images):
        return mapped(RESIZED[name], images, *given[1:])

    with tf.GradientTape() as tape:
        tape.watch(given[0])
        found = run(given[0])
        total = tf.reduce_sum(tf.cast(flat(found), tf.float32) ** 2)
    gradient = tape.gradient(total, given[0], unconnected_gradients="zero")
    assert (found.nrows() if isinstance(found, tf.RaggedTensor) else found.shape[0]) == n
    for i, got in enumerate(found):
        with tf.GradientTape() as tape:
            tape.watch(IMAGES)
            want = RESIZED[name](IMAGES[i], HEIGHT_WIDTH[i], NEW[i])
            total = tf.reduce_sum(tf.cast(want, tf.float32) ** 2)
        got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        wanted = tape.gradient(total, IMAGES, unconnected_gradients="zero")[i]
        np.testing.assert_allclose(gradient[i], wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
def test_areas(is_own, align):
    """TensorFlow has no gradient of them."""

    def body(im, s, new):
        size = new if is_own else [4, 6]
        return tf.compat.v1.image.resize_area(im[None, : s[0], : s[1]], size, align)

    found = mapped(body, IMAGES, HEIGHT_WIDTH, NEW)
    for got, *row in zip(found, IMAGES, HEIGHT_WIDTH, NEW, strict=True):
        got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(got, body(*row), rtol=1e-5, atol=1e-5)


def slopes_of(name):
    """A body: the gradient of the image before it is cut."""

    def body(image, *sizes):
        with tf.GradientTape() as tape:
            tape.watch(image)
            total = tf.reduce_sum(tf.cast(RESIZED[name](image, *sizes), tf.float32) ** 2)
        return tape.gradient(total, image)

    return body


@pytest.mark.parametrize("name", [k for k in RESIZED if k != "of integers"])
def test_gradients_of_resizes_in_the_body(name):
    """Also the second gradients, which TensorFlow does not have: for A x it is 2 (A^T A) v."""
    given, v = (IMAGES, HEIGHT_WIDTH, NEW), tf.cos(IMAGES)
    body = slopes_of(name)
    with tf.GradientTape() as tape:
        tape.watch(IMAGES)
        found = mapped(body, *given, fallback="error")
        total = tf.reduce_sum(found * v)
    wanted = tf.stack([body(*row) for row in zip(*given)])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    again = tf.stack([body(*row) for row in zip(v, *given[1:])])  # it is linear
    np.testing.assert_allclose(tape.gradient(total, IMAGES), again, rtol=1e-3, atol=1e-3)
    for n in (0, 1):
        few = mapped(body, *[a[:n] for a in given], fallback="error")
        np.testing.assert_allclose(few, wanted[:n], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["to one size", "nearest"])
def test_gradients_of_resizes_in_the_body_when_compiled(name):
    given = (IMAGES, HEIGHT_WIDTH, NEW)
    run = tf.function(lambda *a: mapped(slopes_of(name), *a), jit_compile=True)
    wanted = tf.stack([slopes_of(name)(*row) for row in zip(*given)])
    np.testing.assert_allclose(run(*given), wanted, rtol=1e-4, atol=1e-4)


BOXES = tf.random.stateless_uniform([4, 3, 4], [1, 11], -0.2, 1.2)
IDS = tf.constant([[0, 0, 0]] * 4)


def crops(image, size, boxes, ids, out=(3, 4)):
    cut = tf.stack([image[: size[0], : size[1]]] * 2)
    return tf.image.crop_and_resize(cut, boxes, ids, out, extrapolation_value=0.5)


@pytest.mark.parametrize("out", [(3, 4), (1, 2)])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_crops(n, out):
    """Values, and gradients of images and boxes."""
    rows = [t[:n] for t in (IMAGES, HEIGHT_WIDTH, BOXES, IDS)]
    with tf.GradientTape() as tape, tf.GradientTape() as again:
        tape.watch(rows[::2])
        again.watch(rows[::2])
        found = mapped(lambda *row: crops(*row, out), *rows)
        total = tf.reduce_sum(tf.sin(found))
        wanted = [crops(*row, out) for row in zip(*(tf.unstack(t, n) for t in rows))]
        by_row = tf.add_n([tf.reduce_sum(tf.sin(w)) for w in wanted] or [0.0])
    assert found.shape == [n, 3, *out, 3]
    if n:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        slopes = zip(tape.gradient(total, rows[::2]), again.gradient(by_row, rows[::2]))
        for got, want in slopes:
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_gradients_of_crops_in_the_body(n):
    def slopes(image, size, boxes, ids):
        with tf.GradientTape() as tape:
            tape.watch([image, boxes])
            total = tf.reduce_sum(tf.sin(crops(image, size, boxes, ids)))
        return tape.gradient(total, [image, boxes])

    rows = [t[:n] for t in (IMAGES, HEIGHT_WIDTH, BOXES, IDS)]
    found = mapped(slopes, *rows)
    wanted = [slopes(*row) for row in zip(*(tf.unstack(t, n) for t in rows))]
    assert [t.shape[0] for t in found] == [n, n]
    for got, want in zip(found, zip(*wanted)):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


NUMBERS = tf.constant([2, 0, 3, 1])
OF_SOME = {
    "images and boxes": lambda im, s, boxes, ids, k, method: tf.image.crop_and_resize(
        im[None, : s[0], : s[1]], boxes[:k], ids[:k], [3, 2], method, 0.5),
    "boxes": lambda im, s, boxes, ids, k, method: tf.image.crop_and_resize(
        tf.stack([im, im**2]), boxes[:k], 1 - ids[:k], [3, 2], method, 0.5),
    "images": lambda im, s, boxes, ids, k, method: tf.image.crop_and_resize(
        im[None, : s[0], : s[1]], boxes, ids, [3, 2], method, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("name", OF_SOME)
def test_crops_of_some_boxes(name, method):
    """Values, and gradients by images and boxes in the body."""

    def crops(*row):
        return OF_SOME[name](*row, method)

    def slopes(*row):
        return gradient_of(lambda: tf.reduce_sum(tf.sin(crops(*row))), [row[0], row[2]])

    rows = (IMAGES, HEIGHT_WIDTH, BOXES, IDS, NUMBERS)
    both = lambda *row: [crops(*row), *slopes(*row)]  # noqa: E731
    compare_rows(both, *rows, rtol=1e-3, atol=1e-4)
    compare_around(crops, *rows, eager=True, rtol=1e-3, atol=1e-4)


def test_crops_of_no_image():
    with pytest.raises(tf.errors.InvalidArgumentError, match="a box is of no image"):
        mapped(crops, IMAGES, HEIGHT_WIDTH, BOXES, IDS + 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="an image has no pixels"):
        mapped(crops, IMAGES, HEIGHT_WIDTH * [[1, 1], [0, 1], [1, 1], [1, 1]], BOXES, IDS)
