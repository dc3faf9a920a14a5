"""Checks of the functions that users hand over."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.core.nests import Nest

_LATER = (
    (inspect.isgeneratorfunction, "a generator function"),
    (inspect.isasyncgenfunction, "a generator function"),
    (inspect.iscoroutinefunction, "a coroutine function"),
)


def checked(fn: Nest, expected: str, advice: str) -> Callable[..., Any]:
    """``fn``, if it is a function whose body runs in its call.

    Args:
      fn: the object that the user has given.
      expected: words for a right one.
      advice: a sentence for users of generator functions.

    Raises:
      ArgumentTypeError: it is no such function.
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
