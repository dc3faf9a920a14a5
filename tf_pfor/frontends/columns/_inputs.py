"""Columns of NumPy, Arrow, pandas or Python lists as batches of tensors.

A column whose cells have one shape is a tensor, [n, ...]. A column of lists is a RaggedTensor. A
column of arrays of different shapes is padded, and its sizes go along (``Uneven``).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_pfor._tf._types import RAGGED
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError, did_you_mean
from tf_pfor.frontends.columns import _values
from tf_pfor.frontends.columns._cells import dense_cells
from tf_pfor.frontends.data._elements import Uneven

Column: TypeAlias = Any
"""A column in the form of some engine, or the tensors that it became."""
Module: TypeAlias = Any
"""A module that is not imported here, as pyarrow is optional."""
Spec = tf.TensorSpec | tf.RaggedTensorSpec
"""The shape and dtype of one cell."""


class Row(dict[str, Any]):
    """A row as the user's function gets it: a dict that names the column that it lacks."""

    def __missing__(self, name: str) -> Any:
        """Names the column.

        Raises:
          ArgumentError: always.
        """
        raise ArgumentError(
            f"The function reads {name!r}, which its row lacks. Expected: a name of the row's "
            f"columns, {', '.join(map(str, self))}. Give the column in each batch, and in columns= "
            f"if that names columns.{did_you_mean(str(name), map(str, self))}"
        )


def tensors(column: Column, name: str, spec: Spec | None = None) -> Column:
    """A column as a batch for ``vmap``: a Tensor, a RaggedTensor or an ``Uneven``.

    Args:
      column: a NumPy array, an Arrow array, a pandas Series, or a list of cells.
      name: its name, for messages.
      spec: the shape and dtype of one cell, where the user gave them.

    Raises:
      ArgumentError: if cells are missing, or do not have the shape that ``spec`` says.
      ArgumentTypeError: if cells have a type that no tensor has.
    """
    if spec is None:
        return _Reader(name, None).read(column)
    is_empty = _is_sequence(column) and not len(column)
    made = _none(spec) if is_empty else _Reader(name, spec.dtype).read(column)
    return _fitted(made, name, spec)


def size_of(batch: Column) -> int:
    """The number of rows of what ``tensors`` made."""
    if isinstance(batch, Uneven):
        return size_of(batch.tensor)
    return int(batch.nrows()) if isinstance(batch, tf.RaggedTensor) else int(batch.shape[0])


def _none(spec: Column) -> Column:
    """No cells at all: a list of none does not know their shape."""
    if isinstance(spec, tf.TensorSpec):
        return tf.zeros([0, *[size or 0 for size in spec.shape]], spec.dtype)
    inner = [size or 0 for size in spec.shape[spec.ragged_rank + 1 :]]
    splits = [tf.zeros([1], tf.int64)] * (spec.ragged_rank + 1)
    return RAGGED.from_nested_row_splits(tf.zeros([0, *inner], spec.dtype), splits)


