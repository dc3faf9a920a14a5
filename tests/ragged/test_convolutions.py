"""Convolutions and pooling of images of different sizes, against a loop."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import gradient_of, mapped
from tests.ways import errors_of, slopes_around, slopes_of, table_of

HEIGHTS, WIDTHS = tf.constant([9, 4, 7, 3]), tf.constant([8, 6, 3, 10])
IMAGES = tf.random.stateless_normal([4, 11, 10, 3], [1, 2])
ROWS = (IMAGES, HEIGHTS, WIDTHS)
FILTER = tf.random.stateless_normal([3, 2, 3, 4], [1, 3])
OF_CHANNELS = tf.random.stateless_normal([3, 3, 3, 2], [1, 4])


def scale_of(x):
    return 1 + tf.reduce_sum(tf.sin(x)) / 999


OPS = {
    "convolution": lambda x, s, pad: tf.nn.conv2d(x, FILTER, s, pad),
    "depthwise": lambda x, s, pad: tf.nn.depthwise_conv2d(x, OF_CHANNELS, [1, s, s, 1], pad),
    "own filter": lambda x, s, pad: tf.nn.conv2d(x, FILTER * scale_of(x), s, pad),
    "own depthwise filter": lambda x, s, pad: tf.nn.depthwise_conv2d(
        x, OF_CHANNELS * scale_of(x), [1, s, s, 1], pad),
    "largest": lambda x, s, pad: tf.nn.max_pool2d(x, [3, 2], s, pad),
    "average": lambda x, s, pad: tf.nn.avg_pool2d(x, [3, 2], s, pad),
    "patches": lambda x, s, pad: tf.image.extract_patches(
        x, [1, 2, 2, 1], [1, s, s, 1], [1, 2, 1, 1], pad),
}  # fmt: skip


def of_cut(op, *options):
    """A body: the op on the cut image."""
    return lambda x, h, w: op(x[None, :h, :w], *options)[0]


BODIES = {
    f"{name}, {pad}, {stride}": of_cut(op, stride, pad)
    for name, op in OPS.items()
    for pad in ("SAME", "VALID")
    for stride in (1, 2, 3)
}
# Second gradients of maxima are zeros in a tf.function of one row, without a map: eager calls.
# Gradients are as large as 14. Processors that sum in another order differ by 5e-6 of that.
CLOSE = {"tolerance": (1e-4, 1e-5), "slopes": (1e-4, 1e-4), "eager": True}
OF_SMALL_STRIDES = [name for name in BODIES if not name.endswith("3")]
test_table_of_ops = table_of(
    BODIES, *ROWS, ways=["eager", "around", "inside", "inside around", "compiled inside"],
    only={
        "inside": OF_SMALL_STRIDES,
        "inside around": OF_SMALL_STRIDES,
        # Of patches it is a range of unknown length.
        "compiled inside": [f"{name}, SAME, 2" for name in OPS if name != "patches"],
    }, **CLOSE,
)  # fmt: skip


def network(x, h, w):
    made = tf.nn.relu(tf.nn.conv2d(x[None, :h, :w], FILTER, 2, "SAME"))
    return tf.reduce_mean(tf.nn.max_pool2d(made, 2, 2, "SAME")[0], [0, 1])


def of_shared_filter(x, h, w):
    cut = x[None, :h, :w]
    made = lambda: tf.nn.depthwise_conv2d(cut, OF_CHANNELS, [1, 2, 2, 1], "SAME")  # noqa: E731
    return gradient_of(lambda: tf.reduce_sum(made() ** 2), OF_CHANNELS)


def transposed(filters, sizes, strides):
    return lambda x, h, w: tf.nn.conv2d_transpose(
        x[None, :h, :w], filters, tf.stack([1, *sizes(h, w), 3]), strides
    )[0]


OTHERS = {
    "network": network,
    "dilated": of_cut(lambda x: tf.nn.conv2d(x, FILTER * scale_of(x), 1, "SAME", dilations=(1, 2))),
    "dilated twice": of_cut(
        lambda x: tf.nn.conv2d(x, FILTER * scale_of(x), 1, "SAME", dilations=(2, 2))),
    "shared depthwise filter": of_shared_filter,
    "transposed sequence": lambda x, h, w: tf.nn.conv1d_transpose(
        x[None, :h, 0], FILTER[:, 0, ::-1, :3], tf.stack([1, 2 * h, 3]), 2)[0],
    "transposed sequence, valid": lambda x, h, w: tf.nn.conv1d_transpose(
        x[None, :h, 0], FILTER[:, 0, :, :3], tf.stack([1, 2 * h + 1, 3]), 2, "VALID")[0],
    "transposed": transposed(FILTER[..., :3], lambda h, w: [3 * h, 2 * w], [3, 2]),
    "transposed, one less": transposed(FILTER[..., :3], lambda h, w: [2 * h - 1, 2 * w], 2),
    "sound": lambda x, h, w: tf.nn.conv1d(x[None, :h, 0], FILTER[:, 0], 2, "SAME")[0],
    "pooled sound": lambda x, h, w: tf.nn.max_pool1d(x[None, :h, 0], 2, 2, "SAME")[0],
    "mirrored edges": slopes_of(of_cut(tf.image.sobel_edges), (0,)),
    "second gradients of maxima": slopes_of(slopes_of(BODIES["largest, SAME, 2"], (0,)), (0,)),
    "integers": (
        of_cut(lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME")),
        (tf.cast(IMAGES * 100, tf.int32), HEIGHTS, WIDTHS)),
}  # fmt: skip
OF_NETWORK = ["compiled", "no rows", "one row"]
test_table_of_others = table_of(
    OTHERS, *ROWS, ways=["eager", "around", *OF_NETWORK],
    only=dict.fromkeys(OF_NETWORK, ["network"]), but={"around": ["integers"]}, **CLOSE,
)  # fmt: skip
test_a_transposed_convolution_to_a_wrong_size = errors_of(
    {"one more": transposed(FILTER[..., :3], lambda h, w: [2 * h + 1, 2 * w], 2)}, *ROWS,
    match="differ in some iterations",
)  # fmt: skip


# Rows of one element less than a window make none. Two less are an error, in steps of 1.
SOUNDS = tf.random.stateless_normal([4, 12, 3], [1, 5])
WINDOWS = {
    "sound": (lambda x: tf.nn.conv1d(x, FILTER[:, 0], 1, "VALID"), 2),
    "own filter": (lambda x: tf.nn.conv1d(x, FILTER[:, 0] * scale_of(x), 1, "VALID"), 2),
    "dilated": (lambda x: tf.nn.conv1d(x, FILTER[:, 0], 1, "VALID", dilations=2), 4),
    "image": (lambda x: tf.nn.conv2d(x[..., None], FILTER[:, :, :1], 1, "VALID"), 2),
    "depthwise": (
        lambda x: tf.nn.depthwise_conv2d(x[..., None], FILTER[:, :, :1], [1] * 4, "VALID"), 2),
    "largest": (lambda x: tf.nn.max_pool1d(x, 3, 1, "VALID"), 2),
    "largest in steps": (lambda x: tf.nn.max_pool1d(x, 6, 2, "VALID"), 3),
    "average": (lambda x: tf.nn.avg_pool1d(x, 3, 1, "VALID"), 2),
    "largest of images": (lambda x: tf.nn.max_pool2d(x[..., None], 3, 1, "VALID"), 2),
    "patches": (lambda x: tf.image.extract_patches(
        x[..., None], [1, 3, 2, 1], [1] * 4, [1] * 4, "VALID"), 2),
}  # fmt: skip


def windows_of(op, *, is_guarded=False):
    def one(x, k):
        made = lambda: op(x[None, :k])[0]  # noqa: E731
        if not is_guarded:
            return made()
        return tf.cond(k > 5, lambda: tf.reduce_sum(made()), lambda: tf.zeros([]))

    return one


def of_lengths(least):
    return SOUNDS, tf.constant([9, least, 12, 7])


test_table_of_short_rows = table_of(
    {
        name: (windows_of(op, is_guarded=True), of_lengths(least - 1))
        for name, (op, least) in WINDOWS.items()
    },
    ways=["eager", "unknown n", "around"], **CLOSE,
)  # fmt: skip
test_rows_that_are_too_short = errors_of(
    {name: (windows_of(op), of_lengths(least - 1)) for name, (op, least) in WINDOWS.items()},
    match=r"test_convolutions.py:\d+\): a row has not the \d elements that windows need",
)


@pytest.mark.parametrize("name", WINDOWS)
def test_rows_of_no_window(name):
    """No loop to compare with: eager kernels of oneDNN give what is empty another shape."""
    op, least = WINDOWS[name]
    found = mapped(windows_of(op), *of_lengths(least))
    assert found[1].shape[0] == 0
    assert found[0].shape[0] > 0


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPS)
def test_no_rows_or_nothing_in_them(name, stride):
    """Kernels of oneDNN give what is empty another shape, or end the process."""
    body = BODIES[f"{name}, SAME, {stride}"]
    total = lambda *row: tf.reduce_sum(body(*row), [0, 1])  # noqa: E731
    around = slopes_around(lambda *rows: mapped(total, *rows), ())
    number = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[tf.TensorSpec([None, 11, 10, 3]), number, number])
    def run(*rows):
        return [mapped(total, *rows), *around(*rows), *mapped(slopes_of(body, (0,)), *rows)]

    known = {"convolution": 4, "filter": 4, "depthwise": 6, "patches": 12}
    channels = next((k for word, k in reversed(known.items()) if word in name), 3)
    for n in (0, 2):
        found = run(IMAGES[:n], tf.zeros([n], tf.int32), WIDTHS[:n])
        for made, shape in zip(found, ([n, channels], IMAGES[:n].shape, IMAGES[:n].shape)):
            np.testing.assert_array_equal(made, np.zeros(shape))


def test_gradients_of_no_rows_in_the_body():
    def body(x, k):
        cut = x[:k][None]
        made = lambda: tf.reduce_sum(tf.nn.conv2d(cut, FILTER, 1, "SAME") ** 2)  # noqa: E731
        of_row, of_filter = gradient_of(made, [cut, FILTER])
        return tf.reduce_sum(of_row, [0, 1, 2]), of_filter

    specs = [tf.TensorSpec([None, 11, 10, 3]), tf.TensorSpec([None], tf.int32)]
    run = tf.function(lambda *rows: mapped(body, *rows), input_signature=specs)
    for n in (0, 2):
        of_rows, of_filters = run(IMAGES[:n], tf.zeros([n], tf.int32))
        assert of_rows.shape == [n, 3]
        assert of_filters.shape == [n, 3, 2, 3, 4]


@pytest.mark.parametrize("name", OPS)
def test_nothing_comes_from_behind_the_end(name):
    """Numbers behind the end of a row, also NaN, reach neither results nor gradients."""
    seen = (tf.range(11)[:, None] < HEIGHTS[:, None, None]) & (tf.range(10) < WIDTHS[:, None, None])
    poisoned = tf.where(seen[..., None], IMAGES, np.nan)
    for pad in ("SAME", "VALID"):
        run = lambda x, pad=pad: mapped(BODIES[f"{name}, {pad}, 2"], x, HEIGHTS, WIDTHS)  # noqa: E731
        assert np.isfinite(tf.reduce_sum(run(poisoned).flat_values))
        slopes = gradient_of(lambda run=run: tf.reduce_sum(run(poisoned).flat_values), poisoned)
        assert np.isfinite(slopes).all()
        assert not slopes.numpy()[~seen.numpy()].any()
