"""``map_and_batch`` and ``filter_map_and_batch``, for ``Dataset.apply``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.data import _choice, _elements, _results
from tf_pfor.frontends.data._options import OF_BATCHES, BatchOptions, Options, Transformation, takes
from tf_pfor.frontends.data._results import Padding
from tf_pfor.frontends.data._vectorized import OfBatches, of_batch
from tf_pfor.tracing.user_code import autographed

if TYPE_CHECKING:
    from typing_extensions import Unpack

_no_autograph = tf.autograph.experimental.do_not_convert


@takes(OF_BATCHES)
def map_and_batch(
    fn: Callable[..., Any],
    batch_size: Dim,
    **options: Unpack[BatchOptions],
) -> Transformation:
    """Vectorizes ``ds.map(fn).batch(n)``: ``ds.apply(map_and_batch(fn, n))``.

    The elements are batched first, and ``fn`` runs on all elements of a batch at once.

    Args:
      fn: as for ``Dataset.map``: called as ``fn(*element)`` of a tuple, else ``fn(element)``. It
        returns a nest of tensors, RaggedTensors and SparseTensors. Traced once, with AutoGraph.
      batch_size: the number of elements: an int, or an int64 scalar.
      **options: the options of ``BatchOptions`` and ``RowOptions``, as in tf.data and
        ``tf_pfor.vmap``.

    Returns:
      A function from a dataset to a dataset of batches. A batch is the nest that ``fn`` returns,
      [n, ...] each. It has a RaggedTensor where shapes may differ and nothing is padded. The
      cardinality is the same as with ``Dataset.batch``.

    Raises:
      ArgumentError, ArgumentTypeError: if an argument is wrong; when applied, if elements of the
        dataset cannot be batched or ``fn`` returns results that cannot be stacked.
      NotVectorizableError: when applied, if an op has no converter and the fallback is off.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> ds = tf.data.Dataset.range(5)
    >>> ds = ds.apply(tf_pfor.data.map_and_batch(lambda i: i * i, 2))
    >>> [batch.numpy().tolist() for batch in ds]
    [[0, 1], [4, 9], [16]]
    """
    how, padding = Options.of(batch_size, options), Padding.of(options)
    mapped = of_batch(fn, _results.as_dataset_reads, options, padding.out_shapes)

    def vectorized(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
        return how.mapped(how.batched(dataset), OfBatches(mapped, padding), fn)

    def looped(dataset: tf.data.Dataset[Any], spec: tf.TypeSpec[Any]) -> tf.data.Dataset[Any]:
        made = how.mapped(dataset, autographed(fn), fn)
        return _choice.batched_as(made, how.size, spec, padding, drop_remainder=how.drop_remainder)

    return how.chosen(fn, vectorized, looped, in_order=True)


@takes(OF_BATCHES)
def filter_map_and_batch(
    fn: Callable[..., Any],
    batch_size: Dim,
    *,
    refill: bool = True,
    **options: Unpack[BatchOptions],
) -> Transformation:
    """``map_and_batch`` for a function that says which elements are kept.

    The whole of ``fn`` runs for all elements, also for elements that are dropped.

    Args:
      fn: returns a pair ``(keep, result)``: a scalar bool, and a result as for ``map_and_batch``.
      batch_size: the number of elements: an int, or an int64 scalar.
      refill: whether batches are filled up again, as ``map(fn).filter(...).batch(n)`` does. False:
        a batch is the rest of ``batch_size`` elements, which may be empty.
      **options: as for ``map_and_batch``. Without ``refill`` the option ``drop_remainder`` counts
        elements before any is dropped, and ``choose`` must be "vectorized".

    Returns:
      A function from a dataset to a dataset of batches of the results that are kept.

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
    how, padding = Options.of(batch_size, options), Padding.of(options)
    if not refill and how.choose != "vectorized":
        raise ArgumentError(f"choose is {how.choose!r}, which needs refill=True; found {refill!r}.")
    shapes = "ragged" if padding.is_on else padding.out_shapes
    mapped = of_batch(fn, _results.kept_and_result, options, shapes)
    converted = autographed(fn)

    @_no_autograph
    def kept(*batch: Nest) -> Any:
        keep, result = mapped(*batch)
        return _results.selected(_elements.opened(result), keep)

    @_no_autograph
    def pair(*components: Nest) -> Any:
        return _results.kept_and_result(converted(*components))

    def whole(batch: Nest) -> Any:
        batch = _elements.closed(batch, is_batch=True)
        return padding.of_batch(batch) if padding.is_on else batch

    def vectorized(dataset: tf.data.Dataset[Any]) -> tf.data.Dataset[Any]:
        made = how.mapped(how.batched(dataset, drop=how.drop_remainder and not refill), kept, fn)
        if refill:
            made = made.rebatch(how.size, how.drop_remainder)
        is_done = not (padding.is_on or _elements.has_opened(made.element_spec))
        return made if is_done else made.map(_of_element(whole, made))

    def looped(dataset: tf.data.Dataset[Any], spec: tf.TypeSpec[Any]) -> tf.data.Dataset[Any]:
        made = how.mapped(dataset, pair, fn).filter(_keep)
        made = made.map(lambda _, result: result)
        return _choice.batched_as(made, how.size, spec, padding, drop_remainder=how.drop_remainder)

    return how.chosen(fn, vectorized, looped, in_order=not refill)


def _keep(*pair: Nest) -> Any:
    return pair[0]


def _of_element(of: Callable[[Any], Any], dataset: tf.data.Dataset[Any]) -> Callable[..., Any]:
    """A function of a whole element as ``Dataset.map`` calls it."""
    is_tuple = type(dataset.element_spec) is tuple

    @_no_autograph
    def called(*components: Nest) -> Any:
        return of(components if is_tuple else components[0])

    return called
