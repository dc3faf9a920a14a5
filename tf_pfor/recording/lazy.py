"""``lazy``: eager ops are recorded, and run as compiled functions where a value is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.recording.lazy_tensors import Lazy
from tf_pfor.recording.program import Program
from tf_pfor.recording.traces import Traces

_TRACES = Traces()


def lazy(fn: Callable[..., Any] | None = None, *, jit_compile: bool = False) -> Any:
    """Records eager ops in a block or in a function, and runs them as compiled functions.

    ``with tf_pfor.lazy():`` and ``@tf_pfor.lazy`` change no result: Python runs as it is written,
    and so do prints and branches on values.
    """
    if fn is None:
        return _Scope(jit_compile=jit_compile)
    if not callable(fn):
        raise ArgumentTypeError(f"lazy() takes a function, found {fn!r}.")
    return _Scope(jit_compile=jit_compile)(fn)


class _Scope(contextlib.ContextDecorator):
    def __init__(self, *, jit_compile: bool) -> None:
        self._jit = jit_compile
        self._stacks: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        stack = contextlib.ExitStack()
        stack.enter_context(_recording(jit=self._jit))
        self._stacks.append(stack)

    def __exit__(self, *error: Any) -> None:
        self._stacks.pop().__exit__(*error)


@contextlib.contextmanager
def _recording(*, jit: bool) -> Generator[None]:
    around = _eager_ops.catcher()
    if not tf.executing_eagerly() or (around is not None and not isinstance(around, Program)):
        yield
        return
    if around is not None:
        around.cut("a scope in the scope")
    program = Program(_TRACES, jit=jit)
    with _eager_ops.caught(program):
        try:
            yield
        finally:
            program.cut("the end of the scope")


def mark_step() -> None:
    """Runs what was recorded."""
    around = _eager_ops.catcher()
    if isinstance(around, Program):
        around.cut("mark_step")
