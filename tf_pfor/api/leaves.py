"""A leaf of an argument as a tensor with rows, or one error that says what to pass instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest

_SCALARS = (bool, int, float, complex, str, bytes)


def tensor_of(leaf: Nest, name: str, shared: str) -> tf.Tensor:
    """The leaf as a tensor; ``name``, and ``shared`` as advice, are for errors.

    Raises:
      ArgumentTypeError: if it is no tensor.
      ArgumentError: if it is a handle, or a number or text of Python.
    """
    try:
        tensor = tf.convert_to_tensor(leaf)
    except (TypeError, ValueError) as why:
        raise _no_tensor(leaf, name, shared) from why
    if tensor.shape.rank == 0 and tensor.dtype in (tf.resource, tf.variant):
        raise ArgumentTypeError(
            f"{name} is a handle (dtype {tensor.dtype.name}) of a variable, a table, a queue, a "
            f"dataset or a list, which has no rows. Expected: a tensor of shape [n, ...]. {shared}"
        )
    if is_scalar(leaf):
        raise ArgumentError(
            f"{name} is a scalar, {leaf!r}. Expected: a tensor of shape [n, ...], with one row for "
            "each call of the function. A list of numbers or texts is a nest of scalars: make one "
            "tensor of it, tf.constant([...]), or tf.ragged.constant([...]) if lengths differ. "
            f"{shared}"
        )
    return tensor


def array(x: Nest, name: str) -> tf.Tensor:
    """A tensor, or an array or the like as one; ``name`` is for the error."""
    try:
        return tf.convert_to_tensor(x)
    except (TypeError, ValueError) as why:
        raise ArgumentTypeError(
            f"{name} is a {type(x).__name__}, expected a tensor or an array."
        ) from why


def filled(structure: Nest, leaves: Sequence[Any]) -> Any:
    """The nest with other leaves where there is no None; composites are leaves."""
    supply = iter(leaves)
    packed = [None if x is None else next(supply) for x in tf.nest.flatten(structure)]
    return tf.nest.pack_sequence_as(structure, packed)


def moved(tensor: tf.Tensor, source: int, destination: int) -> tf.Tensor:
    """The tensor with one axis moved."""
    order = [k for k in range(len(tensor.shape)) if k != source]
    order.insert(destination, source)
    return tensor if source == destination else tf.transpose(tensor, order)


def is_scalar(leaf: object) -> bool:
    """Whether a leaf is a number or a text of Python."""
    return isinstance(leaf, _SCALARS)


def check_tensor(leaf: object, name: str, shared: str) -> None:
    """Refuses an array, or a tensor of Keras, that no TensorFlow function takes."""
    if _is_of_keras(leaf):
        raise _no_tensor(leaf, name, shared)
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OMmV":
        try:
            tf.convert_to_tensor(leaf)
        except (TypeError, ValueError) as why:
            raise _no_tensor(leaf, name, shared) from why


def _is_of_keras(leaf: object) -> bool:
    return type(leaf).__name__ == "KerasTensor"


def _no_tensor(leaf: object, name: str, shared: str) -> ArgumentTypeError:
    kind, advice = f"a {type(leaf).__name__}", shared
    if _is_of_keras(leaf):
        kind = "a KerasTensor (keras.Input, or what a layer makes of one), which has no values"
        advice = "In a functional model use a layer of the function: tf_pfor.keras.Vectorized(fn)."
    elif isinstance(leaf, np.ndarray):
        kind = f"a NumPy array of dtype {leaf.dtype}"
        if leaf.dtype.names:
            advice = f"Pass a dict of its fields: {{k: x[k] for k in {[*leaf.dtype.names]}}}."
        elif leaf.dtype.kind in "Mm":
            advice = "Pass numbers: x.astype('int64')."
        else:
            makers = "Stack equal rows (np.stack), or make ragged rows (tf.ragged.constant)."
            advice = f"{makers} {shared}"
    return ArgumentTypeError(
        f"{name} is {kind}, expected a tensor or an array of numbers, bools or texts. {advice}"
    )
