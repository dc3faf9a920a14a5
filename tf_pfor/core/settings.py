"""Settings that the caller of a public function chose, and the defaults that a program sets."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
from collections.abc import Collection, Generator, Mapping
from typing import Any, Final, Literal

Fallback = Literal["loop", "error"] | Collection[str]
"""What may run in a sequential loop: all ops, none, or some op types."""
Randomness = Literal["different", "same", "error"]
WhileStrategy = Literal["auto", "compact", "mask"]
OutShapes = Literal["ragged", "dense", "padded"]
ChunkSize = int | Literal["auto"] | None
"""The number of iterations to run at once: None for all, "auto" for as many as fit."""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings that the caller chose.

    Attributes:
      fallback: "loop", "error", or the set of op types that may run in a sequential loop.
      while_strategy: the strategy for a while loop whose iterations make different numbers of
        trips: "compact", "mask", or "auto" to choose by cost.
      warn: whether to warn of ops that run in the fallback loop.
      randomness: the behaviour of TensorFlow's stateful random ops, generators, and variables that
        are a seed. "different": each iteration draws other numbers. "same": one draw for all.
        "error": such an op is refused.
      out_shapes: the form of results whose shape may differ between iterations. "ragged": a
        RaggedTensor. "dense": a tensor, after a check that shapes are equal. "padded": a tensor
        with zeros behind shorter rows.
      progress: whether blocks of iterations show how many are done.
    """

    fallback: str | frozenset[str] = "loop"
    while_strategy: str = "auto"
    warn: bool = True
    randomness: str = "different"
    out_shapes: str = "dense"
    progress: bool = False

    def may_loop(self, op_type: str) -> bool:
        """Whether ops of this type may run in a sequential loop."""
        if isinstance(self.fallback, frozenset):
            return op_type in self.fallback
        return self.fallback == "loop"


@dataclasses.dataclass(frozen=True, slots=True)
class Defaults:
    """The options of all functions where a call does not say others: see ``tf_pfor.settings``.

    Attributes:
      fallback: "loop", "error", or the set of op types that may run in a sequential loop.
      warn: whether to warn of ops that run in a sequential loop.
      randomness: "different", "same" or "error".
      out_shapes: "ragged", "dense" or "padded", for ``vmap``, ``vectorized_map`` and ``pfor``.
      cache_size: the most traces of eager calls that are kept; 0 for none.
    """

    fallback: str | frozenset[str] = "loop"
    warn: bool = True
    randomness: str = "different"
    out_shapes: str = "ragged"
    cache_size: int = 256

    def settings(self, out_shapes: str) -> Settings:
        """The settings of a map that no user wrote; ``out_shapes`` is the form of its results."""
        return Settings(
            self.fallback, warn=self.warn, randomness=self.randomness, out_shapes=out_shapes
        )


class _Program:
    """The defaults of the whole program: one reference, which is replaced as a whole."""

    defaults = Defaults()
    lock = threading.Lock()


_CHANGES: Final = contextvars.ContextVar[Mapping[str, Any]]("tf_pfor_settings")


def current() -> Defaults:
    """The defaults where the caller stands."""
    changes = _CHANGES.get({})
    return dataclasses.replace(_Program.defaults, **changes) if changes else _Program.defaults


@contextlib.contextmanager
def changed(changes: dict[str, Any]) -> Generator[Defaults]:
    """Changes defaults for the ``with`` block, in this thread or task alone."""
    token = _CHANGES.set({**_CHANGES.get({}), **changes})
    try:
        yield current()
    finally:
        _CHANGES.reset(token)


def change_program(changes: dict[str, Any]) -> None:
    """Changes the defaults of the whole program."""
    with _Program.lock:
        _Program.defaults = dataclasses.replace(_Program.defaults, **changes)
