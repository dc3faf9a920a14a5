"""Helpers of the converters of XLA's ops: protos of axis numbers, and numbers put in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Shape, is_static


def message(kind: str, text: bytes) -> Any:
    """The proto of XLA of this name, parsed.

    TensorFlow's functions that make such ops import the same module.
    """
    from tensorflow.compiler.xla import xla_data_pb2

    return getattr(xla_data_pb2, kind).FromString(text)


def numbers_of(call: Call, kind: str) -> Any:
    """The axis numbers of an op, a proto of one's own."""
    return message(kind, call.attrs["dimension_numbers"].s)


def renumber(axes: Any, *, before: Sequence[int] = ()) -> None:
    """Each axis of a repeated field moves one to the right; the axes ``before`` come first."""
    axes[:] = [*before, *(axis + 1 for axis in axes)]


def require_invariant(call: Call, *names: str) -> None:
    """Refuses an op where one of these inputs is stacked."""
    for name in names:
        value = call.value(name)
        if value.is_stacked:
            raise CannotVectorize(f"'{name}' differs between iterations")


def in_front(call: Call, name: str, number: int) -> tf.Tensor:
    """The input ``name``, of one entry for each axis, with ``number`` for the loop in front."""
    value = call.value(name)
    emit, found = call.emit, call.maybe_constant(name)
    shape = value.inner_shape if found is None else found.shape
    rest = None if shape is None else tuple(shape[1:])
    if not is_static(rest):
        raise CannotVectorize(f"the shape of '{name}' is not known before running")
    first = np.full([1, *rest], number, value.dtype.as_numpy_dtype)
    if found is not None:
        return emit.constant(np.concatenate([first, found]), value.dtype)
    return emit("ConcatV2", [emit.constant(first, value.dtype), value.tensor], np.int32(0))


# ---------------------------------------------------------------------------
# Shapes, which TensorFlow does not infer for some of these ops
# ---------------------------------------------------------------------------


def of_shape(call: Call, made: tf.Tensor, inner_shape: Shape) -> tf.Tensor:
    """The stacked result, known to be of this inner shape."""
    if inner_shape is not None:
        made.set_shape((call.loop.static_length, *inner_shape))
    return made


def windows(
    size: int,
    window: int,
    stride: int = 1,
    padding: Sequence[int] = (0, 0),
    dilation: int = 1,
    window_dilation: int = 1,
) -> int:
    """The number of windows that fit on an axis of this size."""
    low, high = padding
    whole = low + _dilated(size, dilation) + high
    return max(0, (whole - _dilated(window, window_dilation)) // stride + 1)


def _dilated(size: int, dilation: int) -> int:
    return (size - 1) * dilation + 1 if size > 0 else 0
