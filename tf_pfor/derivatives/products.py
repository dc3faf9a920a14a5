"""Products of jacobians with vectors: vjp, jvp, linearize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.api.leaves import filled
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives.differentiated import (
    Differentiated,
    Fn,
    check_outputs,
    compiled,
    leaves_like,
    present,
    tensors_of,
)
from tf_pfor.derivatives.passes import REAL_ONLY, pusher, zeros_if_none
from tf_pfor.derivatives.pullbacks import has_derivative, refused_if_missing

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def vjp(fn: Fn, *primals: Nest, has_aux: bool = False) -> Any:
    """The value of a function, and a function of vector-jacobian products, as ``jax.vjp``.

    ``fn`` runs once. The tensors that its backward pass needs are kept.

    Args:
      fn: a function of real tensors or nests of them; returns a nest of real tensors. Nones in
        these nests are left where they are.
      *primals: its arguments.
      has_aux: ``fn`` returns (outputs, aux).

    Returns:
      (outputs, pull), or (outputs, pull, aux). ``pull(cotangents)`` takes the nest of the outputs
      with tensors of their shapes. It returns a tuple with the nest of each argument: cotangents
      times jacobian, with the shapes and dtypes of the arguments. They are zeros where the outputs
      do not depend on the argument. It may be called often, in ``vmap`` too.

    Raises:
      ArgumentError: if an argument or output has no derivative, or if TensorFlow would leave a part
        of it out. Also if the cotangents are not like the outputs.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> y, pull = tf_pfor.vjp(lambda x: x ** 2, tf.constant([1., 2.]))
    >>> y.numpy().tolist(), pull(tf.constant([10., 1.]))[0].numpy().tolist()
    ([1.0, 4.0], [20.0, 4.0])
    >>> tf_pfor.vmap(pull)(tf.eye(2))[0].numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    structure, inputs = _watched(primals)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        outputs, aux = _evaluated(fn, structure, inputs, tape, has_aux, _outputs)
    ys = tensors_of(outputs)

    @_no_autograph
    def pull(cotangents: Nest) -> Any:
        seeds = leaves_like(outputs, cotangents, "the argument of the vjp", "the output")
        return nests.to_user(filled(structure, _pulled(tape, ys, inputs, seeds)))

    return (nests.to_user(outputs), pull, *aux)


