"""Curvature without its matrix: Gauss-Newton and Fisher products, tangent kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from tf_pfor.api.checks import check_blocks
from tf_pfor.api.leaves import filled
from tf_pfor.api.vmap import vmap
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import ChunkSize
from tf_pfor.derivatives.differentiated import (
    Argnums,
    Differentiated,
    Fn,
    check_outputs,
    compiled,
    tensors_of,
)
from tf_pfor.derivatives.functional import hvp, jacrev
from tf_pfor.derivatives.passes import REAL_ONLY, pusher, zeros_if_none
from tf_pfor.derivatives.pullbacks import gradients_of, size_of_rows
from tf_pfor.tracing.caching import cached_call
from tf_pfor.tracing.user_code import autographed

_no_autograph = tf.autograph.experimental.do_not_convert


def gauss_newton_vector_product(
    fn: Fn, loss_fn: Callable[[Any], Any], argnums: Argnums = 0, *, has_aux: bool = False
) -> Fn:
    """Products with the Gauss-Newton matrix of ``loss_fn(fn(x))``: J^T H J v.

    J is the jacobian of ``fn``, and H the hessian of the loss by the outputs of ``fn``
    (Schraudolph, 2002, "Fast curvature matrix-vector products"). The matrix is the hessian without
    the curvature of ``fn``. It is positive semidefinite for a convex loss. No matrix is formed.

    Args:
      fn: a function of real tensors or nests; returns a nest of real tensors.
      loss_fn: a function of that nest that returns a real scalar.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (outputs, aux), and the result is (product, aux).

    Returns:
      A function of the arguments of ``fn`` and, as last argument, of a vector. The vector is a nest
      like the differentiated argument (a tuple of nests when ``argnums`` is a sequence). The
      function returns such a nest.

    Raises:
      ArgumentError: when called, as for ``hvp`` and ``jvp``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> product = tf_pfor.gauss_newton_vector_product(
    ...     lambda x: x ** 2, lambda y: tf.reduce_sum(y ** 2) / 2)
    >>> product(tf.constant([1., 2.]), tf.constant([1., 1.])).numpy().tolist()
    [4.0, 16.0]
    """
    check_function(loss_fn, "loss_fn")
    return compiled(
        fn, argnums, has_aux, functools.partial(_gauss_newton, loss_fn=loss_fn), extra=1
    )


def _gauss_newton(call: Differentiated, loss_fn: Callable[[Any], Any]) -> Any:
    outputs, ys, tangents = _pushed(call, "the vector of gauss_newton_vector_product")
    of_loss = hvp(loss_fn)(nests.to_user(outputs), nests.to_user(filled(outputs, tangents)))
    return _pulled(call, ys, tensors_of(nests.from_user(of_loss)))


def fisher_vector_product(fn: Fn, argnums: Argnums = 0, *, has_aux: bool = False) -> Fn:
    """Products with the Fisher information of n examples: J^T J v / n.

    J is the jacobian of the examples' log-likelihoods, so the matrix is the mean of the outer
    products of their gradients. For labels drawn from the model it estimates the Fisher
    information. For labels of the data it is the "empirical Fisher", which is another matrix.

    Args:
      fn: a function of real tensors or nests; returns the log-likelihoods of all examples, one real
        tensor of n elements.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (log-likelihoods, aux), and the result is (product, aux).

    Returns:
      As ``gauss_newton_vector_product``.

    Raises:
      ArgumentError: when called, if ``fn`` does not return one tensor, and as for ``jvp``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([1., 3.])
    >>> product = tf_pfor.fisher_vector_product(lambda mean: -(x - mean) ** 2 / 2)
    >>> float(product(tf.constant(0.), tf.constant(1.)))
    5.0
    """
    return compiled(fn, argnums, has_aux, _fisher, extra=1)


def _fisher(call: Differentiated) -> Any:
    _, ys, tangents = _pushed(call, "the vector of fisher_vector_product")
    if len(ys) != 1:
        raise ArgumentError(
            "fisher_vector_product needs a function that returns one tensor, the log-likelihoods "
            f"of all examples; found {len(ys)} tensors."
        )
    count = tf.cast(tf.maximum(tf.size(ys[0]), 1), ys[0].dtype)
    return _pulled(call, ys, [tangents[0] / count])


def _pushed(call: Differentiated, name: str) -> tuple[Any, list[tf.Tensor], list[tf.Tensor]]:
    """The outputs as a nest and as tensors, and their tangents for the last argument."""
    call.require(is_complex=False, why=REAL_ONLY)
    vector = call.like_the_arguments(call.extra[0], name)
    outputs = call.evaluate()
    check_outputs(outputs, is_complex=False, why="Return its real and imaginary parts.")
    ys = tensors_of(outputs)
    return outputs, ys, pusher(ys, call.wrt)(vector)


def _pulled(call: Differentiated, ys: list[tf.Tensor], seeds: list[tf.Tensor]) -> Any:
    found = zeros_if_none(gradients_of(ys, call.wrt, seeds), call.wrt)
    return call.with_aux(call.like_arguments([tf.convert_to_tensor(g) for g in found]))


# ---------------------------------------------------------------------------
# Tangent kernels
# ---------------------------------------------------------------------------


@_no_autograph
def ntk(
    fn: Callable[[Any, Any], Any],
    params: Nest,
    x1: Nest,
    x2: Nest = None,
    *,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> tf.Tensor:
    """The empirical neural tangent kernel: J(x1) J(x2)^T, of the jacobians by the parameters.

    It contracts jacobians (Novak, Sohl-Dickstein and Schoenholz, 2022, "Fast finite width neural
    tangent kernel"). It holds the jacobian of all examples of ``x2``.

    Args:
      fn: ``fn(params, x)`` returns one real tensor, the outputs [...] of one example.
      params: a nest of real tensors or variables.
      x1: a nest of tensors [n, ...]: examples.
      x2: a nest of tensors [m, ...]; None: ``x1``.
      chunk_size: the number of examples of ``x1`` whose jacobian is held at once; None: all;
        "auto": as many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    Returns:
      A tensor [n, m, ..., ...] of the dtype of the outputs: for each pair of examples and of their
      outputs the dot product of the gradients.

    Raises:
      ArgumentError: if ``fn`` does not return one tensor, and as for ``jacrev``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([[1., 2.], [3., 4.]])
    >>> linear = lambda w, x: tf.reduce_sum(w * x)
    >>> tf_pfor.ntk(linear, tf.ones([2]), x).numpy().tolist()
    [[5.0, 11.0], [11.0, 25.0]]
    """
    check_function(fn, "fn")
    block, budget = check_blocks(chunk_size, memory_budget, "chunk_size")
    blocks = cast("ChunkSize", block), budget
    arguments = (params, x1, x1 if x2 is None else x2)
    return cached_call(_kernel, (fn,), arguments, blocks, in_function=True)


def _kernel(
    fn: Callable[[Any, Any], Any],
    params: Nest,
    x1: Nest,
    x2: Nest,
    block: ChunkSize,
    budget: int | None,
) -> tf.Tensor:
    converted = autographed(fn)

    @_no_autograph
    def twice(p: object, x: object) -> Any:
        y = converted(p, x)
        return y, y

    rows = jacrev(twice, has_aux=True)
    second, y2 = vmap(rows, in_axes=(None, 0))(params, x2)
    if not isinstance(y2, tf.Tensor):
        raise ArgumentError(f"ntk needs a function that returns one tensor, found {y2!r}.")
    count = size_of_rows(y2, 1)
    sizes = [size_of_rows(tf.convert_to_tensor(p)) for p in tensors_of(nests.from_user(params))]

    def matrices(jacobians: object, *first: Nest) -> list[tf.Tensor]:
        """[..., outputs, size of a parameter], for each of them."""
        leaves = tensors_of(nests.from_user(jacobians))
        return [tf.reshape(j, [*first, count, size]) for j, size in zip(leaves, sizes)]

    right = matrices(second, tf.shape(y2)[0] if y2.shape[0] is None else y2.shape[0])

    @_no_autograph
    def row(x: object) -> tf.Tensor:
        jacobians, _ = rows(params, x)
        left = matrices(jacobians)
        return tf.add_n([tf.einsum("ip,mjp->mij", a, b) for a, b in zip(left, right)])

    made = vmap(row, chunk_size=block, memory_budget=budget)(x1)  # [n, m, outputs, outputs]
    shape = tf.shape(y2)
    result = tf.reshape(made, tf.concat([tf.shape(made)[:1], shape, shape[1:]], 0))
    result.set_shape(made.shape[:1] + y2.shape + y2.shape[1:])
    return result


def check_function(fn: Callable[..., Any], name: str) -> None:
    """Refuses what is no function."""
    if not callable(fn):
        raise ArgumentTypeError(f"{name} must be a function, found a {type(fn).__name__}.")
