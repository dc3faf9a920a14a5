"""Histograms, ranges, transforms of one length and encoders, of rows of different shapes."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import of_unknown_n, strict_map

ROWS = tf.ragged.constant([[1.0, 2.0], [3.0], [], [5.0, 6.0, 7.0]])
PLACES = tf.ragged.constant([[1, 2], [3], [], [0, 2, 1]], dtype=tf.int32)
KINDS = ["eager", "unknown n", "chunks", "no rows"]


def mapped(kind, body, elems):
    """Without a loop, in several settings; "no rows" gives the first none of the rows."""

    def call(x):
        options = {"chunk_size": 2} if kind == "chunks" else {}
        return strict_map(body, x, **options)

    if kind != "unknown n":
        return call(tf.nest.map_structure(lambda t: t[:0], elems) if kind == "no rows" else elems)
    spec = tf.nest.map_structure(of_unknown_n, elems)
    return tf.function(call, input_signature=[spec], autograph=False)(elems)


def compare(kind, body, elems):
    """The map, and a Python loop over rows."""
    found = mapped(kind, body, elems)
    n = 0 if kind == "no rows" else tf.nest.flatten(elems)[0].shape[0]
    assert found.shape[0] == n
    for i in range(n):
        one = body(tf.nest.map_structure(lambda t: t[i], elems))  # noqa: B023
        if isinstance(one, tf.RaggedTensor):
            assert found[i].to_list() == one.to_list()
        elif one.dtype == tf.string:
            assert found[i] == one
        else:
            np.testing.assert_allclose(found[i], one, atol=1e-5)


# ---------------------------------------------------------------------------
# Histograms
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_a_histogram_of_a_row(kind, dtype):
    compare(kind, lambda r: tf.histogram_fixed_width(r, [1.5, 6.5], 4, dtype), ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_histogram_of_a_row_in_its_range(kind):
    tops = tf.constant([1.0, 2.0, 3.0, 8.0])
    compare(kind, lambda a: tf.histogram_fixed_width(a[0], [0.0, a[1]], 3), (ROWS, tops))


def test_a_histogram_of_a_prefix_of_the_row():
    def body(a):
        return tf.histogram_fixed_width(a[0][: a[1]], [0, 5], 5)

    compare("eager", body, (tf.reshape(tf.range(12) % 5, [3, 4]), tf.constant([2, 0, 4])))


@pytest.mark.parametrize("top", [0.0, -1.0])
def test_a_histogram_of_an_empty_range_is_an_error(top):
    tops = tf.constant([1.0, 2.0, top, 8.0])
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped("eager", lambda a: tf.histogram_fixed_width(a[0], [0.0, a[1]], 3), (ROWS, tops))


def test_a_histogram_of_what_is_no_number_is_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"):
        mapped("eager", lambda r: tf.histogram_fixed_width(r / 0.0 * 0.0, [0.0, 1.0], 3), ROWS)


# ---------------------------------------------------------------------------
# Ranges
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body",
    [
        lambda r: tf.ragged.range(r).row_splits,
        lambda r: tf.reduce_sum(tf.ragged.range(r, r + 2).values),
        lambda r: tf.reduce_sum(tf.cast(tf.ragged.range(0, r, 1).row_lengths(), tf.int32) * r),
        lambda r: tf.reduce_sum(tf.ragged.range(0, tf.size(r)).values),
        lambda r: tf.reduce_max(tf.ragged.range([1, 2], [4, 2 + tf.size(r)], 2).row_lengths()),
    ],
)
def test_ranges_by_the_numbers_of_a_row(kind, body):
    found = mapped(kind, body, PLACES)
    found = found.to_list() if isinstance(found, tf.RaggedTensor) else found.numpy().tolist()
    n = 0 if kind == "no rows" else 4
    assert found == [body(PLACES[i]).numpy().tolist() for i in range(n)]


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_ragged_ranges_are_results(kind):
    compare(kind, tf.ragged.range, PLACES)


def test_vectors_of_ranges_that_differ_in_number_are_an_error():
    others = tf.RaggedTensor.from_row_lengths(PLACES.values, [2, 2, 0, 2])
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped("eager", lambda a: tf.ragged.range(a[0], a[1]).values, (PLACES, others))


# ---------------------------------------------------------------------------
# Transforms of one length
# ---------------------------------------------------------------------------

WAVES = tf.ragged.constant([[1.0, 2.0], [3.0], [5.0, 6.0, 7.0, 1.0, -2.0, 4.0]])
_TRANSFORMS = {
    "rfft of a longer one": lambda r: tf.abs(tf.signal.rfft(r, fft_length=[8])),
    "rfft of a shorter one": lambda r: tf.abs(tf.signal.rfft(r, fft_length=[4])),
    "irfft": lambda r: tf.signal.irfft(tf.cast(r, tf.complex64), fft_length=[6]),
    "fft of a padded row": lambda r: tf.abs(
        tf.signal.fft(tf.cast(tf.pad(r, [[0, 8 - tf.size(r)]]), tf.complex64))
    ),
    "of two channels": lambda r: tf.abs(tf.signal.rfft(tf.stack([r, r * r]), fft_length=[8])),
    "of each element": lambda r: tf.reduce_sum(
        tf.abs(tf.signal.rfft(r[:, None] * r[None, :], fft_length=[8])), 0
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", _TRANSFORMS)
def test_transforms_padded_to_one_length(kind, name):
    compare(kind, _TRANSFORMS[name], WAVES)


def test_gradients_of_a_transform_padded_to_one_length():
    def total(x, run):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(lambda r: tf.abs(tf.signal.rfft(r, fft_length=[8])) ** 2, WAVES.with_values(x))
            y = tf.reduce_sum(y * tf.range(5.0))
        return tape.gradient(y, x)

    found = total(WAVES.values, lambda f, r: mapped("eager", f, r))
    want = total(WAVES.values, lambda f, r: tf.stack([f(r[i]) for i in range(3)]))
    np.testing.assert_allclose(found, want, rtol=1e-4)


# ---------------------------------------------------------------------------
# Encoders: no kernel for batches, the one for one row runs for all of them in parallel
# ---------------------------------------------------------------------------

IMAGES = tf.ragged.stack(
    [
        tf.cast(tf.reshape(tf.range(h * w * 3) * 37 % 256, [h, w, 3]), tf.uint8)
        for h, w in ((3, 4), (2, 2), (5, 1))
    ]
)
_ENCODERS = {
    "png": lambda i: tf.io.encode_png(i.to_tensor()),
    "jpeg": lambda i: tf.io.encode_jpeg(i.to_tensor(), quality=90),
    "and back": lambda i: tf.cast(tf.io.decode_png(tf.io.encode_png(i.to_tensor())), tf.int32),
    "tensor": lambda i: tf.io.serialize_tensor(i.to_tensor()),
}


@pytest.mark.parametrize("kind", ["eager", "unknown n"])
@pytest.mark.parametrize("name", _ENCODERS)
def test_images_that_differ_in_size_are_encoded(kind, name):
    found = mapped(kind, _ENCODERS[name], IMAGES)
    for i in range(3):
        want, one = _ENCODERS[name](IMAGES[i]), found[i]
        if isinstance(one, tf.RaggedTensor):
            one = one.to_tensor()
        assert tf.reduce_all(one == want)


def test_sounds_that_differ_in_length_are_encoded():
    sounds = tf.RaggedTensor.from_row_lengths(tf.linspace(-1.0, 1.0, 6)[:, None], [1, 3, 0, 2])
    compare("eager", lambda s: tf.audio.encode_wav(s, 8000), sounds)


@pytest.mark.parametrize("size", [tf.size, lambda r: tf.shape(r)[0], lambda r: tf.shape(r)[-1]])
def test_a_row_padded_to_one_length_is_dense(size):
    found = mapped("unknown n", lambda r: tf.pad(r, [[1, 7 - size(r)]]), WAVES)
    assert found.shape[1] == 8
    np.testing.assert_allclose(found, tf.pad(WAVES.to_tensor(shape=[3, 7]), [[0, 0], [1, 0]]))
