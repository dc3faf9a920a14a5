"""Eight-bit numbers with a range: data in the batch, ranges that all rows share."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.nn._quantized_values import as_dtype, plain, uniform_attrs
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import RegisterPFor
from tf_pfor.core.shapes import inner_dims, product
from tf_pfor.core.values import Value, is_static


def _in_batch(op_types: str, data: str, attrs: str) -> None:
    """Registers ops with one batch dimension, whose further outputs depend on ranges only.

    Args:
      op_types: the ops, with spaces between.
      data: the inputs that have it, with spaces between.
      attrs: attributes that do not speak of it.
    """
    names = data.split()

    def convert(call: Call, *_: Value) -> Any:
        emit = call.emit
        more = call.loop.static_length in (None, 0)
        folded: dict[str, tf.Tensor] = {}
        rows: Any = None
        batch, others = rows, list[Any]()
        for name in reversed(names):
            value = call.value(name)
            batch, *others = inner_dims(call, value)
            rows = product(call, [call.loop.length, batch])
            wide = emit.reshape(plain(call, call.stacked(value)), [rows, *others])
            if more:  # the kernels refuse an empty batch
                wide = emit("Pad", wide, np.asarray([[0, 1], *[[0, 0]] * len(others)], np.int32))
            folded[name] = as_dtype(call, wide, value.dtype)
        made = call.rebuild(**folded)
        first, *ranges = made if isinstance(made, list) else [made]
        dtype, first = first.dtype, plain(call, first)
        if first.shape.rank is None:  # TensorFlow knows no shape of some: they have the input's
            first.set_shape([None] * (1 + len(others)))
        rank = first.shape.rank or 0
        if more:
            size = emit.shape_vector([rows, *[-1] * (rank - 1)])
            first = emit("Slice", first, np.zeros([rank], np.int32), size)
        rest = [emit.dim(first, i) for i in range(1, rank)]
        first = as_dtype(call, emit.reshape(first, [call.loop.length, batch, *rest]), dtype)
        return [first, *map(Value.unstacked, ranges)]

    RegisterPFor(op_types, names, attrs=attrs, family="quantized_in_batch")(convert)


_in_batch("QuantizedAvgPool", "input", "ksize strides padding")
_in_batch("QuantizedConv2D", "input", "out_type strides padding dilations")
_in_batch(
    "QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize QuantizedConv2DAndRequantize "
    "QuantizedConv2DPerChannel QuantizedConv2DWithBias QuantizedConv2DWithBiasAndRelu "
    "QuantizedConv2DWithBiasAndReluAndRequantize QuantizedConv2DWithBiasAndRequantize "
    "QuantizedDepthwiseConv2D QuantizedDepthwiseConv2DWithBias "
    "QuantizedDepthwiseConv2DWithBiasAndRelu "
    "QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize",
    "input",
    "out_type strides padding dilations padding_list",
)
_in_batch("QuantizedMatMul", "a", "Toutput transpose_b Tactivation")
_in_batch(
    "QuantizedMatMulWithBias QuantizedMatMulWithBiasAndDequantize "
    "QuantizedMatMulWithBiasAndRelu QuantizedMatMulWithBiasAndReluAndRequantize "
    "QuantizedMatMulWithBiasAndRequantize",
    "a",
    "Toutput transpose_b input_quant_mode",
)
_in_batch(
    "QuantizedBatchNormWithGlobalNormalization",
    "t",
    "out_type variance_epsilon scale_after_normalization",
)
_in_batch("QuantizedMaxPool", "input", "ksize strides padding")
_in_batch("QuantizedResizeBilinear", "images", "align_corners half_pixel_centers")
_in_batch(
    "UniformQuantizedDot",
    "lhs",
    " ".join(["Tout", *(a for k in ("lhs_", "rhs_", "output_") for a in uniform_attrs(k))]),
)
_WINDOWS = (  # without dimension_numbers the batch is axis 0
    "Tout window_strides padding explicit_padding lhs_dilation rhs_dilation feature_group_count"
)
_in_batch(
    "UniformQuantizedConvolution",
    "lhs",
    " ".join([_WINDOWS, *(a for k in ("lhs_", "rhs_", "output_") for a in uniform_attrs(k))]),
)
_in_batch("UniformQuantizedConvolutionHybrid", "lhs", " ".join([_WINDOWS, *uniform_attrs("rhs_")]))
_in_batch("UniformQuantizedDotHybrid", "lhs", " ".join(["Tout", *uniform_attrs("rhs_")]))


@RegisterPFor("QuantizedBiasAdd Requantize", ("input",), attrs=("out_type",))
@RegisterPFor("QuantizedRelu QuantizedRelu6", ("features",), attrs=("out_type",))
def by_shared_ranges(call: Call, *_: Value) -> Any:
    """Element by element, or along the last axis: the ranges that come out are shared."""
    made, low, high = call.rebuild()
    return [made, Value.unstacked(low), Value.unstacked(high)]


@RegisterPFor("QuantizedReshape", ("tensor",))
def quantized_reshape(
    call: Call, tensor: Value, shape: Value, input_min: Value, input_max: Value
) -> Any:
    """A Reshape; the range stays."""
    target = call.output_shape()
    if not is_static(target):
        raise CannotVectorize("the new shape is unknown")
    made = call.emit.reshape(tensor.tensor, [call.loop.length, *target])
    return [made, Value.unstacked(input_min.tensor), Value.unstacked(input_max.tensor)]


@RegisterPFor("QuantizedConcat", ("values",))
def quantized_concat(
    call: Call,
    concat_dim: Value,
    values: list[Value],
    input_mins: list[Value],
    input_maxes: list[Value],
) -> Any:
    """The axis moves by one; the range that comes out depends on the ranges only."""
    axis = int(call.constant("concat_dim"))
    made, low, high = call.rebuild(
        concat_dim=np.int32(axis if axis < 0 else axis + 1),
        values=[call.stacked(v) for v in values],
    )
    return [made, Value.unstacked(low), Value.unstacked(high)]


@RegisterPFor("QuantizedAdd QuantizedMul", ("x", "y"), attrs=("Toutput",))
def of_two(call: Call, x: Value, y: Value, *ranges: Value) -> Any:
    """Element by element of one shape: the kernels broadcast a vector, and no other shape."""
    if x.inner_shape is None or x.inner_shape != y.inner_shape or None in x.inner_shape:
        raise CannotVectorize("the operands are not known to have one shape")
    made, low, high = call.rebuild()
    return [made, Value.unstacked(low), Value.unstacked(high)]
