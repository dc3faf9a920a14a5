"""Cells of a batch as NumPy arrays and Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def dense_cells(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    """The rows of a RaggedTensor whose rows are dense: an array for each.

    Raises:
      ValueError: if a row is not dense.
    """
    values = arrays_of([ragged.flat_values])[0]
    levels = [splits.numpy() for splits in ragged.nested_row_splits]
    made: list[np.ndarray] = []
    for i in range(len(levels[0]) - 1):
        shape, first, end = list[int](), i, i + 1
        for splits in levels:
            sizes = np.diff(splits[first : end + 1])
            if sizes.size and sizes.min() < sizes.max():
                raise ValueError("A row is not dense.")
            shape.append(int(sizes[0]) if sizes.size else 0)
            first, end = int(splits[first]), int(splits[end])
        made.append(values[first:end].reshape([*shape, *values.shape[1:]]))
    return made


def nested_cells(ragged: tf.RaggedTensor, values: np.ndarray) -> np.ndarray:
    """The rows of a RaggedTensor: an object array of arrays, or of such arrays again."""
    for splits in reversed(ragged.nested_row_splits):
        values = as_objects(np.split(values, splits.numpy()[1:-1]) if len(splits) > 1 else [])
    return values


def as_objects(cells: Sequence[Any]) -> np.ndarray:
    """An object array of one axis, also where all cells have one shape."""
    made = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        made[i] = cell
    return made


def arrays_of(tensors: Sequence[Any]) -> list[np.ndarray]:
    """Tensors as arrays, also those without an element."""
    return [np.asarray(x.numpy()) for x in tensors]
