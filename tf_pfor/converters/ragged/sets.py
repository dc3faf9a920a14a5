"""The distinct elements of each row, in the order in which they appear."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    from_packed,
    rank_of,
    row_ids,
    row_starts,
    uses_packed,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source


@source("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2")
def of_dense(call: Call, x: Value, *axis: Value) -> Any:
    """Of rows of one length."""
    if rank_of(x) != 1 or not uses_packed(call):
        raise CannotVectorize("the distinct rows of a matrix, or under jit_compile")
    del axis
    flat, shape = call.stacked(x), tf.shape(call.stacked(x))
    rows = tf.repeat(tf.range(shape[0]), shape[1])
    values, places, counts, sizes = _distinct(call, tf.reshape(flat, [-1]), rows)
    local = places - tf.gather(row_starts([sizes]), rows)
    where = tf.reshape(tf.cast(local, call.output_dtype(1)), shape)
    where.set_shape([call.loop.static_length, *(x.inner_shape or [None])])
    return _results(call, values, Value.stacked(where), counts, sizes)


@ragged_rule("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2")
def of_ragged(call: Call, x: Value, *axis: Value) -> Any:
    """Of rows of their own lengths."""
    del axis
    if not isinstance(x, Ragged) or rank_of(x) != 1 or not uses_packed(call):
        raise CannotVectorize("the distinct rows of a matrix, or under jit_compile")
    rows = row_ids(x.sizes)
    values, places, counts, sizes = _distinct(call, x.tensor, rows)
    local = places - tf.gather(row_starts([sizes]), rows)
    where = Ragged.packed(tf.cast(local, call.output_dtype(1)), x.sizes, call.op.outputs[1])
    return _results(call, values, where, counts, sizes)


def _results(
    call: Call, values: tf.Tensor, where: Value, counts: tf.Tensor, sizes: RowSizes
) -> list[Value]:
    made = [from_packed(call, values, [sizes]), where]
    if len(call.op.outputs) == 3:
        how_often = tf.cast(counts, call.output_dtype(2))
        made.append(Ragged.packed(how_often, [sizes], call.op.outputs[2]))
    return made


def _distinct(
    call: Call, flat: tf.Tensor, rows: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, RowSizes]:
    """Of pairs of a row and an element: elements, where each is among them, counts, how many."""
    elements, ids = tf.unique(flat, tf.int64)
    many = tf.maximum(tf.size(elements, tf.int64), 1)
    pairs = tf.cast(rows, tf.int64) * many + ids
    distinct, places, counts = tf.unique_with_counts(pairs)
    n: Any = call.loop.length
    per_row = tf.math.bincount(
        tf.cast(distinct // many, tf.int32), minlength=n, maxlength=n, dtype=tf.int32
    )
    per_row.set_shape([call.loop.static_length])
    return tf.gather(elements, distinct % many), places, counts, RowSizes.of(per_row)
