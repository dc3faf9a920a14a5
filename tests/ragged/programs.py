"""Programs over variable-length rows, as users write them: a body, and its elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
"""name -> (the body, called with one row of each element, the elements)."""

_rng = np.random.default_rng(0)


def _normal(*shape: int) -> tf.Tensor:
    return tf.constant(_rng.normal(size=shape), tf.float32)


LENGTHS = tf.constant([3, 5, 1, 4, 2])
X = _normal(5, 5, 4)
ROWS = tf.RaggedTensor.from_tensor(X, LENGTHS)
IDS = tf.ragged.constant([[1, 4, 2], [3, 3, 0, 1, 2], [5], [0, 1, 4, 2], [2, 2]], dtype=tf.int32)
OTHER_IDS = tf.ragged.constant([[1, 4], [3, 0, 1, 2], [5], [0, 2], [2, 1, 2]], dtype=tf.int32)
VALUES = tf.RaggedTensor.from_row_splits(_normal(15), IDS.row_splits)
W, W2, W3 = _normal(4, 4), _normal(4, 4), _normal(4, 4)
KERNEL, WIDE = _normal(3, 4, 6), _normal(6, 4)
TABLE, PLACES = _normal(8, 4), _normal(16, 4)
BOXES = tf.constant(
    [[[y, x, y + 0.4, x + 0.3] for y, x in _rng.uniform(0, 0.6, (6, 2))] for _ in range(5)],
    tf.float32,
)
SCORES = tf.constant(_rng.uniform(size=(5, 6)), tf.float32)
IMAGES, SIZES = _normal(3, 8, 9, 3), tf.constant([[4, 5], [6, 3], [8, 9]])
WAVES, SAMPLES = _normal(4, 40), tf.constant([20, 40, 32, 25])
QUERIES = (_normal(5, 6, 4), tf.constant([2, 6, 3, 1, 4]))
NODES = _normal(3, 5, 4)
EDGES = tf.ragged.constant(
    [[[0, 1], [1, 2]], [[0, 2], [2, 1], [3, 0]], [[1, 1]]], ragged_rank=1, dtype=tf.int32
)
DOCUMENTS = tf.ragged.constant([[[1.0, 2.0], [3.0]], [], [[4.0], [5.0, 6.0]]])

_attention = tf.keras.layers.MultiHeadAttention(2, 4)
_norm = tf.keras.layers.LayerNormalization()
_up, _down = tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(4)
_embedding = tf.keras.layers.Embedding(8, 4)
_lstm, _gru = tf.keras.layers.LSTM(3), tf.keras.layers.GRU(3, return_sequences=True)
_both = tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(3))
_conv = tf.keras.layers.Conv1D(5, 3, padding="same")
_causal = tf.keras.layers.Conv1D(5, 3, padding="causal")
_largest = tf.keras.layers.GlobalMaxPooling1D()
for _layer in (_norm, _up, _lstm, _gru, _both, _conv, _causal):
    _layer(W[None])
_attention(W[None], W[None])
_down(_normal(1, 4, 8))
_embedding(tf.constant([[1]]))


def _over(*elements: Any) -> Callable[[Any], Any]:
    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[body.__name__] = (body, elements)
        return body

    return register


# The paper, and rows that are cut ----------------------------------------------


@_over(X, LENGTHS)
def example_1(x, k):
    return tf.nn.conv1d(x[:k][None], KERNEL, 1, "SAME")[0] @ WIDE


@_over(X, LENGTHS)
def mean_of_a_prefix(x, k):
    return tf.reduce_mean(x[:k], 0)


@_over(X, LENGTHS)
def last_ones(x, k):
    return x[-k:]


@_over(X, LENGTHS)
def window_that_is_clamped(x, k):
    return tf.reduce_mean(x[k - 1 : k + 2], 0)


@_over(X, LENGTHS)
def flattened(x, k):
    return tf.reshape(x[:k], [-1])


@_over(X, LENGTHS)
def pairs_of_neighbours(x, k):
    return tf.stack([x[:k, 0][:-1], x[:k, 0][1:]], 1)


@_over(X)
def mean_of_what_is_positive(x):
    return tf.reduce_mean(tf.boolean_mask(x, x[:, 0] > 0), 0)


@_over(X)
def partitioned(x):
    return tuple(tf.dynamic_partition(x[:, 0], tf.cast(x[:, 1] > 0, tf.int32), 2))


# Numbers whose count differs ---------------------------------------------------


@_over(LENGTHS)
def positions(k):
    return tf.cast(tf.range(k), tf.float32)[:, None] * TABLE[0]


@_over(LENGTHS)
def identity_matrix(k):
    return tf.eye(k)


@_over(LENGTHS)
def ones_and_more(k):
    return tf.zeros([k, 2]) + 1.0


@_over(LENGTHS)
def shape_of_a_draw(k):
    return tf.shape(tf.random.normal([k, 2]))


# Boxes and images ---------------------------------------------------------------


@_over(BOXES, SCORES)
def boxes_dropped(boxes, scores):
    return tf.boolean_mask(boxes, scores > 0.5)


@_over(BOXES, SCORES)
def boxes_suppressed(boxes, scores):
    return tf.gather(boxes, tf.image.non_max_suppression(boxes, scores, 4, 0.3))


@_over(BOXES, SCORES)
def boxes_suppressed_with_scores(boxes, scores):
    return tf.image.non_max_suppression_with_scores(boxes, scores, 4, 0.3, 0.2)[1]


@_over(BOXES, SCORES)
def boxes_matched(boxes, scores):
    kept, others = tf.boolean_mask(boxes, scores > 0.3), boxes[:2]
    low = tf.maximum(kept[:, None, :2], others[None, :, :2])
    high = tf.minimum(kept[:, None, 2:], others[None, :, 2:])
    both = tf.reduce_prod(tf.maximum(high - low, 0.0), -1)
    areas = [tf.reduce_prod(b[:, 2:] - b[:, :2], -1) for b in (kept, others)]
    overlap = both / (areas[0][:, None] + areas[1][None] - both)
    return tf.argmax(overlap, 1), tf.reduce_max(overlap, 1)


@_over(IMAGES, SIZES)
def crop_of_own_size(image, size):
    return image[: size[0], : size[1]]


@_over(IMAGES, SIZES)
def crop_resized(image, size):
    return tf.image.resize(image[: size[0], : size[1]], [4, 4])


@_over(IMAGES, SIZES)
def resized_to_own_size(image, size):
    return tf.image.resize(image, size)


# Sound --------------------------------------------------------------------------


@_over(WAVES)
def peaks(w):
    is_peak = (w[1:-1] > w[:-2]) & (w[1:-1] > w[2:])
    return tf.gather(w, tf.where(is_peak)[:, 0] + 1)


@_over(WAVES, SAMPLES)
def loudness(w, k):
    return tf.sqrt(tf.reduce_mean(w[:k] ** 2))


@_over(WAVES, SAMPLES)
def spectrogram(w, k):
    return tf.abs(tf.signal.stft(w[:k], 16, 8))


# Tokens -------------------------------------------------------------------------


@_over(IDS)
def bag_of_words(ids):
    return tf.math.bincount(ids, minlength=8, maxlength=8)


@_over(IDS)
def mean_embedding(ids):
    return tf.reduce_mean(tf.gather(TABLE, ids), 0)


@_over(IDS)
def term_frequencies(ids):
    terms, _, counts = tf.unique_with_counts(ids)
    return terms, tf.cast(counts, tf.float32) / tf.cast(tf.size(ids), tf.float32)


@_over(IDS, VALUES)
def means_by_key(keys, values):
    unique, places = tf.unique(keys)
    return tf.math.unsorted_segment_mean(values, places, tf.size(unique))


@_over(IDS, OTHER_IDS)
def share_of_common_words(a, b):
    is_common = tf.reduce_any(a[:, None] == b[None], 1)
    return tf.reduce_sum(tf.cast(is_common, tf.float32)) / tf.cast(tf.size(a), tf.float32)


@_over(IDS)
def encoder_of_text(ids):
    h = _embedding(ids) + PLACES[: tf.size(ids)]
    h = _norm(h + _attention(h[None], h[None])[0])
    return tf.reduce_mean(h, 0)


# Sequences ----------------------------------------------------------------------


@_over(X, LENGTHS)
def transformer_block(x, k):
    h = x[:k]
    h = _norm(h + _attention(h[None], h[None])[0])
    return _norm(h + _down(_up(h)))


@_over(X, LENGTHS)
def attention(x, k):
    r = x[:k]
    return tf.nn.softmax(tf.matmul(r @ W, r @ W2, transpose_b=True) / 2.0) @ (r @ W3)


@_over(X, LENGTHS, *QUERIES)
def cross_attention(x, k, y, m):
    q, r = x[:k], y[:m]
    return tf.nn.softmax(tf.matmul(q @ W, r @ W2, transpose_b=True)) @ (r @ W3)


@_over(X, LENGTHS)
def causal_attention(x, k):
    r = x[:k]
    scores = tf.matmul(r @ W, r @ W2, transpose_b=True)
    seen = tf.linalg.band_part(tf.ones([k, k]), -1, 0)
    return tf.nn.softmax(tf.where(seen > 0, scores, -1e9)) @ r


@_over(X, LENGTHS)
def lstm(x, k):
    return _lstm(x[:k][None])[0]


@_over(ROWS)
def gru_over_a_ragged_row(r):
    return _gru(r[None])[0]


@_over(X, LENGTHS)
def bidirectional(x, k):
    return _both(x[:k][None])[0]


@_over(X, LENGTHS)
def convolutional(x, k):
    return _largest(tf.nn.relu(_conv(x[:k][None])))[0]


@_over(X, LENGTHS)
def causal_convolution(x, k):
    return _causal(x[:k][None])[0]


@_over(X, LENGTHS)
def kalman_filter(x, k):
    made = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
    state, variance = 0.0, 1.0
    for t in tf.range(k):
        variance = variance + 0.1
        gain = variance / (variance + 0.5)
        state = state + gain * (x[t, 0] - state)
        variance = (1.0 - gain) * variance
        made = made.write(t, state)
    return made.stack()


@_over(ROWS)
def exponential_average(r):
    return tf.scan(lambda a, b: a * 0.9 + b, r)


@_over(ROWS)
def energy_of_each_step(r):
    return tf.map_fn(lambda b: tf.reduce_sum(b * b), r)


@_over(ROWS)
def discounted_sum(r):
    return tf.foldl(lambda a, b: a * 0.5 + b, r, tf.zeros(4))


@_over(ROWS)
def sorted_by_the_first(r):
    return tf.gather(r, tf.argsort(r[:, 0]))


@_over(ROWS)
def median(r):
    return tf.sort(r[:, 0])[tf.shape(r)[0] // 2]


@_over(ROWS)
def backwards(r):
    return tf.reverse(r, [0])


@_over(ROWS)
def with_begin_and_end(r):
    return tf.concat([PLACES[:1], r, PLACES[1:2]], 0)


@_over(ROWS)
def padded_to_five(r):
    return tf.pad(r, [[0, 5 - tf.shape(r)[0]], [0, 0]])


# Statistics and graphs ----------------------------------------------------------


@_over(X, LENGTHS)
def ridge_regression(x, k):
    a, y = x[:k, :2], x[:k, 2:3]
    gram = tf.matmul(a, a, transpose_a=True) + tf.eye(2)
    return tf.linalg.solve(gram, tf.matmul(a, y, transpose_a=True))


@_over(X, LENGTHS)
def least_squares(x, k):
    return tf.linalg.lstsq(x[:k, :2], x[:k, 2:3], l2_regularizer=0.1)


@_over(X, LENGTHS)
def covariance(x, k):
    r = x[:k] - tf.reduce_mean(x[:k], 0)
    return tf.matmul(r, r, transpose_a=True) / tf.cast(k, tf.float32)


@_over(X, LENGTHS)
def gaussian_process(x, k):
    r = x[:k]
    kernel = tf.exp(-tf.reduce_sum((r[:, None] - r[None]) ** 2, -1)) + 0.1 * tf.eye(k)
    root = tf.linalg.cholesky(kernel)
    weights = tf.linalg.cholesky_solve(root, r[:, :1])
    fit = tf.reduce_sum(r[:, :1] * weights)
    return fit + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))


@_over(ROWS)
def distances(r):
    return tf.norm(r[:, None] - r[None] + 1e-3, axis=-1)


@_over(ROWS)
def moments(r):
    return tuple(tf.nn.moments(r, [0]))


@_over(NODES, EDGES)
def graph_convolution(nodes, edges):
    sent = tf.gather(nodes, edges[:, 0]) @ W
    return tf.nn.relu(tf.math.unsorted_segment_sum(sent, edges[:, 1], 5) + nodes)


# RaggedTensors in the body ------------------------------------------------------


@_over(DOCUMENTS)
def sums_of_sentences(d):
    return tf.reduce_sum(d, axis=1)


@_over(DOCUMENTS)
def words_in_sentences(d):
    return d.row_lengths()


# Branches ---------------------------------------------------------------------


@_over(X, LENGTHS)
def branches_of_other_shapes(x, k):
    return tf.cond(k > 2, lambda: x[:2], lambda: x[:3])


@_over(X, LENGTHS)
def branches_of_own_length(x, k):
    return tf.cond(k > 2, lambda: x[:k], lambda: 2.0 * x[:k])


# What runs in a loop ------------------------------------------------------------


@_over(LENGTHS)
def numbers_between(k):
    return tf.linspace(0.0, 1.0, k)


@_over(LENGTHS)
def reproducible_draw(k):
    return tf.random.stateless_normal([k], [1, 2])
