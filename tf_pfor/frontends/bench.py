"""``bench``: a function of one example, vectorized, by ``tf.map_fn`` and by a Python loop."""

from __future__ import annotations

import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.api.vmap import vmap
from tf_pfor.core.errors import FallbackWarning
from tf_pfor.core.nests import Nest
from tf_pfor.core.registry import Outcome
from tf_pfor.frontends import inputs as described
from tf_pfor.frontends.inputs import Input
from tf_pfor.reports.both_ways import is_close

_CALLS, _SECONDS = 25, 2.0  # of one way: as many calls as take so long, at most so many


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """One way to run a function on all rows.

    Attributes:
      way: the name of the way.
      milliseconds: the median of several calls; None where the way failed.
      first: the milliseconds of the first call, in which the function is traced.
      calls: the number of calls of the median.
      equal: whether the results equal the results of a Python loop; None where they were not
        compared.
      error: the reason of a failure, else "".
    """

    way: str
    milliseconds: float | None
    first: float | None
    calls: int
    equal: bool | None
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """The times that ``bench`` measured.

    Attributes:
      name: the name of the function.
      n: the number of rows.
      timings: the timings of tf_pfor, tf.map_fn and a Python loop.
      looped: the op types that ran in a sequential loop inside of tf_pfor.
    """

    name: str
    n: int
    timings: tuple[Timing, ...]
    looped: tuple[str, ...]

    @property
    def ratios(self) -> dict[str, float]:
        """The time of each way, divided by the time of tf_pfor."""
        own = self.timings[0].milliseconds
        found = {t.way: t.milliseconds for t in self.timings if t.milliseconds is not None}
        return {} if own is None else {way: ms / own for way, ms in found.items()}

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers, ready for JSON."""
        return {**dataclasses.asdict(self), "ratios": self.ratios}

    def __str__(self) -> str:
        lines = [
            f"{self.name}, n = {self.n}: medians of warm calls, and their ratios to tf_pfor",
            "",
            f"{'':<14}{'ms':>10}{'ratio':>12}{'first call, ms':>16}{'calls':>7}  results",
        ]
        for t in self.timings:
            if t.milliseconds is None:
                lines.append(f"{t.way:<14}{t.error}")
                continue
            equal = {True: "equal", False: "other numbers", None: ""}[t.equal]
            ratio = self.ratios.get(t.way)
            lines.append(
                f"{t.way:<14}{t.milliseconds:>10.3f}{'' if ratio is None else f'{ratio:.2f}':>12}"
                f"{t.first:>16.0f}{t.calls:>7}  {equal}".rstrip()
            )
        if self.looped:
            lines += ["", f"In a sequential loop inside of tf_pfor: {', '.join(self.looped)}."]
        return "\n".join(lines)


def bench(fn: Callable[..., Any], inputs: Sequence[Input], n: int, *, seed: int = 0) -> Bench:
    """Measures a function of one example on n rows of made values.

    Args:
      fn: a function of one tensor for each input, or of the iteration number without inputs.
      inputs: the inputs of one example.
      n: the number of rows.
      seed: the seed of the values.

    Returns:
      The ``Bench``. The Python loop calls a ``tf.function`` of one row n times and stacks.
    """
    if inputs:
        one, axes = described.of_flat(fn, inputs), described.in_axes(inputs)
        given = [tf.constant(x) for x in described.made(inputs, n, seed)]
    else:
        one, axes, given = fn, (0,), [tf.range(n)]
    compiled = tf.function(one)

    def python_loop() -> Any:
        rows = [[x if a is None else x[i] for x, a in zip(given, axes)] for i in range(n)]
        return [compiled(*row) for row in rows]

    expected = [tf.nest.flatten(row) for row in python_loop()]
    mapped = vmap(fn if not inputs else one, in_axes=axes)
    by_map_fn = _by_map_fn(one, axes)
    ways: dict[str, Callable[[], Any]] = {
        "tf_pfor": lambda: mapped(*given),
        "tf.map_fn": lambda: by_map_fn(*given),
        "Python loop": lambda: tf.nest.map_structure(_stacked, *python_loop()),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # the report says it
        timings = tuple(_timed(way, call, expected) for way, call in ways.items())
    records = described.explained(fn, inputs, None if inputs else n).records
    looped = sorted({r.op_type for r in records if r.outcome is Outcome.LOOPED})
    return Bench(described.name_of(fn), n, timings, tuple(looped))


def _by_map_fn(one: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
    """``tf.map_fn`` over the tensors that have rows, compiled as it is by tf.function."""

    def run(*tensors: tf.Tensor) -> Any:
        rows = [x for x, a in zip(tensors, axes) if a is not None]

        def row(elems: Sequence[tf.Tensor]) -> Any:
            supply = iter(elems)
            return one(*[x if a is None else next(supply) for x, a in zip(tensors, axes)])

        specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in rows]
        found = tf.function(lambda *x: row(x)).get_concrete_function(*specs).structured_outputs
        return tf.map_fn(row, tuple(rows), fn_output_signature=tf.nest.map_structure(_spec, found))

    return tf.function(run)


def _spec(output: tf.Tensor) -> Any:
    """The spec of one row's result, as ``tf.map_fn`` needs it."""
    if output.shape.is_fully_defined():
        return tf.TensorSpec(output.shape, output.dtype)
    return tf.RaggedTensorSpec(output.shape, output.dtype, ragged_rank=0)


def _stacked(*rows: Nest) -> Any:
    if len({tuple(x.shape) for x in rows}) == 1:
        return tf.stack(rows)
    return tf.ragged.stack(list(rows))


def _timed(way: str, call: Callable[[], Any], expected: Sequence[Sequence[Any]]) -> Timing:
    began = time.perf_counter()
    try:
        result = call()
        equal = _is_equal(result, expected)
    except Exception as why:  # a way that fails is a result too
        first_line = (str(why).strip().splitlines() or [""])[0][:200]
        return Timing(way, None, None, 0, None, f"{type(why).__name__}: {first_line}")
    first, times = time.perf_counter() - began, list[float]()
    while len(times) < _CALLS and (len(times) < 3 or sum(times) < _SECONDS):
        began = time.perf_counter()
        for x in tf.nest.flatten(call(), expand_composites=True)[:1]:
            x.numpy()  # a device may still be at work
        times.append(time.perf_counter() - began)
    return Timing(way, 1e3 * statistics.median(times), 1e3 * first, len(times), equal)


def _is_equal(result: Nest, expected: Sequence[Sequence[Any]]) -> bool | None:
    """Whether each row of the results is what the function of one row gave; None if unknown."""
    leaves = tf.nest.flatten(result)
    for i, row in enumerate(expected):
        for leaf, wanted in zip(leaves, row, strict=True):
            if isinstance(wanted, (tf.RaggedTensor, tf.SparseTensor)):
                return None
            found = leaf[i]
            found = found.to_tensor() if isinstance(found, tf.RaggedTensor) else found
            if not is_close(np.asarray(wanted), np.asarray(found)):
                return False
    return True
