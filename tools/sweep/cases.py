"""Calls: an endpoint, and arguments of which some are rows.

A case is ``call("tf.math.top_k", floats(5), k=2)``: the endpoint by its public name, and its
arguments. An argument of type ``Rows`` has one value for each row; others are the same for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

N = 3
"""How many rows there are."""


class Rows:
    """An argument that differs between rows.

    Args:
      values: [n, ...].
    """

    def __init__(self, values: Any):
        array = np.asarray(values)
        # Fixed-size bytes of numpy lose the zeros at their ends.
        self.values = tf.constant(values if array.dtype.kind in "SU" else array)


@dataclasses.dataclass(frozen=True)
class Case:
    """One endpoint with arguments.

    Attributes:
      name: the name of the endpoint, as users write it.
      label: a word that tells cases of one endpoint apart.
      fn: the function that is called, with the arguments of one row.
      args, kwargs: nests of ``Rows`` and of what all rows share.
      random: its results are drawn: only their shapes are compared.
    """

    name: str
    label: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: bool = False

    @property
    def title(self) -> str:
        """Name and label."""
        return f"{self.name} ({self.label})" if self.label else self.name


def resolve(name: str) -> Any:
    """The object that a dotted name beginning with ``tf`` means."""
    found: Any = tf
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def call(name: str, *args: Any, label: str = "", random: bool = False, **kwargs: Any) -> Case:
    """A case that calls the endpoint itself."""
    return Case(name, label, resolve(name), args, kwargs, random)


def body(
    name: str, fn: Callable[..., Any], *args: Any, label: str = "", random: bool = False
) -> Case:
    """A case that calls the endpoint inside of a function."""
    return Case(name, label, fn, args, {}, random)


def each(prefix: str, names: str, *args: Any, **kwargs: Any) -> list[Case]:
    """The same arguments for several endpoints of one module."""
    return [call(f"{prefix}.{name}", *args, **kwargs) for name in words(names)]


def words(names: str) -> list[str]:
    """The names in a text."""
    return names.split()


_RNG = np.random.default_rng(7)


def floats(*shape: int, dtype: Any = np.float32) -> Rows:
    """Normal floats; complex ones for a complex dtype."""
    x = _RNG.normal(size=(N, *shape))
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * _RNG.normal(size=(N, *shape))
    return Rows(x.astype(dtype))


def positive(*shape: int, low: float = 0.1, high: float = 0.9) -> Rows:
    """Floats of an interval."""
    return Rows(_RNG.uniform(low, high, (N, *shape)).astype(np.float32))


def integers(*shape: int, low: int = 0, high: int = 5, dtype: Any = np.int32) -> Rows:
    """Integers of [low, high), no two scalars alike where there are enough."""
    x = _RNG.integers(low, high, (N, *shape))
    if not shape and high - low >= N:
        x = _RNG.permutation(np.arange(low, high))[:N]
    return Rows(x.astype(dtype))


def ascending(*shape: int, low: int = 0, high: int = 5, dtype: Any = np.int32) -> Rows:
    """Integers in order."""
    return Rows(np.sort(_RNG.integers(low, high, (N, *shape)), -1).astype(dtype))


def bools(*shape: int) -> Rows:
    """Booleans, of which some are true in each row."""
    x = _RNG.random((N, *shape)) < 0.5
    if shape:
        x.reshape([N, -1])[:, 0] = True
    return Rows(x)


def spd(size: int) -> Rows:
    """Symmetric positive definite matrices."""
    x = _RNG.normal(size=(N, size, size))
    return Rows((x @ np.swapaxes(x, 1, 2) + size * np.eye(size)).astype(np.float32))


def permutations(size: int) -> Rows:
    """A permutation for each row."""
    return Rows(np.stack([_RNG.permutation(size) for _ in range(N)]).astype(np.int32))
