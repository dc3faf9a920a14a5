"""The stacks of ops, for TensorFlow's errors: the lines of the user.

An op that is emitted for an op of the body has the stack of the body's op. Frames of this package
are left out of all stacks. So ``Detected at node ... defined at`` shows the user's lines.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import pathlib
from collections.abc import Generator
from typing import Any

import tensorflow as tf
from tensorflow.python.util import tf_stack

from tf_pfor import _tf

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_ORIGIN: contextvars.ContextVar[Any] = contextvars.ContextVar("tf_pfor_origin", default=None)
_LINE: contextvars.ContextVar[str] = contextvars.ContextVar("tf_pfor_line", default="")


@contextlib.contextmanager
def made_for(line: str) -> Generator[None]:
    """Sets the line, ``file:line``, of ops that this package adds to the body in the block."""
    token = _LINE.set(line)
    try:
        yield
    finally:
        _LINE.reset(token)


def line() -> str:
    """The line that ``made_for`` has set; "" if it has set none."""
    return _LINE.get()


def begin(op: tf.Operation) -> contextvars.Token[Any]:
    """From here on ops are emitted for ``op`` of the body; the token is for ``end``."""
    known = getattr(op, "_tf_pfor_stack", None)  # whether a stack is empty takes long to tell
    return _ORIGIN.set(_ORIGIN.get() if known is None else known)


def end(token: contextvars.Token[Any]) -> None:
    """Ends the emitting that ``begin`` began."""
    _ORIGIN.reset(token)


def here(level: int) -> Any:
    """The stack of the caller without frames of this package."""
    mappers = tf_stack._source_mapper_stacks[tf_stack._get_thread_key()]
    return tf_stack._tf_stack.extract_stack(mappers[-1].internal_map, _own_files(), level)


def of_emitted() -> Any:
    """The stack for an op that is emitted now."""
    known = _ORIGIN.get()
    return here(3) if known is None else known


def user_line() -> str:
    """``file:line`` of the innermost frame in user code, as AutoGraph found it; "" if unknown."""
    return _tf.innermost(list(here(2)))


def caller() -> str:
    """``file:line`` of the innermost frame in user code, while ops run eagerly; "" if unknown."""
    frame = inspect.currentframe()
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_called_from(file: str) -> bool:
    """Whether a function in a file of this name is under way in this thread."""
    frame = inspect.currentframe()
    while frame is not None and not frame.f_code.co_filename.endswith(file):
        frame = frame.f_back
    return frame is not None


_is_library = functools.lru_cache(maxsize=4096)(_tf.is_library)


def written_at(line: str) -> str:
    """``file:line`` of the user's code where AutoGraph has made the code at ``line`` of it."""
    file, _, number = line.rpartition(":")
    mappers = tf_stack._source_mapper_stacks[tf_stack._get_thread_key()]
    known = mappers[-1].get_effective_source_map()
    first = int(number) if number.isdecimal() else 0
    for k in range(first, first + 3):  # a function may begin in a line that was added
        if (file, k) in known:
            return "{}:{}".format(*known[file, k][:2])
    return line


@functools.cache
def _own_files() -> Any:
    files = tf_stack._tf_stack.PyBindFileSet()
    files.update_to({str(path) for path in _ROOT.rglob("*.py")})
    return files
