"""Derivatives of functions: jacrev, jacfwd, hessian, hvp, hessian_diag, laplacian.

Named and shaped as in JAX: for y = fn(x) the jacobian has shape y.shape + x.shape, the nest of the
outputs outside and the nest of the argument inside. The results are functions; called eagerly they
are compiled once for each signature.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import nests
from tf_pfor.api import check_blocks
from tf_pfor.caching import UNCACHED, EagerCall
from tf_pfor.convert import Settings
from tf_pfor.errors import ArgumentError
from tf_pfor.fingerprint import Transformed
from tf_pfor.memory import AUTO, default_budget
from tf_pfor.run import Element, Job, run
from tf_pfor.trace import autographed

Argnums = int | Sequence[int]
Fn = Callable[..., Any]
Blocks = tuple[int | str | None, int | None]
"""How many at once, and the bytes for "auto"."""


def jacrev(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
) -> Fn:
    """The jacobian of ``fn``, one batched backward pass over all outputs (reverse mode).

    The better choice where the outputs have fewer elements than the inputs.

    Args:
      fn: a function of tensors or nests of tensors; returns a nest of tensors.
      argnums: which positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (outputs, aux), and so does the result.
      chunk_size: rows of the jacobian to compute at once; None: all; "auto": what fits.
      memory_budget: as for ``vmap``.

    Returns:
      A function of the arguments of ``fn`` that returns, for each output, the nest of the
      argument (a tuple of these when ``argnums`` is a sequence) with tensors of shape
      output.shape + input.shape; zeros where an output does not depend on an input.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.jacrev(lambda x: x ** 2)(tf.constant([1., 2.])).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: _Differentiated) -> Any:
        outputs, aux = call.evaluate()
        jacobians = [
            [_unflat(rows, y, x) for rows, x in zip(_pull_rows(y, call.wrt, blocks), call.wrt)]
            for y in nests.flatten(outputs)
        ]
        return call.nested(outputs, jacobians), aux

    return _compiled(fn, argnums, has_aux, compute)


