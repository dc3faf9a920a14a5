"""Per-example gradients, their norms, and their clipped sum (papers/001 section 3.4)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import nests
from tf_pfor.api import vectorized_map
from tf_pfor.errors import ArgumentError
from tf_pfor.trace import autographed
from tf_pfor.vmap import vmap

LossFn = Callable[..., Any]
_no_autograph = tf.autograph.experimental.do_not_convert


def _example_gradients(loss_fn: LossFn, variables: Any, has_aux: bool) -> Callable[..., Any]:
    """A function of one example: gradients, loss and aux."""
    converted = autographed(loss_fn)
    leaves = tf.nest.flatten(variables)
    if not leaves:
        raise ArgumentError("variables holds nothing to differentiate with respect to.")

    def one(*example: Any) -> tuple[Any, tf.Tensor, Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(leaves)
            result = converted(*example)
            loss, aux = result if has_aux else (result, None)
        loss = tf.convert_to_tensor(loss)
        if loss.shape.rank not in (0, None):
            raise ArgumentError(
                f"loss_fn must return a scalar for one example, found shape {loss.shape}. It sees "
                "one example, without the batch axis."
            )
        grads = tape.gradient(loss, leaves, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        grads = [tf.convert_to_tensor(g) for g in grads]
        return tf.nest.pack_sequence_as(variables, grads), loss, aux

    return one


@_no_autograph
def per_example_gradients(
    loss_fn: LossFn,
    variables: Any,
    *batch: Any,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Any:
    """The gradient of each example's loss, kept apart.

    Args:
      loss_fn: ``loss_fn(*example)`` returns the scalar loss of one example, or (loss, aux) with
        ``has_aux``.
      variables: a nest of variables or tensors to differentiate with respect to.
      *batch: nests of tensors [n, ...]: the examples.
      has_aux: whether ``loss_fn`` returns more than the loss.
      chunk_size: examples to process at once; None: all.

    Returns:
      (gradients, losses), or (gradients, losses, aux): the nest of ``variables`` with tensors of
      shape [n] + variable shape; zeros for a variable that the loss does not depend on; [n]
      losses; aux stacked.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> grads, losses = tf_pfor.per_example_gradients(
    ...     lambda x: (w * x) ** 2, w, tf.constant([1., 2.]))
    >>> grads.numpy().tolist(), losses.numpy().tolist()
    ([6.0, 24.0], [9.0, 36.0])
    """
    one = _example_gradients(loss_fn, variables, has_aux)
    grads, losses, aux = vmap(one, chunk_size=chunk_size)(*batch)
    return (grads, losses, aux) if has_aux else (grads, losses)


@_no_autograph
def gradient_norms(
    loss_fn: LossFn, variables: Any, *batch: Any, chunk_size: int | None = None
) -> tf.Tensor:
    """The global norm of each example's gradient, [n].

    Args:
      loss_fn: as for ``per_example_gradients``.
      variables: as for ``per_example_gradients``.
      *batch: as for ``per_example_gradients``.
      chunk_size: examples to process at once: no more than so many gradients are ever held.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> tf_pfor.gradient_norms(lambda x: w * x, w, tf.constant([1., -2.])).numpy().tolist()
    [1.0, 2.0]
    """
    one = _example_gradients(loss_fn, variables, False)

    def norm(*example: Any) -> tf.Tensor:
        grads, _, _ = one(*example)
        return tf.linalg.global_norm(tf.nest.flatten(grads))

    return vmap(norm, chunk_size=chunk_size)(*batch)