class _Reader:
    """Reads one column.

    Attributes:
      name: its name, for messages.
      dtype: the dtype of its elements, where the user gave it.
    """

    def __init__(self, name: str, dtype: tf.DType | None):
        self.name, self.dtype = name, dtype

    def read(self, column: Column) -> Column:
        """A column of any form."""
        arrow, pandas = sys.modules.get("pyarrow"), sys.modules.get("pandas")
        if arrow is not None and isinstance(column, (arrow.Array, arrow.ChunkedArray)):
            return self._of_arrow(column, arrow)
        if pandas is not None and isinstance(column, pandas.Series):
            is_nullable = not isinstance(column.dtype, np.dtype)
            if missing := int(column.isna().sum()) if is_nullable else 0:  # to_numpy makes NaN
                raise _values.missing(self.name, missing)
            column = column.to_numpy()
        if isinstance(column, tf.RaggedTensor):
            return column.with_flat_values(self._cast(column.flat_values))
        if isinstance(column, tf.Tensor) and column.shape.rank:
            return self._cast(column)
        if isinstance(column, np.ndarray) and column.ndim and column.dtype.kind != "O":
            return self._leaf(self._whole(column))
        if _is_sequence(column) or (isinstance(column, np.ndarray) and column.ndim):
            return self._of_cells([*column])
        raise ArgumentTypeError(
            f"Column {self.name!r} is a {type(column).__name__}, expected a NumPy array with rows, "
            "an Arrow array, a pandas Series, or a list or another sequence of cells. Convert it "
            "first."
        )

    def _cast(self, tensor: tf.Tensor) -> tf.Tensor:
        """A column that is a tensor already, in the dtype that the user gave."""
        is_fit = self.dtype in (None, tensor.dtype)
        return tensor if is_fit else self._leaf(np.asarray(tensor.numpy()))

    def _whole(self, array: np.ndarray) -> np.ndarray:
        """An array without a mask: masked values are missing ones."""
        if missing := _values.missing_in(array):
            raise _values.missing(self.name, missing)
        return np.asarray(array)

    def _of_cells(self, cells: Sequence[Column]) -> Column:
        """A list of cells: numbers, texts, arrays, or lists of such."""
        if missing := _values.missing_among(cells):
            raise _values.missing(self.name, missing)
        kinds = _kinds(cells)
        if len(kinds) > 1:
            raise ArgumentTypeError(
                f"Column {self.name!r} has cells of different types: {', '.join(sorted(kinds))}. "
                "Expected: all numbers, all texts, all lists or all arrays."
            )
        kind = kinds.pop() if kinds else "nothing"
        if kind == "list":
            return self._nested(cells)
        if kind == "array":
            arrays = [np.asarray(cell) for cell in cells]
            return self._of_arrays(_values.of_one_dtype(arrays, self.name, self.dtype))
        if kind == "nothing" and self.dtype is None:
            raise ArgumentError(
                f"Column {self.name!r} has no element in this batch, so that its dtype is unknown. "
                "Give the spec of a cell, such as tf.TensorSpec([None], tf.int64): columns= of "
                "column_function, spec= of tf_pfor.beam.Map."
            )
        if kind == "number":
            return self._leaf(_values.numbers(cells, self.name, self.dtype))
        return self._leaf(_flat(cells, kind))

    def _nested(self, cells: Sequence[Sequence[Column]]) -> Column:
        """Lists, whose elements are cells again."""
        splits = np.cumsum([0, *map(len, cells)])
        flat: list[Column] = [*itertools.chain.from_iterable(cells)]
        inner = self._of_cells(flat)
        if isinstance(inner, Uneven):
            raise ArgumentTypeError(
                f"Column {self.name!r} has lists of arrays of different shapes. Expected: lists of "
                "numbers or texts, lists of such lists, or one array in each cell."
            )
        return RAGGED.from_row_splits(inner, splits, validate=False)

    def _of_arrays(self, arrays: Sequence[np.ndarray]) -> Column:
        """One array in each cell: stacked if they have one shape."""
        shapes = {a.shape for a in arrays}
        if len(shapes) == 1:
            return self._leaf(np.stack(arrays))
        ranks = {len(shape) for shape in shapes}
        if len(ranks) > 1:
            raise ArgumentError(
                f"Column {self.name!r} has arrays with different numbers of axes: {sorted(ranks)}. "
                "Expected: arrays with one number of axes."
            )
        if ranks == {1}:
            splits = np.cumsum([0, *map(len, arrays)])
            return RAGGED.from_row_splits(
                self._leaf(np.concatenate(arrays)), splits, validate=False
            )
        return padded(arrays, self._leaf(np.concatenate([a.ravel() for a in arrays])))

    def _of_arrow(self, column: Column, arrow: Module) -> Column:
        """An Arrow array: lists keep their offsets, and no Python object is made for a number."""
        if isinstance(column, arrow.ChunkedArray):
            column = (
                arrow.concat_arrays(column.chunks)
                if column.chunks
                else arrow.nulls(0).cast(column.type)
            )
        types, kind = arrow.types, column.type
        if column.null_count:
            raise _values.missing(self.name, column.null_count)
        if types.is_dictionary(kind):
            return self._of_arrow(column.dictionary_decode(), arrow)
        if isinstance(kind, arrow.BaseExtensionType):
            if missing := _missing_inside(column.storage, types):
                raise _values.missing(self.name, missing)
            if hasattr(column, "to_numpy_ndarray"):
                return self._leaf(column.to_numpy_ndarray())
            if hasattr(kind, "to_pandas_dtype") and hasattr(column, "to_numpy"):
                return self.read(column.to_numpy(zero_copy_only=False))
            return self._of_arrow(column.storage, arrow)
        if types.is_fixed_size_list(kind):
            inner, count = self._of_arrow(column.flatten(), arrow), kind.list_size
            if isinstance(inner, tf.RaggedTensor):
                return RAGGED.from_uniform_row_length(inner, count, len(column))
            return tf.reshape(inner, [len(column), count, *inner.shape[1:]])
        if types.is_list(kind) or types.is_large_list(kind):
            offsets = column.offsets.to_numpy().astype(np.int64)
            inner = self._of_arrow(column.flatten(), arrow)
            return RAGGED.from_row_splits(inner, offsets - offsets[0], validate=False)
        if types.is_string(kind) or types.is_large_string(kind):
            column = column.cast(arrow.large_binary())
        elif not (types.is_primitive(kind) or types.is_binary(kind) or types.is_large_binary(kind)):
            raise _values.no_tensor(self.name, f"Arrow type {kind}")
        return self._leaf(column.to_numpy(zero_copy_only=False))

    def _leaf(self, array: np.ndarray) -> tf.Tensor:
        """A dense array of numbers or texts."""
        return _values.as_tensor(array, self.name, self.dtype)


