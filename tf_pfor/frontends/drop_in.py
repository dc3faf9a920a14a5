"""Existing code uses tf_pfor without changing a line.

``drop_in`` replaces the entry points of TensorFlow's own vectorizer, in every module that has a
name for one. These are the modules where TensorFlow publishes them, and modules that imported them
by name. They are also the modules where ``tf.GradientTape``, ``tf.autodiff.ForwardAccumulator``,
Keras and other libraries look them up when they are called. The replacement asks who is calling:
``drop_in`` counts for the code in its ``with`` block, ``enable_drop_in`` for the whole process.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

import tensorflow as tf

from tf_pfor.api import for_loops, maps
from tf_pfor.core import collectives
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives import jacobians

_PEER = "tensorflow.python.ops.parallel_for."
_no_autograph = tf.autograph.experimental.do_not_convert


# ---------------------------------------------------------------------------
# What takes the places
# ---------------------------------------------------------------------------


class PForConfig:
    """Reductions over all i, for a loop function that takes an argument ``pfor_config``."""

    def __init__(self, axis_name: str):
        self._axis = axis_name

    @_no_autograph
    def reduce(self, fn: Callable[..., Any], *args: Nest) -> Any:
        """``fn`` of the values of ``args`` in all iterations, [iters, ...] each."""
        return fn(*[self.reduce_concat(x) for x in args])

    @_no_autograph
    def reduce_concat(self, x: object) -> Any:
        """The values of all iterations, [iters, ...]."""
        return collectives.all_gather(x, self._axis)

    @_no_autograph
    def reduce_sum(self, x: object) -> Any:
        """The sum over all iterations."""
        return collectives.psum(x, self._axis)

    @_no_autograph
    def reduce_mean(self, x: Nest) -> Any:
        """The mean over all iterations; of integers the integer part, as ``tf.reduce_mean``."""
        if tf.convert_to_tensor(x).dtype.is_integer:
            return tf.reduce_mean(self.reduce_concat(x), 0)
        return collectives.pmean(x, self._axis)

    @_no_autograph
    def reduce_max(self, x: object) -> Any:
        """The elementwise maximum over all iterations."""
        return collectives.pmax(x, self._axis)

    @_no_autograph
    def reduce_min(self, x: object) -> Any:
        """The elementwise minimum over all iterations."""
        return collectives.pmin(x, self._axis)


_NUMBERS = itertools.count(1)


@_no_autograph
def _pfor(
    loop_fn: Callable[..., Any],
    iters: Nest,
    fallback_to_while_loop: bool = True,
    parallel_iterations: int | None = None,
    warn: bool = False,
) -> Any:
    axis = None
    if _takes_config(loop_fn):
        axis = f"pfor {next(_NUMBERS)}"
        loop_fn = functools.partial(loop_fn, pfor_config=PForConfig(axis))
    return maps.pfor(
        loop_fn,
        iters,
        fallback_to_while_loop,
        parallel_iterations,
        warn=warn,
        axis_name=axis,
        out_shapes="ragged",
    )


@_no_autograph
def _vectorized_map(
    fn: Callable[..., Any], elems: Nest, fallback_to_while_loop: bool = True, warn: bool = True
) -> Any:
    return maps.vectorized_map(fn, elems, fallback_to_while_loop, warn, out_shapes="ragged")


def _takes_config(loop_fn: Callable[..., Any]) -> bool:
    try:
        return "pfor_config" in inspect.signature(loop_fn).parameters
    except (TypeError, ValueError):
        return False


_OURS: dict[tuple[str, str], Callable[..., Any]] = {
    ("control_flow_ops", "for_loop"): for_loops.for_loop,
    ("control_flow_ops", "pfor"): _pfor,
    ("control_flow_ops", "vectorized_map"): _vectorized_map,
    ("gradients", "batch_jacobian"): jacobians.batch_jacobian,
    ("gradients", "jacobian"): jacobians.jacobian,
}


# ---------------------------------------------------------------------------
# Taking the places
# ---------------------------------------------------------------------------


_here = contextvars.ContextVar("tf_pfor_drop_in", default=0)
_observer: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar(
    "tf_pfor_drop_in_observer", default=None
)


class _Switch:
    """The replaced entry points: there while anybody needs them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._pairs: list[tuple[Any, Any]] = []  # TensorFlow's own, what takes its place
        self.everywhere = False

    def acquire(self) -> None:
        with self._lock:
            if not self._users:
                self._pairs = [_pair(*place, ours) for place, ours in _OURS.items()]
                _rename({id(old): new for old, new in self._pairs})
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                _rename({id(new): old for old, new in self._pairs})

    def set_everywhere(self, value: bool) -> None:
        with self._lock:
            if value is self.everywhere:
                return
            if value:
                self.acquire()
            self.everywhere = value
            if not value:
                self.release()


