"""Curvature without its matrix: Gauss-Newton and Fisher products, tangent kernels, solves."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from tf_pfor.api.checks import check_blocks
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
    filled,
    leaves_like,
    present,
    tensors_of,
)
from tf_pfor.derivatives.functional import hvp, jacrev
from tf_pfor.derivatives.passes import REAL_ONLY, pusher, zeros_if_none
from tf_pfor.derivatives.pullbacks import gradients_of, size_of_rows
from tf_pfor.tracing.caching import UNCACHED, EagerCall
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
    _check_function(loss_fn, "loss_fn")
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
    _check_function(fn, "fn")
    block, budget = check_blocks(chunk_size, memory_budget, "chunk_size")
    blocks = cast("ChunkSize", block), budget
    arguments = (params, x1, x1 if x2 is None else x2)
    if not tf.executing_eagerly():
        return _kernel(fn, *arguments, *blocks)
    found = EagerCall(_kernel, (fn,), arguments, blocks)()
    if found is not UNCACHED:
        return found
    return nests.as_function(lambda p, a, b: _kernel(fn, p, a, b, *blocks))(*arguments)


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


# ---------------------------------------------------------------------------
# Solves
# ---------------------------------------------------------------------------


@_no_autograph
def conjugate_gradient(
    matvec: Callable[[Any], Any],
    b: Nest,
    x0: Nest = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    preconditioner: Callable[[Any], Any] | None = None,
) -> tuple[Any, tf.Tensor]:
    """Solves A x = b by products with A, which is symmetric and positive definite.

    As ``jax.scipy.sparse.linalg.cg`` (Hestenes and Stiefel, 1952). In ``vmap`` the number of steps
    differs per example. A gradient differentiates the steps that were made.

    Args:
      matvec: a function from a nest like ``b`` to A times it, such a nest. For damping, add a
        multiple of its argument.
      b: a nest of real tensors.
      x0: a nest like ``b`` to begin with; None: zeros.
      tol: relative tolerance: it stops where |b - A x| <= max(tol |b|, atol).
      atol: absolute tolerance.
      maxiter: the largest number of steps; None: ten for each element of ``b``.
      preconditioner: a function from a nest like ``b`` to an approximate inverse of A times it.

    Returns:
      (x, steps): a nest like ``b``, and the int32 number of steps. Fewer than ``maxiter`` mean that
      it has converged.

    Raises:
      ArgumentError: if ``b`` holds other than real tensors, or if a number is negative. Also if
        ``x0`` or the result of a function is not like ``b``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> matrix = tf.constant([[2., 0.], [0., 4.]])
    >>> x, steps = tf_pfor.conjugate_gradient(
    ...     lambda v: tf.linalg.matvec(matrix, v), tf.constant([2., 8.]))
    >>> x.numpy().round(5).tolist(), int(steps)
    ([1.0, 2.0], 2)
    """
    _check_function(matvec, "matvec")
    for value, name in ((tol, "tol"), (atol, "atol"), (maxiter, "maxiter")):
        kind = numbers.Integral if name == "maxiter" else numbers.Real
        given = value is not None or name != "maxiter"
        if given and (isinstance(value, bool) or not isinstance(value, kind) or value < 0):  # type: ignore[operator]
            raise ArgumentError(f"{name} must be a number of at least 0, found {value!r}.")
    structure = nests.opened(b)
    right = [tf.convert_to_tensor(x) for x, _ in present(structure, "b")]
    if not right or any(not x.dtype.is_floating or x.dtype != right[0].dtype for x in right):
        found = [x.dtype.name for x in right]
        raise ArgumentError(f"b must hold real tensors of one dtype, found {found}.")

    def linear(function: Callable[[Any], Any], name: str, xs: list[tf.Tensor]) -> list[tf.Tensor]:
        made = function(nests.to_user(filled(structure, xs)))
        return leaves_like(structure, made, f"what {name} returns", "b")

    product = functools.partial(linear, autographed(matvec), "matvec")
    solve = list
    if preconditioner is not None:
        _check_function(preconditioner, "preconditioner")
        solve = functools.partial(linear, autographed(preconditioner), "preconditioner")
    start = [tf.zeros_like(x) for x in right]
    if x0 is not None:
        start = leaves_like(structure, x0, "x0", "b")
    steps, found = _steps(product, solve, right, start, tol**2, atol**2, maxiter)
    return nests.to_user(filled(structure, found)), steps


def _steps(
    product: Callable[..., list[tf.Tensor]],
    solve: Callable[..., list[tf.Tensor]],
    b: list[tf.Tensor],
    x: list[tf.Tensor],
    tol2: float,
    atol2: float,
    maxiter: int | None,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    k, limit = len(b), tf.maximum(tol2 * _dot(b, b), tf.cast(atol2, b[0].dtype))
    residual = _plus(b, -1.0, product(x))
    z = solve(residual)
    gamma = _dot(residual, z)

    def goes_on(step: tf.Tensor, gamma: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        del step, gamma
        return _dot([*state[k : 2 * k]], [*state[k : 2 * k]]) > limit

    def body(step: tf.Tensor, gamma: tf.Tensor, *state: tf.Tensor) -> Any:
        x, r, p = ([*state[i * k : (i + 1) * k]] for i in range(3))
        image = product(p)
        alpha = gamma / _dot(p, image)
        r = _plus(r, -alpha, image)
        z = solve(r)
        new = _dot(r, z)
        return [step + 1, new, *_plus(x, alpha, p), *r, *_plus(z, new / gamma, p)]

    if maxiter is None:
        maxiter = 10 * tf.add_n([tf.size(t) for t in b])  # type: ignore[assignment]
    step, _, *state = tf.while_loop(
        goes_on, body, [tf.constant(0), gamma, *x, *residual, *z], maximum_iterations=maxiter
    )
    return step, state[:k]


def _check_function(fn: Callable[..., Any], name: str) -> None:
    if not callable(fn):
        raise ArgumentTypeError(f"{name} must be a function, found a {type(fn).__name__}.")


def _dot(xs: list[tf.Tensor], ys: list[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(x * y) for x, y in zip(xs, ys)])


def _plus(xs: list[tf.Tensor], scale: float | tf.Tensor, ys: list[tf.Tensor]) -> list[tf.Tensor]:
    return [x + scale * y for x, y in zip(xs, ys)]
