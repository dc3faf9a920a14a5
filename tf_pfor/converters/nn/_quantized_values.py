"""Helpers of converters of quantized numbers: their bits as plain numbers, attributes' names."""

from __future__ import annotations

import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.emit import PLAIN


def as_dtype(call: Call, tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The same bits as another dtype."""
    return tensor if tensor.dtype == dtype else call.emit("Bitcast", tensor, type=dtype)


def plain(call: Call, tensor: tf.Tensor) -> tf.Tensor:
    """The same bits as a dtype that kernels for plain numbers take."""
    return as_dtype(call, tensor, PLAIN.get(tensor.dtype, tensor.dtype))


def uniform_attrs(name: str) -> tuple[str, ...]:
    """The attributes of the tensor ``name`` ("" for the only one, else "lhs_" ...)."""
    ends = ("axis", "min_val", "max_val")
    return tuple(f"{name}quantization_{end}" for end in ends)
