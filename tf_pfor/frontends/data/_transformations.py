"""``map_and_batch`` and ``filter_map_and_batch``, for ``Dataset.apply``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError
from tf_pfor.frontends.data import _choice, _results
from tf_pfor.frontends.data._options import Options, Transformation
from tf_pfor.frontends.data._results import Padding
from tf_pfor.frontends.data._vectorized import of_batch, padded
from tf_pfor.tracing.trace import autographed

_no_autograph = tf.autograph.experimental.do_not_convert


@_no_autograph
def map_and_batch(
    fn: Callable[..., Any],
    batch_size: Any,
    *,
    num_parallel_calls: Any = tf.data.AUTOTUNE,
    drop_remainder: bool = False,
    deterministic: bool | None = None,
    ragged: bool = True,
    choose: str = "vectorized",
    fallback: Any = "loop",
    randomness: str = "different",
    while_strategy: str = "auto",
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
    out_shapes: str = "ragged",
    padded_shapes: Any = None,
    padding_values: Any = None,
) -> Transformation:
    """As ``ds.map(fn).batch(n)``, but batched first: ``ds.apply(map_and_batch(fn, n))``.

    Args:
      fn: as for ``Dataset.map``: called as ``fn(*element)`` of a tuple, else ``fn(element)``;
        returns a nest of tensors, RaggedTensors and SparseTensors. Traced once, with AutoGraph.
      batch_size: how many elements: an int, or an int64 scalar.
      num_parallel_calls: as in ``Dataset.map``: how many batches at once.
      drop_remainder: as in ``Dataset.batch``; when True the batch size is a static shape.
      deterministic: as in ``Dataset.map``: whether the order of the batches is kept.
      ragged: whether elements may have different shapes where the dataset's ``element_spec`` has
        unknown sizes; False says that all have one, as for ``Dataset.batch``.
      choose: "vectorized"; "loop" for ``map(fn).batch(n)``; or "auto": times both here, on the
        first batches, and keeps the faster one (docs/data.md).
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
      A function from a dataset to one of batches: the nest that ``fn`` returns, [n, ...] each; a
      RaggedTensor where shapes may differ and nothing is padded. Its cardinality is that of
      ``Dataset.batch``.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong; when applied, if elements of the
        dataset cannot be batched or ``fn`` returns what cannot be stacked.
      NotVectorizableError: when applied, if an op has no converter and the fallback is off.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> ds = tf.data.Dataset.range(5)
    >>> ds = ds.apply(tf_pfor.data.map_and_batch(lambda i: i * i, 2))
    >>> [batch.numpy().tolist() for batch in ds]
    [[0, 1], [4, 9], [16]]
    """
    how = Options(
        batch_size, num_parallel_calls, drop_remainder, deterministic, ragged, choose, randomness
    )  # fmt: skip
    padding = Padding(out_shapes, padded_shapes, padding_values)
    mapped = of_batch(
        fn, _results.as_dataset_reads, fallback=fallback, randomness=randomness,
        while_strategy=while_strategy, chunk_size=chunk_size, memory_budget=memory_budget,
        out_shapes=padding.out_shapes,
    )  # fmt: skip
    of_padded = padded(mapped, padding)

    def vectorized(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
        return how.mapped(how.batched(dataset), of_padded, fn)

    def looped(dataset: tf.data.Dataset[Any], spec: Any) -> tf.data.Dataset[Any]:
        made = how.mapped(dataset, fn, fn)
        return _choice.batched_as(made, how.size, spec, padding, drop_remainder=how.drop_remainder)

    return how.chosen(fn, vectorized, looped)


@_no_autograph
def filter_map_and_batch(
    fn: Callable[..., Any],
    batch_size: Any,
    *,
    refill: bool = True,
    num_parallel_calls: Any = tf.data.AUTOTUNE,
    drop_remainder: bool = False,
    deterministic: bool | None = None,
    ragged: bool = True,
    choose: str = "vectorized",
    fallback: Any = "loop",
    randomness: str = "different",
    while_strategy: str = "auto",
    chunk_size: int | str | None = None,
    memory_budget: int | None = None,
    out_shapes: str = "ragged",
    padded_shapes: Any = None,
    padding_values: Any = None,
) -> Transformation:
    """As ``map_and_batch`` of a function that says which elements are kept.

    The whole of ``fn`` runs for all elements, also for those that are dropped.

    Args:
      fn: returns a pair ``(keep, result)``: a scalar bool, and what ``map_and_batch`` takes.
      batch_size: how many elements: an int, or an int64 scalar.
      refill: whether batches are filled up again, as those of ``map(fn).filter(...).batch(n)`` are;
        False: each has what is left of ``batch_size`` elements, which may be none.
      num_parallel_calls: as for ``map_and_batch``.
      drop_remainder: as in ``Dataset.batch``. Without ``refill`` it is for the last elements of the
        dataset before any is dropped.
      deterministic: as for ``map_and_batch``.
      ragged: as for ``map_and_batch``.
      choose: as for ``map_and_batch``; without ``refill`` "vectorized" only.
      fallback: as for ``tf_pfor.vmap``.
      randomness: as for ``tf_pfor.vmap``.
      while_strategy: as for ``tf_pfor.vmap``.
      chunk_size: as for ``tf_pfor.vmap``.
      memory_budget: as for ``tf_pfor.vmap``.
      out_shapes: as for ``tf_pfor.vmap``.
      padded_shapes: as for ``map_and_batch``.
      padding_values: as for ``map_and_batch``.

    Returns:
      A function from a dataset to one of batches of the results that are kept.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong; when applied, if elements of the
        dataset cannot be batched or ``fn`` returns something else.
      NotVectorizableError: when applied, if an op has no converter and the fallback is off.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> ds = tf.data.Dataset.range(8)
    >>> ds = ds.apply(tf_pfor.data.filter_map_and_batch(lambda i: (i % 3 > 0, i * i), 2))
    >>> [batch.numpy().tolist() for batch in ds]
    [[1, 4], [16, 25], [49]]
    """
    how = Options(
        batch_size, num_parallel_calls, drop_remainder, deterministic, ragged, choose, randomness
    )  # fmt: skip
    padding = Padding(out_shapes, padded_shapes, padding_values)
    if not refill and choose != "vectorized":
        raise ArgumentError(f"choose is {choose!r}, which needs refill=True; found {refill!r}.")
    mapped = of_batch(
        fn, _results.kept_and_result, fallback=fallback, randomness=randomness,
        while_strategy=while_strategy, chunk_size=chunk_size, memory_budget=memory_budget,
        out_shapes="ragged" if padding.is_on else padding.out_shapes,
    )  # fmt: skip
    kept = _kept(mapped)

    def vectorized(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
        made = how.mapped(how.batched(dataset, drop=how.drop_remainder and not refill), kept, fn)
        if refill:
            made = made.rebatch(how.size, how.drop_remainder)
        return made.map(_of_element(padding.of_batch, made)) if padding.is_on else made

    def looped(dataset: tf.data.Dataset[Any], spec: Any) -> tf.data.Dataset[Any]:
        made = how.mapped(dataset, _in_pair(fn), fn).filter(_keep)
        made = made.map(lambda _, result: result)
        return _choice.batched_as(made, how.size, spec, padding, drop_remainder=how.drop_remainder)

    return how.chosen(fn, vectorized, looped)


def _keep(*pair: Any) -> Any:
    return pair[0]


def _kept(mapped: Callable[..., Any]) -> Callable[..., Any]:
    @_no_autograph
    def kept(*batch: Any) -> Any:
        keep, result = mapped(*batch)
        return _results.selected(result, keep)

    return kept


def _of_element(of: Callable[[Any], Any], dataset: tf.data.Dataset[Any]) -> Callable[..., Any]:
    """A function of a whole element as ``Dataset.map`` calls it."""
    is_tuple = type(dataset.element_spec) is tuple

    @_no_autograph
    def called(*components: Any) -> Any:
        return of(components if is_tuple else components[0])

    return called


def _in_pair(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function of ``filter_map_and_batch`` for one element, its result checked."""
    converted = autographed(fn)

    @_no_autograph
    def pair(*components: Any) -> Any:
        return _results.kept_and_result(converted(*components))

    return pair
