"""Histograms, ranges, transforms of one length and encoders, of rows of different shapes."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map
from tests.ways import errors_of, table_of

ROWS = tf.ragged.constant([[1.0, 2.0], [3.0], [], [5.0, 6.0, 7.0]])
TOPS = tf.constant([1.0, 2.0, 3.0, 8.0])
PLACES = tf.ragged.constant([[1, 2], [3], [], [0, 2, 1]], dtype=tf.int32)
WAVES = tf.ragged.constant([[1.0, 2.0], [3.0], [5.0, 6.0, 7.0, 1.0, -2.0, 4.0]])
SOUNDS = tf.RaggedTensor.from_row_lengths(tf.linspace(-1.0, 1.0, 6)[:, None], [1, 3, 0, 2])
histogram = tf.histogram_fixed_width


def spectrum(r):
    return tf.abs(tf.signal.rfft(r, fft_length=[8])) ** 2


COUNTS = {
    "histogram": (lambda r: histogram(r, [1.5, 6.5], 4), ROWS),
    "long histogram": (lambda r: histogram(r, [1.5, 6.5], 4, tf.int64), ROWS),
    "histogram in its range": (lambda r, top: histogram(r, [0.0, top], 3), (ROWS, TOPS)),
    "histogram of a prefix": (
        lambda r, k: histogram(r[:k], [0, 5], 5),
        (tf.reshape(tf.range(12) % 5, [3, 4]), tf.constant([2, 0, 4]))),
    "splits of ranges": (lambda r: tf.ragged.range(r).row_splits, PLACES),
    "sum of ranges": (lambda r: tf.reduce_sum(tf.ragged.range(r, r + 2).values), PLACES),
    "lengths of ranges": (
        lambda r: tf.reduce_sum(tf.cast(tf.ragged.range(0, r, 1).row_lengths(), tf.int32) * r),
        PLACES),
    "range to a size": (lambda r: tf.reduce_sum(tf.ragged.range(0, tf.size(r)).values), PLACES),
    "longest range": (
        lambda r: tf.reduce_max(tf.ragged.range([1, 2], [4, 2 + tf.size(r)], 2).row_lengths()),
        PLACES),
    "ranges": (tf.ragged.range, PLACES),
}  # fmt: skip
TRANSFORMS = {
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
# Encoders have no kernel for batches: the one for one row runs for all of them in parallel.
IMAGES = tf.ragged.stack(
    [
        tf.cast(tf.reshape(tf.range(h * w * 3) * 37 % 256, [h, w, 3]), tf.uint8)
        for h, w in ((3, 4), (2, 2), (5, 1))
    ]
)
ENCODERS = {
    "png": lambda i: tf.io.encode_png(i.to_tensor()),
    "jpeg": lambda i: tf.io.encode_jpeg(i.to_tensor(), quality=90),
    "and back": lambda i: tf.cast(tf.io.decode_png(tf.io.encode_png(i.to_tensor())), tf.int32),
    "tensor": lambda i: tf.io.serialize_tensor(i.to_tensor()),
}
test_table_of_counts = table_of(
    {
        **COUNTS,
        **{name: (body, WAVES) for name, body in TRANSFORMS.items()},
        **{f"to {name}": (body, IMAGES) for name, body in ENCODERS.items()},
        "to sound": (lambda s: tf.audio.encode_wav(s, 8000), SOUNDS),
        "spectrum": (spectrum, WAVES),
    },
    ways=["eager", "unknown n", "chunks", "no rows", "around"],
    but={
        "no rows": ["ranges", *(f"to {name}" for name in (*ENCODERS, "sound"))],
        "chunks": [f"to {name}" for name in (*ENCODERS, "sound")],
    },
    only={"around": ["spectrum"]}, tolerance=(1e-7, 1e-5), slopes=(1e-4, 1e-6),
)  # fmt: skip
test_errors = errors_of({
    "empty range": (
        lambda r, top: histogram(r, [0.0, top], 3), (ROWS, tf.constant([1.0, 2.0, 0.0, 8.0]))),
    "negative range": (
        lambda r, top: histogram(r, [0.0, top], 3), (ROWS, tf.constant([1.0, 2.0, -1.0, 8.0]))),
    "no number": (lambda r: histogram(r / 0.0 * 0.0, [0.0, 1.0], 3), ROWS, "not a number"),
    "vectors that differ in number": (
        lambda a, b: tf.ragged.range(a, b).values,
        (PLACES, tf.RaggedTensor.from_row_lengths(PLACES.values, [2, 2, 0, 2]))),
})  # fmt: skip


@pytest.mark.parametrize("size", [tf.size, lambda r: tf.shape(r)[0], lambda r: tf.shape(r)[-1]])
def test_a_row_padded_to_one_length_is_dense(size):
    spec = tf.RaggedTensorSpec([None, None], ragged_rank=1)
    run = tf.function(
        lambda x: strict_map(lambda r: tf.pad(r, [[1, 7 - size(r)]]), x), input_signature=[spec]
    )
    found = run(WAVES)
    assert found.shape[1] == 8
    np.testing.assert_allclose(found, tf.pad(WAVES.to_tensor(shape=[3, 7]), [[0, 0], [1, 0]]))
