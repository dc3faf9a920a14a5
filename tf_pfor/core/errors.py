"""Every exception and warning class of tf_pfor.

Each message has four parts. The first is the argument, or the op and the line of the user's code.
The others are what was expected, what was found, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any


class PforError(Exception):
    """Base of all errors raised by tf_pfor."""

    ag_pass_through = True  # AutoGraph would raise an error of another type in its place


class ArgumentError(PforError, ValueError):
    """An argument of a public function has a wrong value, shape or structure."""


class FileError(ArgumentError):
    """A file that an argument names cannot be read or written."""


class ArgumentTypeError(PforError, TypeError):
    """An argument of a public function has a wrong type."""


class NotVectorizableError(PforError, ValueError):
    """The body holds ops that cannot be vectorized, and no fallback was allowed.

    Attributes:
      failures: one line for each op that failed.
    """

    def __init__(self, message: str, failures: tuple[str, ...] = ()):
        super().__init__(message)
        self.failures = failures


class UnsupportedStateError(NotVectorizableError):
    """A stateful op has no meaning, or no converter yet, inside a vectorized loop."""


class ConversionError(PforError, RuntimeError):
    """A converter broke its promise (count, dtype or shape of a result): a bug in a converter."""


class VerificationError(PforError, ValueError):
    """A vectorized model gives other results than the model of one example."""


class RegistrationError(PforError, ValueError):
    """A converter was registered twice, or for inputs or attributes that the op does not have."""


class CannotVectorize(Exception):  # noqa: N818  (a signal to the walker, not an error for users)
    """Raised by a converter, before it emits any op, when it cannot help.

    The walker then tries the next rule, and the fallback at the end. ``str(e)`` is the reason that
    reports and warnings show.
    """


class Refused(CannotVectorize):
    """Raised by a converter when a sequential loop would be wrong as well: there is no fallback."""


class PastEdge(CannotVectorize):
    """A slice may reach past the edge in some rows: it is shorter there.

    Attributes:
      otherwise: makes the slice where no mask can say how much of it counts.
    """

    def __init__(self, reason: str, otherwise: Callable[[], Any]):
        super().__init__(reason)
        self.otherwise = otherwise


class FallbackWarning(UserWarning):
    """Ops of the body run in a sequential loop, since no converter takes them."""

    ag_pass_through = True  # where warnings are errors


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """A sentence with the names that are nearest to a wrong one, a space in front; "" for none."""
    close = [x for x in known if x.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, [*known], 3, cutoff)
    return f" Did you mean {' or '.join(close)}?" if close else ""
