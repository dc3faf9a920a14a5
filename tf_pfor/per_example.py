"""Per-example gradients, their norms, and their clipped sum (papers/001 section 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api import fixed_block
from tf_pfor.caching import UNCACHED, EagerCall
from tf_pfor.errors import ArgumentError
from tf_pfor.trace import autographed
from tf_pfor.vmap import vmap

LossFn = Callable[..., Any]
_no_autograph = tf.autograph.experimental.do_not_convert


def _example_gradients(loss_fn: LossFn, variables: Any, has_aux: bool) -> Callable[..., Any]:
    """A function of one example: gradients, loss and aux."""
    converted = autographed(loss_fn)
    leaves = _tensors(variables)
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


def _tensors(variables: Any) -> list[Any]:
    """The leaves, Keras variables as the TensorFlow variables that they hold."""
    return [
        v if isinstance(v, (tf.Tensor, tf.Variable)) else getattr(v, "value", v)
        for v in tf.nest.flatten(variables)
    ]


@_no_autograph
def per_example_gradients(
    loss_fn: LossFn,
    variables: Any,
    *batch: Any,
    has_aux: bool = False,
    chunk_size: int | str | None = None,
) -> Any:
    """The gradient of each example's loss, kept apart.

    Args:
      loss_fn: ``loss_fn(*example)`` returns the scalar loss of one example, or (loss, aux) with
        ``has_aux``.
      variables: a nest of variables or tensors to differentiate with respect to.
      *batch: nests of tensors [n, ...]: the examples.
      has_aux: whether ``loss_fn`` returns more than the loss.
      chunk_size: examples to process at once; None: all; "auto": what fits.

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
    return _cached(_gradients, loss_fn, (variables, batch), (has_aux, chunk_size))


def _gradients(
    loss_fn: LossFn,
    variables: Any,
    batch: tuple[Any, ...],
    has_aux: bool,
    chunk_size: int | str | None,
) -> Any:
    one = _example_gradients(loss_fn, variables, has_aux)
    grads, losses, aux = vmap(one, chunk_size=chunk_size)(*batch)
    return (grads, losses, aux) if has_aux else (grads, losses)


def _cached(
    implementation: Callable[..., Any],
    loss_fn: LossFn,
    arguments: tuple[Any, ...],
    options: tuple[Any, ...],
) -> Any:
    """Runs ``implementation(loss_fn, *arguments, *options)``, by a kept trace where possible."""
    if tf.executing_eagerly():
        result = EagerCall(implementation, (loss_fn,), arguments, options)()
        if result is not UNCACHED:
            return result
    return implementation(loss_fn, *arguments, *options)


@_no_autograph
def gradient_norms(
    loss_fn: LossFn, variables: Any, *batch: Any, chunk_size: int | str | None = None
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
    return _cached(_norms, loss_fn, (variables, batch), (chunk_size,))


def _norms(
    loss_fn: LossFn, variables: Any, batch: tuple[Any, ...], chunk_size: int | str | None
) -> tf.Tensor:
    one = _example_gradients(loss_fn, variables, False)

    def norm(*example: Any) -> tf.Tensor:
        grads, _, _ = one(*example)
        return tf.linalg.global_norm(tf.nest.flatten(grads))

    return vmap(norm, chunk_size=chunk_size)(*batch)


@_no_autograph
def clipped_gradient_sum(
    loss_fn: LossFn,
    variables: Any,
    *batch: Any,
    clip_norm: float | tf.Tensor,
    chunk_size: int | None = None,
) -> Any:
    """The sum of the examples' gradients, each clipped by its global norm: the heart of DP-SGD.

    Args:
      loss_fn: as for ``per_example_gradients``.
      variables: as for ``per_example_gradients``.
      *batch: as for ``per_example_gradients``.
      clip_norm: the largest global norm that one example's gradient keeps; a float or a scalar
        tensor.
      chunk_size: examples to process at once: no more than so many gradients are ever held.
        None: all.

    Returns:
      (sums, losses): the nest of ``variables`` with tensors of the variables' shapes, and [n]
      losses.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> w = tf.Variable(3.0)
    >>> total, losses = tf_pfor.clipped_gradient_sum(
    ...     lambda x: w * x, w, tf.constant([0.5, 8., -4.]), clip_norm=1.0)
    >>> float(total)
    0.5
    """
    arguments = (variables, batch, clip_norm)
    return _cached(_clipped, loss_fn, arguments, (fixed_block(chunk_size, "chunk_size"),))


def _clipped(
    loss_fn: LossFn, variables: Any, batch: tuple[Any, ...], clip_norm: Any, block: int | None
) -> Any:
    one = _example_gradients(loss_fn, variables, False)
    shapes = [tf.shape(v) for v in _tensors(variables)]

    def chunk(*rows: Any) -> tuple[list[tf.Tensor], tf.Tensor]:
        grads, losses, _ = vmap(one)(*rows)
        leaves = tf.nest.flatten(grads)
        count = tf.shape(losses)[0]
        flat = [tf.reshape(g, [count, tf.reduce_prod(s)]) for g, s in zip(leaves, shapes)]
        squares = [tf.reduce_sum(tf.math.real(f * tf.math.conj(f)), 1) for f in flat]
        norms = tf.sqrt(tf.add_n([tf.cast(s, tf.float32) for s in squares]))
        limit = tf.cast(clip_norm, tf.float32)
        scales = limit / tf.maximum(norms, limit)  # [k], 1 where the norm is small enough
        sums = [tf.linalg.matvec(f, tf.cast(scales, f.dtype), transpose_a=True) for f in flat]
        return [tf.reshape(s, shape) for s, shape in zip(sums, shapes)], losses

    if tf.executing_eagerly():
        compiled = tf.function(lambda *b: _sum_over_chunks(chunk, b, block), autograph=False)
        sums, losses = compiled(*tf.nest.map_structure(tf.convert_to_tensor, batch))
    else:
        sums, losses = _sum_over_chunks(chunk, batch, block)
    return tf.nest.pack_sequence_as(variables, sums), losses


def _sum_over_chunks(
    chunk: Callable[..., Any], batch: tuple[Any, ...], block: int | None
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Adds up what ``chunk`` returns for blocks of rows, one after the other.

    Args:
      chunk: ``chunk(*rows)`` returns (sums, losses).
      batch: nests of tensors [n, ...].
      block: rows at once; None: all.
    """
    leaves = tf.nest.flatten(batch)
    known = leaves[0].shape[0]
    n = tf.shape(leaves[0])[0] if known is None else known
    if block is None or (known is not None and known <= block):
        return chunk(*batch)
    full = (n - 1) // block if known else tf.maximum((n - 1) // block, 0)  # the last has a row

    def step(i: tf.Tensor, sums: list[tf.Tensor], losses: tf.TensorArray) -> Any:
        ids = i * block + tf.range(block)  # a slice from i has no static size under XLA
        more, loss = chunk(*tf.nest.map_structure(lambda x: tf.gather(x, ids), batch))
        return i + 1, [a + b for a, b in zip(sums, more)], losses.write(i, loss)

    sums, rest = chunk(*tf.nest.map_structure(lambda x: x[full * block :], batch))
    array = tf.TensorArray(rest.dtype, full, element_shape=[block])
    _, sums, array = tf.while_loop(
        lambda i, *_: i < full, step, (tf.constant(0), sums, array), parallel_iterations=1
    )
    return sums, tf.concat([array.concat(), rest], 0)
