"""Convolutions and pooling of images of different sizes, against a loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

HEIGHTS, WIDTHS = tf.constant([9, 4, 7, 3]), tf.constant([8, 6, 3, 10])
IMAGES = tf.random.stateless_normal([4, 11, 10, 3], [1, 2])
FILTER = tf.random.stateless_normal([3, 2, 3, 4], [1, 3])
OF_CHANNELS = tf.random.stateless_normal([3, 3, 3, 2], [1, 4])


def scale_of(x):
    return 1 + tf.reduce_sum(tf.sin(x)) / 999


OPS = {
    "convolution": lambda x, s, pad: tf.nn.conv2d(x, FILTER, s, pad),
    "depthwise": lambda x, s, pad: tf.nn.depthwise_conv2d(x, OF_CHANNELS, [1, s, s, 1], pad),
    "own filter": lambda x, s, pad: tf.nn.conv2d(x, FILTER * scale_of(x), s, pad),
    "own depthwise filter": lambda x, s, pad: tf.nn.depthwise_conv2d(
        x, OF_CHANNELS * scale_of(x), [1, s, s, 1], pad
    ),
    "largest": lambda x, s, pad: tf.nn.max_pool2d(x, [3, 2], s, pad),
    "average": lambda x, s, pad: tf.nn.avg_pool2d(x, [3, 2], s, pad),
    "patches": lambda x, s, pad: tf.image.extract_patches(
        x, [1, 2, 2, 1], [1, s, s, 1], [1, 2, 1, 1], pad
    ),
}


def cut(e):
    return e[0][: e[1], : e[2]][None]


def compared(body, images=IMAGES):
    """Values and gradients of a map, without a loop, and of a loop."""
    every = (images, HEIGHTS, WIDTHS)
    with tf.GradientTape() as tape:
        tape.watch(images)
        found = tf_pfor.vectorized_map(body, every, fallback="error")
        flat = found.flat_values if isinstance(found, tf.RaggedTensor) else found
        total = tf.reduce_sum(tf.sin(flat))
    with tf.GradientTape() as again:
        again.watch(images)
        wanted = [body(row) for row in zip(*map(tf.unstack, every))]
        of_rows = tf.add_n([tf.reduce_sum(tf.sin(w)) for w in wanted])
    for got, want in zip(found, wanted, strict=True):
        dense = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(dense, want, rtol=1e-4, atol=1e-5)
    expected = again.gradient(of_rows, images)
    np.testing.assert_allclose(tape.gradient(total, images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pad", ["SAME", "VALID"])
@pytest.mark.parametrize("name", OPS)
def test_values_and_gradients(name, pad, stride):
    compared(lambda e: OPS[name](cut(e), stride, pad)[0])


def slopes_of(op, stride, pad):
    """A body: the gradient of the row before it is cut."""

    def body(e):
        with tf.GradientTape() as tape:
            tape.watch(e[0])
            total = tf.reduce_sum(tf.sin(op(cut(e), stride, pad)))
        return tape.gradient(total, e[0])

    return body


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pad", ["SAME", "VALID"])
@pytest.mark.parametrize("name", OPS)
def test_gradients_in_the_body(name, pad, stride):
    """Also the second gradients, of a tape around the map."""
    compared(slopes_of(OPS[name], stride, pad))


@pytest.mark.parametrize("name", [k for k in OPS if k != "patches"])  # a range of unknown length
def test_gradients_in_the_body_when_compiled(name):
    every = (IMAGES, HEIGHTS, WIDTHS)
    body = slopes_of(OPS[name], 2, "SAME")
    run = tf.function(lambda *e: tf_pfor.vectorized_map(body, e), jit_compile=True)
    wanted = tf.stack([body(row) for row in zip(*map(tf.unstack, every))])
    np.testing.assert_allclose(run(*every), wanted, rtol=1e-4, atol=1e-5)


def test_second_gradients_of_maxima_in_the_body():
    def body(e):
        with tf.GradientTape() as outer:
            outer.watch(e[0])
            slopes = slopes_of(OPS["largest"], 2, "SAME")(e)
            total = tf.reduce_sum(slopes * tf.cos(e[0]))
        return outer.gradient(total, e[0])

    compared(body)


def test_edges_in_the_body():
    """Mirrored edges, and their gradients."""
    edges = slopes_of(lambda x, *_: tf.image.sobel_edges(x), 1, "")
    compared(edges, tf.random.stateless_normal([4, 11, 10, 3], [2, 3]))


@pytest.mark.parametrize("rates", [(1, 2), (2, 2)])
def test_dilated_filters_of_the_row(rates):
    def body(e):
        x = cut(e)
        return tf.nn.conv2d(x, FILTER * scale_of(x), 1, "SAME", dilations=rates)[0]

    compared(body)


def test_gradients_by_a_shared_depthwise_filter():
    def body(e):
        with tf.GradientTape() as tape:
            tape.watch(OF_CHANNELS)
            y = tf.nn.depthwise_conv2d(cut(e), OF_CHANNELS, [1, 2, 2, 1], "SAME")
            total = tf.reduce_sum(y**2)
        return tape.gradient(total, OF_CHANNELS)

    compared(body)


TRANSPOSED = {
    "sequence": lambda e: tf.nn.conv1d_transpose(
        e[0][None, : e[1], 0], FILTER[:, 0, ::-1, :3], tf.stack([1, 2 * e[1], 3]), 2)[0],
    "sequence, valid": lambda e: tf.nn.conv1d_transpose(
        e[0][None, : e[1], 0], FILTER[:, 0, :, :3], tf.stack([1, 2 * e[1] + 1, 3]), 2, "VALID")[0],
    "image": lambda e: tf.nn.conv2d_transpose(
        cut(e), FILTER[..., :3], tf.stack([1, 3 * e[1], 2 * e[2], 3]), [3, 2])[0],
    "one less": lambda e: tf.nn.conv2d_transpose(
        cut(e), FILTER[..., :3], tf.stack([1, 2 * e[1] - 1, 2 * e[2], 3]), 2)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolutions_to_sizes_of_the_row(name):
    compared(TRANSPOSED[name])


def test_a_transposed_convolution_to_a_wrong_size():
    def body(e):
        target = tf.stack([1, 2 * e[1] + 1, 2 * e[2], 3])
        return tf.nn.conv2d_transpose(cut(e), FILTER[..., :3], target, 2)[0]

    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in some iterations"):
        tf_pfor.vectorized_map(body, (IMAGES, HEIGHTS, WIDTHS), fallback="error")


def network(e):
    made = tf.nn.relu(tf.nn.conv2d(cut(e), FILTER, 2, "SAME"))
    return tf.reduce_mean(tf.nn.max_pool2d(made, 2, 2, "SAME")[0], [0, 1])


def test_a_network():
    compared(network)


def test_compiled():
    every = (IMAGES, HEIGHTS, WIDTHS)
    run = tf.function(lambda *e: tf_pfor.vectorized_map(network, e), jit_compile=True)
    wanted = tf.stack([network(row) for row in zip(*map(tf.unstack, every))])
    np.testing.assert_allclose(run(*every), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n):
    found = tf_pfor.vectorized_map(network, (IMAGES[:n], HEIGHTS[:n], WIDTHS[:n]), fallback="error")
    wanted = [network((IMAGES[i], HEIGHTS[i], WIDTHS[i])) for i in range(n)]
    np.testing.assert_allclose(found, np.reshape(wanted, [n, 4]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPS)
def test_no_rows_or_nothing_in_them(name, stride):
    """Kernels of oneDNN give what is empty another shape, or end the process."""

    def body(e):
        return tf.reduce_sum(OPS[name](cut(e), stride, "SAME")[0], [0, 1])

    slopes = slopes_of(OPS[name], stride, "SAME")
    one = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[tf.TensorSpec([None, 11, 10, 3]), one, one])
    def run(images, heights, widths):
        with tf.GradientTape() as tape:
            tape.watch(images)
            made = tf_pfor.vectorized_map(body, (images, heights, widths), fallback="error")
            inside = tf_pfor.vectorized_map(slopes, (images, heights, widths), fallback="error")
        return made, tape.gradient(made, images), inside

    known = {"convolution": 4, "filter": 4, "depthwise": 6, "patches": 12}
    channels = next((k for word, k in reversed(known.items()) if word in name), 3)
    for n in (0, 2):
        made, *gradients = run(IMAGES[:n], tf.zeros([n], tf.int32), WIDTHS[:n])
        np.testing.assert_array_equal(made, np.zeros([n, channels]))
        for found in gradients:
            np.testing.assert_array_equal(found, np.zeros([n, 11, 10, 3]))


def test_gradients_of_no_rows_in_the_body():
    @tf.function(
        input_signature=[tf.TensorSpec([None, 11, 10, 3]), tf.TensorSpec([None], tf.int32)]
    )
    def run(images, lengths):
        def body(e):
            x = e[0][: e[1]][None]
            with tf.GradientTape() as tape:
                tape.watch([x, FILTER])
                made = tf.reduce_sum(tf.nn.conv2d(x, FILTER, 1, "SAME") ** 2)
            of_row, of_filter = tape.gradient(made, [x, FILTER])
            return tf.reduce_sum(of_row, [0, 1, 2]), of_filter

        return tf_pfor.vectorized_map(body, (images, lengths), fallback="error")

    for n in (0, 2):
        of_rows, of_filters = run(IMAGES[:n], tf.zeros([n], tf.int32))
        assert of_rows.shape == [n, 3]
        assert of_filters.shape == [n, 3, 2, 3, 4]


def test_sounds_of_own_length():
    weights = FILTER[:, 0]
    compared(lambda e: tf.nn.conv1d(e[0][:, 0][: e[1]][None], weights, 2, "SAME")[0])
    compared(lambda e: tf.nn.max_pool1d(e[0][:, 0][: e[1]][None], 2, 2, "SAME")[0])


def test_nothing_comes_from_behind_the_end():
    """Numbers behind the end of a row, also NaN, reach neither results nor gradients."""
    seen = (tf.range(11)[:, None] < HEIGHTS[:, None, None]) & (tf.range(10) < WIDTHS[:, None, None])
    poisoned = tf.where(seen[..., None], IMAGES, np.nan)
    for pad in ("SAME", "VALID"):
        for name, op in OPS.items():
            with tf.GradientTape() as tape:
                tape.watch(poisoned)
                made = tf_pfor.vectorized_map(
                    lambda e, op=op, pad=pad: op(cut(e), 2, pad)[0],
                    (poisoned, HEIGHTS, WIDTHS), fallback="error",
                )  # fmt: skip
                total = tf.reduce_sum(made.flat_values)
            assert np.isfinite(total), name
            slopes = tape.gradient(total, poisoned).numpy()
            assert np.isfinite(slopes).all(), name
            assert not slopes[~seen.numpy()].any(), name


def test_integers():
    images = tf.cast(IMAGES * 100, tf.int32)
    found = tf_pfor.vectorized_map(
        lambda e: tf.nn.max_pool2d(cut(e), 2, 2, "SAME")[0], (images, HEIGHTS, WIDTHS),
        fallback="error",
    )  # fmt: skip
    for got, row in zip(found, zip(images, HEIGHTS, WIDTHS), strict=True):
        np.testing.assert_array_equal(got.to_tensor(), tf.nn.max_pool2d(cut(row), 2, 2, "SAME")[0])
