"""``vectorize``: a function of one element as a function of a batch, for ``Dataset.map``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_pfor.api.checks import check_callable
from tf_pfor.api.vmap import vmap
from tf_pfor.core import nests
from tf_pfor.core.errors import ArgumentError
from tf_pfor.core.nests import Nest
from tf_pfor.core.settings import OutShapes
from tf_pfor.frontends.data import _elements
from tf_pfor.frontends.data._options import OF_ROWS, RowOptions, of_vmap, takes
from tf_pfor.frontends.data._results import Padding, as_dataset_reads
from tf_pfor.reports.report import Report
from tf_pfor.reports.subjects import Subject, subject_of
from tf_pfor.tracing.user_code import autographed

if TYPE_CHECKING:
    from typing_extensions import Unpack

_no_autograph = tf.autograph.experimental.do_not_convert


@takes(OF_ROWS)
def vectorize(
    fn: Callable[..., Any],
    **options: Unpack[RowOptions],
) -> Callable[..., Any]:
    """``fn`` of one element as a function of a batch: ``ds.batch(n).map(vectorize(fn))``.

    Args:
      fn: as for ``Dataset.map``: called as ``fn(*element)`` of a tuple, else ``fn(element)``. It
        returns a nest of tensors, RaggedTensors and SparseTensors. Traced once, with AutoGraph.
      **options: the options of ``RowOptions``, as in tf.data and ``tf_pfor.vmap``.

    Returns:
      A function of a batch. It takes the components of an element, [n, ...] each; ragged and sparse
      components as ``Dataset.batch`` makes them. It returns the nest of ``fn``, [n, ...] each, with
      a RaggedTensor where shapes may differ and nothing is padded.

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
    padding = Padding.of(options)
    mapped = of_batch(fn, as_dataset_reads, options, padding.out_shapes)
    return OfBatches(mapped, padding)


def of_batch(
    fn: Callable[..., Any], read: Callable[[Any], Any], options: RowOptions, out_shapes: OutShapes
) -> Callable[..., Any]:
    """The function of a batch; ``read`` makes what is stacked of the results of ``fn``."""
    check_callable(fn, "fn")
    converted = autographed(fn)

    @_no_autograph
    def one(*components: Nest) -> Any:
        return read(converted(*_elements.rows(components)))

    return vmap(one, out_shapes=out_shapes, **of_vmap(options))


class OfBatches:
    """A function of a batch whose results may be padded."""

    def __init__(self, mapped: Callable[..., Any], padding: Padding):
        self.mapped, self._padding = mapped, padding

    @_no_autograph
    def __call__(self, *batch: Nest) -> Any:
        _check_batch(batch)
        found = self.mapped(*batch)
        return self._padding.of_batch(found) if self._padding.is_on else found


def _check_batch(batch: Nest) -> None:
    """Refuses an element in the place of a batch."""
    for i, component in enumerate(batch):
        for x, path in zip(nests.flatten(component), nests.paths(component, f"component {i}")):
            if isinstance(x, tf.Tensor) and x.shape.rank == 0:
                raise ArgumentError(
                    f"vectorize: {path} of the dataset has shape (), expected a batch, [n, ...]. "
                    "Batch the dataset first, ds.batch(n).map(vectorize(fn)). Or do both at once: "
                    "ds.apply(tf_pfor.data.map_and_batch(fn, n))."
                )


@subject_of.register
def _of_batches(fn: OfBatches, given: Subject) -> Subject | Report:
    return subject_of(fn.mapped, given)
