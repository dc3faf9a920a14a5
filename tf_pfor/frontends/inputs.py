"""The inputs of one example of a function or of a model, and their kinds.

An input that differs between rows has n in front in the batch. A shared input is the same for all
rows. The size of a ragged input differs per row: in the batch the input is padded, and a second
input has its sizes.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.settings import Fallback
from tf_pfor.reports.explain import explain
from tf_pfor.reports.report import Report
from tf_pfor.tracing.user_code import arguments_of, autographed

KINDS = ("row", "shared", "ragged")
LENGTHS = "_lengths"  # behind the name of a ragged input or output: its sizes
_AXES = 253  # of 254 that a tensor may have; one more is the axis of the rows
_ELEMENTS = 2**63 - 1
_SPEC = re.compile(r"(?:(?P<kind>\w+):)?(?P<dtype>\w+)(?:\[(?P<dims>[^\]]*)\])?")
_no_autograph = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """One input of a function of one example.

    Attributes:
      name: the name in messages.
      spec: the shape and dtype in one example.
      kind: the kind of the input. "row": the value differs per row. "shared": the value is the same
        for all rows. "ragged": each dimension that ``spec`` leaves open differs per row.
    """

    name: str
    spec: tf.TensorSpec
    kind: str = "row"

    @property
    def open_axes(self) -> list[int]:
        """The axes of a row whose size the spec leaves open: for a ragged row it differs."""
        return [i for i, size in enumerate(self.spec.shape) if size is None]

    def batched(self, n: int | None) -> list[tf.TensorSpec]:
        """The specs in a batch of n rows: one tensor, or two for a ragged input.

        The sizes of ragged rows are int64: [n], or [n, axes] where several axes are open.
        """
        if self.kind == "shared":
            return [tf.TensorSpec(self.spec.shape, self.spec.dtype, self.name)]
        shape = self.spec.shape
        whole: Any = None if shape.rank is None else [n, *shape]
        found = [tf.TensorSpec(whole, self.spec.dtype, self.name)]
        if self.kind == "ragged":
            axes = self.open_axes
            sizes = [n] if len(axes) == 1 else [n, len(axes)]
            found.append(tf.TensorSpec(sizes, tf.int64, self.name + LENGTHS))
        return found

    @property
    def axes(self) -> list[int | None]:
        """The mapped axis of each tensor of ``batched``."""
        return [None] if self.kind == "shared" else [0] * (1 + (self.kind == "ragged"))


def checked(name: str, spec: tf.TensorSpec, kind: str) -> Input:
    """An input, after a check that it may be of this kind."""
    found = Input(name, spec, kind)
    if kind == "ragged" and (spec.shape.rank is None or not found.open_axes):
        raise ArgumentError(
            f"Input {name} is said to be ragged, and has shape {spec.shape}. Expected: a known "
            "number of axes, at least one of unknown size (None): of that each row has its own."
        )
    return found


def parse(text: str, name: str = "") -> Input:
    """An input as the command line has it: ``float32[None,3]``, ``shared:int32[8]``.

    Args:
      text: ``dtype[dimensions]``, of one example; without brackets a scalar. ``shared:`` or
        ``ragged:`` may stand in front.
      name: the name in messages.

    Raises:
      ArgumentError: if it is none of these.
    """
    found = _SPEC.fullmatch(text.strip())
    if found is None or (found["kind"] or "row") not in KINDS:
        raise _bad(text, "it is not of this form")
    try:
        dtype = tf.as_dtype(found["dtype"])
    except TypeError:
        raise _bad(text, f"TensorFlow has no dtype {found['dtype']!r}") from None
    sizes: list[int | None] = []
    for size in (found["dims"] or "").split(",") if (found["dims"] or "").strip() else []:
        size = size.strip()
        if size != "None" and not size.isdecimal():
            raise _bad(text, f"{size!r} is neither a size nor None")
        sizes.append(None if size == "None" else int(size))
    if len(sizes) > _AXES:
        raise _bad(text, f"it has {len(sizes)} dimensions, and TensorFlow takes {_AXES} of a row")
    if math.prod(size or 1 for size in sizes) > _ELEMENTS:
        raise _bad(text, f"it has more than {_ELEMENTS} elements (int64)")
    return checked(name or text, tf.TensorSpec(sizes, dtype), found["kind"] or "row")


def _bad(text: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"Cannot read the input {text!r}: {why}. Expected: the spec of one example, such as "
        "float32[None,3], int32[8] or string; with shared: in front if all rows share it, with "
        "ragged: if the size differs per row where None stands."
    )


# ---------------------------------------------------------------------------
# Functions of flat tensors
# ---------------------------------------------------------------------------


def of_flat(fn: Callable[..., Any], inputs: Sequence[Input]) -> Callable[..., Any]:
    """``fn`` of the tensors of one row: one for each input, and the sizes of ragged inputs."""
    converted = autographed(fn)

    @_no_autograph
    def of_row(*flat: tf.Tensor) -> Any:
        supply, args = iter(flat), list[tf.Tensor]()
        with arguments_of(fn):
            for x in inputs:
                given = next(supply)
                args.append(_cut(given, next(supply), x) if x.kind == "ragged" else given)
        return converted(*args)

    of_row.__name__ = of_row.__qualname__ = name_of(fn)
    return of_row


def name_of(fn: object) -> str:
    """The name of a function, for reports."""
    found = getattr(fn, "__qualname__", None) or getattr(fn, "name", "")
    return found.split("<locals>.")[-1] if isinstance(found, str) and found else type(fn).__name__


def _cut(padded: tf.Tensor, sizes: tf.Tensor, given: Input) -> tf.Tensor:
    """A ragged row as large as it is."""
    axes = given.open_axes
    ends: list[Any] = [sizes] if len(axes) == 1 else tf.unstack(sizes, len(axes))
    index = [slice(None)] * (axes[-1] + 1)
    for axis, end in zip(axes, ends):
        index[axis] = slice(None, end)
    return padded[tuple(index)]


def in_axes(inputs: Sequence[Input]) -> tuple[int | None, ...]:
    """The mapped axis of each flat tensor."""
    return tuple(axis for x in inputs for axis in x.axes)


def explained(
    fn: Callable[..., Any],
    inputs: Sequence[Input],
    n: int | None = None,
    *,
    fallback: Fallback | None = None,
) -> Report:
    """The ``Report`` of a function of one example; of a ``pfor`` body if it has no inputs."""
    if not inputs:
        return explain(fn, n, fallback=fallback)
    if all(x.kind == "shared" for x in inputs):
        raise ArgumentError("All inputs are shared: there is nothing to map over.")
    specs = [spec for x in inputs for spec in x.batched(n)]
    return explain(of_flat(fn, inputs), *specs, in_axes=in_axes(inputs), fallback=fallback)


# ---------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------

_WORDS = np.asarray([b"", b"a", b"one", b"two words", b"3.5"], object)
_OPEN = 4  # the size of a dimension that is not known


def made(inputs: Sequence[Input], n: int, seed: int = 0) -> list[np.ndarray]:
    """Values for the flat tensors of n rows.

    Floats are normal numbers, integers are 0 or 1, text is some short words. Open dimensions have 4
    elements. Open dimensions of a ragged row have 0 to 4, with zeros behind its end.
    """
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for x in inputs:
        if x.spec.shape.rank is None:
            raise ArgumentError(f"Input {x.name} has unknown rank: values for it must be given.")
        lead = [] if x.kind == "shared" else [n]
        shape = [*lead, *(_OPEN if size is None else size for size in x.spec.shape)]
        try:
            values = _values(rng, x.spec.dtype, shape)
        except (MemoryError, ValueError) as why:  # numpy's: too large for it
            raise ArgumentError(
                f"Values of input {x.name} for {n} rows, of shape {shape}, do not fit into memory. "
                "Measure fewer rows (-n), or smaller ones."
            ) from why
        found.append(values)
        if x.kind == "ragged":
            sizes = rng.integers(0, _OPEN + 1, [n, len(x.open_axes)])
            for row, ends in zip(values, sizes):
                for axis, end in zip(x.open_axes, ends):
                    row[(slice(None),) * axis + (slice(end, None),)] = (
                        0 if row.dtype != object else b""
                    )
            found.append(sizes[:, 0] if len(x.open_axes) == 1 else sizes)
    return found


def _values(rng: np.random.Generator, dtype: tf.DType, shape: Sequence[int]) -> np.ndarray:
    if dtype == tf.string:
        return rng.choice(_WORDS, shape)
    if dtype == tf.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_complex:
        parts = rng.standard_normal([2, *shape])
        return np.asarray(parts[0] + 1j * parts[1], dtype.as_numpy_dtype)
    if dtype.is_floating:
        return np.asarray(rng.standard_normal(shape), dtype.as_numpy_dtype)
    return np.asarray(rng.integers(0, 2, shape), dtype.as_numpy_dtype)
