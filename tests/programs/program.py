"""Programs: a function of one row, and the draws of its inputs and weights."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

F8 = tf.float64
Draw = Callable[[np.random.Generator, int], Any]  # so many rows of a value


@dataclasses.dataclass(frozen=True)
class Program:
    """A body of a map.

    Attributes:
      one: ``one(**row, **weights)``, for one row; AutoGraph turns its loops and conditions.
      inputs: functions that draw rows, by name.
      weights: functions that draw what all rows share, by name: one row of each is a variable.
      made: functions that make layers and tables, by name.
    """

    one: Callable[..., Any]
    inputs: dict[str, Draw]
    weights: dict[str, Draw]
    made: dict[str, Callable[[], Any]]

    @property
    def name(self) -> str:
        return self.one.__name__

    def rows(self, n: int) -> dict[str, tf.Tensor]:
        """Inputs of n rows, the same in each call."""
        rng = self._generator()
        return {name: tf.constant(draw(rng, n)) for name, draw in self.inputs.items()}

    def shared(self) -> dict[str, Any]:
        """The values of the weights, the same in each call."""
        rng = self._generator()
        return {name: draw(rng, 1)[0] for name, draw in self.weights.items()}

    def body(self) -> tuple[Callable[[dict[str, tf.Tensor]], Any], list[tf.Variable]]:
        """The function of one row, and the variables that it reads."""
        weights = {name: tf.Variable(value) for name, value in self.shared().items()}
        made = {name: make() for name, make in self.made.items()}
        layers = [m for m in made.values() if hasattr(m, "trainable_weights")]
        variables = [*weights.values(), *(w.value for m in layers for w in m.trainable_weights)]
        return lambda row: self.one(**row, **weights, **made), variables

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(self.name.encode()))


def program(
    weights: dict[str, Draw] | None = None,
    made: dict[str, Callable[[], Any]] | None = None,
    **inputs: Draw,
) -> Callable[[Callable[..., Any]], Program]:
    """Makes a program of a function of one row."""
    return lambda one: Program(one, inputs, weights or {}, made or {})


def normal(*inner: int, scale: float = 1.0, shift: float = 0.0) -> Draw:
    """Normal numbers."""
    return lambda rng, n: shift + scale * rng.normal(size=[n, *inner])


def uniform(*inner: int, low: float = 0.0, high: float = 1.0) -> Draw:
    """Uniform numbers in [low, high)."""
    return lambda rng, n: rng.uniform(low, high, [n, *inner])


def integers(low: int, high: int, *inner: int, dtype: Any = np.int32) -> Draw:
    """Integers, from ``low`` up to ``high`` - 1."""
    return lambda rng, n: rng.integers(low, high, [n, *inner], dtype)


def chances(p: float, *inner: int) -> Draw:
    """True with probability ``p``."""
    return lambda rng, n: rng.uniform(size=[n, *inner]) < p


def given(*values: Any, dtype: Any = None) -> Draw:
    """These values, again and again."""
    array = np.asarray(values, dtype)
    return lambda rng, n: np.resize(array, [n, *array.shape[1:]])


def cast(draw: Draw, dtype: tf.DType) -> Draw:
    """Another dtype."""
    return lambda rng, n: tf.cast(draw(rng, n), dtype)
