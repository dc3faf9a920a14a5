"""Sweep of tf.math."""

from __future__ import annotations

from tools.sweep.cases import (
    Case,
    ascending,
    bools,
    call,
    each,
    floats,
    integers,
    permutations,
    positive,
)

MATH: list[Case] = [
    *each("tf.math",
        "abs asinh atan atanh ceil cos cosh digamma erf erfc exp expm1 floor is_finite is_inf "
        "is_nan lgamma log log1p log_sigmoid "
        "negative rint round rsqrt sigmoid sign sin sinh softplus "
        "softsign sqrt square tan tanh reciprocal reciprocal_no_nan ndtri erfinv erfcinv bessel_i0 "
        "bessel_i0e bessel_i1 bessel_i1e acos asin conj real imag angle", positive(4)),
    call("tf.math.acosh", positive(4, low=1.1, high=3.0)),
    *each("tf.math.special",
        "bessel_j0 bessel_j1 bessel_k0 bessel_k0e bessel_k1 bessel_k1e bessel_y0 bessel_y1 dawsn "
        "expint fresnel_cos fresnel_sin spence", positive(4)),
    *each("tf.math",
        "add subtract multiply divide maximum minimum atan2 squared_difference pow xdivy xlogy "
        "xlog1py divide_no_nan multiply_no_nan floordiv floormod truediv igamma igammac nextafter "
        "zeta polygamma equal not_equal less less_equal greater greater_equal", positive(4),
        positive(4)),
    *each("tf.math", "logical_and logical_or logical_xor", bools(4), bools(4)),
    call("tf.math.logical_not", bools(4)),
    call("tf.math.betainc", positive(4), positive(4), positive(4)),
    *each("tf.math",
        "reduce_sum reduce_mean reduce_max reduce_min reduce_prod reduce_std reduce_variance "
        "reduce_logsumexp reduce_euclidean_norm cumsum cumprod cumulative_logsumexp argmax argmin",
        floats(3, 4), axis=0),
    *each("tf.math", "reduce_sum reduce_max reduce_mean argmax cumsum", floats(3, 3),
        axis=integers(low=0, high=2), label="axis of the row"),
    *each("tf.math", "reduce_all reduce_any", bools(3, 4), axis=1),
    call("tf.math.accumulate_n", [floats(3), floats(3)]),
    call("tf.math.add_n", [floats(3)] * 2),
    call("tf.math.count_nonzero", integers(3, 4)),
    call("tf.math.l2_normalize", floats(4)),
    call("tf.math.bincount", integers(6), minlength=5, maxlength=5),
    call("tf.math.bincount", integers(6), label="variable length"),
    call("tf.math.bincount", integers(6), weights=floats(6), minlength=5, maxlength=5,
        label="weights"),
    call("tf.math.bincount", integers(2, 6), minlength=5, maxlength=5, axis=-1, label="axis"),
    call("tf.math.bincount", integers(2, 6), minlength=5, maxlength=5, axis=-1, binary_output=True,
        label="binary"),
    call("tf.math.confusion_matrix", integers(6), integers(6), num_classes=5),
    call("tf.math.confusion_matrix", integers(6), integers(6), label="own number of classes"),
    call("tf.math.in_top_k", integers(3), floats(3, 5), k=2),
    call("tf.math.in_top_k", integers(3), floats(3, 5), k=integers(low=1, high=4),
        label="k of the row"),
    call("tf.math.top_k", floats(5), k=2),
    call("tf.math.top_k", floats(5), k=integers(low=1, high=4), label="k of the row"),
    *each("tf.math", "approx_max_k approx_min_k", floats(8), 2),
    call("tf.math.invert_permutation", permutations(5)),
    *[call(f"tf.math.segment_{k}", floats(4, 2), [0, 0, 2, 2])
        for k in ("sum", "mean", "max", "min", "prod")],
    *[call(f"tf.math.segment_{k}", floats(4, 2), ascending(4), label="ids of the row")
        for k in ("sum", "mean", "max", "min", "prod")],
    *[call(f"tf.math.unsorted_segment_{k}", floats(4, 2), integers(4), 5)
        for k in ("sum", "mean", "max", "min", "prod", "sqrt_n")],
    call("tf.math.unsorted_segment_sum", floats(4, 2), integers(4, high=2), integers(low=2, high=6),
        label="number of the row"),
    call("tf.math.zero_fraction", integers(6)),
    call("tf.math.lbeta", positive(4)),
    call("tf.math.polyval", [floats(3), floats(3)], floats(3)),
    call("tf.math.sobol_sample", 2, 4, 1, label="shared"),
    call("tf.math.softmax", floats(4)),
    call("tf.math.log_softmax", floats(4)),
    call("tf.math.scalar_mul", floats(), floats(4)),
    call("tf.math.cumsum", floats(4), reverse=True, label="reverse"),
]  # fmt: skip