def jacfwd(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
) -> Fn:
    """The jacobian of ``fn``, one batched pass over all inputs (forward mode).

    The better choice where the inputs have fewer elements than the outputs. The
    jacobian-vector product is the derivative of the backward pass with respect to its cotangent
    ("double backward"), so every op that has a gradient works.

    Args:
      fn: as for ``jacrev``.
      argnums: as for ``jacrev``.
      has_aux: as for ``jacrev``.
      chunk_size: columns of the jacobian to compute at once; None: all; "auto": what fits.
      memory_budget: as for ``vmap``.

    Returns:
      As ``jacrev``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.jacfwd(lambda x: x ** 2)(tf.constant([1., 2.])).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: _Differentiated) -> Any:
        outputs, aux = call.evaluate()
        leaves = nests.flatten(outputs)
        jacobians: list[list[tf.Tensor]] = [[] for _ in leaves]
        for x in call.wrt:
            push = _pusher(leaves, x)
            columns = _map_units(x, lambda seed, push=push: push(seed), blocks)
            for found, column, y in zip(jacobians, columns, leaves):
                rank = y.shape.rank
                turned = tf.transpose(column, [*range(1, rank + 1), 0])
                found.append(tf.reshape(turned, tf.concat([tf.shape(y), tf.shape(x)], 0)))
                found[-1].set_shape(y.shape + x.shape)
        return call.nested(outputs, jacobians), aux

    return _compiled(fn, argnums, has_aux, compute)


def hessian(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
) -> Fn:
    """The second derivatives of ``fn``: shape output.shape + input.shape + input.shape.

    Forward over reverse: ``jacfwd(jacrev(fn))``. The outputs need not be scalars.

    Args:
      fn: as for ``jacrev``.
      argnums: as for ``jacrev``.
      has_aux: as for ``jacrev``.
      chunk_size: columns to compute at once; None: all; "auto": what fits.
      memory_budget: as for ``vmap``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> f = tf_pfor.hessian(lambda x: tf.reduce_sum(x ** 3))
    >>> f(tf.constant([1., 2.])).numpy().tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    block, budget = check_blocks(chunk_size, memory_budget, "chunk_size")
    half = None
    if block == AUTO:  # a block of the inner jacobian must leave room for the outer one
        half = max((budget or default_budget()) // 2, 1)
    inner = jacrev(fn, argnums, has_aux, block, half)
    return jacfwd(inner, argnums, has_aux, block, budget)


def hvp(fn: Fn, argnums: int = 0, has_aux: bool = False) -> Fn:
    """Hessian-vector products of a scalar function, without the hessian.

    Args:
      fn: returns a scalar.
      argnums: the argument to differentiate with respect to.
      has_aux: ``fn`` returns (scalar, aux), and the result (product, aux).

    Returns:
      A function of the arguments of ``fn`` and, as last argument, of a vector: the nest of the
      differentiated argument. It returns such a nest.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> product = tf_pfor.hvp(lambda x: tf.reduce_sum(x ** 3))
    >>> product(tf.constant([1., 2.]), tf.constant([1., 1.])).numpy().tolist()
    [6.0, 12.0]
    """
    _check_int(argnums)

    def compute(call: _Differentiated) -> Any:
        outputs, aux = call.evaluate()
        value = _scalar_output(outputs)
        vector = [tf.convert_to_tensor(v) for v in nests.flatten(nests.from_user(call.extra[0]))]
        shapes, expected = [v.shape for v in vector], [x.shape for x in call.wrt]
        if len(shapes) != len(expected) or not all(map(_fits, shapes, expected)):
            raise ArgumentError(
                f"the vector of hvp must be like the argument, shapes {[*map(str, expected)]}, "
                f"found {[*map(str, shapes)]}."
            )
        products = _hessian_rows(value, call.wrt, vector)
        return nests.to_user(nests.pack(call.wrt_structure, products)), aux

    return _compiled(fn, argnums, has_aux, compute, extra=1)


def hessian_diag(
    fn: Fn,
    argnums: int = 0,
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
) -> Fn:
    """The diagonal of the hessian, without forming the hessian.

    Args:
      fn: returns a nest of tensors of any shape.
      argnums: the argument to differentiate with respect to.
      chunk_size: directions to compute at once; None: all; "auto": what fits.
      memory_budget: as for ``vmap``.

    Returns:
      A function that returns, for each output, the nest of the argument with tensors of shape
      output.shape + input.shape: d2 y / d x_k^2.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> f = tf_pfor.hessian_diag(lambda x: tf.reduce_sum(x ** 3))
    >>> f(tf.constant([1., 2.])).numpy().tolist()
    [6.0, 12.0]
    """
    _check_int(argnums)
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: _Differentiated) -> Any:
        outputs, _ = call.evaluate()
        leaves = nests.flatten(outputs)
        found = [[_second(y, x, blocks) for x in call.wrt] for y in leaves]
        return call.nested(outputs, found), None

    return _compiled(fn, argnums, False, compute)


def laplacian(
    fn: Fn,
    argnums: int = 0,
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
) -> Fn:
    """The sum of the second derivatives, what physics-informed networks ask for.

    Args:
      fn: returns a nest of tensors of any shape.
      argnums: the argument to differentiate with respect to.
      chunk_size: directions to compute at once; None: all; "auto": what fits.
      memory_budget: as for ``vmap``.

    Returns:
      A function that returns the nest of the outputs: sum over k of d2 y / d x_k^2.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> f = tf_pfor.laplacian(lambda x: tf.reduce_sum(x ** 3))
    >>> float(f(tf.constant([1., 2.])))
    18.0
    """
    _check_int(argnums)
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: _Differentiated) -> Any:
        outputs, _ = call.evaluate()
        sums: list[tf.Tensor] = []
        for y in nests.flatten(outputs):
            parts = [_second(y, x, blocks) for x in call.wrt]
            sums.append(tf.add_n([_sum_behind(part, y.shape.rank) for part in parts]))
        return nests.to_user(nests.pack(outputs, sums)), None

    return _compiled(fn, argnums, False, compute)


