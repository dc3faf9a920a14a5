"""Samples of tf_pfor/converters/nn/quantization.py."""

import functools

import numpy as np
import tensorflow as tf

from tests.sample import ints, normal, sample, uniform

raw = tf.raw_ops
_PLAIN = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.qint32: tf.int32}
LOW, HIGH = uniform(low=-2.0, high=-0.5), uniform(low=0.5, high=2.0)
LOWS, HIGHS = uniform(3, low=-2.0, high=-0.5), uniform(3, low=0.5, high=2.0)
_BYTES = {"high": 200}
_QUIET = {"grad": False, "xla": False, "max_ops": 24}  # without a gradient; XLA has no such kernels


def _q(x, dtype=tf.quint8):
    return tf.bitcast(tf.cast(x, _PLAIN[dtype]), dtype)


def _plain(outputs):
    """Results that numpy can hold."""
    many = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [tf.bitcast(x, _PLAIN[x.dtype]) if x.dtype in _PLAIN else x for x in many]


def _fake(name, **options):
    def fn(x, low, high):
        return getattr(raw, name)(inputs=x, min=low, max=high, **options)

    return fn


def _fake_grad(name, **options):
    def fn(dy, x, low, high):
        made = getattr(raw, name)(gradients=dy, inputs=x, min=low, max=high, **options)
        return list(made)

    return fn


def _trip(name, **options):
    def fn(x, low, high):
        return getattr(raw, name)(input=x, input_min=low, input_max=high, **options)

    return fn


def _trip_v3(x, low, high, **options):
    return raw.QuantizeAndDequantizeV3(
        input=x, input_min=low, input_max=high, num_bits=6, **options
    )


def _trip_grad(dy, x, low, high, axis=-1):
    return list(
        raw.QuantizeAndDequantizeV4Grad(
            gradients=dy, input=x, input_min=low, input_max=high, axis=axis
        )
    )


def _dequantize(x, low, high, **options):
    return raw.Dequantize(input=_q(x), min_range=low, max_range=high, **options)


def _quantize(x, low, high, **options):
    made = raw.QuantizeV2(input=x, min_range=low, max_range=high, T=tf.quint8, **options)
    return _plain(list(made))


def _uniform(*names):
    return {
        f"{name}quantization_{end}": value
        for name in names
        for end, value in (("min_val", -128), ("max_val", 127))
    }


_ONE = _uniform("")
_THREE = _uniform("lhs_", "rhs_", "output_")
_SCALES = {
    f"{k}_{what}": value
    for k in ("lhs", "rhs", "output")
    for what, value in (("scales", 0.1), ("zero_points", 0))
}
_SCALE, _SCALE3 = uniform(low=0.05, high=0.2), uniform(3, low=0.05, high=0.2)
_RANGE = {"min_input": -1.0, "max_input": 1.0}
_IMAGE = ints(1, 4, 4, 2, **_BYTES)
_KERNEL = np.arange(24).reshape(2, 2, 2, 3)
_WINDOW = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}


def _of(name, data, dtype=tf.quint8, **options):
    """An op of quantized data with ranges that all rows share."""

    def fn(x):
        return _plain(list(getattr(raw, name)(**{data: _q(x, dtype)}, **options)))

    return fn


