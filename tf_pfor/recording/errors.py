"""Errors of recorded calls, which happen later than the calls; checks of functions of users."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.core.nests import Nest

_LATER = (
    (inspect.isgeneratorfunction, "a generator function"),
    (inspect.isasyncgenfunction, "a generator function"),
    (inspect.iscoroutinefunction, "a coroutine function"),
)

OF_VALUES: Final = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.UnknownError,
)
"""Errors that an op has for some values, and not for others."""


def with_text(error: Exception, text: str) -> Exception:
    """The error with one more line: another error, or the same one with a note."""
    found: Nest = error
    if isinstance(error, tf.errors.OpError):
        with contextlib.suppress(TypeError):
            return type(found)(found.node_def, found.op, f"{found.message}\n{text}")
    if hasattr(found, "add_note"):
        found.add_note(text)
    return error


def checked(fn: Nest, expected: str, advice: str) -> Callable[..., Any]:
    """``fn``, if it is a function whose body runs in its call.

    Raises:
      ArgumentTypeError: it is no such function. ``advice`` is for users of generator functions.
    """
    if not callable(fn):
        raise ArgumentTypeError(f"fn must be {expected}, found {fn!r}.")
    for is_later, kind in _LATER:
        if is_later(fn) or is_later(getattr(fn, "__call__", None)):  # noqa: B004
            raise ArgumentTypeError(
                f"fn must be {expected}, found {fn!r}, which is {kind}: its body runs after its "
                f"call. {advice}"
            )
    return fn
