"""Sweep of tf.quantization."""

from __future__ import annotations

import tensorflow as tf

from tools.sweep.cases import Case, body, call, floats, integers, positive

QUANTIZATION: list[Case] = [
    call("tf.quantization.fake_quant_with_min_max_args", floats(4)),
    call("tf.quantization.fake_quant_with_min_max_args_gradient", floats(4), floats(4)),
    *[call(f"tf.quantization.{k}", *a, lo, hi, label=label)
        for k, a in (("fake_quant_with_min_max_vars", (floats(4),)),
        ("fake_quant_with_min_max_vars_gradient", (floats(4), floats(4))))
        for label, lo, hi in (("", -1.0, 1.0),
        ("range of the row", positive(low=-2.0, high=-1.0), positive()))],
    *[call(f"tf.quantization.{k}", *a, lo, hi, label=label)
        for k, a in (("fake_quant_with_min_max_vars_per_channel", (floats(2, 3),)),
        ("fake_quant_with_min_max_vars_per_channel_gradient", (floats(2, 3), floats(2, 3))))
        for label, lo, hi in (("", [-1.0] * 3, [1.0] * 3),
        ("range of the row", positive(3, low=-2.0, high=-1.0), positive(3)))],
    *[call(f"tf.quantization.{k}", floats(2, 3), lo, hi, range_given=given,
        label=f"{label}, {'given' if given else 'found'}")
        for k in ("quantize_and_dequantize", "quantize_and_dequantize_v2")
        for given in (True, False)
        for label, lo, hi in (("one range", -1.0, 1.0),
        ("range of the row", positive(low=-2.0, high=-1.0), positive()))],
    call("tf.quantization.quantize_and_dequantize_v2", floats(2, 3), [-1.0] * 3, [1.0] * 3,
        range_given=True, axis=1, label="axis"),
    *[call("tf.quantization.quantize", floats(2, 3), lo, hi, tf.quint8, mode=m,
        label=f"{m} {label}") for m in ("MIN_COMBINED", "MIN_FIRST", "SCALED")
        for label, lo, hi in (("", -1.0, 1.0),
        ("range of the row", positive(low=-2.0, high=-1.0), positive()))],
    *[body("tf.quantization.dequantize",
        lambda x, lo, hi, m=m: tf.quantization.dequantize(tf.bitcast(tf.cast(x, tf.uint8),
        tf.quint8), lo, hi, mode=m), integers(2, 3, high=200), lo, hi, label=f"{m} {label}")
        for m in ("MIN_COMBINED", "MIN_FIRST", "SCALED")
        for label, lo, hi in (("", -1.0, 1.0),
        ("range of the row", positive(low=-2.0, high=-1.0), positive()))],
    body("tf.quantization.quantized_concat",
        lambda x: tf.bitcast(tf.quantization.quantized_concat(0,
        [tf.bitcast(tf.cast(x, tf.uint8), tf.quint8)] * 2, [0.0, 0.0], [5.0, 5.0])[0], tf.uint8),
        integers(2, 3, high=200)),
]  # fmt: skip
