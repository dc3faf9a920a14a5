"""``explain`` for a function of one element of a dataset."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.api.checks import check_callable
from tf_pfor.core.errors import ArgumentError, ArgumentTypeError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.data import _elements
from tf_pfor.frontends.data._results import as_dataset_reads
from tf_pfor.reports.explain import explain as _of_rows
from tf_pfor.reports.report import Report
from tf_pfor.tracing.user_code import autographed

_ROWS = 8  # of the batch that is read


@tf.autograph.experimental.do_not_convert
def explain(fn: Callable[..., Any], dataset: object, *, ragged: bool = True) -> Report:
    """The outcome of each op of ``fn`` in ``map_and_batch``: which ops loop, and why.

    Args:
      fn: a function of one element, called as ``Dataset.map`` calls it. It is traced, not run.
      dataset: a dataset of single elements; its first few elements are read.
      ragged: whether elements may have different shapes where the dataset does not know them.

    Returns:
      The ``tf_pfor.Report``. Nothing is printed.

    Raises:
      ArgumentTypeError, ArgumentError: if an argument is wrong, or the dataset has no elements.

    >>> import tensorflow as tf
    >>> import tf_pfor
    >>> ds = tf.data.Dataset.range(10)
    >>> report = tf_pfor.data.explain(lambda i: i * i, ds)
    >>> report.totals["looped"]
    0
    """
    check_callable(fn, "fn")
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentTypeError(f"dataset must be a tf.data.Dataset, found {dataset!r}.")
    batches = _elements.in_batches(
        dataset.take(_ROWS), _ROWS, drop_remainder=False, may_be_ragged=ragged
    )
    batch = next(iter(batches), None)
    if batch is None:
        raise ArgumentError("dataset has no elements; explain reads the first few of them.")
    converted = autographed(fn)

    @functools.wraps(fn, ("__name__", "__qualname__"), ())
    @tf.autograph.experimental.do_not_convert
    def one(*components: Nest) -> Any:
        return as_dataset_reads(converted(*_elements.rows(components)))

    return _of_rows(one, *_elements.arguments(batch))
