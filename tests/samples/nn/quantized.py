"""Samples of tf_pfor/converters/nn/quantized.py: convolutions and products that fuse what follows.

They have kernels with oneDNN only. tests/samples/nn/quantization.py has the others.
"""

import numpy as np
import tensorflow as tf

from tests.sample import ints, sample

raw = tf.raw_ops
_PLAIN = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.qint32: tf.int32}
_QUIET = {"grad": False, "xla": False, "max_ops": 24}
_RNG = np.random.default_rng(0)
_FILTER = _RNG.integers(-100, 100, (2, 2, 3, 4)).astype(np.int8)
_DEPTHWISE = _RNG.integers(-100, 100, (2, 2, 3, 1)).astype(np.int8)
_MATRIX = _RNG.integers(-100, 100, (6, 4)).astype(np.int8)
_BIAS = _RNG.normal(size=[4]).astype(np.float32)
_IMAGE = ints(1, 4, 4, 3, high=200)


def _q(x, dtype):
    return tf.bitcast(tf.cast(x, _PLAIN[dtype]), dtype)


def _results(outputs):
    """Results that numpy can hold."""
    return [tf.bitcast(x, _PLAIN[x.dtype]) if x.dtype in _PLAIN else x for x in outputs]


def _requantized(name, **given):
    """Ranges and the dtype of a result that is brought to eight bits, or not."""
    if "Dequantize" in name:
        return {**given, "Toutput": tf.float32, **_FROZEN}
    key = "Toutput" if "MatMul" in name else "out_type"
    if "AndRequantize" not in name:
        return {**given, key: tf.qint32}
    return {**given, key: tf.quint8 if "Relu" in name or key == "Toutput" else tf.qint8, **_FROZEN}


_FROZEN = {"min_freezed_output": -1e5, "max_freezed_output": 1e5}
_RANGES = {"min_input": 0.0, "max_input": 1.0}
_OF_FILTER = {"min_filter": -1.0, "max_filter": 1.0}
_WINDOW = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def _convolution(name):
    kernel = _DEPTHWISE if "Depthwise" in name else _FILTER
    given = {**_RANGES, **_OF_FILTER, **_WINDOW}
    if "PerChannel" in name:
        given |= {"min_filter": [-1.0] * 4, "max_filter": [1.0] * 4}
    if "Bias" in name:
        given["bias"] = _BIAS[: 3 if "Depthwise" in name else 4]
    given = _requantized(name, **given)

    def fn(x):
        filters = _q(kernel, tf.qint8)
        made = _results(getattr(raw, name)(input=_q(x, tf.quint8), filter=filters, **given))
        if "Depthwise" in name:  # TensorFlow knows no shapes of it
            made = [tf.ensure_shape(x, shape) for x, shape in zip(made, ([1, 4, 4, 3], [], []))]
        return made

    return fn


def _product(name):
    given = _requantized(name, bias=_BIAS, min_a=0.0, max_a=1.0, min_b=-1.0, max_b=1.0,
                         input_quant_mode="SCALED")  # fmt: skip

    def fn(x):
        made = getattr(raw, name)(a=_q(x, tf.quint8), b=_q(_MATRIX, tf.qint8), **given)
        return _results(made if isinstance(made, (list, tuple)) else [made])

    return sample(name, fn, ints(2, 6, high=200), **_QUIET)


SAMPLES = [
    *[
        sample(f"Quantized{name}", _convolution(f"Quantized{name}"), _IMAGE, **_QUIET)
        for name in (
            "Conv2DAndRelu", "Conv2DAndReluAndRequantize", "Conv2DAndRequantize",
            "Conv2DPerChannel", "Conv2DWithBias", "Conv2DWithBiasAndRelu",
            "Conv2DWithBiasAndReluAndRequantize", "Conv2DWithBiasAndRequantize",
            "DepthwiseConv2D", "DepthwiseConv2DWithBias", "DepthwiseConv2DWithBiasAndRelu",
            "DepthwiseConv2DWithBiasAndReluAndRequantize",
        )
    ],
    *[
        _product(f"QuantizedMatMulWithBias{name}")
        for name in ("AndDequantize", "AndReluAndRequantize", "AndRequantize")
    ],
]  # fmt: skip
