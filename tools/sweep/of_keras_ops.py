"""Sweep of tf.keras.ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import (
    Case,
    ascending,
    body,
    bools,
    call,
    each,
    floats,
    integers,
    positive,
    spd,
)

OPS = "tf.keras.ops"
_ops = tf.keras.ops
_IMAGE = positive(1, 6, 6, 2)

_OF_ONE = (
    "abs absolute angle arccos arcsin arcsinh arctan arctanh array cbrt ceil celu "
    "conj conjugate copy cos cosh deg2rad diag diagflat elu empty_like erf erfc erfinv exp exp2 "
    "expm1 fabs flip floor gelu glu hard_shrink hard_sigmoid hard_silu hard_swish "
    "hard_tanh i0 imag isfinite isinf isnan isneginf isposinf isreal leaky_relu log log10 "
    "log1p log2 log_sigmoid log_softmax logsumexp nan_to_num ndim negative nonzero norm ones_like "
    "rad2deg ravel real reciprocal relu relu6 round rsqrt selu shape sigmoid sign signbit silu sin "
    "sinc sinh size soft_shrink softmax softplus softsign sort argsort sparse_plus sparse_sigmoid "
    "sparsemax sqrt square squareplus squeeze stop_gradient swish tan tanh tanh_shrink "
    "transpose trapezoid trunc unique vander zeros_like normalize rms_normalization "
    "layer_normalization convert_to_tensor"
)
_REDUCTIONS = (
    "all amax amin any argmax argmin average count_nonzero cumprod cumsum max mean median min "
    "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd "
    "nansum "
    "nanvar prod ptp std sum var"
)
_OF_TWO = (
    "add allclose append arctan2 cross divide divide_no_nan dot equal floor_divide fmax "
    "fmin fmod greater greater_equal heaviside hypot inner isclose isin kron less less_equal "
    "logaddexp logaddexp2 maximum minimum mod multiply nextafter not_equal outer polar power "
    "subtract true_divide vdot correlate"
)


def _counted(x: Any) -> Any:
    def is_small(v: Any) -> Any:
        return v < 3.0

    def more(v: Any) -> Any:
        return (v + 1.0,)

    return _ops.while_loop(is_small, more, (x,))


def _powers(x: Any) -> Any:
    def step(i: Any, v: Any) -> Any:
        return v * x

    return _ops.fori_loop(0, 3, step, x)


KERAS_OPS: list[Case] = [
    *each(OPS, _OF_ONE, positive(4)),
    call(f"{OPS}.threshold", floats(4), 0.5, 0.0),
    call(f"{OPS}.arccosh", positive(4, low=1.1, high=3.0)),
    *each(OPS, _REDUCTIONS, floats(3, 4)),
    *each(OPS, _REDUCTIONS, floats(3, 4), axis=1, label="axis"),
    *each(OPS, _OF_TWO, positive(3), positive(3)),
    *each(OPS,
        "bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_left_shift bitwise_right_shift "
        "left_shift right_shift", integers(4, low=1), integers(4, low=1)),
    *each(OPS, "bitwise_invert bitwise_not", integers(4)),
    call(f"{OPS}.ldexp", positive(4), integers(4)),
    *each(OPS, "logical_and logical_or logical_xor", bools(4), bools(4)),
    call(f"{OPS}.logical_not", bools(4)),
    *each(OPS, "fliplr flipud rot90 trace tril triu diagonal diff corrcoef", floats(3, 4)),
    *each(OPS, "matmul", floats(3, 3), floats(3, 3)),
    *each(OPS, "concatenate stack vstack hstack dstack", [floats(2, 3), floats(2, 3)]),
    *each(OPS, "split hsplit vsplit array_split", floats(4, 4), 2),
    call(f"{OPS}.dsplit", floats(1, 2, 4), 2),
    call(f"{OPS}.argpartition", floats(6), 2),
    call(f"{OPS}.bincount", integers(6), minlength=5),
    call(f"{OPS}.broadcast_to", floats(3), [2, 3]),
    *each(OPS, "cast saturate_cast view", floats(3), "int32"),
    call(f"{OPS}.cdist", floats(3, 2), floats(4, 2)),
    *each(OPS,
        "cholesky cholesky_inverse det eigh inv logdet lu_factor matrix_rank pinv qr slogdet "
        "svd eig", spd(3)),
    *each(OPS, "solve lstsq", spd(3), floats(3, 2)),
    body(f"{OPS}.solve_triangular", lambda a, b: _ops.solve_triangular(a, b, lower=True), spd(3),
        floats(3, 2)),
    call(f"{OPS}.clip", floats(4), -0.5, 0.5),
    call(f"{OPS}.digitize", floats(5), [-1.0, 0.0, 1.0]),
    call(f"{OPS}.einsum", "ij,jk->ik", floats(2, 3), floats(3, 2)),
    call(f"{OPS}.expand_dims", floats(3), 0),
    call(f"{OPS}.extract_sequences", floats(9), 4, 2),
    *each(OPS, "fft fft2", (floats(4, 4), floats(4, 4))),
    call(f"{OPS}.ifft2", (floats(4, 4), floats(4, 4))),
    call(f"{OPS}.rfft", floats(8)),
    call(f"{OPS}.irfft", (floats(5), floats(5))),
    call(f"{OPS}.stft", floats(16), 8, 4, 8),
    call(f"{OPS}.istft", (floats(3, 5), floats(3, 5)), 8, 4, 8),
    call(f"{OPS}.full", [3], positive()),
    call(f"{OPS}.full_like", floats(3), positive()),
    *each(OPS, "geomspace logspace linspace", positive(), positive(low=2.0, high=3.0), 4),
    body(f"{OPS}.arange", lambda x: _ops.arange(4) + x, integers()),
    *[body(f"{OPS}.{k}", lambda x, k=k: getattr(_ops, k)(3, dtype="float32") * x, floats())
        for k in ("eye", "identity", "tri")],
    *[body(f"{OPS}.{k}", lambda x, k=k: getattr(_ops, k)([3]) * x, floats())
        for k in ("ones", "zeros")],
    *[body(f"{OPS}.{k}", lambda x, k=k: getattr(_ops, k)(5) * x, floats())
        for k in ("bartlett", "blackman", "hamming", "hanning")],
    body(f"{OPS}.kaiser", lambda x: _ops.kaiser(5, 2.0) * x, floats()),
    call(f"{OPS}.get_item", floats(4), 2),
    call(f"{OPS}.histogram", floats(9), 4, (-1.0, 1.0)),
    call(f"{OPS}.histogram", floats(9), 4, label="range of the row"),
    call(f"{OPS}.in_top_k", integers(3), floats(3, 5), 2),
    call(f"{OPS}.meshgrid", floats(2), floats(3)),
    call(f"{OPS}.moments", floats(3, 4), [0]),
    call(f"{OPS}.moveaxis", floats(2, 3, 4), 0, 2),
    *each(OPS, "one_hot multi_hot", integers(3), 5),
    call(f"{OPS}.pad", floats(3), [[1, 2]]),
    *each(OPS, "quantile nanquantile", floats(7), 0.3),
    *each(OPS, "percentile nanpercentile", floats(7), 30.0),
    call(f"{OPS}.quantile", floats(7), positive(), label="place of the row"),
    call(f"{OPS}.psnr", positive(4), positive(4), 1.0),
    call(f"{OPS}.rearrange", floats(2, 6), "a (b c) -> b (a c)", c=2),
    call(f"{OPS}.repeat", floats(3), 2),
    call(f"{OPS}.reshape", floats(3, 4), [4, 3]),
    call(f"{OPS}.roll", floats(5), 2),
    call(f"{OPS}.scatter", integers(3, 1), floats(3, 2), (5, 2)),
    body(f"{OPS}.scatter_update", lambda x, u: _ops.scatter_update(x, [[0], [2]], u), floats(5),
        floats(2)),
    call(f"{OPS}.searchsorted", ascending(6), integers(3)),
    *[call(f"{OPS}.segment_{k}", floats(4, 2), integers(4), num_segments=5)
        for k in ("max", "min", "prod", "sum")],
    call(f"{OPS}.select", [bools(4), bools(4)], [floats(4), floats(4)]),
    call(f"{OPS}.slice", floats(5), [1], [3]),
    call(f"{OPS}.slice", floats(5), integers(1, high=3), [2], label="begin of the row"),
    call(f"{OPS}.slice_update", floats(5), [1], floats(2)),
    call(f"{OPS}.slice_update", floats(5), integers(1, high=3), floats(2),
        label="begin of the row"),
    call(f"{OPS}.swapaxes", floats(2, 3), 0, 1),
    call(f"{OPS}.take", floats(5), integers(3)),
    call(f"{OPS}.take_along_axis", floats(3, 4), integers(3, 2, high=4), 1),
    call(f"{OPS}.tensordot", floats(2, 3), floats(3, 2), 1),
    call(f"{OPS}.tile", floats(3), [2]),
    call(f"{OPS}.top_k", floats(5), 2),
    call(f"{OPS}.unravel_index", integers(3), (2, 5)),
    call(f"{OPS}.unstack", floats(3, 2)),
    *each(OPS, "view_as_real", floats(3, dtype=np.complex64)),
    call(f"{OPS}.view_as_complex", floats(3, 2)),
    call(f"{OPS}.where", bools(4), floats(4), floats(4)),
    # Control flow.
    body(f"{OPS}.cond", lambda x: _ops.cond(x > 0, lambda: x, lambda: -x), floats()),
    call(f"{OPS}.associative_scan", lambda a, b: a + b, floats(4)),
    body(f"{OPS}.fori_loop", _powers, floats()),
    body(f"{OPS}.map", lambda x: _ops.map(lambda e: e * 2.0, x), floats(3)),
    body(f"{OPS}.scan", lambda x: _ops.scan(lambda c, e: (c + e, c), x[0], x), floats(3)),
    body(f"{OPS}.switch", lambda i, x: _ops.switch(i, [lambda a: a, lambda a: -a], x),
        integers(high=2), floats()),
    body(f"{OPS}.vectorized_map", lambda x: _ops.vectorized_map(lambda e: e * 2.0, x), floats(3)),
    body(f"{OPS}.while_loop", _counted, floats()),
    # Networks.
    *each(OPS, "average_pool max_pool", _IMAGE, 2, 2),
    *each(OPS, "adaptive_average_pool adaptive_max_pool", _IMAGE, 2),
    call(f"{OPS}.batch_normalization", floats(2, 4), floats(4), positive(4), 1),
    *each(OPS, "binary_crossentropy categorical_crossentropy", positive(4), positive(4)),
    call(f"{OPS}.sparse_categorical_crossentropy", integers(2, high=4), positive(2, 4)),
    call(f"{OPS}.conv", _IMAGE, floats(3, 3, 2, 3)),
    call(f"{OPS}.conv_transpose", _IMAGE, floats(3, 3, 3, 2), 2),
    call(f"{OPS}.depthwise_conv", _IMAGE, floats(3, 3, 2, 1)),
    call(f"{OPS}.separable_conv", _IMAGE, floats(3, 3, 2, 1), floats(1, 1, 2, 3)),
    call(f"{OPS}.ctc_loss", integers(2, 3, low=1, high=4), floats(2, 6, 5), [3, 3], [6, 6]),
    call(f"{OPS}.ctc_decode", floats(2, 6, 5), [6, 6]),
    call(f"{OPS}.depth_to_space", floats(1, 2, 2, 4), 2),
    call(f"{OPS}.space_to_depth", floats(1, 4, 4, 1), 2),
    call(f"{OPS}.dot_product_attention", floats(1, 3, 2, 4), floats(1, 3, 2, 4),
        floats(1, 3, 2, 4)),
    call(f"{OPS}.unfold", positive(1, 2, 6, 6), 2),
    call(f"{OPS}.fold", positive(1, 8, 9), (4, 4), 2),
    # Images.
    call(f"{OPS}.image.affine_transform", _IMAGE, positive(1, 8)),
    call(f"{OPS}.image.crop_images", _IMAGE, 1, 1, target_height=3, target_width=3),
    call(f"{OPS}.image.extract_patches", _IMAGE, (2, 2)),
    call(f"{OPS}.image.gaussian_blur", _IMAGE),
    *each(f"{OPS}.image", "hsv_to_rgb rgb_to_grayscale rgb_to_hsv", positive(6, 6, 3)),
    call(f"{OPS}.image.map_coordinates", positive(5, 5), positive(2, 4, low=0.0, high=4.0),
        order=1),
    call(f"{OPS}.image.pad_images", _IMAGE, 1, 1, 1, 1),
    call(f"{OPS}.image.perspective_transform", _IMAGE, positive(1, 4, 2), positive(1, 4, 2)),
    *[call(f"{OPS}.image.resize", _IMAGE, (4, 4), interpolation=k, label=k)
        for k in ("bilinear", "nearest", "bicubic")],
    call(f"{OPS}.image.scale_and_translate", positive(5, 5, 1), (4, 4, 1), positive(2), positive(2),
        (0, 1), "linear"),
    call(f"{OPS}.image.elastic_transform", _IMAGE, seed=3, random=True),
]  # fmt: skip
