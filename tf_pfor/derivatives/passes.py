"""Backward and forward passes of a call that is differentiated, in the graph being built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives.differentiated import check_outputs, tensors_of
from tf_pfor.derivatives.missing_gradients import refuse_constants, refuse_nonlinear
from tf_pfor.derivatives.pullbacks import gradients_of

REAL_ONLY = "Differentiate with respect to its real and imaginary parts."


def scalar_output(outputs: Nest, name: str, other: str) -> tf.Tensor:
    """The one real scalar that a function must return for ``name``, and not for ``other``."""
    leaves = tensors_of(outputs)
    if len(leaves) != 1 or leaves[0].shape.rank not in (0, None):
        raise ArgumentError(
            f"{name} needs a function that returns one scalar, found "
            f"{[str(x.shape) for x in leaves]}. Reduce it, or use {other}."
        )
    check_outputs(outputs, is_complex=False, why="Return its real or its imaginary part.")
    return leaves[0]


def zeros_if_none(grads: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Gradients, with zeros where nothing is connected."""
    return [tf.zeros_like(x) if g is None else g for g, x in zip(grads, like)]


def gradients(value: tf.Tensor, wrt: list[tf.Tensor]) -> list[tf.Tensor]:
    """The gradients of a scalar, which can be differentiated again."""
    grads = [tf.convert_to_tensor(g) for g in zeros_if_none(gradients_of(value, wrt), wrt)]
    refuse_constants(grads, wrt)
    return grads


def pusher(
    ys: list[tf.Tensor], xs: list[tf.Tensor]
) -> Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]:
    """From tangents of ``xs`` to the tangents of ``ys``, by double backward."""
    cotangents = [tf.ones_like(y) for y in ys]
    found = gradients_of(ys, xs, cotangents)
    pulled = [None if g is None else tf.convert_to_tensor(g) for g in found]
    present = [g for g in pulled if g is not None]
    if not present:
        return lambda tangents: [tf.zeros_like(y) for y in ys]
    refuse_constants(present, cotangents)

    def push(tangents: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        seeds = [t for t, g in zip(tangents, pulled) if g is not None]
        found = gradients_of(present, cotangents, seeds)
        with present[0].graph.as_default():  # where none has a derivative, TensorFlow has said so
            refuse_nonlinear(present, cotangents)
        return [tf.convert_to_tensor(g) for g in zeros_if_none(found, ys)]

    return push
