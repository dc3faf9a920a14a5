"""Errors of a batch that name the row: its place, its cells, the op and the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.errors import PforError
from tf_pfor.core.nests import Nest
from tf_pfor.frontends.columns._inputs import size_of
from tf_pfor.frontends.data._choice import check_stateless
from tf_pfor.frontends.data._elements import rows
from tf_pfor.frontends.data._failures import Failure, first_failure, with_text

_SHOWN = 300  # characters of a row in a message


def located(why: tf.errors.OpError, fn: Callable[..., Any], batch: Nest) -> tf.errors.OpError:
    """The error of a batch with the row in front, which is found by trying one after the other."""
    spec = (tf.nest.map_structure(_spec_of_a_row, batch),)
    count = size_of(tf.nest.flatten(batch)[0])

    @tf.autograph.experimental.do_not_convert
    def one(row: Nest) -> Any:
        return fn(rows(row))

    def found() -> Failure | None:
        return first_failure(one, spec, ((_row(batch, i),) for i in range(count)))

    try:
        check_stateless(one, spec)
        failure, again = found(), found()
    except PforError:  # another try would change variables
        failure = again = None
    if failure is None or again is None or not failure.is_same(again):
        return with_text(why, f"In a batch of {count} rows.")
    shown = str(tf.nest.map_structure(_shown, rows(failure.element[0])))
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    where = f"Row {failure.index} of the batch fails in {failure.place}: {failure.error}"
    return with_text(why, f"{where}\nThe row: {shown}")


def _row(batch: Nest, i: int) -> Any:
    return tf.nest.map_structure(lambda x: x[i], batch)


def _spec_of_a_row(x: Nest) -> Any:
    if not isinstance(x, tf.RaggedTensor):
        return tf.TensorSpec(x.shape[1:], x.dtype)
    inner = x.flat_values.shape[1:]
    shape = [None] * x.ragged_rank + [*inner]
    if x.ragged_rank == 1:
        return tf.TensorSpec(shape, x.dtype)
    return tf.RaggedTensorSpec(shape, x.dtype, x.ragged_rank - 1, x.row_splits.dtype)


def _shown(x: Nest) -> Any:
    return x.to_list() if isinstance(x, tf.RaggedTensor) else np.asarray(x.numpy()).tolist()
