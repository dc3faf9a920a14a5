"""Helpers of converters of parsers: lengths from row splits, keys that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import row_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import RowSizes


def same_for_all(call: Call, *names: str) -> None:
    """Inputs that must not differ between iterations.

    Raises:
      CannotVectorize: naming the first one that does.
    """
    for name in names:
        value = call.inputs[name]
        if any(v.is_stacked for v in (value if isinstance(value, list) else [value])):
            raise CannotVectorize(f"'{name}' differs between iterations")


def keys(call: Call, name: str) -> list[bytes]:
    """The keys of an input, which must be known before running."""
    return list(call.constant(name).reshape([-1]))


def listed(call: Call, name: str) -> list[bytes]:
    """The keys of an input that is a list of scalars."""
    values: Any = call.inputs[name]
    found = [v.constant for v in values]
    if any(key is None for key in found):
        raise CannotVectorize(f"input '{name}' is not a constant")
    return [key.item() for key in found]


def strings(call: Call, texts: Sequence[bytes]) -> tf.Tensor:
    """A constant vector of strings."""
    array = np.empty([len(texts)], object)
    array[:] = list(texts)
    return call.emit.constant(array, tf.string)


def differences(call: Call, splits: tf.Tensor) -> tf.Tensor:
    """[n + 1] -> [n]: how much lies between two splits."""
    ends = splits[1:]
    return ends - splits[:-1]


def sizes_between(call: Call, splits: tf.Tensor) -> RowSizes:
    """The lengths of rows between splits int32 [n + 1]."""
    return row_sizes(call, differences(call, splits))


def nothing(call: Call, dtype: tf.DType) -> Value:
    """A vector without elements, the same in all rows."""
    array = np.zeros([0], dtype.as_numpy_dtype)
    return Value.unstacked(call.emit.constant(array), array)


def names_of(call: Call, name: str, like: Sequence[Any]) -> tf.Tensor:
    """Names of the examples for error messages: [total], or none.

    Args:
      call: the call.
      name: the input.
      like: n, and the number of examples in a row where that has an axis.
    """
    value = call.value(name)
    if value.inner_shape is None:
        raise CannotVectorize(f"the rank of '{name}' is unknown")
    if 0 in value.inner_shape or len(value.inner_shape) != len(like) - 1:
        return strings(call, [])
    return call.emit("Reshape", call.stacked(value), np.asarray([-1], np.int32))
