"""The distinct elements of each row, partitions of rows, and what puts these together again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import Entries, own_ends, sizes_by
from tf_pfor.converters.ragged._forms import row_sizes, row_starts
from tf_pfor.converters.ragged.scatter import kept_entries
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source


@ragged_rule("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2", is_source=True)
def unique(call: Call, x: Value, *axis: Value) -> Any:
    """The distinct elements of each row."""
    if x.rank != 1:
        raise CannotVectorize("the distinct rows of a matrix")
    call.require_packed("as many as are distinct")
    entries = Entries(call, x)
    values, places, counts, sizes = _distinct(call, entries.flat[0], entries.rows)
    local = places - tf.gather(row_starts([sizes]), entries.rows)
    where = entries.back(tf.cast(local, call.output_dtype(1)), 1)
    made = [Ragged.packed(values, [sizes]), where]
    if len(call.op.outputs) == 3:
        how_often = tf.cast(counts, call.output_dtype(2))
        made.append(Ragged.packed(how_often, [sizes]))
    return made


def _distinct(
    call: Call, flat: tf.Tensor, rows: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, RowSizes]:
    """For pairs of a row and an element: distinct elements, places in them, counts, sizes."""
    elements, ids = tf.unique(flat, tf.int64)
    many = tf.maximum(tf.size(elements, tf.int64), 1)
    pairs = rows * many + ids
    distinct, places, counts = tf.unique_with_counts(pairs)
    n = call.loop.length
    per_row = tf.math.bincount(
        tf.cast(distinct // many, tf.int32), minlength=n, maxlength=n, dtype=tf.int32
    )
    return tf.gather(elements, distinct % many), places, counts, row_sizes(call, per_row)


@ragged_rule("DynamicPartition", is_source=True)
def partition(call: Call, data: Value, partitions: Value) -> Any:
    """One partition of all rows: in each part the entries of a row stand before the next's."""
    ids, rows, flat = kept_entries(call, partitions, data, partitions.rank)
    parts, count = call.rebuild(data=flat, partitions=ids), call.attr("num_partitions")
    parts = parts if isinstance(parts, list) else [parts]
    of = tf.dynamic_partition(rows, ids, count)
    return [Ragged.packed(part, [sizes_by(call, rows)]) for part, rows in zip(parts, of)]


@source("DynamicStitch ParallelDynamicStitch")
def stitch(call: Call, indices: list[Value], data: list[Value]) -> Any:
    """Places behind the places of the rows before; a row is as long as its largest place says."""
    if any(isinstance(v, Ragged) or not v.is_tensor for v in (*indices, *data)):
        raise CannotVectorize("the parts differ in shape")
    parts = (kept_entries(call, i, d, i.rank) for i, d in zip(indices, data))
    places, rows, values = zip(*parts)
    at = tf.concat(places, 0)  # a negative one would be a place of the row before
    at = call.after_check(at >= 0, "a place is negative in some iterations", [at], at)
    sizes = RowSizes.of(own_ends(call, tf.concat(rows, 0), at))
    starts = tf.cumsum(sizes.tensor, exclusive=True)
    moved = [at + tf.gather(starts, of) for at, of in zip(places, rows)]
    return Ragged.packed(call.rebuild(indices=moved, data=[*values]), [sizes])
