"""The options that ``pfor``, ``vectorized_map`` and ``vmap`` share, checked."""

from __future__ import annotations

from tf_pfor import _tf
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.settings import Settings


def settings_of(
    fallback: str | None,
    randomness: object,
    while_strategy: object = "auto",
    out_shapes: object = "dense",
    *,
    may_loop: bool = True,
    progress: bool = False,
) -> Settings:
    """The settings that the caller chose.

    Args:
      fallback: "loop", "error", or the op types that may run in a sequential loop; None follows
        ``may_loop``.
      randomness: "different", "same" or "error".
      while_strategy: "auto", "compact" or "mask".
      out_shapes: "ragged", "dense" or "padded".
      progress: whether blocks show how many iterations are done.
      may_loop: the ``fallback_to_while_loop`` of TensorFlow's own functions.

    Raises:
      ArgumentError: if one of them is none of these, or the two ways to say it disagree.
    """
    if fallback is None:
        fallback = "loop" if may_loop else "error"
    elif not may_loop and fallback != "error":
        raise ArgumentError(
            f"fallback_to_while_loop is False and fallback is {fallback!r}: one says that nothing "
            "may loop, the other what may. Leave one of them out."
        )
    if while_strategy not in ("auto", "compact", "mask"):
        raise ArgumentError(
            f"while_strategy must be 'auto', 'compact' or 'mask', found {while_strategy!r}."
        )
    if out_shapes not in ("ragged", "dense", "padded"):
        raise ArgumentError(
            f"out_shapes must be 'ragged', 'dense' or 'padded', found {out_shapes!r}."
        )
    return Settings(
        check_fallback(fallback),
        while_strategy,
        randomness=check_randomness(randomness),
        out_shapes=out_shapes,
        progress=progress,
    )


def check_randomness(randomness: object) -> str:
    """The option for stateful random ops, checked: "different", "same" or "error".

    Raises:
      ArgumentError: if it is none of these.
    """
    if randomness in ("different", "same", "error"):
        return randomness
    raise ArgumentError(f"randomness must be 'different', 'same' or 'error', found {randomness!r}.")


def check_fallback(fallback: object) -> str | frozenset[str]:
    """The fallback policy: "loop", "error", or a set of op types.

    Raises:
      ArgumentError: if it is none of these.
    """
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
