"""Programs over variable-length rows, as users write them, against a loop."""

import numpy as np
import tensorflow as tf

from tests.ways import table_of

_rng = np.random.default_rng(0)


def _normal(*shape):
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
CORNERS = [[[y, x, y + 0.4, x + 0.3] for y, x in _rng.uniform(0, 0.6, (6, 2))] for _ in range(5)]
BOXES = (tf.constant(CORNERS, tf.float32), tf.constant(_rng.uniform(size=(5, 6)), tf.float32))
IMAGES = (_normal(3, 8, 9, 3), tf.constant([[4, 5], [6, 3], [8, 9]]))
WAVES, SAMPLES = _normal(4, 40), tf.constant([20, 40, 32, 25])
QUERIES = (_normal(5, 6, 4), tf.constant([2, 6, 3, 1, 4]))
NODES = _normal(3, 5, 4)
EDGES = tf.ragged.constant(
    [[[0, 1], [1, 2]], [[0, 2], [2, 1], [3, 0]], [[1, 1]]], ragged_rank=1, dtype=tf.int32
)
DOCUMENTS = tf.ragged.constant([[[1.0, 2.0], [3.0]], [], [[4.0], [5.0, 6.0]]])

L, image = tf.keras.layers, tf.image
_attention, _norm = L.MultiHeadAttention(2, 4), L.LayerNormalization()
_up, _down, _embedding = L.Dense(8, activation="relu"), L.Dense(4), L.Embedding(8, 4)
_lstm, _gru = L.LSTM(3), L.GRU(3, return_sequences=True)
_both, _largest = L.Bidirectional(L.LSTM(3)), L.GlobalMaxPooling1D()
_conv, _causal = L.Conv1D(5, 3, padding="same"), L.Conv1D(5, 3, padding="causal")
for _layer in (_norm, _up, _lstm, _gru, _both, _conv, _causal):
    _layer(W[None])
_attention(W[None], W[None])
_down(_normal(1, 4, 8))
_embedding(tf.constant([[1]]))


def boxes_matched(boxes, scores):
    kept, others = tf.boolean_mask(boxes, scores > 0.3), boxes[:2]
    low = tf.maximum(kept[:, None, :2], others[None, :, :2])
    high = tf.minimum(kept[:, None, 2:], others[None, :, 2:])
    both = tf.reduce_prod(tf.maximum(high - low, 0.0), -1)
    areas = [tf.reduce_prod(b[:, 2:] - b[:, :2], -1) for b in (kept, others)]
    overlap = both / (areas[0][:, None] + areas[1][None] - both)
    return tf.argmax(overlap, 1), tf.reduce_max(overlap, 1)


def peaks(w):
    is_peak = (w[1:-1] > w[:-2]) & (w[1:-1] > w[2:])
    return tf.gather(w, tf.where(is_peak)[:, 0] + 1)


def term_frequencies(ids):
    terms, _, counts = tf.unique_with_counts(ids)
    return terms, tf.cast(counts, tf.float32) / tf.cast(tf.size(ids), tf.float32)


def means_by_key(keys, values):
    unique, places = tf.unique(keys)
    return tf.math.unsorted_segment_mean(values, places, tf.size(unique))


def share_of_common_words(a, b):
    is_common = tf.reduce_any(a[:, None] == b[None], 1)
    return tf.reduce_sum(tf.cast(is_common, tf.float32)) / tf.cast(tf.size(a), tf.float32)


def encoder(h):
    return _norm(h + _attention(h[None], h[None])[0])


def transformer_block(x, k):
    h = encoder(x[:k])
    return _norm(h + _down(_up(h)))


def attention(q, r):
    return tf.nn.softmax(tf.matmul(q @ W, r @ W2, transpose_b=True) / 2.0) @ (r @ W3)


def causal_attention(x, k):
    r = x[:k]
    scores = tf.matmul(r @ W, r @ W2, transpose_b=True)
    seen = tf.linalg.band_part(tf.ones([k, k]), -1, 0)
    return tf.nn.softmax(tf.where(seen > 0, scores, -1e9)) @ r


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


def ridge_regression(x, k):
    a, y = x[:k, :2], x[:k, 2:3]
    gram = tf.matmul(a, a, transpose_a=True) + tf.eye(2)
    return tf.linalg.solve(gram, tf.matmul(a, y, transpose_a=True))


def covariance(x, k):
    r = x[:k] - tf.reduce_mean(x[:k], 0)
    return tf.matmul(r, r, transpose_a=True) / tf.cast(k, tf.float32)


def gaussian_process(x, k):
    r = x[:k]
    kernel = tf.exp(-tf.reduce_sum((r[:, None] - r[None]) ** 2, -1)) + 0.1 * tf.eye(k)
    root = tf.linalg.cholesky(kernel)
    fit = tf.reduce_sum(r[:, :1] * tf.linalg.cholesky_solve(root, r[:, :1]))
    return fit + tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)))


def graph_convolution(nodes, edges):
    sent = tf.gather(nodes, edges[:, 0]) @ W
    return tf.nn.relu(tf.math.unsorted_segment_sum(sent, edges[:, 1], 5) + nodes)


