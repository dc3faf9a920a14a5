"""Ops that depend on the ends of rows: mirrored edges, paddings, dilations, the largest k."""

import keras
import numpy as np
import tensorflow as tf

from tests.ways import errors_of, table_of

LENGTHS = [5, 3, 6, 4, 7]
RANDOM = np.random.default_rng(0)
SERIES = tf.RaggedTensor.from_row_lengths(RANDOM.normal(size=[sum(LENGTHS), 2]), LENGTHS)
WAVES = SERIES.with_values(SERIES.values[:, 0])
IDS = tf.RaggedTensor.from_row_lengths(RANDOM.integers(0, 6, sum(LENGTHS)), LENGTHS)
FILTER = tf.constant(RANDOM.normal(size=[2, 2, 3]))


def layer(**options):
    keras.utils.set_random_seed(1)
    made = keras.layers.Conv1D(2, 3, dtype="float64", **options)
    made.build([None, None, 2])
    return lambda x: made(x[None])[0]


LAYERS = [layer(padding="causal", dilation_rate=d) for d in (1, 2, 4)]


def temporal(x):
    """A temporal convolutional network: dilated causal layers, and what they are added to."""
    for each in LAYERS:
        x = x + tf.nn.relu(each(x))
    return tf.reduce_mean(x, 0)


PROGRAMS = {
    "reflected": (lambda x: tf.pad(x, [[2, 1]], mode="REFLECT"), WAVES),
    "symmetric": (lambda x: tf.pad(x, [[0, 3], [1, 0]], mode="SYMMETRIC"), SERIES),
    "mirrored inside": (lambda x: tf.pad(x, [[0, 0], [1, 1]], mode="REFLECT"), SERIES),
    "frames to the end": (lambda x: tf.signal.frame(x, 3, 2, pad_end=True), WAVES),
    "centered spectra": (
        lambda x: tf.abs(keras.ops.stft(tf.cast(x, tf.float32), 4, 2, 4)[0]), WAVES,
    ),
    "largest half": (lambda x: tf.math.top_k(x, tf.shape(x)[0] // 2).values, WAVES),
    "without some": (lambda x: tf.raw_ops.ListDiff(x=x, y=[1, 2])[0], IDS),
    "places without some": (lambda x: tf.raw_ops.ListDiff(x=x, y=[0, 3])[1], IDS),
    "what is missing": (lambda x: tf.raw_ops.ListDiff(x=tf.range(6, dtype=x.dtype), y=x)[0], IDS),
    "dilated": (layer(padding="same", dilation_rate=2), SERIES),
    "dilated by three": (layer(padding="same", dilation_rate=3), SERIES),
    "dilated, causal": (layer(padding="causal", dilation_rate=2), SERIES),
    "dilated by an op": (
        lambda x: tf.nn.convolution(tf.pad(x, [[2, 0], [0, 0]])[None], FILTER, dilations=[2])[0],
        SERIES,
    ),
    "temporal network": (temporal, SERIES),
}  # fmt: skip
test_table_of_ends = table_of(
    PROGRAMS, ways=["eager", "unknown n, few rows", "around"],
    only={"around": [name for name, (_, x) in PROGRAMS.items() if x is not IDS]},
    tolerance=(1e-6, 1e-6), slopes=(1e-5, 1e-6),
)  # fmt: skip
# The row by itself is an error as well.
test_errors = errors_of({
    "too short to be mirrored": (
        PROGRAMS["reflected"][0], tf.RaggedTensor.from_row_lengths(tf.range(5.0), [3, 2]),
        "fewer elements than it is padded"),
    "more than there is": (
        lambda x: tf.math.top_k(x, tf.shape(x)[0] + 1).values, WAVES,
        "as many are taken as there are not"),
})  # fmt: skip
