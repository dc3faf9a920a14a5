"""``vectorize``: a function of one element as a function of a batch, for ``Dataset.map``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api.maps import check_callable
from tf_pfor.api.vmap import vmap
from tf_pfor.frontends.data import _elements
from tf_pfor.frontends.data._results import Padding, as_dataset_reads
from tf_pfor.tracing.trace import autographed

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def vectorize(
    fn: Callable[..., Any],
    *,
    fallback: Any = "loop",
    randomness: str = "different",
    while_strategy: str = "auto",
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
    out_shapes: str = "ragged",
    padded_shapes: Any = None,
    padding_values: Any = None,
) -> Callable[..., Any]:
    """``fn`` of one element as a function of a batch: ``ds.batch(n).map(vectorize(fn))``.

    Args:
      fn: as for ``Dataset.map``: called as ``fn(*element)`` of a tuple, else ``fn(element)``;
        returns a nest of tensors, RaggedTensors and SparseTensors. Traced once, with AutoGraph.
      fallback: as for ``tf_pfor.vmap``: "loop", "error", or op types that may loop.
      randomness: as for ``tf_pfor.vmap``: "different", "same" or "error".
      while_strategy: as for ``tf_pfor.vmap``: "auto", "compact" or "mask".
      chunk_size: as for ``tf_pfor.vmap``: elements of a batch to run at once.
      memory_budget: as for ``tf_pfor.vmap``: bytes for ``chunk_size="auto"``.
      out_shapes: as for ``tf_pfor.vmap``: "ragged", "dense" or "padded".
      padded_shapes: as in ``Dataset.padded_batch``: to which shapes results are padded, in the nest
        that ``fn`` returns; None in a shape for the largest of the batch.
      padding_values: as in ``Dataset.padded_batch``: with what; zeros and empty strings if None.

    Returns:
      A function of a batch: of the components of an element, [n, ...] each; ragged and sparse ones
      as ``Dataset.batch`` makes them. It returns the nest of ``fn``, [n, ...] each, a RaggedTensor
      where shapes may differ and nothing is padded.

    Raises:
      ArgumentError, ArgumentTypeError: here if an option is wrong; in ``Dataset.map`` if ``fn``
        returns what cannot be stacked.
      NotVectorizableError: in ``Dataset.map``, if an op has no converter and the fallback is off.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> def features(text, label):
    ...     return {"length": tf.strings.length(text), "label": label}
    >>> ds = tf.data.Dataset.from_tensor_slices((["one", "three"], [0, 1]))
    >>> ds = ds.batch(2).map(tf_pfor.data.vectorize(features))
    >>> next(iter(ds))["length"].numpy().tolist()
    [3, 5]
    """
    padding = Padding(out_shapes, padded_shapes, padding_values)
    mapped = of_batch(
        fn, as_dataset_reads, fallback=fallback, randomness=randomness,
        while_strategy=while_strategy, chunk_size=chunk_size, memory_budget=memory_budget,
        out_shapes=padding.out_shapes,
    )  # fmt: skip
    return padded(mapped, padding)


def of_batch(
    fn: Callable[..., Any], read: Callable[[Any], Any], **options: Any
) -> Callable[..., Any]:
    """The function of a batch.

    Args:
      fn: of one element.
      read: from what ``fn`` returns to what is stacked.
      **options: of ``vmap``.

    Raises:
      ArgumentError, ArgumentTypeError: if ``fn`` or an option is wrong.
    """
    check_callable(fn, "fn")
    converted = autographed(fn)

    @_no_autograph
    def one(*components: Any) -> Any:
        return read(converted(*_elements.rows(components)))

    return vmap(one, **options)


def padded(mapped: Callable[..., Any], padding: Padding) -> Callable[..., Any]:
    """The function of a batch with its results padded."""
    if not padding.is_on:
        return mapped

    @_no_autograph
    def batch_fn(*batch: Any) -> Any:
        return padding.of_batch(mapped(*batch))

    return batch_fn