OF_PREFIXES = {
    "example_1": lambda x, k: tf.nn.conv1d(x[:k][None], KERNEL, 1, "SAME")[0] @ WIDE,  # the paper's
    "mean_of_a_prefix": lambda x, k: tf.reduce_mean(x[:k], 0),
    "last_ones": lambda x, k: x[-k:],
    "window_that_is_clamped": lambda x, k: tf.reduce_mean(x[k - 1 : k + 2], 0),
    "flattened": lambda x, k: tf.reshape(x[:k], [-1]),
    "pairs_of_neighbours": lambda x, k: tf.stack([x[:k, 0][:-1], x[:k, 0][1:]], 1),
    "transformer_block": transformer_block,
    "attention": lambda x, k: attention(x[:k], x[:k]),
    "causal_attention": causal_attention,
    "lstm": lambda x, k: _lstm(x[:k][None])[0],
    "bidirectional": lambda x, k: _both(x[:k][None])[0],
    "convolutional": lambda x, k: _largest(tf.nn.relu(_conv(x[:k][None])))[0],
    "causal_convolution": lambda x, k: _causal(x[:k][None])[0],
    "kalman_filter": kalman_filter,
    "ridge_regression": ridge_regression,
    "least_squares": lambda x, k: tf.linalg.lstsq(x[:k, :2], x[:k, 2:3], l2_regularizer=0.1),
    "covariance": covariance,
    "gaussian_process": gaussian_process,
    "branches_of_other_shapes": lambda x, k: tf.cond(k > 2, lambda: x[:2], lambda: x[:3]),
    "branches_of_own_length": lambda x, k: tf.cond(k > 2, lambda: x[:k], lambda: 2.0 * x[:k]),
}
OF_ROWS = {
    "gru_over_a_ragged_row": lambda r: _gru(r[None])[0],
    "exponential_average": lambda r: tf.scan(lambda a, b: a * 0.9 + b, r),
    "energy_of_each_step": lambda r: tf.map_fn(lambda b: tf.reduce_sum(b * b), r),
    "discounted_sum": lambda r: tf.foldl(lambda a, b: a * 0.5 + b, r, tf.zeros(4)),
    "sorted_by_the_first": lambda r: tf.gather(r, tf.argsort(r[:, 0])),
    "median": lambda r: tf.sort(r[:, 0])[tf.shape(r)[0] // 2],
    "backwards": lambda r: tf.reverse(r, [0]),
    "with_begin_and_end": lambda r: tf.concat([PLACES[:1], r, PLACES[1:2]], 0),
    "padded_to_five": lambda r: tf.pad(r, [[0, 5 - tf.shape(r)[0]], [0, 0]]),
    "distances": lambda r: tf.norm(r[:, None] - r[None] + 1e-3, axis=-1),
    "moments": lambda r: tuple(tf.nn.moments(r, [0])),
}
OF_LENGTHS = {
    "positions": lambda k: tf.cast(tf.range(k), tf.float32)[:, None] * TABLE[0],
    "identity_matrix": tf.eye,
    "ones_and_more": lambda k: tf.zeros([k, 2]) + 1.0,
    "shape_of_a_draw": lambda k: tf.shape(tf.random.normal([k, 2])),
    "numbers_between": lambda k: tf.linspace(0.0, 1.0, k),
    "reproducible_draw": lambda k: tf.random.stateless_normal([k], [1, 2]),
}
OTHERS = {
    "mean_of_what_is_positive": (
        lambda x: tf.reduce_mean(tf.boolean_mask(x, x[:, 0] > 0), 0), X),
    "partitioned": (
        lambda x: tuple(tf.dynamic_partition(x[:, 0], tf.cast(x[:, 1] > 0, tf.int32), 2)), X),
    "boxes_dropped": (lambda b, scores: tf.boolean_mask(b, scores > 0.5), BOXES),
    "boxes_suppressed": (
        lambda b, scores: tf.gather(b, image.non_max_suppression(b, scores, 4, 0.3)), BOXES),
    "boxes_suppressed_with_scores": (
        lambda b, scores: image.non_max_suppression_with_scores(b, scores, 4, 0.3, 0.2)[1], BOXES),
    "boxes_matched": (boxes_matched, BOXES),
    "crop_of_own_size": (lambda x, size: x[: size[0], : size[1]], IMAGES),
    "crop_resized": (lambda x, size: image.resize(x[: size[0], : size[1]], [4, 4]), IMAGES),
    "resized_to_own_size": (image.resize, IMAGES),
    "peaks": (peaks, WAVES),
    "loudness": (lambda w, k: tf.sqrt(tf.reduce_mean(w[:k] ** 2)), (WAVES, SAMPLES)),
    "spectrogram": (lambda w, k: tf.abs(tf.signal.stft(w[:k], 16, 8)), (WAVES, SAMPLES)),
    "bag_of_words": (lambda ids: tf.math.bincount(ids, minlength=8, maxlength=8), IDS),
    "mean_embedding": (lambda ids: tf.reduce_mean(tf.gather(TABLE, ids), 0), IDS),
    "term_frequencies": (term_frequencies, IDS),
    "means_by_key": (means_by_key, (IDS, VALUES)),
    "share_of_common_words": (share_of_common_words, (IDS, OTHER_IDS)),
    "encoder_of_text": (
        lambda ids: tf.reduce_mean(encoder(_embedding(ids) + PLACES[: tf.size(ids)]), 0), IDS),
    "cross_attention": (lambda x, k, y, m: attention(x[:k], y[:m]), (X, LENGTHS, *QUERIES)),
    "graph_convolution": (graph_convolution, (NODES, EDGES)),
    "sums_of_sentences": (lambda d: tf.reduce_sum(d, axis=1), DOCUMENTS),
    "words_in_sentences": (lambda d: d.row_lengths(), DOCUMENTS),
}  # fmt: skip
PROGRAMS = {
    **{name: (body, (X, LENGTHS)) for name, body in OF_PREFIXES.items()},
    **{name: (body, ROWS) for name, body in OF_ROWS.items()},
    **{name: (body, LENGTHS) for name, body in OF_LENGTHS.items()},
    **OTHERS,
}
test_table_of_programs = table_of(PROGRAMS, ways=["eager", "function"], tolerance=(2e-4, 2e-5))
