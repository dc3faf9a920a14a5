"""Sweep of tf.compat.v1, where it is another function than in TensorFlow 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, Rows, body, bools, call, each, floats, integers, positive, words

V1 = "tf.compat.v1"
v1 = tf.compat.v1
_MAP, _IMAGE = floats(1, 6, 6, 2), positive(1, 6, 6, 3)
_WORDS = Rows([["a b", "c"], ["D e f", ""], ["x", "yy  z"]])


def _sparse(values: Any) -> tf.SparseTensor:
    return tf.SparseTensor(tf.constant([[0, 1], [1, 0], [2, 3]], tf.int64), values, [3, 4])


V1_CASES: list[Case] = [
    *each(V1,
        "reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_logsumexp argmax argmin "
        "arg_max arg_min", floats(3, 4), 0),
    *each(V1, "reduce_all reduce_any", bools(3, 4), axis=1),
    *each(V1,
        "count_nonzero ones_like zeros_like shape size squeeze transpose norm to_double to_float "
        "to_int32 to_int64 to_bfloat16 to_complex64", floats(1, 4)),
    call(f"{V1}.where", bools(4), floats(4), floats(4)),
    *each(V1, "div floor_div", positive(3), positive(3)),
    call(f"{V1}.expand_dims", floats(3), 0),
    call(f"{V1}.boolean_mask", floats(5, 2), bools(5)),
    call(f"{V1}.gather", floats(5, 2), integers(3)),
    call(f"{V1}.gather_nd", floats(5, 5), integers(3, 2)),
    call(f"{V1}.batch_gather", floats(2, 5), integers(2, 3)),
    call(f"{V1}.pad", floats(3, 2), [[1, 2], [0, 1]]),
    call(f"{V1}.reverse_sequence", floats(2, 4), integers(2, low=1, high=4), 1, 0),
    call(f"{V1}.scalar_mul", floats(), floats(4)),
    call(f"{V1}.saturate_cast", floats(4), tf.int8),
    call(f"{V1}.depth_to_space", floats(1, 2, 2, 4), 2),
    call(f"{V1}.space_to_depth", floats(1, 4, 4, 1), 2),
    *each(V1, "space_to_batch", floats(1, 4, 4, 1), [[0, 0], [0, 0]], 2),
    call(f"{V1}.space_to_batch_nd", floats(1, 4, 4, 1), [2, 2], [[0, 0], [0, 0]]),
    call(f"{V1}.batch_to_space", floats(4, 2, 2, 1), [[0, 0], [0, 0]], 2),
    call(f"{V1}.batch_to_space_nd", floats(4, 2, 2, 1), [2, 2], [[0, 0], [0, 0]]),
    call(f"{V1}.confusion_matrix", integers(6), integers(6), 5),
    call(f"{V1}.bincount", integers(6), minlength=5, maxlength=5),
    call(f"{V1}.clip_by_average_norm", floats(4), 0.5),
    call("tf.realdiv", floats(3), positive(3)),
    *each(V1, "is_non_decreasing is_strictly_increasing", integers(3)),
    call(f"{V1}.multinomial", floats(1, 4), 3, random=True),
    call(f"{V1}.random_poisson", positive(2), [3], random=True),
    call(f"{V1}.substr", _WORDS, 0, 1),
    call(f"{V1}.reduce_join", _WORDS, 0),
    call(f"{V1}.string_split", _WORDS, " "),
    call(f"{V1}.string_to_hash_bucket", _WORDS, 97),
    call(f"{V1}.string_to_number", Rows([["1"], ["2"], ["3"]])),
    call(f"{V1}.strings.length", _WORDS),
    call(f"{V1}.strings.split", _WORDS, result_type="RaggedTensor"),
    call(f"{V1}.decode_raw", Rows([[b"abcd"], [b"efgh"], [b"ijkl"]]), tf.uint8),
    call(f"{V1}.decode_csv", Rows(["1,a", "2,b", "3,"]), [[0], [""]]),
    call(f"{V1}.verify_tensor_all_finite", floats(3), "finite"),
    *each(V1, "foldl foldr scan", lambda a, x: a + x, floats(3)),
    call(f"{V1}.map_fn", lambda x: x * 2.0, floats(3)),
    body(f"{V1}.cond", lambda x: v1.cond(x > 0, lambda: x, lambda: -x), floats()),
    body(f"{V1}.case", lambda x: v1.case([(x > 0, lambda: x)], lambda: -x), floats()),
    body(f"{V1}.while_loop", lambda x: v1.while_loop(lambda v: v < 3.0, lambda v: v + 1.0, [x]),
        floats()),
    # Sparse tensors.
    *[body(f"{V1}.{k}", lambda v, k=k, a=a: getattr(v1, k)(_sparse(v), *a), floats(3))
        for k, a in (("sparse_reduce_max", (1,)), ("sparse_reduce_max_sparse", (1,)),
        ("sparse_reduce_sum", (1,)), ("sparse_reduce_sum_sparse", (1,)))],
    body(f"{V1}.sparse_add", lambda v: v1.sparse_add(_sparse(v), _sparse(v)), floats(3)),
    body(f"{V1}.sparse_concat", lambda v: v1.sparse_concat(1, [_sparse(v), _sparse(v)]), floats(3)),
    body(f"{V1}.sparse_split", lambda v: v1.sparse_split(sp_input=_sparse(v), num_split=2, axis=1),
        floats(3)),
    *[call(f"{V1}.sparse_segment_{k}", floats(5, 2), integers(3), [0, 0, 1])
        for k in ("sum", "mean", "sqrt_n")],
    call(f"{V1}.sparse_to_dense", [1, 3], [5], floats(2)),
    call(f"{V1}.sparse_matmul", floats(2, 3), floats(3, 2)),
    # Images.
    *[call(f"{V1}.image.{k}", _IMAGE, [4, 4])
        for k in
        words("resize resize_area resize_bicubic resize_bilinear resize_nearest_neighbor")],
    call(f"{V1}.image.resize_image_with_pad", _IMAGE, 4, 5),
    call(f"{V1}.image.crop_and_resize", _IMAGE, positive(2, 4), [0, 0], [3, 3]),
    call(f"{V1}.image.draw_bounding_boxes", _IMAGE, positive(1, 2, 4)),
    call(f"{V1}.image.extract_glimpse", _IMAGE, [3, 3], floats(1, 2), random=True),
    call(f"{V1}.extract_image_patches", _IMAGE, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
    call(f"{V1}.image.sample_distorted_bounding_box", [6, 6, 3],
        positive(1, 1, 4, low=0.0, high=0.3), min_object_covered=0.1, random=True),
    # Networks.
    *each(f"{V1}.nn", "softmax log_softmax", floats(2, 4)),
    call(f"{V1}.nn.moments", floats(3, 4), [0]),
    call(f"{V1}.nn.weighted_moments", floats(3, 4), [0], positive(3, 1)),
    call(f"{V1}.nn.sufficient_statistics", floats(3, 4), [0]),
    *each(f"{V1}.nn", "avg_pool max_pool", _MAP, [1, 2, 2, 1], [1, 2, 2, 1], "VALID"),
    call(f"{V1}.nn.pool", _MAP, [2, 2], "MAX", "VALID"),
    call(f"{V1}.nn.max_pool_with_argmax", _MAP, [1, 2, 2, 1], [1, 2, 2, 1], "VALID"),
    *each(f"{V1}.nn", "fractional_avg_pool fractional_max_pool", _MAP, [1.0, 1.4, 1.4, 1.0], seed=3,
        seed2=5, deterministic=True),
    call(f"{V1}.nn.conv1d", floats(1, 8, 2), floats(3, 2, 2), 1, "SAME"),
    call(f"{V1}.nn.conv2d", _MAP, floats(3, 3, 2, 2), [1] * 4, "SAME"),
    call(f"{V1}.nn.conv2d_transpose", _MAP, floats(3, 3, 2, 2), [1, 12, 12, 2], [1, 2, 2, 1]),
    call(f"{V1}.nn.conv3d", floats(1, 3, 3, 3, 1), floats(2, 2, 2, 1, 1), [1] * 5, "SAME"),
    call(f"{V1}.nn.conv3d_transpose", floats(1, 2, 2, 2, 1), floats(2, 2, 2, 1, 1), [1, 4, 4, 4, 1],
        [1, 2, 2, 2, 1]),
    call(f"{V1}.nn.convolution", _MAP, floats(3, 3, 2, 2), "SAME"),
    call(f"{V1}.nn.conv2d_backprop_filter", _MAP, [3, 3, 2, 2], floats(1, 6, 6, 2), [1] * 4,
        "SAME"),
    call(f"{V1}.nn.conv2d_backprop_input", [1, 6, 6, 2], floats(3, 3, 2, 2), _MAP, [1] * 4, "SAME"),
    call(f"{V1}.nn.depthwise_conv2d", _MAP, floats(3, 3, 2, 1), [1] * 4, "SAME"),
    call(f"{V1}.nn.depthwise_conv2d_native", _MAP, floats(3, 3, 2, 1), [1] * 4, "SAME"),
    call(f"{V1}.nn.separable_conv2d", _MAP, floats(3, 3, 2, 1), floats(1, 1, 2, 3), [1] * 4,
        "SAME"),
    *each(f"{V1}.nn", "dilation2d erosion2d", _MAP, floats(2, 2, 2), [1] * 4, [1] * 4, "SAME"),
    call(f"{V1}.nn.dropout", floats(4), 0.5, random=True),
    call(f"{V1}.nn.embedding_lookup", tf.reshape(tf.range(12.0), [6, 2]), integers(3)),
    body(f"{V1}.nn.embedding_lookup_sparse",
        lambda v: v1.nn.embedding_lookup_sparse(tf.reshape(tf.range(12.0), [6, 2]), _sparse(v),
        None, combiner="mean"), integers(3, dtype=np.int64)),
    call(f"{V1}.nn.in_top_k", floats(3, 5), integers(3), 2),
    call(f"{V1}.nn.softmax_cross_entropy_with_logits", labels=positive(2, 4), logits=floats(2, 4)),
    call(f"{V1}.nn.softmax_cross_entropy_with_logits_v2", positive(2, 4), floats(2, 4)),
    call(f"{V1}.nn.sparse_softmax_cross_entropy_with_logits", labels=integers(2, high=4),
        logits=floats(2, 4)),
    call(f"{V1}.nn.sigmoid_cross_entropy_with_logits", labels=positive(4), logits=floats(4)),
    call(f"{V1}.nn.weighted_cross_entropy_with_logits", positive(4), floats(4), positive()),
    *each(f"{V1}.nn", "xw_plus_b relu_layer", floats(2, 3), floats(3, 4), floats(4)),
    body(f"{V1}.nn.ctc_loss",
        lambda v, x: v1.nn.ctc_loss(tf.SparseTensor(tf.constant([[0, 0], [1, 0]], tf.int64), v,
        [2, 2]), x, [6, 6]), integers(2, high=4), floats(6, 2, 5)),
    call(f"{V1}.nn.ctc_loss_v2", integers(2, 3, low=1, high=4), floats(6, 2, 5), [3, 3], [6, 6],
        blank_index=0),
    call(f"{V1}.nn.ctc_beam_search_decoder", floats(6, 2, 5), [6, 6]),
    call(f"{V1}.math.log_softmax", floats(2, 4)),
    # Losses, schedules.
    *[call(f"{V1}.losses.{k}", positive(2, 4), positive(2, 4))
        for k in
        words("absolute_difference hinge_loss huber_loss log_loss mean_pairwise_squared_error "
        "mean_squared_error sigmoid_cross_entropy softmax_cross_entropy")],
    call(f"{V1}.losses.cosine_distance", positive(2, 4), positive(2, 4), axis=1),
    call(f"{V1}.losses.compute_weighted_loss", positive(4), positive(4)),
    call(f"{V1}.losses.sparse_softmax_cross_entropy", integers(2, high=4), floats(2, 4)),
    *[body(f"{V1}.train.{k}", lambda s, k=k, a=a: _now(getattr(v1.train, k)(0.1, s, *a)),
        integers()) for k, a in (("exponential_decay", (3, 0.5)), ("inverse_time_decay", (3, 0.5)),
        ("natural_exp_decay", (3, 0.5)), ("polynomial_decay", (3,)), ("cosine_decay", (7,)),
        ("cosine_decay_restarts", (3,)), ("linear_cosine_decay", (7,)))],
    body(f"{V1}.train.piecewise_constant",
        lambda s: _now(v1.train.piecewise_constant(s, [1, 3], [0.1, 0.2, 0.3])), integers()),
]  # fmt: skip


def _now(rate: Any) -> Any:
    return rate() if callable(rate) else rate
