"""TensorFlow's functions for sizes and places, at a third of their cost where a graph is built.

They take tensors, and ints in place of integer tensors. Eagerly the same kernels run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import DIM_MATH, emitter

Number = tf.Tensor | int


def op(op_type: str, *inputs: object, name: str | None = None, **attrs: object) -> Any:
    """The output of an op; arguments as of ``Emitter``."""
    if not tf.executing_eagerly():
        return emitter()(op_type, *inputs, name=name, **attrs)
    schema = _tf.schema(op_type)
    assert schema is not None
    given = {
        arg.name: [*map(_eager, x)] if arg.is_list and isinstance(x, list) else _eager(x)
        for arg, x in zip(schema.inputs, inputs, strict=True)
    }
    return getattr(tf.raw_ops, op_type)(**given, **attrs)


def _eager(x: object) -> object:
    return x if isinstance(x, (tf.Tensor, np.ndarray, np.generic)) else np.asarray(x, np.int32)


def both(op_type: str, a: Number, b: Number) -> Any:
    """A binary op. A number gets the dtype of the tensor beside it; of two ints it is an int."""
    if isinstance(a, int) and isinstance(b, int):
        return DIM_MATH[op_type](a, b)
    like = next(x for x in (a, b) if isinstance(x, tf.Tensor)).dtype.as_numpy_dtype
    return op(op_type, *(x if isinstance(x, tf.Tensor) else np.asarray(x, like) for x in (a, b)))


def add(a: Number, b: Number) -> Any:
    """a + b."""
    if isinstance(b, int) and b == 0:
        return a
    return both("AddV2", a, b)


def subtract(a: Number, b: Number) -> Any:
    """a - b."""
    return both("Sub", a, b)


def multiply(a: Number, b: Number) -> Any:
    """a * b."""
    return both("Mul", a, b)


def concat(parts: Sequence[Any]) -> tf.Tensor:
    """Vectors, one behind the other."""
    return op("ConcatV2", [*parts], 0)


def stack(parts: Sequence[Any], axis: int = 0) -> tf.Tensor:
    """Tensors of one shape along a new axis."""
    return op("Pack", [*parts], axis=axis)


def gather(x: tf.Tensor, at: tf.Tensor, axis: int = 0, batch_dims: int = 0) -> tf.Tensor:
    """The entries ``at`` of an axis."""
    return op("GatherV2", x, at, axis, batch_dims=batch_dims)


def expand(x: tf.Tensor, axis: int) -> tf.Tensor:
    """``x`` with a new axis of size one."""
    return op("ExpandDims", x, axis)


def where(condition: tf.Tensor, a: Number, b: Number) -> tf.Tensor:
    """``a`` where the condition holds, else ``b``; one of them is a tensor."""
    like = next(x for x in (a, b) if isinstance(x, tf.Tensor)).dtype.as_numpy_dtype
    given = [x if isinstance(x, tf.Tensor) else np.asarray(x, like) for x in (a, b)]
    return op("SelectV2", condition, *given)


def numbers(end: Number, first: int = 0, step: int = 1) -> tf.Tensor:
    """int32: ``first``, ``first + step`` and so on, below ``end``."""
    return op("Range", first, end, step)


def shape(x: tf.Tensor) -> tf.Tensor:
    """The shape, int32."""
    return tf.shape(x) if tf.executing_eagerly() else emitter().shape_of(x)


def dim(x: tf.Tensor, axis: int) -> Any:
    """The size of an axis, an int where it is known."""
    known = x.shape[axis]
    return known if known is not None else emitter().dim(x, axis)


def part(x: tf.Tensor, first: int, end: int | None) -> tf.Tensor:
    """``x[first:end]`` of axis 0."""
    return op("StridedSlice", x, [first], [end or 0], [1], end_mask=int(end is None))


def largest(x: tf.Tensor) -> tf.Tensor:
    """The largest of some non-negative numbers, 0 of none."""
    return op("Max", concat([x, [0]]), 0)
