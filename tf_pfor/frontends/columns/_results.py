"""Batches of tensors as columns, in the form that came in: NumPy, Arrow or pandas."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.columns._cells import as_objects, dense_cells, nested_cells
from tf_pfor.frontends.columns._inputs import Module

Batch: TypeAlias = Any
"""Columns by name: a mapping, an Arrow table or batch of records, or a data frame."""


def named(result: Nest) -> dict[str, Any]:
    """The checked columns of one row, as the user's function returned them."""
    if not isinstance(result, Mapping):
        raise ArgumentTypeError(
            f"The function of column_function returned a {type(result).__name__}, expected a dict "
            'of tensors by the name of a column, such as {"score": score}.'
        )
    return {name: tensor_of(value, f"column {name!r}") for name, value in result.items()}


def tensor_of(value: Nest, what: str) -> Any:
    """One value of a row as a Tensor or a RaggedTensor."""
    if isinstance(value, tf.RaggedTensor):
        return value
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as why:
        raise ArgumentTypeError(
            f"The function returned a {type(value).__name__} for {what}, expected a tensor or a "
            "RaggedTensor. Return its tensors under names, or make it dense (tf.sparse.to_dense)."
        ) from why


class Cells:
    """A column of results.

    Attributes:
      name: its name, for messages.
      tensor: the batch: a Tensor or a RaggedTensor.
      is_dense: whether each row is a dense tensor, of whatever shape.
      is_text: whether it has strings that are decoded as UTF-8.
    """

    def __init__(self, name: str, tensor: Nest, *, is_dense: bool, binary: Collection[str]):
        self.name, self.tensor, self.is_dense = name, tensor, is_dense
        self.is_text = tensor.dtype == tf.string and name not in binary

    def as_numpy(self) -> np.ndarray:
        """An array, [n, ...]; or an object array of n arrays where shapes may differ."""
        if not isinstance(self.tensor, tf.RaggedTensor):
            return self._decoded(self.tensor.numpy())
        if self.is_dense and self.tensor.ragged_rank > 1:
            return as_objects([self._decoded(cell) for cell in dense_cells(self.tensor)])
        return nested_cells(self.tensor, self._decoded(self.tensor.flat_values.numpy()))

    def as_arrow(self, arrow: Module) -> Any:
        """An Arrow array: lists for all axes but the first."""
        tensor, levels = self.tensor, list[Any]()
        if isinstance(tensor, tf.RaggedTensor):
            tensor, levels = tensor.flat_values, [s.numpy() for s in tensor.nested_row_splits]
        values = np.asarray(tensor.numpy())
        if tensor.dtype == tf.string:
            made = arrow.array(values.ravel(), arrow.binary())
            if self.is_text:
                try:
                    made = made.cast(arrow.string())
                except arrow.ArrowInvalid as why:
                    raise self._no_text() from why
        else:
            made = arrow.array(values.ravel())
        # Lists of fixed size would change their type where sizes differ, and Spark has none.
        shape = values.shape
        for axis in range(1, values.ndim):
            levels.append(np.arange(math.prod(shape[:axis]) + 1) * shape[axis])
        for splits in reversed(levels):
            is_large = splits[-1] > np.iinfo(np.int32).max
            kind = arrow.LargeListArray if is_large else arrow.ListArray
            made = kind.from_arrays(splits.astype(np.int64 if is_large else np.int32), made)
        return made

    def _decoded(self, array: np.ndarray) -> np.ndarray:
        if not self.is_text:
            return array
        try:
            texts = [x.decode() for x in np.ravel(array)]
        except UnicodeDecodeError as why:
            raise self._no_text() from why
        return as_objects(texts).reshape(np.shape(array))

    def _no_text(self) -> ArgumentError:
        return ArgumentError(
            f"Column {self.name!r} of the results has bytes that are no UTF-8. If it is no text, "
            f"say so: binary=[{self.name!r}]."
        )


def columns_of(batch: Batch) -> Mapping[str, Any]:
    """The columns of a batch by name."""
    arrow, pandas = sys.modules.get("pyarrow"), sys.modules.get("pandas")
    if arrow is not None and isinstance(batch, (arrow.Table, arrow.RecordBatch)):
        return dict(zip(batch.schema.names, batch.columns))
    if pandas is not None and isinstance(batch, pandas.DataFrame):
        return {str(name): batch[name] for name in batch.columns}
    if isinstance(batch, Mapping):
        return batch
    raise ArgumentTypeError(
        f"A column function was called with a {type(batch).__name__}, expected a dict of columns, "
        "a pyarrow.Table or RecordBatch, or a pandas.DataFrame."
    )


def in_form_of(batch: Batch, cells: Collection[Cells]) -> Batch:
    """Columns of results in the form in which ``batch`` came."""
    arrow, pandas = sys.modules.get("pyarrow"), sys.modules.get("pandas")
    if arrow is not None and isinstance(batch, (arrow.Table, arrow.RecordBatch)):
        made = {c.name: c.as_arrow(arrow) for c in cells}
        return type(batch).from_arrays([*made.values()], [*made])
    made = {c.name: c.as_numpy() for c in cells}
    if pandas is not None and isinstance(batch, pandas.DataFrame):
        return pandas.DataFrame(
            {name: x if x.ndim == 1 else as_objects([*x]) for name, x in made.items()},
            index=batch.index,
        )
    return made