def padded(arrays: Sequence[np.ndarray], flat: tf.Tensor) -> Uneven:
    """Arrays of different shapes, one behind the other in ``flat``, as a padded batch."""
    sizes = np.array([a.shape for a in arrays])
    values = np.asarray(flat.numpy())
    shape = [len(arrays), *sizes.max(0).tolist()]
    made = np.full(shape, b"" if values.dtype == object else 0, values.dtype)
    ends = np.cumsum(sizes.prod(1))
    for row, part, of_row in zip(made, np.split(values, ends[:-1]), sizes):
        row[tuple(map(slice, of_row))] = part.reshape(of_row)
    axes = [int(axis) for axis in np.flatnonzero(sizes.min(0) < sizes.max(0))]
    return Uneven(tf.constant(made), tf.constant(sizes, tf.int32), {k: () for k in axes})


def _kinds(cells: Sequence[Column]) -> set[str]:
    """The kinds of cells; cells of one type are of one kind, but for arrays."""
    by_type = dict(zip(map(type, cells), cells))
    has_arrays = any(hasattr(t, "__array__") for t in by_type)
    return {_kind(cell) for cell in (cells if has_arrays else by_type.values())}


def _kind(cell: Column) -> str:
    if isinstance(cell, (str, bytes)):
        return "text"
    if _is_sequence(cell) or (
        isinstance(cell, np.ndarray) and cell.ndim == 1 and cell.dtype.kind == "O"
    ):
        return "list"
    if isinstance(cell, np.ndarray) or (hasattr(cell, "__array__") and np.ndim(cell)):
        return "array"
    is_number = isinstance(cell, (bool, int, float, complex, np.generic))
    return "number" if is_number else type(cell).__name__


def _is_sequence(x: Column) -> bool:
    """Says of lists, tuples, ranges and the like, which are no texts, that they are cells."""
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes, bytearray, memoryview))


def _missing_inside(storage: Column, types: Module) -> int:
    """The missing values in Arrow lists: conversions of an extension type read them as zeros."""
    found = storage.null_count
    lists = types.is_list, types.is_large_list, types.is_fixed_size_list
    while any(is_list(storage.type) for is_list in lists):
        storage = storage.flatten()
        found += storage.null_count
    return found


def _flat(cells: Sequence[Column], kind: str) -> np.ndarray:
    """Cells that are no arrays, as an array; texts and other objects are kept as they are."""
    if kind == "nothing":
        return np.zeros(0)
    made = np.empty(len(cells), object)
    made[:] = cells
    return made