_SWITCH = _Switch()


def _pair(module: str, name: str, ours: Callable[..., Any]) -> tuple[Any, Any]:
    old = getattr(importlib.import_module(_PEER + module), name)

    @functools.wraps(old)
    def call(*args: Nest, **kwargs: Nest) -> Any:
        if not (_SWITCH.everywhere or _here.get()):
            return old(*args, **kwargs)
        result = ours(*args, **kwargs)
        observer = _observer.get()
        if observer is not None:
            observer(name)
        return result

    return old, _no_autograph(call)


def _rename(new_by_id: dict[int, Any]) -> None:
    """Puts other objects in the place of some, under every name in every module."""
    for module in list(sys.modules.values()):
        held = getattr(module, "__dict__", {})  # nobody forbids other things in sys.modules
        # A wrapper of TensorFlow's around a module holds only what was looked up before.
        wrapped = getattr(held.get("_tfmw_wrapped_module"), "__dict__", {})
        for names in (held, wrapped):
            if new_by_id.keys().isdisjoint(map(id, names.values())):
                continue
            for name, value in list(names.items()):
                if id(value) in new_by_id:
                    setattr(module, name, new_by_id[id(value)])


@contextlib.contextmanager
def drop_in() -> Generator[None]:
    """Replaces TensorFlow's own entry points by those in tf_pfor, in the ``with`` block.

    The entry points are ``tf.vectorized_map`` under all its names, ``pfor``, ``for_loop``,
    ``jacobian`` and ``batch_jacobian``. Code that is built on them follows:
    ``GradientTape.jacobian`` and ``batch_jacobian``, ``keras.ops.vectorized_map``, and libraries. A
    loop function that takes an argument ``pfor_config`` gets one.

    Blocks may be nested. A block counts for its thread and its asyncio task; other threads go on as
    before. Functions that TensorFlow traced before keep their trace. The outermost block looks
    through all modules, at its begin and at its end (some 10 ms each). For code that would enter it
    often there is ``enable_drop_in``.

    Raises:
      NotVectorizableError: a ValueError, in the block, where ops cannot be vectorized and the
        caller set ``fallback_to_while_loop=False``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> with tf_pfor.drop_in():
    ...     tf.vectorized_map(lambda x: x * 2., tf.constant([1., 2.])).numpy().tolist()
    [2.0, 4.0]
    """
    _SWITCH.acquire()
    token = _here.set(_here.get() + 1)
    try:
        yield
    finally:
        _here.reset(token)
        _SWITCH.release()


@contextlib.contextmanager
def observed_drop_in(observer: Callable[[str], None]) -> Generator[None]:
    """``drop_in``, which tells ``observer`` the name of each entry point after it was called."""
    token = _observer.set(observer)
    try:
        with drop_in():
            yield
    finally:
        _observer.reset(token)


def enable_drop_in() -> None:
    """``drop_in`` for the whole process, all threads, until ``disable_drop_in``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.enable_drop_in()
    >>> tf.vectorized_map(lambda x: x * 2., tf.constant([1., 2.])).numpy().tolist()
    [2.0, 4.0]
    >>> tf_pfor.disable_drop_in()
    """
    _SWITCH.set_everywhere(True)


def disable_drop_in() -> None:
    """Ends ``enable_drop_in``; nothing happens if it was not called.

    >>> import tf_pfor
    >>> tf_pfor.disable_drop_in()
    """
    _SWITCH.set_everywhere(False)