SAMPLES = [
    *[sample(name, _fake(name, **options), normal(2, 3), low, high, label=label)
        for name, low, high in (("FakeQuantWithMinMaxVars", LOW, HIGH),
        ("FakeQuantWithMinMaxVarsPerChannel", LOWS, HIGHS))
        for label, options in (("", {}), ("narrow", {"num_bits": 4, "narrow_range": True}))],
    *[sample(f"{name}Gradient", _fake_grad(f"{name}Gradient", **options), normal(2, 3),
        normal(2, 3), low, high, grad=False, label=label, max_ops=20)
        for name, low, high in (("FakeQuantWithMinMaxVars", LOW, HIGH),
        ("FakeQuantWithMinMaxVarsPerChannel", LOWS, HIGHS))
        for label, options in (("", {}), ("narrow", {"num_bits": 4, "narrow_range": True}))],
    *[sample(name, _trip(name, **options), normal(2, 3), low, high, label=label, **more)
        for name in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
        for label, options, low, high, more in (("", {"range_given": True}, LOW, HIGH, {}),
        ("found", {"num_bits": 5}, LOW, HIGH, {}),
        ("unsigned", {"range_given": True, "signed_input": False, "num_bits": 4,
        "narrow_range": True}, LOW, HIGH, {}),
        ("axis-found", {"axis": 1}, LOWS, HIGHS, {"xla": False}))],
    sample("QuantizeAndDequantizeV2", lambda x: _trip("QuantizeAndDequantizeV2", range_given=True,
                                                      round_mode="HALF_UP")(x, -1.0, 1.0),
           normal(2, 3), label="half up"),
    sample("QuantizeAndDequantizeV3", functools.partial(_trip_v3, axis=1), normal(2, 3),
           LOWS, HIGHS, label="axis", xla=False),
    sample("QuantizeAndDequantizeV3", _trip_v3, normal(2, 3), LOW, HIGH),
    sample("QuantizeAndDequantizeV4Grad", _trip_grad, normal(2, 3), normal(2, 3), LOW, HIGH,
           **_QUIET),
    sample("QuantizeAndDequantizeV4Grad", functools.partial(_trip_grad, axis=1), normal(2, 3),
           normal(2, 3), LOWS, HIGHS, label="axis", **_QUIET),
    *[sample("Dequantize", functools.partial(_dequantize, **options), ints(2, 3, **_BYTES), low,
        high, label=label, **_QUIET)
        for label, options, low, high in (("", {}, LOW, HIGH),
        ("scaled", {"mode": "SCALED", "narrow_range": True}, LOW, HIGH),
        ("axis", {"axis": 1}, LOWS, HIGHS))],
    sample("Dequantize", lambda x: _dequantize(x, -1.0, 1.0, mode="MIN_FIRST"),
           ints(2, 3, **_BYTES), label="first", **_QUIET),
    *[sample("QuantizeV2", functools.partial(_quantize, **options), normal(2, 3), low, high,
        label=label, **_QUIET)
        for label, options, low, high in (("", {}, LOW, HIGH),
        ("scaled", {"mode": "SCALED"}, LOW, HIGH),
        ("axis", {"axis": 1, "ensure_minimum_range": 0.1}, LOWS, HIGHS))],
    sample("QuantizeV2", lambda x: _quantize(x, -1.0, 1.0, mode="MIN_FIRST"), normal(2, 3),
           label="first", **_QUIET),
    *[sample("UniformQuantize",
        lambda x, s, z, axis=axis: _plain(raw.UniformQuantize(input=x, scales=s, zero_points=z,
        Tout=tf.qint8, quantization_axis=axis, **_ONE)), normal(2, 3), scales, points, label=label,
        **_QUIET) for label, axis, scales, points in (("", -1, _SCALE, ints()),
        ("axis", 1, _SCALE3, ints(3)))],
    *[sample("UniformDequantize",
        lambda x, s, z, axis=axis: raw.UniformDequantize(input=_q(x, tf.qint8), scales=s,
        zero_points=z, Tout=tf.float32, quantization_axis=axis, **_ONE),
        ints(2, 3, low=-90, high=90), scales, points, label=label, **_QUIET)
        for label, axis, scales, points in (("", -1, _SCALE, ints()),
        ("axis", 1, _SCALE3, ints(3)))],
    sample("UniformQuantizedClipByValue",
        lambda x, a, b: _plain(raw.UniformQuantizedClipByValue(operand=_q(x, tf.qint32),
        min=_q(a, tf.qint32), max=_q(b, tf.qint32), scales=0.1, zero_points=0, **_ONE)),
        ints(2, 3, low=-90, high=90), ints(low=-40, high=-10), ints(low=10, high=40), **_QUIET),
    sample("UniformRequantize", lambda x: _plain(raw.UniformRequantize(
               input=_q(x, tf.qint8), input_scales=[0.1, 0.2, 0.3], input_zero_points=[0, 1, 2],
               output_scales=0.2, output_zero_points=3, input_quantization_axis=1, Tout=tf.qint8,
               **_uniform("input_", "output_"))),
           ints(2, 3, low=-90, high=90), **_QUIET),
    sample("UniformQuantizedAdd", lambda x, y: _plain(raw.UniformQuantizedAdd(
               lhs=_q(x, tf.qint32), rhs=_q(y, tf.qint32), **_SCALES, **_THREE)),
           ints(2, 3), ints(2, 3), **_QUIET),
    sample("UniformQuantizedDot", lambda x: _plain(raw.UniformQuantizedDot(
               lhs=_q(x, tf.qint8), rhs=_q(np.ones([3, 2]), tf.qint8), Tout=tf.qint32, **_SCALES,
               **_THREE)),
           ints(2, 3), **_QUIET),
    sample("UniformQuantizedDotHybrid", lambda x: raw.UniformQuantizedDotHybrid(
               lhs=x, rhs=_q(np.ones([3, 2]), tf.qint8), rhs_scales=0.1, rhs_zero_points=1,
               Tout=tf.float32, **_uniform("rhs_")),
           normal(2, 3), **_QUIET),
    sample("QuantizedAvgPool", _of("QuantizedAvgPool", "input", **_RANGE, **_WINDOW), _IMAGE,
           **_QUIET),
    sample("QuantizedMaxPool", _of("QuantizedMaxPool", "input", **_RANGE, **_WINDOW), _IMAGE,
           **_QUIET),
    sample("QuantizedConv2D", lambda x: _plain(raw.QuantizedConv2D(
               input=_q(x), filter=_q(_KERNEL), min_filter=0.0, max_filter=1.0,
               strides=[1, 1, 1, 1], padding="SAME", **_RANGE)), _IMAGE, **_QUIET),
    sample("QuantizedMatMul", lambda x: _plain(raw.QuantizedMatMul(
               a=_q(x), b=_q(_KERNEL.reshape([3, 8])), min_a=0.0, max_a=1.0, min_b=0.0, max_b=1.0)),
           ints(2, 3, **_BYTES), **_QUIET),
    sample("QuantizedResizeBilinear", lambda x: _plain(raw.QuantizedResizeBilinear(
               images=_q(x), size=[3, 3], min=0.0, max=1.0, half_pixel_centers=True)), _IMAGE,
           **_QUIET),
    sample("QuantizedBiasAdd", lambda x: _plain(raw.QuantizedBiasAdd(
               input=_q(x), bias=_q([1, 2, 3]), min_bias=0.0, max_bias=1.0, out_type=tf.qint32,
               **_RANGE)), ints(2, 3, **_BYTES), **_QUIET),
    *[sample(name, _of(name, "features", min_features=-1.0, max_features=7.0), ints(2, 3, **_BYTES),
        **_QUIET) for name in ("QuantizedRelu", "QuantizedRelu6")],
    sample("Requantize", _of("Requantize", "input", tf.qint32, input_min=-1.0, input_max=1.0,
                             requested_output_min=-1.0, requested_output_max=1.0,
                             out_type=tf.quint8), ints(2, 3, low=-2**30, high=2**30), **_QUIET),
    sample("QuantizedReshape", _of("QuantizedReshape", "tensor", shape=[3, 2], input_min=-1.0,
                                   input_max=1.0), ints(2, 3, **_BYTES), **_QUIET),
    sample("QuantizedConcat", lambda x, y: _plain(raw.QuantizedConcat(
               concat_dim=1, values=[_q(x), _q(y)], input_mins=[0.0, 0.0],
               input_maxes=[1.0, 2.0])), ints(2, 3, **_BYTES), ints(2, 2, **_BYTES), **_QUIET),
    *[sample(name, lambda x, y, name=name: _plain(getattr(raw, name)(x=_q(x), y=_q(y), min_x=-1.0,
        max_x=1.0, min_y=0.0, max_y=2.0)), ints(2, 3, **_BYTES), ints(2, 3, **_BYTES), **_QUIET)
        for name in ("QuantizedAdd", "QuantizedMul")],
    *[sample(name, lambda x, name=name: _plain(getattr(raw, name)(a=_q(x),
        b=_q(_KERNEL.reshape([3, 8]), tf.qint8), bias=np.arange(8.0, dtype=np.float32), min_a=0.0,
        max_a=1.0, min_b=-1.0, max_b=1.0, input_quant_mode="SCALED")), ints(2, 3, **_BYTES),
        **_QUIET) for name in ("QuantizedMatMulWithBias", "QuantizedMatMulWithBiasAndRelu")],
    sample("QuantizedBatchNormWithGlobalNormalization",
        lambda x: _plain(raw.QuantizedBatchNormWithGlobalNormalization(t=_q(x), t_min=-1.0,
        t_max=1.0, out_type=tf.qint32, variance_epsilon=1e-3, scale_after_normalization=True,
        **{k: _q([3, 200]) for k in ("m", "v", "beta", "gamma")},
        **{f"{k}_min": 0.1 for k in ("m", "v", "beta", "gamma")},
        **{f"{k}_max": 2.0 for k in ("m", "v", "beta", "gamma")})), _IMAGE, **_QUIET),
    sample("UniformQuantizedConvolution", lambda x: _plain(raw.UniformQuantizedConvolution(
               lhs=_q(x, tf.qint8), rhs=_q(_KERNEL.reshape([3, 2, 2, 2]), tf.qint8),
               Tout=tf.qint32, padding="SAME", window_strides=[2, 1], **_SCALES, **_THREE)),
           ints(1, 2, 4, 4), **_QUIET),
    sample("UniformQuantizedConvolutionHybrid", lambda x: raw.UniformQuantizedConvolutionHybrid(
               lhs=x, rhs=_q(_KERNEL.reshape([3, 2, 2, 2]), tf.qint8), rhs_scales=0.1,
               rhs_zero_points=1, Tout=tf.float32, padding="VALID", **_uniform("rhs_")),
           normal(1, 2, 4, 4), rtol=1e-4, **_QUIET),
]  # fmt: skip