# ---------------------------------------------------------------------------
# Shapes that the user gave
# ---------------------------------------------------------------------------


def _fitted(made: Column, name: str, spec: Spec) -> Column:
    """A column in the form that the spec of a cell says."""
    if isinstance(made, tf.RaggedTensor) and not made.flat_values.shape.num_elements():
        made = _deeper(made, spec)
    if isinstance(spec, tf.RaggedTensorSpec):
        ragged: Column = spec
        if isinstance(made, tf.RaggedTensor) and made.ragged_rank == ragged.ragged_rank + 1:
            return made
        raise _misfit(made, name, spec)
    shape = spec.shape
    if shape.rank is None or shape.rank != _tensor(made).shape.rank - 1:
        raise _misfit(made, name, spec)
    if shape.is_fully_defined():
        return _dense(made, name, spec)
    is_list = isinstance(made, tf.RaggedTensor) and made.ragged_rank == 1 and shape[0] is None
    if is_list and shape[1:].is_compatible_with(made.shape[2:]):
        return made
    if isinstance(made, tf.Tensor) and shape.rank == 1:
        return RAGGED.from_tensor(made)
    try:
        return _uneven(made, spec)
    except ValueError as why:
        raise _misfit(made, name, spec) from why


def _deeper(made: tf.RaggedTensor, spec: Spec) -> Column:
    """Lists without elements as deep as the spec says: they do not know it themselves."""
    if isinstance(spec, tf.RaggedTensorSpec):
        ragged: Column = spec
        splits = [*made.nested_row_splits]
        splits += [tf.zeros([1], tf.int64)] * (ragged.ragged_rank + 1 - len(splits))
        return RAGGED.from_nested_row_splits(_none(spec).flat_values, splits)
    if made.ragged_rank == 1 and spec.shape.rank and spec.shape[0] in (0, None):
        return tf.zeros([size_of(made), *[size or 0 for size in spec.shape]], spec.dtype)
    return made


def _dense(made: Column, name: str, spec: tf.TensorSpec) -> tf.Tensor:
    if isinstance(made, tf.RaggedTensor):
        sizes: list[Any] = [*spec.shape]
        levels = [splits.numpy() for splits in made.nested_row_splits]
        fits = all(np.all(np.diff(splits) == size) for splits, size in zip(levels, sizes))
        if fits and made.flat_values.shape[1:].as_list() == sizes[len(levels) :]:
            return tf.reshape(made.flat_values, [size_of(made), *sizes])
    if isinstance(made, tf.Tensor) and made.shape[1:].is_compatible_with(spec.shape):
        return made
    raise _misfit(made, name, spec)


def _uneven(made: Column, spec: tf.TensorSpec) -> Uneven:
    """Cells with some sizes that differ, as the spec says."""
    if isinstance(made, tf.RaggedTensor):
        made = padded(dense_cells(made), made.flat_values) if size_of(made) else made.to_tensor()
    if isinstance(made, tf.Tensor):
        sizes = tf.tile(tf.shape(made)[tf.newaxis, 1:], [size_of(made), 1])
        made = Uneven(made, sizes, {})
    given = made.tensor.shape.as_list()[1:]
    known = [None if k in made.axes else given[k] for k in range(len(given))]
    if not spec.shape.is_compatible_with(known):
        raise ValueError("shapes differ")
    wanted = spec.shape.as_list()
    if any(k is not None and size is None for k, size in zip(wanted, known)):
        raise ValueError("sizes differ")
    return Uneven(made.tensor, made.sizes, {k: () for k, s in enumerate(wanted) if s is None})


def _tensor(made: Column) -> Column:
    return made.tensor if isinstance(made, Uneven) else made


def _misfit(made: Column, name: str, spec: Spec) -> ArgumentError:
    shape = _tensor(made).shape[1:]
    return ArgumentError(
        f"Column {name!r} has cells of shape {shape} in this batch (None: it differs), expected "
        f"{spec}. Give the shape that all cells have, with None where it differs."
    )
