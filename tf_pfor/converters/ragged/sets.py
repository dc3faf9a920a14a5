"""The distinct elements of each row, partitions of rows, and what puts these together again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import own_ends, require_packed, sizes_by
from tf_pfor.converters.ragged._forms import (
    agreed,
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
    """The distinct elements of rows of one length."""
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
    """The distinct elements of variable-length rows."""
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
    """For pairs of a row and an element: distinct elements, places in them, counts, sizes."""
    elements, ids = tf.unique(flat, tf.int64)
    many = tf.maximum(tf.size(elements, tf.int64), 1)
    pairs = tf.cast(rows, tf.int64) * many + ids
    distinct, places, counts = tf.unique_with_counts(pairs)
    n = call.loop.length
    per_row = tf.math.bincount(
        tf.cast(distinct // many, tf.int32), minlength=n, maxlength=n, dtype=tf.int32
    )
    per_row.set_shape([call.loop.static_length])
    return tf.gather(elements, distinct % many), places, counts, RowSizes.of(per_row)


def _flat(call: Call, value: Value, axes: int) -> tf.Tensor:
    """[n, d1 ... dk, ...] -> [n*d1...dk, ...]."""
    wide = call.stacked(value)
    made = tf.reshape(wide, tf.concat([[-1], tf.shape(wide)[axes + 1 :]], 0))
    made.set_shape([None, *wide.shape[axes + 1 :]])
    return made


def _rows(call: Call, value: Value) -> tf.Tensor:
    """The row of each entry of a stacked value, int32."""
    shape = tf.shape(call.stacked(value))
    return tf.repeat(tf.range(shape[0]), tf.reduce_prod(shape[1:]))


@source("DynamicPartition")
def partition(call: Call, data: Value, partitions: Value) -> Any:
    """One partition of all rows: in each part the entries of a row stand before the next's."""
    require_packed(call)
    rank = rank_of(partitions)
    rows, ids = _rows(call, partitions), _flat(call, partitions, rank)
    return _parts(call, _flat(call, data, rank), ids, rows)


@ragged_rule("DynamicPartition")
def partition_of_ragged(call: Call, data: Value, partitions: Value) -> Any:
    """The same, of ragged rows."""
    require_packed(call)
    both = [data, partitions]
    if rank_of(partitions) != 1 or any(not isinstance(v, Ragged) or v.n_leading != 1 for v in both):
        raise CannotVectorize("the partitions of several axes, or of an axis that all rows share")
    data, partitions = agreed(call, (data, 0), (partitions, 0))
    assert isinstance(partitions, Ragged)
    return _parts(call, data.tensor, partitions.tensor, row_ids(partitions.sizes))


def _parts(call: Call, data: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> list[Value]:
    """The parts of entries of all rows; ``rows`` says of which row each is."""
    parts = call.rebuild(data=data, partitions=ids)
    count = call.attr("num_partitions")
    of = tf.dynamic_partition(rows, ids, count)
    parts = parts if isinstance(parts, list) else [parts]
    return [
        Ragged.packed(part, [sizes_by(call, rows)], call.op.outputs[k])
        for k, (part, rows) in enumerate(zip(parts, of))
    ]


@source("DynamicStitch ParallelDynamicStitch")
def stitch(call: Call, indices: list[Value], data: list[Value]) -> Any:
    """Places behind the places of the rows before; a row is as long as its largest place says."""
    require_packed(call)
    if any(isinstance(v, Ragged) or not v.is_tensor for v in (*indices, *data)):
        raise CannotVectorize("the parts differ in shape")
    places = [_flat(call, v, rank_of(v)) for v in indices]
    rows = [_rows(call, v) for v in indices]
    values = [_flat(call, d, rank_of(i)) for i, d in zip(indices, data)]
    sizes = RowSizes.of(own_ends(call, tf.concat(rows, 0), tf.concat(places, 0)))
    starts = tf.cumsum(sizes.tensor, exclusive=True)
    moved = [at + tf.gather(starts, of) for at, of in zip(places, rows)]
    made = call.rebuild(indices=moved, data=values)
    return Ragged.packed(made, [sizes], call.op.outputs[0])
