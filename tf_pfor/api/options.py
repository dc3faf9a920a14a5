"""The options that ``pfor``, ``vectorized_map`` and ``vmap`` share, checked; and calls of these."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_pfor import _tf
from tf_pfor.api.progress import Bar, Lines
from tf_pfor.core import settings as defaults
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.loop import Block
from tf_pfor.core.nests import Nest, shown
from tf_pfor.core.settings import Defaults, Fallback, OutShapes, Randomness, Settings


def settings(
    *,
    fallback: Fallback | None = None,
    warn: bool | None = None,
    randomness: Randomness | None = None,
    out_shapes: OutShapes | None = None,
    cache_size: int | None = None,
) -> contextlib.AbstractContextManager[Defaults]:
    """A context manager: options for all calls in its ``with`` block that do not say others.

    It holds for the thread or task that enters it. ``set_settings`` changes the whole program.
    Options are read when a function is called eagerly, and when a graph is traced. So a
    ``tf.function`` of your own keeps the options of its trace.

    Args:
      fallback: the ops that may run in a sequential loop because they have no rule. "loop": all.
        "error": none. Or a set of op types. All functions follow it. Python functions
        (``tf.numpy_function``) and image files are calls for each iteration anyway.
      warn: whether to warn of ops that run in a sequential loop.
      randomness: as for ``vmap``: "different", "same" or "error".
      out_shapes: "ragged", "dense" or "padded", for ``vmap``, ``vectorized_map`` and ``pfor``.
        Other functions have a default of their own.
      cache_size: the most traces of eager calls that are kept. 0 keeps none: each eager call of
        ``vectorized_map`` and ``pfor`` is traced.

    Returns:
      A context manager. It gives the ``Defaults`` that hold inside.

    Raises:
      ArgumentError, ArgumentTypeError: if an option is wrong.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> draw = tf_pfor.vmap(lambda x: x + tf.random.normal([]))
    >>> with tf_pfor.settings(randomness="same") as now:
    ...     y = draw(tf.zeros([2]))
    >>> bool(y[0] == y[1]), now.fallback
    (True, 'loop')
    """
    return defaults.changed(_checked(fallback, warn, randomness, out_shapes, cache_size))


def set_settings(
    *,
    fallback: Fallback | None = None,
    warn: bool | None = None,
    randomness: Randomness | None = None,
    out_shapes: OutShapes | None = None,
    cache_size: int | None = None,
) -> Defaults:
    """Sets options for the whole program, in all threads, as ``settings`` does for a block.

    Args:
      fallback: as for ``settings``; None leaves it as it is.
      warn: as for ``settings``.
      randomness: as for ``settings``.
      out_shapes: as for ``settings``.
      cache_size: as for ``settings``.

    Returns:
      The ``Defaults`` that hold where it is called.

    Raises:
      ArgumentError, ArgumentTypeError: if an option is wrong.

    >>> import tf_pfor
    >>> tf_pfor.set_settings(fallback="error").fallback
    'error'
    >>> tf_pfor.set_settings(fallback="loop").fallback
    'loop'
    """
    defaults.change_program(_checked(fallback, warn, randomness, out_shapes, cache_size))
    return defaults.current()


def _checked(
    fallback: object, warn: object, randomness: object, out_shapes: object, cache_size: float | None
) -> dict[str, Any]:
    """The options that were given, checked."""
    if cache_size is not None:
        is_number = isinstance(cache_size, int) and not isinstance(cache_size, bool)
        if not is_number or cache_size < 0:
            raise ArgumentError(f"cache_size must be an int of at least 0, found {cache_size!r}.")
    made = dataclasses.asdict(Options.of(fallback, randomness, "auto", out_shapes, warn=warn))
    names = ("fallback", "warn", "randomness", "out_shapes")
    chosen = {name: made[name] for name in names} | {"cache_size": cache_size}
    return {name: x for name, x in chosen.items() if x is not None}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The options of a call, checked; None follows ``tf_pfor.settings``."""

    fallback: str | frozenset[str] | None
    randomness: str | None
    while_strategy: str
    out_shapes: str | None
    warn: bool | None
    progress: bool

    @classmethod
    def of(
        cls,
        fallback: object,
        randomness: object,
        while_strategy: object = "auto",
        out_shapes: object = None,
        *,
        warn: object = None,
        may_loop: bool = True,
        progress: bool = False,
    ) -> Options:
        """The options that the caller chose.

        ``may_loop`` is the ``fallback_to_while_loop`` of TensorFlow's own functions.

        Raises:
          ArgumentError: if an option is wrong, or the two ways to say what may loop disagree.
          ArgumentTypeError: if ``warn`` is no bool.
        """
        if fallback is not None:
            fallback = check_fallback(fallback)
        if not isinstance(may_loop, (bool, np.bool_)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentTypeError(
                f"fallback_to_while_loop must be a bool, found {shown(may_loop)}. For a function "
                "of several arguments use tf_pfor.vmap(fn)(x, y), or one nest of them: "
                "vectorized_map(fn, (x, y))."
            )
        if not may_loop and fallback not in (None, "error"):
            raise ArgumentError(
                f"fallback_to_while_loop is False and fallback is {fallback!r}: one says that "
                "nothing may loop, the other what may. Leave one of them out."
            )
        if while_strategy not in ("auto", "compact", "mask"):
            raise ArgumentError(
                f"while_strategy must be 'auto', 'compact' or 'mask', found {while_strategy!r}."
            )
        if out_shapes not in (None, "ragged", "dense", "padded"):
            raise ArgumentError(
                f"out_shapes must be 'ragged', 'dense' or 'padded', found {out_shapes!r}."
            )
        return cls(
            fallback if may_loop else "error",
            check_randomness(randomness),
            while_strategy,
            out_shapes,
            None if warn is None else check_bool(warn, "warn"),
            progress,
        )

    def over(self, other: Options) -> Options:
        """These options, with another call's options where none were chosen."""
        chosen = [getattr(self, f.name) for f in dataclasses.fields(self)]
        others = [getattr(other, f.name) for f in dataclasses.fields(self)]
        return Options(*(b if a in (None, "auto", False) else a for a, b in zip(chosen, others)))

    def settings(self) -> Settings:
        """The settings for a call that is made now."""
        now = defaults.current()
        return Settings(
            now.fallback if self.fallback is None else self.fallback,
            self.while_strategy,
            now.warn if self.warn is None else self.warn,
            now.randomness if self.randomness is None else self.randomness,
            now.out_shapes if self.out_shapes is None else self.out_shapes,
            self.progress,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A call of the public API after its arguments were checked.

    Attributes:
      fn: the user function, of one flat tensor for each element.
      settings: the settings that the caller chose.
      block: the number of iterations to run at once; None for all; "auto" for as many as fit.
      budget: bytes for "auto"; None for half of the free memory.
      shown: the bar or lines that show how many iterations are done; None for nothing.
      once: whether ``fn`` must not be called again after it was traced.
      part: the place of the iterations among all, where replicas have the others.
      out_axes: the place of the loop axis in each output. It is an int, None for an output that
        must be loop-invariant, or a nest of these that is a prefix of the outputs' nest.
      axis_name: the name of the loop for collectives; "" for none. None is a loop that is not the
        user's: collectives mean an outer loop.
    """

    fn: Callable[..., Any]
    settings: Settings
    block: int | str | None = None
    out_axes: Nest = 0
    axis_name: str | None = ""
    budget: int | None = None
    once: bool = False
    part: Block | None = None
    shown: Bar | Lines | None = None


def check_bool(value: object, name: str) -> bool:
    """An option that is True or False, checked."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} must be a bool, found {shown(value)}. Pass True or False.")
    return bool(value)


def check_randomness(randomness: object) -> str | None:
    """The option for stateful random ops, checked: "different", "same" or "error"."""
    if randomness in (None, "different", "same", "error"):
        return randomness
    raise ArgumentError(f"randomness must be 'different', 'same' or 'error', found {randomness!r}.")


def check_fallback(fallback: object) -> str | frozenset[str]:
    """The fallback policy: "loop", "error", or a set of op types."""
    if fallback in ("loop", "error"):
        return fallback
    if isinstance(fallback, (set, frozenset, list, tuple)):
        unknown = [t for t in fallback if not isinstance(t, str) or _tf.schema(t) is None]
        if not unknown:
            return frozenset(fallback)
        found = sorted(map(str, unknown))
        raise ArgumentError(f"fallback names op types that this TensorFlow does not have: {found}.")
    raise ArgumentError(
        f"fallback must be 'loop', 'error' or a set of op types that may loop, found {fallback!r}."
    )
