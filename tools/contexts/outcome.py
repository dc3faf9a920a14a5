"""The outcome of a cell: the map of a body in a context, against a loop over its rows."""

from __future__ import annotations

import dataclasses
import re
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor.core.errors import ConversionError, PforError
from tools.contexts.bodies import Body, D, Row
from tools.contexts.contexts import Context, gradient

VECTORIZED, LOOPED, REFUSED, NONE = "yes", "loop", "refused", ""
WRONG, RAW = "WRONG", "RAW ERROR"
RTOL, ATOL = 2e-4, 2e-5


@dataclasses.dataclass(frozen=True)
class Cell:
    """The outcome of a body in a context.

    Attributes:
      sign: vectorized, looped, refused; wrong or a raw error, which must not be; none where a
        loop over the rows fails as well.
      why: the reason of a loop, the error of a refusal.
    """

    sign: str
    why: str = ""


class _OneRowError(Exception):
    """A loop over the rows fails by itself."""


def outcome(body: Body, context: Context) -> Cell:
    """Runs one cell: with the fallback off, and where that is refused with it."""
    try:
        expected = _expected(body, context)
    except _OneRowError as why:
        return Cell(NONE, str(why))
    why = ""
    for fallback in ("error", "loop"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = _found(body, context, fallback)
            except PforError as error:
                why = _line(error)
                if fallback == "loop" or isinstance(error, ConversionError):
                    is_raw = isinstance(error, ConversionError)
                    return Cell(RAW if is_raw else REFUSED, why)
                continue
            except Exception as error:  # any error of a cell is an answer
                return Cell(RAW, f"{fallback}: {type(error).__name__}: {_line(error)}")
        try:
            _compare(found, expected, body, context)
        except AssertionError as error:
            return Cell(WRONG, f"{fallback}: {_line(error)}")
        if fallback == "error":
            return Cell(VECTORIZED)
        loops = [w for w in caught if issubclass(w.category, tf_pfor.FallbackWarning)]
        return Cell(LOOPED, _line(loops[0].message) if loops else why)
    raise AssertionError("both ways of the fallback return")


def _line(error: Any) -> str:
    """A message in one line, without the paths of a machine."""
    text = " ".join(str(error).replace("|", "/").split())
    return re.sub(r"(/[\w.-]+)+/", "", text)[:200]


def _made(body: Body) -> tuple[Row, list[Any]]:
    made, state = body.make()
    tf.random.set_seed(1)

    def row(r: tf.Tensor) -> Any:
        return made(r)

    row.held = state  # type: ignore[attr-defined]
    return row, [v for v in state if not hasattr(v, "lookup")]


def _values(state: list[Any]) -> list[np.ndarray]:
    return [np.asarray(v) for v in state]


def _expected(body: Body, context: Context) -> tuple[list[Any], list[np.ndarray]]:
    """The results of the rows one after the other, and the state that they leave."""
    row, state = _made(body)
    if context.tape and not _has_floats(body, context):
        raise _OneRowError("no gradient")
    one = gradient(row) if context.tape else row
    if context.tape == "twice":
        one = gradient(one)
    spec = [tf.TensorSpec([None, D])]
    try:
        if context.is_compiled and context.tape:
            run = gradient(tf.function(row, jit_compile=True))
        elif context.is_compiled:  # XLA draws other numbers
            run = tf.function(one, jit_compile=True)
        else:
            run = tf.function(one, input_signature=spec)
        return [_flat(run(r)) for r in context.rows], _values(state)
    except Exception as error:
        raise _OneRowError(f"one row: {_line(error)}") from error


def _has_floats(body: Body, context: Context) -> bool:
    row, _ = body.make()
    found = tf.nest.flatten(row(context.rows[0]), expand_composites=True)
    return any(t.dtype.is_floating for t in found)


def _found(body: Body, context: Context, fallback: str) -> tuple[list[Any], list[np.ndarray]]:
    row, state = _made(body)
    if "x[:k]" in context.name and context.is_compiled:
        return [context.run(row, {"fallback": fallback})], _values(state)
    made = context.run(row, {"fallback": fallback})
    rows = [made]
    for _ in range(context.nests):
        rows = [x for each in rows for x in _unstacked(each)]
    return [_flat(r) for r in rows], _values(state)


def _unstacked(result: Any) -> list[Any]:
    """The results of each row."""
    leaves = tf.nest.flatten(result)
    parts = [[x[i] for i in range(int(_count(x)))] for x in leaves]
    return [tf.nest.pack_sequence_as(result, [*row]) for row in zip(*parts, strict=True)]


def _count(x: Any) -> Any:
    return x.nrows() if isinstance(x, tf.RaggedTensor) else x.shape[0]


def _flat(result: Any) -> list[Any]:
    return [_dense(x) for x in tf.nest.flatten(result)]


def _dense(x: Any) -> np.ndarray:
    if isinstance(x, tf.RaggedTensor):
        return x.to_tensor().numpy() if x.nrows() else x.flat_values.numpy()
    if isinstance(x, tf.IndexedSlices):
        x = tf.convert_to_tensor(x)
    return np.asarray(x.numpy(), object if x.dtype == tf.string else None)


def _compare(found: Any, expected: Any, body: Body, context: Context) -> None:
    if context.is_compiled and "x[:k]" in context.name:
        return _compare_sums(found, expected, body)
    (rows, state), (wanted, state_wanted) = found, expected
    assert len(rows) == len(wanted), f"{len(rows)} rows, not {len(wanted)}"
    is_free = body.is_free or (context.branches and body.name.startswith("generator"))
    for got, want in zip(rows, wanted):
        assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
        for x, y in zip(got, want):
            _same(x, _padded(y, x.shape) if context.pads else y, is_free)
    for x, y in zip(state, state_wanted):
        _same(x, y, body.is_free)


def _compare_sums(found: Any, expected: Any, body: Body) -> None:
    for k, sums in enumerate(found[0][0]):
        wanted = [np.sum(row[k].astype(np.float32)) for row in expected[0]]
        _same(sums.numpy(), np.stack(wanted), body.is_free)
    for x, y in zip(found[1], expected[1]):
        _same(x, y, body.is_free)


def _padded(row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A row with zeros behind it, as large as the largest."""
    if not shape or row.ndim != len(shape):
        return row
    return np.pad(row, [(0, max(0, most - k)) for k, most in zip(row.shape, shape)])


def _same(got: np.ndarray, want: np.ndarray, is_free: bool) -> None:
    assert got.dtype == want.dtype, f"{got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    if is_free:
        return
    if np.issubdtype(got.dtype, np.inexact):
        np.testing.assert_allclose(got, want, RTOL, ATOL)
    else:
        np.testing.assert_array_equal(got, want)
