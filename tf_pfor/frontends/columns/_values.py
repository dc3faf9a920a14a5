"""Arrays of numbers and texts as tensors: each value stays as it is, or the column is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.errors import ArgumentError, ArgumentTypeError

_DO = "Leave its dtype out of the spec and convert it in the function, or give a wider dtype."
_TEXT = "SUO"  # NumPy's kinds of strings, and of objects
_MISSING = ("NAType", "NaTType")  # pandas' types, which is optional
_WHOLE = (int, np.integer)
_DIGITS = {
    "bfloat16": 8,
    "complex128": 53,
    "complex64": 24,
    "float16": 11,
    "float32": 24,
    "float64": 53,
}
"""How many binary digits of an integer a float keeps."""


def as_tensor(array: np.ndarray, name: str, dtype: tf.DType | None) -> tf.Tensor:
    """A dense array of numbers or texts as a tensor.

    Raises:
      ArgumentError: if a value would not stay as it is. Floats may be rounded to other floats.
      ArgumentTypeError: if no tensor holds such values.
    """
    is_text = array.dtype.kind in _TEXT
    if not is_text and not _is_known(array.dtype):
        raise no_tensor(name, f"dtype {array.dtype}")
    if dtype is not None and not array.size:
        return tf.zeros(array.shape, dtype)
    if is_text:
        return _texts(array, name, dtype)
    if dtype is None:
        return tf.constant(array)
    return tf.constant(_converted(array, name, dtype), dtype)


def numbers(cells: Sequence[Any], name: str, dtype: tf.DType | None) -> np.ndarray:
    """Python and NumPy numbers as an array in which integers stay as they are.

    Raises:
      ArgumentError: if no dtype holds all integers, or a float64 beside them would round one.
    """
    try:
        made = np.asarray(cells)
    except OverflowError:  # an integer beyond all floats, beside a float
        made = np.empty(0, object)
    kind = made.dtype.kind
    if kind in "biu" or not any(issubclass(t, _WHOLE) for t in set(map(type, cells))):
        return made
    whole = [int(x) for x in cells if isinstance(x, _WHOLE)]
    if kind not in "fc" or (len(whole) == len(cells) and (dtype is None or dtype.is_integer)):
        low, high = _shown(min(whole)), _shown(max(whole))
        found = f"the integer {low}" if low == high else f"integers from {low} to {high}"
        raise ArgumentError(
            f"Column {name!r} has {found}, expected integers that int64 or uint64 holds. Make "
            "them floats or texts first, or leave the column out."
        )
    for x in whole:
        if int(float(x)) != x:
            raise _beside_floats(name, x)
    return made


def of_one_dtype(
    arrays: Sequence[np.ndarray], name: str, dtype: tf.DType | None
) -> Sequence[np.ndarray]:
    """Arrays in a dtype that holds all their values; without elements a dtype does not count.

    Raises:
      ArgumentError: if integers would change.
      ArgumentTypeError: if texts stand beside numbers, or no tensor holds such values.
    """
    found = {a.dtype for a in arrays if a.size} or {a.dtype for a in arrays}
    is_text = {d.kind in _TEXT for d in found}
    if len(is_text) > 1:
        raise ArgumentTypeError(
            f"Column {name!r} has arrays of numbers beside arrays of texts. Expected: arrays of "
            "one kind. Convert some of them first."
        )
    if is_text == {True}:
        return [a.astype(object) for a in arrays] if len(found) > 1 else arrays
    for unknown in found:
        if not _is_known(unknown):
            raise no_tensor(name, f"dtype {unknown}")
    if dtype is not None and dtype != tf.string:
        return [
            _converted(a, name, dtype) if a.size else a.astype(dtype.as_numpy_dtype) for a in arrays
        ]
    return _promoted(arrays, name, found)


def missing_among(cells: Sequence[Any]) -> int:
    """The number of missing values in the cells of a list."""
    types = set(map(type, cells))  # most lists have one type: look at the cells of others only
    masked = (type(None), np.ma.MaskedArray)
    may_be = [t for t in types if issubclass(t, masked) or t.__name__ in _MISSING]
    return sum(missing_in(x) for x in cells if type(x) in may_be) if may_be else 0


def missing_in(cell: object) -> int:
    """The number of missing values: None, pandas' NA, and masked values of NumPy."""
    if isinstance(cell, np.ma.MaskedArray):
        return int(np.count_nonzero(np.ma.getmaskarray(cell)))
    return int(cell is None or type(cell).__name__ in _MISSING)


def missing(name: str, count: int) -> ArgumentError:
    """The error of a column with missing values."""
    return ArgumentError(
        f"Column {name!r} has {count} missing values in this batch, and a tensor has "
        "none. Fill or drop them before (fill_null, fillna, filled, filter)."
    )


def no_tensor(name: str, found: str) -> ArgumentTypeError:
    """The error of a column whose cells no tensor holds."""
    return ArgumentTypeError(
        f"Column {name!r} has {found}, expected numbers, bools, texts or lists of these. "
        "Convert it first, or leave it out: columns=[...] names the columns that are read."
    )


