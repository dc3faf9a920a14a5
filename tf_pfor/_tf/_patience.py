"""Work that takes long logs once what it does.

No thread waits for that: the time is looked at where ops are traced and converted.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Callable, Generator

from absl import logging

AFTER = 5.0  # seconds


class _Watch:
    """The time since when some work is being done, and whether that was logged."""

    __slots__ = ("count", "due", "what")

    def __init__(self, what: str):
        self.what, self.due, self.count = what, time.monotonic() + AFTER, 0


_WATCH: contextvars.ContextVar[_Watch | None] = contextvars.ContextVar(
    "tf_pfor_patience", default=None
)


@contextlib.contextmanager
def watched(what: str) -> Generator[None]:
    """Logs in the ``with`` block that ``what`` takes long; only the outermost block does."""
    if _WATCH.get() is not None:
        yield
        return
    token = _WATCH.set(_Watch(what))
    try:
        yield
    finally:
        _WATCH.reset(token)


def working(doing: str, line: Callable[[], str]) -> None:
    """Says once what is done, if that takes long; it is called for each op.

    Args:
      doing: the work on ops: "tracing" or "vectorizing".
      line: makes the ``file:line`` of the op that is at hand.
    """
    watch = _WATCH.get()
    if watch is None:
        return
    watch.count += 1
    if time.monotonic() < watch.due:
        return
    watch.due = float("inf")
    logging.warning(
        "tf_pfor has worked on %s for %.0f seconds: it is %s, and has come to op %d (%s). It runs "
        "when that is done; calls with the same shapes do not wait again.",
        watch.what,
        AFTER,
        doing,
        watch.count,
        line() or "line unknown",
    )
