"""Per-example gradients, their norms, and their clipped sum (Agarwal, 2019)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.api.checks import check_blocks
from tf_pfor.api.vmap import vmap
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import ChunkSize
from tf_pfor.derivatives.clipped_sums import ClippedSum
from tf_pfor.derivatives.example_gradients import (
    LossFn,
    check_batch,
    dense,
    example_gradients,
    factored,
    flattened,
    global_norm,
    parts_of,
    squares,
    tensors_of,
    whole,
)
from tf_pfor.tracing.caching import cached_call
from tf_pfor.tracing.row_numbers import Rows, in_front

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def per_example_gradients(
    loss_fn: LossFn,
    variables: Nest,
    *batch: Nest,
    has_aux: bool = False,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
    sparse: bool = False,
) -> Any:
    """The gradient of each example's loss: one gradient for each example.

    Args:
      loss_fn: ``loss_fn(*example)`` returns the scalar loss of one example, or (loss, aux) with
        ``has_aux``.
      variables: a nest of variables or tensors to differentiate with respect to.
      *batch: the examples: nests of tensors [n, ...].
      has_aux: whether ``loss_fn`` returns more than the loss.
      chunk_size: the number of examples to process at once; None for all, "auto" for as many as
        fit.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.
      sparse: whether the gradient of a table that is looked up (an embedding) stays sparse. It is a
        ``BatchedIndexedSlices`` where fewer rows are looked up than the table has.

    Returns:
      (gradients, losses), or (gradients, losses, aux). The gradients are the nest of ``variables``
      with tensors of shape [n] + variable shape. They are zero for a variable that the loss does
      not depend on. The losses are [n]; aux is stacked.

    Raises:
      ArgumentError: if an argument is not as described. Also if the loss depends on the variables
        through an op that TensorFlow takes for a constant, such as ``tf.numpy_function``.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> grads, losses = tf_pfor.per_example_gradients(
    ...     lambda x: (w * x) ** 2, w, tf.constant([1., 2.]))
    >>> grads.numpy().tolist(), losses.numpy().tolist()
    ([6.0, 24.0], [9.0, 36.0])
    """
    options = (has_aux, chunk_size, memory_budget, sparse)
    return cached_call(_gradients, (loss_fn,), (variables, batch), options, rows=_rows)


def _gradients(
    loss_fn: LossFn,
    variables: Nest,
    batch: tuple[Any, ...],
    has_aux: bool,
    chunk_size: ChunkSize,
    budget: int | None,
    sparse: bool,
) -> Any:
    one = example_gradients(loss_fn, variables, has_aux)
    check_batch(batch)

    @_no_autograph  # else the checks of gradients are converted, too, which takes seconds
    def plain(*example: Nest) -> Any:
        grads, loss, aux = one(*example)
        return [parts_of(g) if sparse else dense(g) for g in grads], loss, aux

    call = vmap(plain, chunk_size=chunk_size, memory_budget=budget, out_shapes="ragged")
    grads, losses, aux = call(*batch)
    grads = [whole(g, v) for g, v in zip(grads, tensors_of(variables))]
    grads = tf.nest.pack_sequence_as(variables, grads)
    return (grads, losses, aux) if has_aux else (grads, losses)


def _rows(variables: Nest, batch: tuple[Any, ...], *shared: object) -> Rows:
    return in_front(batch, shared=(variables, shared))


@_no_autograph
def gradient_norms(
    loss_fn: LossFn,
    variables: Nest,
    *batch: Nest,
    has_aux: bool = False,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> Any:
    """The global norm of each example's gradient, [n]; (norms, aux) with ``has_aux``.

    Args:
      loss_fn: ``loss_fn(*example)`` returns the scalar loss of one example, or (loss, aux) with
        ``has_aux``.
      variables: a nest of variables or tensors to differentiate with respect to.
      *batch: the examples: nests of tensors [n, ...].
      has_aux: whether ``loss_fn`` returns more than the loss. The loss may be part of aux.
      chunk_size: the number of examples to process at once; None for all, "auto" for as many as
        fit. No more than so many gradients are ever held. Gradients of tables that are looked up
        are never dense.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> tf_pfor.gradient_norms(lambda x: w * x, w, tf.constant([1., -2.])).numpy().tolist()
    [1.0, 2.0]
    """
    options = (has_aux, chunk_size, memory_budget)
    return cached_call(_norms, (loss_fn,), (variables, batch), options, rows=_rows)


def _norms(
    loss_fn: LossFn,
    variables: Nest,
    batch: tuple[Any, ...],
    has_aux: bool,
    chunk_size: ChunkSize,
    budget: int | None,
) -> Any:
    one = example_gradients(loss_fn, variables, has_aux)
    check_batch(batch)

    @_no_autograph
    def norm(*example: Nest) -> Any:
        grads, _, aux = one(*example)
        found = global_norm([squares(flattened(factored(g))) for g in grads])
        return (found, aux) if has_aux else found

    return vmap(norm, chunk_size=chunk_size, memory_budget=budget, out_shapes="ragged")(*batch)


@_no_autograph
def clipped_gradient_sum(
    loss_fn: LossFn,
    variables: Nest,
    *batch: Nest,
    clip_norm: float | tf.Tensor,
    has_aux: bool = False,
    chunk_size: ChunkSize = None,
    memory_budget: int | None = None,
) -> Any:
    """The sum of the examples' gradients, each clipped by its global norm: the heart of DP-SGD.

    The caller adds the noise: normal, of standard deviation noise_multiplier * clip_norm. It is
    added to the sums before they are divided by the (expected) size of the batch. For microbatches
    of k examples pass a batch [n, k, ...] and the mean loss of k examples. The method comes from
    Abadi et al. (2016).

    Args:
      loss_fn: ``loss_fn(*example)`` returns the scalar loss of one example, or (loss, aux) with
        ``has_aux``.
      variables: a nest of variables or tensors to differentiate with respect to.
      *batch: the examples: nests of tensors [n, ...].
      clip_norm: the largest global norm that one example's gradient keeps: a float or a scalar
        tensor, more than 0.
      has_aux: whether ``loss_fn`` returns more than the loss.
      chunk_size: the number of examples to process at once; None for all, "auto" for as many as
        fit. No more than so many gradients are ever held. Gradients of tables that are looked up
        are never dense.
      memory_budget: bytes that "auto" may use for all that a call allocates. None: half of the free
        memory.

    Returns:
      (sums, losses), or (sums, losses, aux). The sums are the nest of ``variables`` with tensors of
      the variables' shapes. The losses are [n]. Aux is stacked, with zeros behind shorter rows.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> total, losses = tf_pfor.clipped_gradient_sum(
    ...     lambda x: w * x, w, tf.constant([0.5, 8., -4.]), clip_norm=1.0)
    >>> float(total)
    0.5
    """
    limit = _checked_clip_norm(clip_norm)
    blocks = check_blocks(chunk_size, memory_budget, "chunk_size")
    options = (has_aux, *blocks)
    return cached_call(_clipped, (loss_fn,), (variables, batch, limit), options, rows=_rows)


def _checked_clip_norm(clip_norm: Any) -> tf.Tensor:
    """A tensor, so that a schedule of norms shares one trace."""
    is_number = isinstance(clip_norm, (int, float)) and not isinstance(clip_norm, bool)
    try:
        number: Any = float(clip_norm) if is_number else clip_norm
        tensor = tf.convert_to_tensor(number, tf.float64 if is_number else None)
        known = tf.get_static_value(tensor)
    except (OverflowError, TypeError, ValueError):
        tensor = known = None
    if (
        tensor is None
        or not (tensor.dtype.is_floating or tensor.dtype.is_integer)
        or tensor.shape.rank not in (0, None)
        or (known is not None and not known > 0)
    ):
        raise ArgumentError(f"clip_norm must be a positive number, found {clip_norm!r}.")
    return tensor


def _clipped(
    loss_fn: LossFn,
    variables: Nest,
    batch: tuple[Any, ...],
    clip_norm: tf.Tensor,
    has_aux: bool,
    block: int | str | None,
    budget: int | None,
) -> Any:
    if tf.executing_eagerly():
        graph = nests.as_function(
            lambda *b: _clipped(loss_fn, variables, b, clip_norm, has_aux, block, budget)
        )
        return graph(*batch)
    work = ClippedSum(loss_fn, variables, batch, clip_norm, has_aux)
    sums, (losses, aux) = work.run(block, budget)
    sums = tf.nest.pack_sequence_as(variables, sums)
    return (sums, losses, nests.to_user(aux)) if has_aux else (sums, losses)
