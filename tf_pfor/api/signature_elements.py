"""Elements for ``explain``, from the signature of a function of one example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _functions
from tf_pfor.core.errors import ArgumentError


def opened(
    fn: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """``fn``, a function of elements, and these: as its signature has them if none are given.

    Raises:
      ArgumentError: if no elements are given and the signature has none, or others than tensors.
    """
    positional, named = _functions.signature_of(fn)
    if positional is None or (args and not named):
        return fn, args
    if named and not positional:
        return _of_dict(fn), args or (_batched(fn, dict(named)),)
    if named and not args:
        raise ArgumentError(
            f"{fn!r} has positional and named arguments: {positional} and {named}. Expected: one "
            "kind. Pass a function of positional arguments that calls it."
        )
    return fn, args or tuple(_batched(fn, positional))


def _of_dict(fn: Callable[..., Any]) -> Callable[..., Any]:
    @tf.autograph.experimental.do_not_convert
    def of_dict(inputs: dict[str, Any]) -> Any:
        return fn(**inputs)

    return of_dict


def _batched(fn: Callable[..., Any], specs: object) -> Any:
    """Specs of a batch of unknown size, from the specs of one example."""

    def batched(spec: tf.TypeSpec[Any]) -> Any:
        if not isinstance(spec, tf.TensorSpec):
            raise ArgumentError(
                f"{fn!r} takes {spec!r}, expected tensors. Pass the elements: tensors or specs of "
                "a batch."
            )
        shape = spec.shape
        whole: Any = None if shape.rank is None else [None, *shape]
        return tf.TensorSpec(whole, spec.dtype)

    if not tf.nest.flatten(specs):
        raise ArgumentError(f"{fn!r} takes no arguments: there is nothing to make a batch of.")
    return tf.nest.map_structure(batched, specs)
