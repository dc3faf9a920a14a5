"""Samples: an op with inputs, and the draws of the inputs."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class In:
    """One input of a sample: its inner shape, and how to draw a value.

    Attributes:
      shape: the inner shape.
      draw: ``draw(rng, full_shape)`` gives an array.
      varies: whether it may differ between iterations.
    """

    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Any]
    varies: bool = True

    @property
    def fixed(self) -> In:
        """The same input, never varied."""
        return dataclasses.replace(self, varies=False)

    def make(self, rng: np.random.Generator, n: int | None) -> Any:
        if n is None:
            return self.draw(rng, self.shape)
        rows = [self.draw(rng, self.shape) for _ in range(n)]
        if rows:
            return np.stack(rows)
        one = np.asarray(self.draw(rng, self.shape))
        return np.zeros((0, *one.shape), one.dtype)


def normal(*shape: int, dtype: Any = np.float32) -> In:
    """Normal floats (complex when the dtype is)."""

    def draw(rng: np.random.Generator, full: tuple[int, ...]) -> Any:
        x = rng.normal(size=full)
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 1j * rng.normal(size=full)
        return np.asarray(x).astype(dtype)

    return In(shape, draw)


def uniform(*shape: int, low: float = 0.1, high: float = 0.9, dtype: Any = np.float32) -> In:
    """Floats in [low, high)."""
    return In(shape, lambda rng, full: np.asarray(rng.uniform(low, high, full)).astype(dtype))


def ints(*shape: int, low: int = 0, high: int = 5, dtype: Any = np.int32) -> In:
    """Integers in [low, high)."""
    return In(shape, lambda rng, full: np.asarray(rng.integers(low, high, full)).astype(dtype))


def bools(*shape: int) -> In:
    return In(shape, lambda rng, full: np.asarray(rng.random(full) < 0.5))


def drawn(shape: tuple[int, ...], draw: Callable[[np.random.Generator], Any]) -> In:
    """An input of one's own: ``draw(rng)`` gives one row's value."""
    return In(shape, lambda rng, _: np.asarray(draw(rng)))


def fixed(value: Any) -> In:
    """A constant input that never varies."""
    array = np.asarray(value)
    return In(array.shape, lambda rng, full: array, varies=False)


@dataclasses.dataclass(frozen=True)
class Sample:
    """An op with inputs.

    Attributes:
      op_type: the op type that this is a sample of.
      fn: ``fn(*tensors)``, one iteration; emits the op.
      inputs: its inputs.
      label: tells samples of one op type apart.
      grad: whether to check gradients.
      xla: whether to check under jit_compile; False for ops that XLA cannot compile.
      rtol: the relative tolerance, with a reason beside any that is larger.
      atol: the absolute tolerance, likewise.
      max_ops: the most ops that may be emitted, constants not counted.
      more_ops: other op types of the body that may loop without failing the sample.
      random: outputs are random: check shapes and dtypes, and that rows differ.
      unknown: whether to check with n unknown.
      steps: the things that a loop in the result steps through, not rows; "" for no loop.
    """

    op_type: str
    fn: Callable[..., Any]
    inputs: tuple[In, ...]
    label: str = ""
    grad: bool = True
    xla: bool = True
    rtol: float = 1e-5
    atol: float = 1e-5
    max_ops: int = 12
    random: bool = False
    unknown: bool = True
    steps: str = ""

    @property
    def name(self) -> str:
        return f"{self.op_type}-{self.label}" if self.label else self.op_type

    def subsets(self) -> list[tuple[int, ...]]:
        """The sets of inputs to vary: all non-empty ones; singles, pairs and all when many."""
        may = [i for i, x in enumerate(self.inputs) if x.varies]
        sizes = range(1, len(may) + 1) if len(may) <= 4 else (1, 2, len(may))
        return [s for k in sizes for s in itertools.combinations(may, k)]

    def arguments(self, subset: Iterable[int], n: int) -> list[Any]:
        """Inputs, drawn again until those that vary do, where they can."""
        chosen, seed = set(subset), zlib.crc32(self.name.encode())
        for attempt in range(8):
            rng = np.random.default_rng(seed + attempt)
            args = [x.make(rng, n if i in chosen else None) for i, x in enumerate(self.inputs)]
            if n < 2 or all(_differ(args[i]) for i in chosen):
                break
        return args


def _differ(rows: Any) -> bool:
    """Whether not all rows are the same; of rows without elements none can differ."""
    return np.size(rows[0]) == 0 or any(np.any(rows[0] != row) for row in rows[1:])


def sample(op_type: str, fn: Callable[..., Any], *inputs: In, **options: Any) -> Sample:
    """Shorthand: ``sample("Add", tf.add, normal(2), normal(2))``."""
    return Sample(op_type, fn, inputs, **options)


def case(name: str, subset: Iterable[int]) -> str:
    """The name of a sample with a subset of varying inputs in expectations: ``MatMul[0,1]``."""
    return f"{name}[{','.join(map(str, subset))}]"


def stacked(column: Iterable[Any]) -> np.ndarray:
    """The results of all rows; text as objects, also where each row has one."""
    rows = list(column)
    made = np.stack(rows)
    return np.stack([np.asarray(x, object) for x in rows]) if made.dtype.kind == "S" else made