@_no_autograph
def jvp(fn: Fn, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """The value of a function and a jacobian-vector product, as ``jax.jvp`` (forward mode).

    The product is the derivative of the backward pass with respect to its cotangent, so every op
    that has a gradient works.

    Args:
      fn: a function of real tensors or nests of them; returns a nest of real or complex tensors.
        Nones in these nests are left where they are.
      primals: a tuple or list of its arguments.
      tangents: a tuple or list like ``primals``, with tensors of the same shapes.
      has_aux: ``fn`` returns (outputs, aux).

    Returns:
      (outputs, tangents of the outputs), or these and aux: jacobian times tangents, with the shapes
      and dtypes of the outputs.

    Raises:
      ArgumentError: as for ``vjp``, or if the gradient of a ``tf.custom_gradient`` in ``fn`` is not
        linear in its cotangent.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x, v = tf.constant([1., 2.]), tf.constant([1., 10.])
    >>> y, dy = tf_pfor.jvp(lambda x: x ** 2, (x,), (v,))
    >>> dy.numpy().tolist()
    [2.0, 40.0]
    """
    for given, name in ((primals, "primals"), (tangents, "tangents")):
        if type(given) not in (list, tuple):
            raise ArgumentTypeError(
                f"{name} must be a tuple or list with one entry for each argument of the function, "
                f"found a {type(given).__name__}."
            )
    chosen = tuple(range(len(primals)))
    return compiled(fn, chosen, has_aux, _pushed, extra=1)(*primals, tuple(tangents))


@_no_autograph
def linearize(fn: Fn, *primals: Nest, has_aux: bool = False) -> Any:
    """The value of a function and its derivative there, a linear function, as ``jax.linearize``.

    ``fn`` runs once. The tensors that its derivative needs are kept. For one vector ``jvp`` is
    faster.

    Args:
      fn: a function of real tensors or nests of them; returns a nest of real or complex tensors.
        Nones in these nests are left where they are.
      *primals: its arguments.
      has_aux: ``fn`` returns (outputs, aux).

    Returns:
      (outputs, push), or (outputs, push, aux). ``push(*tangents)`` takes one nest like each
      argument, and returns the nest of the outputs: jacobian times tangents. It may be called
      often, in ``vmap`` too.

    Raises:
      ArgumentError: as for ``jvp``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> y, push = tf_pfor.linearize(tf.sin, tf.constant([0., 0.]))
    >>> push(tf.constant([1., 3.])).numpy().tolist()
    [1.0, 3.0]
    """
    structure, inputs = _watched(primals)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            outputs, aux = _evaluated(fn, structure, inputs, inner, has_aux, _linear_outputs)
        ys = tensors_of(outputs)
        cotangents = [tf.ones_like(y) for y in ys]
        outer.watch(cotangents)
        with refused_if_missing():
            pulled = inner.gradient(ys, inputs, cotangents) if ys else [None] * len(inputs)
        pulled = [g if g is None else tf.convert_to_tensor(g) for g in pulled]
    reached = [g for g in pulled if g is not None]

    @_no_autograph
    def push(*tangents: Nest) -> Any:
        seeds = leaves_like(structure, tangents, "the tangents", "the arguments")
        seeds = [t for t, g in zip(seeds, pulled) if g is not None]
        return nests.to_user(filled(outputs, _pulled(outer, reached, cotangents, seeds)))

    return (nests.to_user(outputs), push, *aux)


def _watched(primals: tuple[Any, ...]) -> tuple[Any, list[tf.Tensor]]:
    """The arguments as a nest, and its leaves as tensors that nothing else reads."""
    structure = nests.opened(primals)
    inputs = [
        tf.identity(tf.convert_to_tensor(x))
        for k, part in enumerate(structure)
        for x, _ in present(part, f"argument {k}")
    ]
    return structure, inputs


def _evaluated(
    fn: Fn,
    structure: Nest,
    inputs: list[tf.Tensor],
    tape: tf.GradientTape,
    has_aux: bool,
    compute: Callable[[Differentiated], Any],
) -> tuple[Any, tuple[Any, ...]]:
    """Outputs, as a nest of tensors and Nones, of one call that the tape sees; and (aux,) or ()."""
    tape.watch([x for x in inputs if has_derivative(x.dtype)])
    args = nests.to_user(filled(structure, inputs))
    made = compiled(fn, tuple(range(len(args))), has_aux, compute)(*args)
    outputs, *aux = made if has_aux else (made,)
    return nests.opened(outputs), tuple(aux)


def _pulled(tape: tf.GradientTape, ys: Nest, xs: Nest, seeds: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gradients of a tape for cotangents, zeros where nothing is connected."""
    with refused_if_missing():
        found = tape.gradient(ys, xs, output_gradients=seeds) if ys else [None] * len(xs)
    return [tf.convert_to_tensor(g) for g in zeros_if_none(found, xs)]


# How a call is evaluated: one function each, so that calls share their trace.


def _outputs(call: Differentiated) -> Any:
    call.require(is_complex=False, why=REAL_ONLY)
    outputs = call.evaluate()
    check_outputs(outputs, is_complex=False, why="Use jvp, or return its real and imaginary parts.")
    return call.with_aux(nests.to_user(outputs))


def _linear_outputs(call: Differentiated) -> Any:
    call.require(is_complex=False, why=REAL_ONLY)
    outputs = call.evaluate()
    pusher(tensors_of(outputs), call.wrt)(call.wrt)  # for its checks: nothing reads it
    return call.with_aux(nests.to_user(outputs))


def _pushed(call: Differentiated) -> Any:
    call.require(is_complex=False, why=REAL_ONLY)
    tangents = call.like_the_arguments(call.extra[0], "tangents")
    outputs = call.evaluate()
    found = pusher(tensors_of(outputs), call.wrt)(tangents)
    return call.with_aux(nests.to_user(outputs), nests.to_user(filled(outputs, found)))