def _sum_behind(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """The sum over ``axis`` and all axes behind it."""
    return tf.reduce_sum(tensor, list(range(axis, tensor.shape.rank)))


# ---------------------------------------------------------------------------
# One call
# ---------------------------------------------------------------------------


class _Differentiated:
    """A call of a function, and which of its arguments to differentiate with respect to."""

    def __init__(
        self, fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Argnums,
        has_aux: bool, extra: int,
    ):  # fmt: skip
        cut = max(len(args) - extra, 0)
        self.extra = args[cut:]
        self._fn, self._args, self._kwargs, self._has_aux = fn, args[:cut], kwargs, has_aux
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for k in numbers:
            if not -cut <= k < cut:
                raise ArgumentError(
                    f"argnums names argument {k}, and the function was called with {cut} "
                    "positional arguments."
                )
        self._numbers = tuple(k % cut for k in numbers)
        if len(set(self._numbers)) < len(numbers):
            raise ArgumentError(f"argnums names an argument twice, found {argnums!r}.")
        chosen = tuple(nests.from_user(self._args[k]) for k in self._numbers)
        self.wrt_structure = chosen[0] if isinstance(argnums, int) else chosen
        self.wrt = [tf.identity(tf.convert_to_tensor(x)) for x in nests.flatten(self.wrt_structure)]
        for x in self.wrt:
            _check_differentiable(x, "an argument", "Cast it, or leave it out of argnums.")
        self._chosen = chosen

    def evaluate(self) -> tuple[Any, Any]:
        """Outputs as a nest of tensors, and aux."""
        args = list(self._args)
        supply = iter(self.wrt)
        for k, structure in zip(self._numbers, self._chosen):
            leaves = [next(supply) for _ in nests.flatten(structure)]
            args[k] = nests.to_user(nests.pack(structure, leaves))
        result = self._fn(*args, **self._kwargs)
        aux = None
        if self._has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise ArgumentError(
                    f"With has_aux=True the function must return (outputs, aux), found {result!r}."
                )
            result, aux = result
        structure = nests.from_user(result)
        leaves = nests.flatten(structure)
        if any(x is None for x in leaves):
            raise ArgumentError("the function must return tensors to differentiate, found None.")
        leaves = [tf.convert_to_tensor(x) for x in leaves]
        for x in leaves:
            _check_differentiable(x, "an output", "Cast it, or return it as aux.")
        return nests.pack(structure, leaves), aux

    def nested(self, outputs: Any, found: list[list[Any]]) -> Any:
        """The nest of the outputs, with the nest of the arguments at each leaf."""
        inner = [nests.to_user(nests.pack(self.wrt_structure, row)) for row in found]
        return nests.to_user(tf.nest.pack_sequence_as(outputs, inner))


def _compiled(
    fn: Fn, argnums: Argnums, has_aux: bool, compute: Callable[[_Differentiated], Any],
    extra: int = 0,
) -> Fn:  # fmt: skip
    """A function that differentiates in the graph being built, or eagerly in a compiled one."""
    if not callable(fn):
        raise ArgumentError(f"expected a function to differentiate, found {fn!r}.")
    _check_argnums(argnums)
    closures, options = (fn, argnums, has_aux, compute), (extra,)

    def traced(*args: Any, **kwargs: Any) -> Any:
        return _differentiate(*closures, args, kwargs, extra)

    own: dict[Any, Any] = {}

    @functools.cache  # a tf.function is dear to make, and seldom needed
    def compiled() -> Any:
        return tf.function(traced, autograph=False)

    @tf.autograph.experimental.do_not_convert
    def call(*args: Any, **kwargs: Any) -> Any:
        if not tf.executing_eagerly():
            return traced(*args, **kwargs)
        result = EagerCall(_differentiate, closures, (args, kwargs), options, own=own)()
        return compiled()(*args, **kwargs) if result is UNCACHED else result

    return Transformed(_compiled, closures, options).attach(call)


def _differentiate(
    fn: Fn, argnums: Argnums, has_aux: bool, compute: Callable[[_Differentiated], Any],
    args: tuple[Any, ...], kwargs: dict[str, Any], extra: int,
) -> Any:  # fmt: skip
    """One call of a derivative, in the graph being built."""
    call = _Differentiated(autographed(fn), args, kwargs, argnums, has_aux, extra)
    result, aux = compute(call)
    return (result, aux) if has_aux else result


def _check_differentiable(x: tf.Tensor, what: str, advice: str) -> None:
    if not (x.dtype.is_floating or x.dtype.is_complex):
        raise ArgumentError(f"{what} has dtype {x.dtype.name}, which has no derivative. {advice}")
    if x.shape.rank is None:
        raise ArgumentError(f"{what} has unknown rank, which a derivative needs. Set its shape.")


def _check_argnums(argnums: Any) -> None:
    numbers = argnums if isinstance(argnums, (list, tuple)) else [argnums]
    if any(isinstance(k, bool) or not isinstance(k, int) for k in numbers):
        raise ArgumentError(f"argnums must be an int or several, found {argnums!r}.")


def _check_int(argnums: Any) -> None:
    if not isinstance(argnums, int):
        raise ArgumentError(f"argnums must be one int here, found {argnums!r}.")


def _fits(found: tf.TensorShape, expected: tf.TensorShape) -> bool:
    return found.is_compatible_with(expected)


def _scalar_output(outputs: Any) -> tf.Tensor:
    leaves = nests.flatten(outputs)
    if len(leaves) != 1 or leaves[0].shape.rank != 0:
        raise ArgumentError(
            "hvp needs a function that returns one scalar, found "
            f"{[str(x.shape) for x in leaves]}. Reduce it, or use hessian."
        )
    return leaves[0]


# ---------------------------------------------------------------------------
# Rows and columns
# ---------------------------------------------------------------------------


def _zeros_if_none(grads: Sequence[Any], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [tf.zeros_like(x) if g is None else tf.convert_to_tensor(g) for g, x in zip(grads, like)]


def _map_units(
    x: tf.Tensor, of_seed: Callable[[tf.Tensor], Any], blocks: Blocks
) -> list[tf.Tensor]:
    """``of_seed`` of every unit tensor of the shape of ``x``, all at once: [size of x, ...]."""
    known = x.shape.num_elements()
    n = tf.size(x) if known is None else known

    def one(i: tf.Tensor) -> Any:
        unit = tf.one_hot(i, n, dtype=x.dtype)
        return of_seed(tf.reshape(unit, x.shape if known is not None else tf.shape(x)))

    block, budget = blocks
    return run(Job(one, Settings(), block, axis_name=None, budget=budget), [Element(None)], n)


def _pull_rows(y: tf.Tensor, wrt: list[tf.Tensor], blocks: Blocks) -> list[tf.Tensor]:
    return _map_units(
        y, lambda seed: _zeros_if_none(tf.gradients(y, wrt, grad_ys=seed), wrt), blocks
    )


def _unflat(rows: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """[size of y, ...x] -> y.shape + x.shape."""
    if y.shape.is_fully_defined() and x.shape.is_fully_defined():
        return tf.reshape(rows, y.shape + x.shape)
    out = tf.reshape(rows, tf.concat([tf.shape(y), tf.shape(x)], 0))
    out.set_shape(y.shape + x.shape)
    return out


def _pusher(ys: list[tf.Tensor], x: tf.Tensor) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """From a tangent of ``x`` to the tangents of ``ys``, by double backward."""
    cotangents = [tf.ones_like(y) for y in ys]
    pulled = tf.gradients(ys, x, grad_ys=cotangents)[0]
    if pulled is None:
        return lambda tangent: [tf.zeros_like(y) for y in ys]
    pulled = tf.convert_to_tensor(pulled)

    def push(tangent: tf.Tensor) -> list[tf.Tensor]:
        return _zeros_if_none(tf.gradients(pulled, cotangents, grad_ys=tangent), ys)

    return push


def _hessian_rows(
    value: tf.Tensor, wrt: list[tf.Tensor], vector: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """H v of a scalar: the gradient of (gradient . v)."""
    grads = _zeros_if_none(tf.gradients(value, wrt), wrt)
    vector = [tf.cast(tf.convert_to_tensor(v), g.dtype) for v, g in zip(vector, grads)]
    return _zeros_if_none(tf.gradients(grads, wrt, grad_ys=list(vector)), wrt)


def _second(y: tf.Tensor, x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """d2 y / d x_k^2 for each k: y.shape + x.shape."""
    if y.shape.rank == 0:

        def of_scalar(seed: tf.Tensor) -> tf.Tensor:
            (row,) = _hessian_rows(y, [x], [seed])
            return tf.reduce_sum(row * seed)

        diagonal = _map_units(x, of_scalar, blocks)
    else:
        push = _pusher([y], x)

        def of_tensor(seed: tf.Tensor) -> tf.Tensor:
            (tangent,) = push(seed)
            (second,) = _pusher([tangent], x)(seed)
            return second

        diagonal = _map_units(x, of_tensor, blocks)
        perm = [*range(1, y.shape.rank + 1), 0]
        diagonal = tf.transpose(tf.convert_to_tensor(diagonal), perm)
    shape = tf.concat([tf.shape(y), tf.shape(x)], 0)
    result = tf.reshape(diagonal, shape)
    result.set_shape(y.shape + x.shape)
    return result