def _is_known(dtype: np.dtype[Any]) -> bool:
    """Whether tensors have the dtype: bfloat16 too, which NumPy does not know itself."""
    try:
        tf.as_dtype(dtype)
    except TypeError:
        return False
    return dtype.kind not in "mM"


def _texts(array: np.ndarray, name: str, dtype: tf.DType | None) -> tf.Tensor:
    flat = array.reshape(-1)
    if array.dtype.kind == "O":
        if count := missing_among(flat.tolist()):
            raise missing(name, count)
        for x in flat:
            if not isinstance(x, (str, bytes)):
                raise no_tensor(name, f"cells of type {type(x).__name__}")
    if dtype not in (None, tf.string):
        raise _misfit(name, "texts", dtype)
    try:
        return tf.constant(array, tf.string)
    except (TypeError, ValueError) as why:
        found = next((x for x in flat if isinstance(x, str) and not _is_utf8(x)), None)
        if found is None:
            raise
        raise ArgumentError(
            f"Column {name!r} has the text {found!r}, which has no UTF-8: a half of a surrogate "
            "pair stands alone. Expected: texts of Unicode, or bytes. Mend it "
            "(x.encode(errors='replace')), or drop it first."
        ) from why


def _promoted(
    arrays: Sequence[np.ndarray], name: str, dtypes: set[np.dtype[Any]]
) -> list[np.ndarray]:
    """Arrays in the smallest dtype that holds all of some dtypes."""
    try:
        wide = np.result_type(*dtypes)
    except TypeError:  # bfloat16 beside float16
        wide = None
    is_whole = [d.kind in "iu" for d in dtypes]
    if wide is None or (all(is_whole) and wide.kind == "f"):
        raise ArgumentError(
            f"Column {name!r} has arrays of the dtypes {', '.join(sorted(map(str, dtypes)))}, and "
            "no dtype holds them all. Expected: arrays of one dtype. Convert some of them first."
        )
    for a in arrays:
        if a.dtype.kind in "iu" and wide.kind in "fc":
            rounded = _rounded(a, a.astype(wide), tf.as_dtype(wide))
            if rounded.size:
                raise _beside_floats(name, rounded[0])
    return [a.astype(wide) for a in arrays]


def _shown(x: int) -> str:
    return str(x) if x.bit_length() < 200 else f"{'-' * (x < 0)}2**{x.bit_length() - 1} and more"


def _beside_floats(name: str, x: int) -> ArgumentError:
    return ArgumentError(
        f"Column {name!r} has the integer {_shown(x)} beside floats, and a float64 would round it. "
        "Expected: integers up to 2**53 beside floats. Make all cells floats, or all integers."
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _converted(array: np.ndarray, name: str, dtype: tf.DType) -> np.ndarray:
    """Numbers in another dtype.

    Raises:
      ArgumentError: if an integer would change, a finite number would become infinite, or the dtype
        is of another kind.
    """
    target = dtype.as_numpy_dtype
    source = tf.as_dtype(array.dtype)
    if source.is_integer and dtype.is_integer:
        outside = [int(x) for x in (array.min(), array.max())]
        outside = [x for x in outside if not int(dtype.min) <= x <= int(dtype.max)]
        if outside:
            raise _lost(name, array, outside[0], dtype, f"from {dtype.min} to {dtype.max}")
        return array.astype(target)
    if dtype == tf.string or not np.can_cast(array.dtype, target, "same_kind"):
        raise _misfit(name, f"elements of dtype {array.dtype}", dtype)
    with np.errstate(over="ignore"):  # an error of ours is raised in its place
        made = array.astype(target)
    infinite = np.isfinite(array) & ~np.isfinite(made)
    if infinite.any():
        raise _lost(name, array, array[infinite][0], dtype, "that do not become infinite")
    if source.is_integer:
        rounded = _rounded(array, made, dtype)
        if rounded.size:
            raise _lost(name, array, rounded[0], dtype, "that it holds without rounding")
    return made


def _rounded(array: np.ndarray, made: np.ndarray, dtype: tf.DType) -> np.ndarray:
    """The integers that are others as floats."""
    limit = 2 ** _DIGITS.get(dtype.name, 0)
    large = (array > limit) | (array < -limit)  # the others have few enough digits
    pairs = zip(array[large].tolist(), np.real(made[large]).tolist())
    return np.array([x for x, y in pairs if int(y) != x], object)


def _lost(
    name: str, array: np.ndarray, value: object, dtype: tf.DType, expected: str
) -> ArgumentError:
    return ArgumentError(
        f"Column {name!r} has the value {value} of dtype {array.dtype}. The spec of a cell says "
        f"{dtype.name}, expected numbers {expected}. {_DO}"
    )


def _misfit(name: str, found: str, dtype: tf.DType | None) -> ArgumentError:
    wanted = "numbers" if dtype is None else dtype.name
    return ArgumentError(
        f"Column {name!r} has {found}, expected {wanted}, as the spec of a cell says. Convert it "
        "first, or change the spec."
    )
