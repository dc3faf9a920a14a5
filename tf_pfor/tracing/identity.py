"""Numbers that stand for live objects, and the libraries whose code does not change."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import deque
from typing import Any, Final

_LIBRARIES = frozenset(
    {
        "abc",
        "builtins",
        "cmath",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "itertools",
        "keras",
        "math",
        "ml_dtypes",
        "numbers",
        "numpy",
        "operator",
        "tensorflow",
        "tf_pfor",
        "typing",
        "typing_extensions",
    }
)
_WITH_HIDDEN_STATE = (
    "numpy.random",
    "keras.src.utils.rng_utils",
    "tensorflow._api.v2.config",
    "tensorflow._api.v2.summary",
)


class Uncacheable(Exception):  # noqa: N818  (a signal, not an error for users)
    """The trace of a function may depend on something that cannot be seen."""


@functools.lru_cache(maxsize=4096)
def is_library(module: str | None) -> bool:
    """Whether code of this module is taken not to change, and to have no hidden state."""
    return (
        module is not None
        and module.split(".", 1)[0] in _LIBRARIES
        and not module.startswith(_WITH_HIDDEN_STATE)
    )


class HoldsTape(Uncacheable):
    """The object holds a tape: its records are not known, and it may go on recording."""


class Tokens:
    """A number for each live object, never used again after the object is gone.

    Attributes:
      dead: the numbers of objects that are gone, for whoever keeps something under them.
    """

    def __init__(self) -> None:
        self.dead: deque[int] = deque(maxlen=100_000)
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = itertools.count()

    def __call__(self, x: object) -> int:
        """The number of ``x``.

        Raises:
          Uncacheable: if objects of its type cannot be referred to weakly.
        """
        place = id(x)
        found = self._known.get(place)
        if found is not None and found[0]() is x:
            return found[1]
        number = next(self._next)
        known, dead = self._known, self.dead

        def gone(reference: object) -> None:  # may run in any thread, at any time: no lock
            now = known.get(place)
            if now is not None and now[0] is reference:
                known.pop(place, None)
            dead.append(number)

        try:
            reference = weakref.ref(x, gone)
        except TypeError:
            raise Uncacheable(f"it holds a {type(x).__qualname__}, which is not known") from None
        # Two threads may come here with one object: the first number stays.
        kept = known.setdefault(place, (reference, number))
        if kept[0]() is not x:
            known[place] = kept = (reference, number)
        return kept[1]


tokens: Final = Tokens()
