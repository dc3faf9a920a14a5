"""Derivatives of functions: jacrev, jacfwd, hessian, hvp, hessian_diag, laplacian.

Names and shapes are as in JAX: for y = fn(x) the jacobian has shape y.shape + x.shape. The nest of
the outputs is outside, the nest of the argument inside. The results are functions. An eager call of
such a function is compiled once for each signature.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.api.checks import check_blocks
from tf_pfor.api.leaves import filled
from tf_pfor.core import nests
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
from tf_pfor.derivatives.passes import REAL_ONLY, gradients, pusher, scalar_output, zeros_if_none
from tf_pfor.derivatives.pullbacks import (
    Blocks,
    gradients_of,
    map_units,
    rows_of,
    size_of_rows,
    unflattened,
)
from tf_pfor.derivatives.row_gradients import of_rows
from tf_pfor.tracing.memory import AUTO, default_budget

_REAL = (
    "Set holomorphic=True for the complex derivative of a holomorphic function, or differentiate "
    "with respect to the real and imaginary parts."
)
_HOLOMORPHIC = "holomorphic=True is for functions of complex arguments with complex outputs."


def jacrev(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    holomorphic: bool = False,
    sparse: bool = False,
) -> Fn:
    """The jacobian of ``fn``, one batched backward pass over all outputs (reverse mode).

    Reverse mode is the better choice where the outputs have fewer elements than the inputs.

    Args:
      fn: a function of tensors or nests of tensors; returns a nest of tensors. Nones in these
        nests are left where they are.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (outputs, aux), and so does the result.
      chunk_size: the number of rows of the jacobian to compute at once; None for all, "auto" for as
        many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      holomorphic: whether ``fn`` is holomorphic, with complex arguments and outputs. The result is
        the complex derivative. (TensorFlow's gradients and ``tape_jacobian`` give the conjugate.)
      sparse: whether the jacobian by a table that is looked up (an embedding) stays sparse. It is a
        ``BatchedIndexedSlices`` with the axes of the output in front, where TensorFlow's gradient
        is a ``tf.IndexedSlices``.

    Returns:
      A function of the arguments of ``fn``. For each output it returns the nest of the argument, or
      a tuple of nests when ``argnums`` is a sequence. The tensors have shape
      output.shape + input.shape and the dtype of the input. They are zero where an output does not
      depend on an input.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.jacrev(lambda x: x ** 2)(tf.constant([1., 2.])).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")
    return _reverse(fn, argnums, has_aux, blocks, holomorphic, sparse)


def _reverse(
    fn: Fn,
    argnums: Argnums,
    has_aux: bool,
    blocks: Blocks,
    holomorphic: bool,
    sparse: bool = False,
) -> Fn:
    """``jacrev``, with its checked options."""
    real = "Use jacfwd, or return its real and imaginary parts."

    def compute(call: Differentiated) -> Any:
        call.require(is_complex=holomorphic, why=_HOLOMORPHIC if holomorphic else _REAL)
        outputs = call.evaluate()
        check_outputs(outputs, is_complex=holomorphic, why=_HOLOMORPHIC if holomorphic else real)
        found = [
            [unflattened(y, r) for r in _pull_rows(y, call.wrt, blocks, holomorphic, sparse)]
            for y in tensors_of(outputs)
        ]
        return call.with_aux(call.nested(outputs, found))

    made = compiled(fn, argnums, has_aux, compute)
    if not (has_aux or holomorphic or sparse):
        made.row_gradient = functools.partial(of_rows, fn, argnums)  # type: ignore[attr-defined]
    return made


def jacfwd(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    holomorphic: bool = False,
) -> Fn:
    """The jacobian of ``fn``, one batched pass over all inputs (forward mode).

    Forward mode is the better choice where the inputs have fewer elements than the outputs. The
    jacobian-vector product is the derivative of the backward pass with respect to its cotangent
    ("double backward"), so every op that has a gradient works.

    Args:
      fn: a function of tensors or nests of tensors; returns a nest of tensors. Nones in these nests
        are left where they are. Outputs may be complex.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (outputs, aux), and so does the result.
      chunk_size: the number of columns of the jacobian to compute at once; None for all, "auto" for
        as many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      holomorphic: whether ``fn`` is holomorphic, with complex arguments and outputs. The result is
        the complex derivative.

    Returns:
      As ``jacrev``, with the dtype of the output.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> tf_pfor.jacfwd(lambda x: x ** 2)(tf.constant([1., 2.])).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: Differentiated) -> Any:
        call.require(is_complex=holomorphic, why=_HOLOMORPHIC if holomorphic else _REAL)
        outputs = call.evaluate()
        if holomorphic:
            check_outputs(outputs, is_complex=True, why=_HOLOMORPHIC)
        leaves = tensors_of(outputs)
        jacobians: list[list[tf.Tensor]] = [[] for _ in leaves]
        for x in call.wrt:
            push = pusher(leaves, [x])
            columns = map_units(x, lambda seed, push=push: push([seed]), blocks)
            for found, column, y in zip(jacobians, columns, leaves):
                found.append(_reshaped(_matrix(column, y, x), y, x))
        return call.with_aux(call.nested(outputs, jacobians))

    made = compiled(fn, argnums, has_aux, compute)
    if not (has_aux or holomorphic):
        made.row_gradient = functools.partial(of_rows, fn, argnums)  # type: ignore[attr-defined]
    return made


def hessian(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    holomorphic: bool = False,
) -> Fn:
    """The second derivatives of ``fn``: shape output.shape + input.shape + input.shape.

    The function is ``jacfwd(jacrev(fn))``, forward over reverse. The outputs need not be scalars.

    Args:
      fn: a function of tensors or nests of tensors; returns a nest of tensors. Nones in these nests
        are left where they are.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (outputs, aux), and so does the result.
      chunk_size: the number of columns to compute at once; None for all, "auto" for as many as fit.
        Under ``jit_compile`` all rows of the inner jacobian are computed at once.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      holomorphic: whether ``fn`` is holomorphic, with complex arguments and outputs. The result is
        the complex derivative.

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
    inner = _reverse(fn, argnums, has_aux, (block, half), holomorphic)
    return jacfwd(
        inner,
        argnums,
        has_aux,
        chunk_size=chunk_size,
        memory_budget=budget,
        holomorphic=holomorphic,
    )


def hvp(fn: Fn, argnums: Argnums = 0, has_aux: bool = False) -> Fn:
    """Hessian-vector products of a scalar function, without the hessian.

    One product is one pass forward and two backward, so there is nothing to do in blocks. For many
    vectors use ``vmap(..., chunk_size=...)``.

    Args:
      fn: returns a real scalar.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (scalar, aux), and the result (product, aux).

    Returns:
      A function of the arguments of ``fn`` and, as last argument, of a vector. The vector has the
      nest of the differentiated argument, or is a tuple of nests when ``argnums`` is a sequence.
      The product has the same nest.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> product = tf_pfor.hvp(lambda x: tf.reduce_sum(x ** 3))
    >>> product(tf.constant([1., 2.]), tf.constant([1., 1.])).numpy().tolist()
    [6.0, 12.0]
    """
    return compiled(fn, argnums, has_aux, _product, extra=1)


def _product(call: Differentiated) -> Any:
    """A hessian times the last argument. (One function, so that calls share their trace.)"""
    call.require(is_complex=False, why=REAL_ONLY)
    vector = call.like_the_arguments(call.extra[0], "the vector of hvp")
    outputs = call.evaluate()
    grads = gradients(scalar_output(outputs, "hvp", "hessian"), call.wrt)
    return call.with_aux(call.like_arguments(_hessian_rows(grads, call.wrt, vector)))


def hessian_diag(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> Fn:
    """The diagonal of the hessian, without forming the hessian.

    Args:
      fn: a function of real tensors; returns a nest of real or complex tensors of any shape.
      argnums: the positional arguments to differentiate with respect to: an int or several.
      has_aux: ``fn`` returns (outputs, aux), and so does the result.
      chunk_size: the number of directions to compute at once; None for all, "auto" for as many as
        fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    Returns:
      A function that returns, for each output, the nest of the argument with the tensors
      d2 y / d x_k^2. They have shape output.shape + input.shape and the dtype of the output.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> f = tf_pfor.hessian_diag(lambda x: tf.reduce_sum(x ** 3))
    >>> f(tf.constant([1., 2.])).numpy().tolist()
    [6.0, 12.0]
    """
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: Differentiated) -> Any:
        call.require(is_complex=False, why=REAL_ONLY)
        outputs = call.evaluate()
        found = [
            [_reshaped(_second(y, x, blocks), y, x) for x in call.wrt] for y in tensors_of(outputs)
        ]
        return call.with_aux(call.nested(outputs, found))

    return compiled(fn, argnums, has_aux, compute)


def laplacian(
    fn: Fn,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> Fn:
    """The sum of the second derivatives, as physics-informed networks need it.

    Args:
      fn: a function of tensors or nests of tensors; returns a nest of tensors. Nones in these nests
        are left where they are.
      argnums: the positional arguments to differentiate with respect to: an int or several. The sum
        is over all elements of all these arguments.
      has_aux: ``fn`` returns (outputs, aux), and so does the result.
      chunk_size: the number of directions to compute at once; None for all, "auto" for as many as
        fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    Returns:
      A function that returns the nest of the outputs: sum over k of d2 y / d x_k^2.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> f = tf_pfor.laplacian(lambda x: tf.reduce_sum(x ** 3))
    >>> float(f(tf.constant([1., 2.])))
    18.0
    """
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")

    def compute(call: Differentiated) -> Any:
        call.require(is_complex=False, why=REAL_ONLY)
        outputs = call.evaluate()
        sums: list[tf.Tensor] = []
        for y in tensors_of(outputs):
            parts = [tf.reduce_sum(_second(y, x, blocks), 1) for x in call.wrt]
            sums.append(_reshaped(tf.add_n(parts), y) if parts else tf.zeros_like(y))
        return call.with_aux(nests.to_user(filled(outputs, sums)))

    return compiled(fn, argnums, has_aux, compute)


# ---------------------------------------------------------------------------
# Rows and columns
# ---------------------------------------------------------------------------


def _pull_rows(
    y: tf.Tensor, wrt: list[tf.Tensor], blocks: Blocks, holomorphic: bool, sparse: bool
) -> list[Any]:
    """For each x: [size of y, ...x]."""

    def pull(seed: tf.Tensor) -> list[Any]:
        grads = zeros_if_none(gradients_of(y, wrt, seed), wrt)
        return [_conjugate(g) for g in grads] if holomorphic else grads

    return rows_of(y, pull, blocks, tables=wrt if sparse else ())


def _conjugate(gradient: object) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.math.conj(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.math.conj(gradient)


def _hessian_rows(
    grads: list[tf.Tensor], wrt: list[tf.Tensor], vector: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """H v of a scalar: the gradient of (gradient . v)."""
    found = gradients_of(grads, wrt, list(vector))
    return [tf.convert_to_tensor(g) for g in zeros_if_none(found, wrt)]


def _second(y: tf.Tensor, x: tf.Tensor, blocks: Blocks) -> tf.Tensor:
    """d2 y / d x_k^2 for each k: [size of y, size of x]."""
    if y.shape.rank == 0 and not y.dtype.is_complex:
        grads = gradients(y, [x])

        def of_scalar(seed: tf.Tensor) -> tf.Tensor:
            (row,) = _hessian_rows(grads, [x], [seed])
            return tf.reduce_sum(row * seed)

        diagonal = map_units(x, of_scalar, blocks)
    else:
        push = pusher([y], [x])

        def of_tensor(seed: tf.Tensor) -> tf.Tensor:
            (tangent,) = push([seed])
            (second,) = pusher([tangent], [x])([seed])
            return second

        diagonal = map_units(x, of_tensor, blocks)
    return tf.cast(_matrix(diagonal, y, x), y.dtype)


def _matrix(columns: Nest, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """[size of x, ...y] -> [size of y, size of x]."""
    columns = tf.convert_to_tensor(columns)
    return tf.transpose(tf.reshape(columns, [size_of_rows(x), size_of_rows(y)]))


def _reshaped(tensor: tf.Tensor, *like: tf.Tensor) -> tf.Tensor:
    """``tensor`` in the shapes of others, side by side."""
    result = tf.reshape(tensor, tf.concat([tf.shape(t) for t in like], 0))
    shape = like[0].shape
    for t in like[1:]:
        shape = shape + t.shape
    result.set_shape(shape)
    return result
