"""Records of while loops and of calls of ``tf.function``s, while a graph is traced."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import concrete_function as function_lib
from tensorflow.python.ops import tensor_array_ops, while_v2
from tensorflow.python.saved_model import function_deserialization

from tf_pfor import _tf
from tf_pfor._tf import _functions


class Hooks(NamedTuple):
    """The functions that are called instead, with TensorFlow's own function as first argument."""

    loop: Callable[..., Any]
    call: Callable[..., Any]


_HOOKS: contextvars.ContextVar[Hooks | None] = contextvars.ContextVar("tf_pfor_loops", default=None)
_NAMES = {  # who makes a loop for the user: the function that calls ``tf.while_loop``, or maps
    "_known_len_tf_for_stmt": "for",
    "_tf_iterator_for_stmt": "for",
    "_tf_range_for_stmt": "for",
    "_tf_ragged_for_stmt": "for",
    "foldl": "tf.foldl",
    "foldr": "tf.foldr",
    "map_fn": "tf.map_fn",
    "scan": "tf.scan",
    "while_stmt": "while",
    "jacobian": "GradientTape.jacobian",
    "batch_jacobian": "GradientTape.batch_jacobian",
}


class _Switch:
    """The replaced functions: there while anybody traces with hooks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._own: tuple[Any, Any] = (None, None)

    def acquire(self) -> None:
        function = _functions.PolymorphicFunction
        with self._lock:
            if not self._users:
                self._own = (while_v2.while_loop, function.__call__)
                while_v2.while_loop = _asking("loop", self._own[0])
                function.__call__ = _asking("call", self._own[1])
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                while_v2.while_loop, _functions.PolymorphicFunction.__call__ = self._own


_SWITCH = _Switch()


def _asking(kind: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """``own``, for everybody who has set no hooks.

    A hook is not converted by AutoGraph. What ``own`` calls is, as it would be without one.
    """

    def function(*args: object, **kwargs: object) -> Any:
        hooks = _HOOKS.get()
        if hooks is None:
            return own(*args, **kwargs)
        hook = tf.autograph.experimental.do_not_convert(getattr(hooks, kind))
        return hook(_functions.as_called_here(own), *args, **kwargs)

    return _functions.never_converted(function)


@contextlib.contextmanager
def replaced(hooks: Hooks) -> Generator[None]:
    """In the ``with`` block, of this thread, loops and functions are made by ``hooks``."""
    _SWITCH.acquire()
    token = _HOOKS.set(hooks)
    try:
        yield
    finally:
        _HOOKS.reset(token)
        _SWITCH.release()


def kind_of_loop(otherwise: str = "tf.while_loop") -> str:
    """The construct in the user's code of a loop or a map that is asked for now."""
    frame = inspect.currentframe()
    while frame is not None and _tf.is_machinery(frame.f_code.co_filename):
        if frame.f_code.co_name in _NAMES:
            return _NAMES[frame.f_code.co_name]
        frame = frame.f_back
    return otherwise


def traced_apart(function: Any, python_function: Callable[..., Any]) -> Any:
    """A ``tf.function`` with the options of ``function``, which has no traces yet."""
    made = function._clone(python_function)
    made._autograph = False  # ``python_function`` sees to that
    return made


def options_of(function: Any) -> dict[str, Any]:
    """The options that a ``tf.function`` was made with."""
    return {
        "input_signature": function.input_signature,
        "jit_compile": function._jit_compile,
        "reduce_retracing": function._reduce_retracing,
        "experimental_attributes": function._attributes,
    }


def is_compiled_by_xla(function: Any) -> bool:
    """Whether a ``tf.function`` has ``jit_compile=True``."""
    return bool(function._jit_compile)


_GraphArray: Any = tensor_array_ops._GraphTensorArrayV2


class _StackedArray(_GraphArray):
    """A TensorArray that is known to hold the rows of a tensor: to stack it costs nothing."""

    def stack(self, name: str | None = None) -> tf.Tensor:
        return tf.identity(self.rows, name)


def with_flow(array: object, flow: tf.Tensor, rows: tf.Tensor | None) -> Any:
    """A TensorArray like another one with the list ``flow``, of ``rows`` if these are given."""
    made = tensor_array_ops.build_ta_with_new_flow(array, flow)
    if rows is not None:
        made._implementation.__class__ = _StackedArray
        made._implementation.rows = rows
    return made


PLAIN_FUNCTION: Any = _functions.PolymorphicFunction


def python_function(function: Any) -> Any:
    """The Python function that a ``tf.function`` was made of."""
    return function.python_function


def is_graph_only(function: Callable[..., Any]) -> bool:
    """Whether a function cannot be traced anew: it is a graph, or was loaded."""
    return isinstance(
        function, (function_lib.ConcreteFunction, function_deserialization.RestoredFunction)
    )
