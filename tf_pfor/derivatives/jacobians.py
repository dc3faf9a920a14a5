"""Jacobians of graph tensors and of taped computations (Agarwal, 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.api.checks import check_blocks
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import ChunkSize
from tf_pfor.derivatives.pullbacks import rows_of, unflattened

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def jacobian(
    output: tf.Tensor,
    inputs: Nest,
    use_pfor: bool = True,
    parallel_iterations: ChunkSize = None,
    *,
    memory_budget: int | None = None,
    sparse: bool = False,
) -> Any:
    """The jacobian of a graph tensor (Agarwal and Ganichev, 2019).

    Args:
      output: a tensor of the graph being built (in a ``tf.function`` or a v1 graph).
      inputs: a nest of tensors of that graph.
      use_pfor: False runs the rows one by one in a loop.
      parallel_iterations: the number of rows of the jacobian to compute at once; None for all,
        "auto" for as many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      sparse: whether the jacobian by a table that is looked up (an embedding) stays sparse: a
        ``BatchedIndexedSlices``.

    Returns:
      The nest of ``inputs``, with tensors of shape output.shape + input.shape. It has None for an
      input that the output does not depend on.

    Raises:
      ArgumentTypeError: if ``output`` is an eager tensor: use ``tape_jacobian``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> @tf.function
    ... def f(x):
    ...     return tf_pfor.jacobian(x ** 2, x)
    >>> f(tf.constant([1., 2.])).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    _check_graph_tensor(output, "jacobian")
    sources = _checked_sources(inputs, "inputs")

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return tf.gradients(output, sources, grad_ys=seed)

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    rows = rows_of(output, pull, blocks, use_pfor=use_pfor, tables=sources if sparse else ())
    return tf.nest.pack_sequence_as(inputs, [unflattened(output, r) for r in rows])


@_no_autograph
def batch_jacobian(
    output: tf.Tensor,
    inp: tf.Tensor,
    use_pfor: bool = True,
    parallel_iterations: ChunkSize = None,
    *,
    memory_budget: int | None = None,
) -> tf.Tensor | None:
    """The jacobian of each row of a graph tensor with respect to the same row of another.

    Row b of ``output`` must depend on row b of ``inp`` alone.

    Args:
      output: [b, ...] tensor of the graph being built.
      inp: [b, ...] tensor of that graph.
      use_pfor: False runs the rows one by one in a loop.
      parallel_iterations: the number of elements of an output row to differentiate at once; None
        for all, "auto" for as many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    Returns:
      [b] + output.shape[1:] + inp.shape[1:], or None if the output does not depend on ``inp``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> @tf.function
    ... def f(x):
    ...     return tf_pfor.batch_jacobian(x ** 2, x)
    >>> f(tf.constant([[1.], [3.]])).numpy().tolist()
    [[[2.0]], [[6.0]]]
    """
    _check_graph_tensor(output, "batch_jacobian")
    _check_batches(output, inp)

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return tf.gradients(output, [inp], grad_ys=seed)

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    (rows,) = rows_of(output, pull, blocks, use_pfor=use_pfor, batched=True)
    return _batch_jacobian_shape(output, rows)


