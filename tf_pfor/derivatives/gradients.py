"""Gradients of functions of tensors and variables: grad, value_and_grad."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives.differentiated import Argnums, Differentiated, Fn, compiled
from tf_pfor.derivatives.example_gradients import named
from tf_pfor.derivatives.missing_gradients import refuse_constants
from tf_pfor.derivatives.passes import REAL_ONLY, scalar_output, zeros_if_none
from tf_pfor.derivatives.pullbacks import gradients_of, has_derivative
from tf_pfor.derivatives.row_gradients import of_rows


def grad(
    fn: Fn,
    argnums: Argnums | None = None,
    *,
    has_aux: bool = False,
    variables: Nest = None,
) -> Fn:
    """The gradient of a function that returns one number (reverse mode), as ``jax.grad``.

    ``vmap(grad(fn))`` is the gradient of each example.

    Args:
      fn: a function of tensors or nests of tensors; returns a real scalar. Nones in the nests are
        left where they are.
      argnums: the positional arguments to differentiate with respect to: an int or several.
        None is argument 0, or no argument where ``variables`` is given.
      has_aux: ``fn`` returns (scalar, aux), and the result is (gradient, aux).
      variables: a nest of variables that ``fn`` uses, to differentiate with respect to as well.

    Returns:
      A function of the arguments of ``fn``. It returns the nest of the argument (a tuple of nests
      when ``argnums`` is a sequence) with tensors of the same shapes and dtypes. They are zeros
      where ``fn`` does not depend on the argument. With ``variables`` it returns their nest, and
      with both the pair (gradient by arguments, gradient by variables).

    Raises:
      ArgumentError: when called, if ``fn`` does not return one real number, or if an argument has
        no derivative. Also if TensorFlow would leave a part of the derivative out.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.grad(lambda x: tf.reduce_sum(x ** 3))(tf.constant([1., 2.])).numpy().tolist()
    [3.0, 12.0]
    >>> w = tf.Variable(3.)
    >>> float(tf_pfor.grad(lambda x: w ** 2 * x, variables=w)(tf.constant(2.)))
    12.0
    """
    chosen = _chosen(argnums, variables)
    made = compiled(fn, chosen, has_aux, _compute(_gradient, argnums, variables))
    if variables is None and not has_aux:
        made.row_gradient = functools.partial(of_rows, fn, chosen)  # type: ignore[attr-defined]
    return made


def value_and_grad(
    fn: Fn,
    argnums: Argnums | None = None,
    *,
    has_aux: bool = False,
    variables: Nest = None,
) -> Fn:
    """The value of a function and its gradient, of one forward and one backward pass.

    Args:
      fn: a function of tensors or nests of tensors; returns a real scalar. Nones in the nests are
        left where they are.
      argnums: the positional arguments to differentiate with respect to: an int or several. None is
        argument 0, or no argument where ``variables`` is given.
      has_aux: ``fn`` returns (scalar, aux), and the result is ((scalar, aux), gradient).
      variables: a nest of variables that ``fn`` uses, to differentiate with respect to as well.

    Returns:
      A function of the arguments of ``fn`` that returns (value, gradient): a scalar, and the result
      of ``grad``.

    Raises:
      ArgumentError: as for ``grad``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable([1., 2.])
    >>> loss = lambda x: tf.reduce_sum(w * x)
    >>> value, gradient = tf_pfor.value_and_grad(loss, variables=w)(tf.constant([3., 4.]))
    >>> float(value), gradient.numpy().tolist()
    (11.0, [3.0, 4.0])
    """
    chosen = _chosen(argnums, variables)
    return compiled(fn, chosen, has_aux, _compute(_value_and_gradient, argnums, variables))


def _chosen(argnums: object, variables: Nest) -> Any:
    if argnums is None:
        return 0 if variables is None else ()
    return argnums


def _compute(pass_of: Callable[..., Any], argnums: object, variables: Nest) -> Any:
    """One object for equal options, so that calls share their trace."""
    if variables is None:
        return pass_of
    return functools.partial(pass_of, variables=variables, with_arguments=argnums is not None)


def _gradient(call: Differentiated, **options: Any) -> Any:
    _, gradient = _differentiated(call, **options)
    return call.with_aux(gradient)


def _value_and_gradient(call: Differentiated, **options: Any) -> Any:
    value, gradient = _differentiated(call, **options)
    return call.with_aux(value), gradient


def _differentiated(
    call: Differentiated, variables: Nest = None, with_arguments: bool = True
) -> tuple[tf.Tensor, Any]:
    """The scalar and the nest of its gradients."""
    call.require(is_complex=False, why=REAL_ONLY)
    held = _variables(variables)
    value = scalar_output(call.evaluate(), "A gradient", "jacrev")
    refuse_constants([value], held)
    sources = [*call.wrt, *held]
    found = zeros_if_none(gradients_of(value, sources), sources)
    grads = [tf.convert_to_tensor(g) for g in found]
    by_arguments = call.like_arguments(grads[: len(call.wrt)])
    if variables is None:
        return value, by_arguments
    structure = nests.from_user(variables)
    by_variables = tf.nest.pack_sequence_as(structure, grads[len(call.wrt) :])
    by_variables = nests.to_user(by_variables)
    return value, (by_arguments, by_variables) if with_arguments else by_variables


def _variables(variables: Nest) -> list[tf.Variable]:
    """The leaves, Keras variables as the TensorFlow variables that they hold."""
    if variables is None:
        return []
    leaves = named(nests.from_user(variables))
    for held, name in leaves:
        if not isinstance(held, tf.Variable):
            raise ArgumentTypeError(
                f"{name} is {held!r} of type {type(held).__name__}, expected a variable that the "
                "function uses. Make tensors arguments, and name those by argnums."
            )
        if not has_derivative(held.dtype) or held.dtype.is_complex:
            raise ArgumentError(
                f"{name} has dtype {held.dtype.name}, which has no real gradient. Leave it out."
            )
    return [held for held, _ in leaves]
