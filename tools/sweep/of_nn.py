"""Sweep of tf.nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, body, call, each, floats, integers, positive

_MAP = floats(1, 6, 6, 2)
_SIGNAL = floats(1, 8, 2)
_LABELS = integers(2, 3, low=1, high=4)


def _sampled(loss: Any, **options: Any) -> Callable[..., Any]:
    def fn(x: Any, y: Any) -> Any:
        drawn = (tf.constant([1, 2, 3], tf.int64), tf.ones([2, 1]), tf.ones([3]))
        weights, biases = tf.reshape(tf.cos(tf.range(36.0)), [9, 4]), tf.zeros([9])
        return loss(weights, biases, y, x, 3, 9, sampled_values=drawn, **options)

    return fn


def _bags(combiner: str) -> Callable[..., Any]:
    table = tf.reshape(tf.sin(tf.range(12.0)), [6, 2])

    def fn(ids: Any, weights: Any) -> Any:
        at = tf.constant([[0, 0], [0, 1], [1, 0]], tf.int64)
        return tf.nn.embedding_lookup_sparse(
            table,
            tf.SparseTensor(at, ids, [2, 2]),
            tf.SparseTensor(at, weights, [2, 2]),
            combiner=combiner,
        )

    return fn


NN: list[Case] = [
    *each("tf.nn",
        "relu relu6 elu selu gelu silu swish leaky_relu crelu softplus softsign tanh "
        "sigmoid softmax log_softmax l2_loss l2_normalize", floats(4)),
    call("tf.nn.conv1d", _SIGNAL, floats(3, 2, 2), 1, "SAME"),
    call("tf.nn.conv2d", _MAP, floats(3, 3, 2, 2), 1, "SAME"),
    call("tf.nn.conv3d", floats(1, 3, 3, 3, 1), floats(2, 2, 2, 1, 1), [1] * 5, "SAME"),
    call("tf.nn.conv1d_transpose", _SIGNAL, floats(3, 2, 2), [1, 16, 2], 2),
    call("tf.nn.conv2d_transpose", _MAP, floats(3, 3, 2, 2), [1, 12, 12, 2], 2),
    call("tf.nn.conv3d_transpose", floats(1, 2, 2, 2, 1), floats(2, 2, 2, 1, 1), [1, 4, 4, 4, 1],
        2),
    call("tf.nn.atrous_conv2d", _MAP, floats(2, 2, 2, 2), 2, "SAME"),
    call("tf.nn.depthwise_conv2d", _MAP, floats(3, 3, 2, 1), [1] * 4, "SAME"),
    call("tf.nn.separable_conv2d", _MAP, floats(3, 3, 2, 1), floats(1, 1, 2, 3), [1] * 4, "SAME"),
    call("tf.nn.dilation2d", _MAP, floats(2, 2, 2), [1] * 4, "SAME", "NHWC", [1] * 4),
    call("tf.nn.erosion2d", _MAP, floats(2, 2, 2), [1] * 4, "SAME", "NHWC", [1] * 4),
    *each("tf.nn", "avg_pool max_pool avg_pool2d max_pool2d max_pool_with_argmax", _MAP, 2, 2,
        "VALID"),
    *each("tf.nn", "avg_pool1d max_pool1d", _SIGNAL, 2, 2, "VALID"),
    *each("tf.nn", "avg_pool3d max_pool3d", floats(1, 4, 4, 4, 1), 2, 2, "VALID"),
    call("tf.nn.pool", _MAP, [2, 2], "MAX"),
    *each("tf.nn", "fractional_avg_pool fractional_max_pool", _MAP, [1.0, 1.4, 1.4, 1.0], seed=3),
    call("tf.nn.batch_normalization", floats(2, 4), floats(4), positive(4), floats(4), floats(4),
        1e-3),
    call("tf.nn.moments", floats(3, 4), [0]),
    call("tf.nn.sufficient_statistics", floats(3, 4), [0]),
    call("tf.nn.weighted_moments", floats(3, 4), [0], positive(3, 1)),
    call("tf.nn.normalize_moments", 3.0, floats(4), positive(4), None),
    call("tf.nn.bias_add", floats(2, 3), floats(3)),
    call("tf.nn.scale_regularization_loss", floats()),
    call("tf.nn.depth_to_space", floats(1, 2, 2, 4), 2),
    call("tf.nn.space_to_depth", floats(1, 4, 4, 1), 2),
    call("tf.nn.space_to_batch", floats(1, 4, 4, 1), [2, 2], [[0, 0], [0, 0]]),
    call("tf.nn.local_response_normalization", _MAP),
    call("tf.nn.with_space_to_batch", _MAP, [2, 2], "VALID", lambda x, *_: tf.nn.relu(x),
        filter_shape=[1, 1]),
    call("tf.nn.embedding_lookup", tf.reshape(tf.range(12.0), [6, 2]), integers(3)),
    call("tf.nn.embedding_lookup", tf.reshape(tf.range(12.0), [6, 2]), integers(3), max_norm=1.0,
        label="max norm"),
    *[body("tf.nn.embedding_lookup_sparse", _bags(k), integers(3, dtype=np.int64), positive(3),
        label=k) for k in ("sum", "mean", "sqrtn")],
    call("tf.nn.safe_embedding_lookup_sparse", tf.reshape(tf.range(12.0), [6, 2]),
        tf.sparse.from_dense([[1, 2], [0, 3]]), label="shared"),
    body("tf.nn.safe_embedding_lookup_sparse",
        lambda ids: tf.nn.safe_embedding_lookup_sparse(tf.reshape(tf.range(12.0), [6, 2]),
        tf.SparseTensor(tf.constant([[0, 0], [2, 1]], tf.int64), ids, [3, 2])),
        integers(2, low=-1, dtype=np.int64), label="ids of the row"),
    call("tf.nn.dropout", floats(4), 0.5, random=True),
    call("tf.nn.experimental.stateless_dropout", floats(4), 0.5, integers(2)),
    call("tf.nn.experimental.general_dropout", floats(4), 0.5,
        lambda shape, dtype: tf.ones(shape, dtype) * 0.7),
    call("tf.nn.in_top_k", integers(3), floats(3, 5), 2),
    call("tf.nn.isotonic_regression", floats(5)),
    call("tf.nn.isotonic_regression", floats(2, 5), decreasing=False, label="increasing"),
    call("tf.nn.top_k", floats(5), 2),
    call("tf.nn.zero_fraction", integers(4)),
    call("tf.nn.softmax_cross_entropy_with_logits", positive(2, 4), floats(2, 4)),
    call("tf.nn.sparse_softmax_cross_entropy_with_logits", integers(2, high=4), floats(2, 4)),
    call("tf.nn.sigmoid_cross_entropy_with_logits", positive(4), floats(4)),
    call("tf.nn.weighted_cross_entropy_with_logits", positive(4), floats(4), positive()),
    call("tf.nn.log_poisson_loss", positive(4), floats(4)),
    call("tf.nn.compute_average_loss", floats(4), global_batch_size=4),
    body("tf.nn.sampled_softmax_loss",
        _sampled(tf.nn.sampled_softmax_loss, remove_accidental_hits=False), floats(2, 4),
        integers(2, 1, dtype=np.int64)),
    body("tf.nn.sampled_softmax_loss", _sampled(tf.nn.sampled_softmax_loss), floats(2, 4),
        integers(2, 1, dtype=np.int64), label="accidental hits"),
    body("tf.nn.nce_loss", _sampled(tf.nn.nce_loss), floats(2, 4), integers(2, 1, dtype=np.int64)),
    body("tf.nn.nce_loss", lambda x, y: tf.nn.nce_loss(tf.ones([9, 4]), tf.zeros([9]), y, x, 3, 9),
        floats(2, 4), integers(2, 1, dtype=np.int64), label="drawn", random=True),
    call("tf.nn.compute_accidental_hits", integers(2, 1, dtype=np.int64),
        tf.constant([1, 2, 3], tf.int64), 1),
    call("tf.nn.ctc_loss", _LABELS, floats(6, 2, 5), [3, 3], [6, 6], blank_index=0),
    call("tf.nn.ctc_loss", _LABELS, floats(6, 2, 5), integers(2, low=1, high=4),
        integers(2, low=5, high=7), blank_index=0, label="lengths of the row"),
    body("tf.nn.ctc_loss",
        lambda v, x: tf.nn.ctc_loss(tf.SparseTensor(tf.constant([[0, 0], [1, 0]], tf.int64), v,
        [2, 2]), x, None, [6, 6], blank_index=-1), integers(2, low=0, high=4), floats(6, 2, 5),
        label="sparse labels"),
    call("tf.nn.ctc_greedy_decoder", floats(6, 2, 5), [6, 6]),
    call("tf.nn.ctc_beam_search_decoder", floats(6, 2, 5), [6, 6]),
    call("tf.nn.ctc_unique_labels", _LABELS),
    call("tf.nn.collapse_repeated", _LABELS, [3, 3]),
    call("tf.compat.v1.nn.batch_norm_with_global_normalization", _MAP, floats(2), positive(2),
        floats(2), floats(2), 1e-3, True),
    call("tf.compat.v1.nn.quantized_relu_x", tf.constant([[1, 2]], tf.quint8), 2.0, 0.0, 5.0,
        label="shared"),
]  # fmt: skip
