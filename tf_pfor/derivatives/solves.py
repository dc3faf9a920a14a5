"""Solves of A x = b by products with A: conjugate gradients, and their implicit derivatives."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._custom_gradients import attached, has_gradient
from tf_pfor._tf._functions import call_flat
from tf_pfor.api.leaves import filled
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.derivatives.curvature import check_function
from tf_pfor.derivatives.differentiated import leaves_like, present
from tf_pfor.derivatives.pullbacks import refused_if_missing
from tf_pfor.tracing.caching import cached_call
from tf_pfor.tracing.user_code import autographed

_Leaves = list[tf.Tensor]
_Concrete: TypeAlias = (
    Any  # a concrete function, whose variables and captures the stubs do not know
)
_no_autograph = tf.autograph.experimental.do_not_convert


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
    differs per example. Derivatives are of the solution, also after no step. Each is one more
    solve, with the same tolerances, ``maxiter`` and preconditioner; no step is kept. They are with
    respect to ``b``, and to tensors and variables that ``matvec`` uses.

    Args:
      matvec: a function from a nest like ``b`` to A times it, such a nest. It is traced, with
        AutoGraph. For damping, add a multiple of its argument.
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
    check_function(matvec, "matvec")
    if preconditioner is not None:
        check_function(preconditioner, "preconditioner")
    for value, name in ((tol, "tol"), (atol, "atol"), (maxiter, "maxiter")):
        kind = numbers.Integral if name == "maxiter" else numbers.Real
        given = value is not None or name != "maxiter"
        if given and (isinstance(value, bool) or not isinstance(value, kind) or value < 0):  # type: ignore[operator]
            raise ArgumentError(f"{name} must be a number of at least 0, found {value!r}.")
    closures, options = (matvec, preconditioner), (tol, atol, maxiter)
    return cached_call(_solved, closures, (b, x0), options, in_function=True)


def _solved(
    matvec: Callable[[Any], Any],
    preconditioner: Callable[[Any], Any] | None,
    b: Nest,
    x0: Nest,
    tol: float,
    atol: float,
    maxiter: int | None,
) -> tuple[Any, tf.Tensor]:
    """The solution, in the graph being built."""
    structure = nests.opened(b)
    right = [tf.convert_to_tensor(x) for x, _ in present(structure, "b")]
    if not right or any(not x.dtype.is_floating or x.dtype != right[0].dtype for x in right):
        found = [x.dtype.name for x in right]
        raise ArgumentError(f"b must hold real tensors of one dtype, found {found}.")
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in right]

    def traced(function: Callable[[Any], Any], name: str) -> Any:
        def linear(*xs: tf.Tensor) -> _Leaves:
            made = function(nests.to_user(filled(structure, xs)))
            return leaves_like(structure, made, f"what {name} returns", "b")

        return tf.function(linear, autograph=False).get_concrete_function(*specs)

    product = traced(autographed(matvec), "matvec")
    inverse = None
    if preconditioner is not None:
        inverse = traced(autographed(preconditioner), "preconditioner")
    start = [tf.zeros_like(x) for x in right]
    if x0 is not None:
        start = leaves_like(structure, x0, "x0", "b")
    held = [*product.captured_inputs, *([] if inverse is None else inverse.captured_inputs)]
    steps, found = _Solver(product, inverse, tol, atol, maxiter).run(right, start, held)
    return nests.to_user(filled(structure, found)), steps


class _Solver:
    """Solves with one A, whose tensors are arguments: derivatives are with respect to these, too.

    For A x = b the derivative is dx = A^-1 (db - dA x). It is a solve with A, which is symmetric.
    """

    def __init__(
        self, product: _Concrete, inverse: _Concrete, tol: float, atol: float, maxiter: int | None
    ):
        self._product, self._inverse = product, inverse
        self._ends = len(product.captured_inputs)
        self._limits = (tol**2, atol**2, maxiter)
        dtypes = {id(v.handle): v.dtype for v in product.variables if has_gradient(v)}
        found = [dtypes.get(id(t)) for t in product.captured_inputs]
        self._variables = {i: dtype for i, dtype in enumerate(found) if dtype is not None}

    def run(self, b: _Leaves, start: _Leaves, held: _Leaves) -> tuple[tf.Tensor, _Leaves]:
        """The number of steps, and the solution with its derivative."""
        product = functools.partial(_called, self._product, held[: self._ends])
        solve: Callable[..., _Leaves] = list
        if self._inverse is not None:
            solve = functools.partial(_called, self._inverse, held[self._ends :])
        right, first = (list(map(tf.stop_gradient, x)) for x in (b, start))
        steps, found = _steps(product, solve, right, first, *self._limits)
        return steps, self._attached(list(map(tf.stop_gradient, found)), b, held)

    def _attached(self, x: _Leaves, b: _Leaves, held: _Leaves) -> _Leaves:
        """The solution x, a constant, with its derivative: in a gradient x has it again."""
        n = len(b)
        passed = [i for i, t in enumerate(held) if t.dtype != tf.resource]
        values = [
            tf.raw_ops.ReadVariableOp(resource=held[i], dtype=dtype)
            for i, dtype in self._variables.items()
        ]  # in place of their handles, which no map passes on

        def gradient(given: Sequence[tf.Tensor], *upstream: tf.Tensor) -> list[Any]:
            tensors = list(map(_tf.captured, given))
            own = list(map(_tf.captured, held))
            for i, t in zip(passed, tensors[2 * n :]):
                own[i] = t
            b, x = tensors[:n], tensors[n : 2 * n]
            _, pulled = self.run([*upstream], [tf.zeros_like(y) for y in upstream], own)
            again = self._attached(x, b, own)
            by = {i: own[i] for i in passed if i < self._ends and has_gradient(own[i])}
            by |= {i: own[i] for i in self._variables}
            with refused_if_missing():
                found = tf.gradients(
                    _called(self._product, own[: self._ends], again),
                    [*by.values()],
                    grad_ys=[-y for y in pulled],
                    stop_gradients=again,
                )
            of = {i: None if g is None else tf.convert_to_tensor(g) for i, g in zip(by, found)}
            return [*pulled, *[None] * n, *map(of.get, [*passed, *self._variables])]

        given = [*b, *x, *[held[i] for i in passed], *values]
        return attached(lambda *given: [*given[n : 2 * n]], given, gradient)


def _called(function: _Concrete, captured: _Leaves, xs: _Leaves) -> _Leaves:
    return [*call_flat(function, xs, captured, is_compiled=False)]


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


def _dot(xs: list[tf.Tensor], ys: list[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(x * y) for x, y in zip(xs, ys)])


def _plus(xs: list[tf.Tensor], scale: float | tf.Tensor, ys: list[tf.Tensor]) -> list[tf.Tensor]:
    return [x + scale * y for x, y in zip(xs, ys)]