@_no_autograph
def tape_jacobian(
    tape: tf.GradientTape,
    target: tf.Tensor,
    sources: Nest,
    unconnected_gradients: object = tf.UnconnectedGradients.NONE,
    parallel_iterations: ChunkSize = None,
    *,
    memory_budget: int | None = None,
    sparse: bool = False,
) -> Any:
    """The jacobian of a taped computation: ``tape.jacobian``, vectorized by tf_pfor.

    Complex numbers are as in TensorFlow's gradients: row k is the gradient for a cotangent of one.
    For a holomorphic function this is the conjugate of the derivative (see ``jacrev``). For real
    sources it is only the real part of the derivative (see ``jacfwd``).

    Args:
      tape: any ``tf.GradientTape``, persistent or not, eager or in a ``tf.function``.
      target: a tensor computed under the tape.
      sources: a nest of tensors or variables that the tape watched.
      unconnected_gradients: the result for a source that the target does not depend on: NONE gives
        None, ZERO gives zeros.
      parallel_iterations: the number of rows of the jacobian to compute at once; None for all,
        "auto" for as many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      sparse: whether the jacobian by a table that is looked up (an embedding) stays sparse: a
        ``BatchedIndexedSlices``.

    Returns:
      The nest of ``sources``, with tensors of shape target.shape + source.shape.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([1., 2.])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x ** 2
    >>> tf_pfor.tape_jacobian(tape, y, x).numpy().tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    _check_target(target)
    leaves, mode = _checked_sources(sources, "sources"), _checked_mode(unconnected_gradients)
    gradient = _gradient_of(tape)

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return gradient(target, leaves, output_gradients=seed, unconnected_gradients=mode)

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    rows = rows_of(target, pull, blocks, once=True, tables=leaves if sparse else ())
    return tf.nest.pack_sequence_as(sources, [unflattened(target, r) for r in rows])


@_no_autograph
def tape_batch_jacobian(
    tape: tf.GradientTape,
    target: tf.Tensor,
    source: Nest,
    unconnected_gradients: object = tf.UnconnectedGradients.NONE,
    parallel_iterations: ChunkSize = None,
    *,
    memory_budget: int | None = None,
) -> tf.Tensor | None:
    """The jacobian of each row of ``target`` with respect to the same row of ``source``.

    Args:
      tape: any ``tf.GradientTape``.
      target: [b, ...] tensor computed under the tape; row b depends on row b of ``source`` alone.
      source: [b, ...] tensor or variable that the tape watched.
      unconnected_gradients: as in ``tape_jacobian``.
      parallel_iterations: the number of elements of a target row to differentiate at once; None for
        all, "auto" for as many as fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    Returns:
      [b] + target.shape[1:] + source.shape[1:]; or None, if the target does not depend on
      the source and ``unconnected_gradients`` is NONE.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> x = tf.constant([[1.], [3.]])
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x ** 2
    >>> tf_pfor.tape_batch_jacobian(tape, y, x).numpy().tolist()
    [[[2.0]], [[6.0]]]
    """
    _check_target(target)
    _check_batches(target, source)
    gradient, mode = _gradient_of(tape), _checked_mode(unconnected_gradients)

    def pull(seed: tf.Tensor) -> Sequence[Any]:
        return [gradient(target, source, output_gradients=seed, unconnected_gradients=mode)]

    blocks = check_blocks(parallel_iterations, memory_budget, "parallel_iterations")
    (rows,) = rows_of(target, pull, blocks, batched=True, once=True)
    return _batch_jacobian_shape(target, rows)


def _batch_jacobian_shape(output: tf.Tensor, rows: tf.Tensor | None) -> Any:
    """[m, b, ...x] -> [b] + output.shape[1:] + [...x]."""
    if rows is None:
        return None
    turned = tf.einsum("mb...->bm...", rows)
    if output.shape.is_fully_defined() and turned.shape.is_fully_defined():
        return tf.reshape(turned, output.shape + turned.shape[2:])
    result = tf.reshape(turned, tf.concat([tf.shape(output), tf.shape(turned)[2:]], 0))
    result.set_shape(output.shape + rows.shape[2:])
    return result


def _check_graph_tensor(output: object, name: str) -> None:
    if not isinstance(output, tf.Tensor) or tf.executing_eagerly():
        raise ArgumentTypeError(
            f"{name} differentiates tensors of a graph: call it inside a tf.function, on a "
            f"tensor; found {type(output).__name__}. For eager tensors use tape_{name}."
        )


def _check_target(target: Nest) -> None:
    if not isinstance(target, (tf.Tensor, tf.Variable)):
        raise ArgumentTypeError(
            f"The target of a jacobian must be one tensor, found {type(target).__name__}. Call it "
            "for each tensor, with a persistent tape."
        )


def _gradient_of(tape: tf.GradientTape) -> Any:
    if not hasattr(tape, "gradient"):
        raise ArgumentTypeError(
            f"tape must be a tf.GradientTape, found {tape!r} of type {type(tape).__name__}."
        )
    return tape.gradient


def _checked_mode(unconnected_gradients: object) -> tf.UnconnectedGradients:
    try:
        return tf.UnconnectedGradients(unconnected_gradients)
    except ValueError:
        raise ArgumentError(
            "unconnected_gradients must be 'none', 'zero' or a tf.UnconnectedGradients, found "
            f"{unconnected_gradients!r}."
        ) from None


def _checked_sources(sources: Nest, name: str) -> list[Any]:
    """The leaves: tensors and variables."""
    leaves = tf.nest.flatten(sources)
    for leaf, path in zip(leaves, nests.paths(sources, name)):
        if not hasattr(leaf, "dtype") or isinstance(leaf, (np.ndarray, np.generic)):
            raise ArgumentTypeError(
                f"{path} is {leaf!r} of type {type(leaf).__name__}. Expected: a tensor or a "
                "variable that the target was computed from."
            )
    return leaves


def _check_batches(output: tf.Tensor, inp: tf.Tensor) -> None:
    for name, tensor in (("output", output), ("input", inp)):
        if not hasattr(tensor, "shape"):
            raise ArgumentTypeError(
                f"The {name} of a batch jacobian must be one tensor, found {type(tensor).__name__}."
            )
        if tensor.shape.rank == 0:
            raise ArgumentError(
                f"The {name} of a batch jacobian is a scalar, expected a tensor of shape [b, ...]."
            )
    first, second = output.shape[:1], inp.shape[:1]
    if not first.is_compatible_with(second):
        raise ArgumentError(
            "The output and the input of a batch jacobian must have the same number of rows, found "
            f"shapes {output.shape} and {inp.shape}. Use jacobian if rows depend on each other."
        )
