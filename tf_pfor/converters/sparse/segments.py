"""Segments of indexed rows of a table, and of a ragged tensor, as many as each row has."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import (
    Entries,
    by_row,
    own_ends,
    own_splits,
    shared,
    sizes_by,
)
from tf_pfor.converters.ragged._forms import row_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import at_rows


def _of_table(
    call: Call, data: Value, indices: tf.Tensor, rows: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The table of all rows and the places in it, which must be inside of the row's own."""
    rows = tf.cast(rows, tf.int32)
    if isinstance(data, Ragged):
        (size,) = data.sizes
        if not isinstance(size, RowSizes):
            raise CannotVectorize("the table differs along several axes")
        table, sizes, starts = data.tensor, tf.gather(size.tensor, rows), size.starts
    elif data.is_stacked:
        shape, table = tf.shape(data.tensor), packed_to(data.tensor, 1)
        sizes, starts = shape[1], tf.range(shape[0]) * shape[1]
    else:
        return data.tensor, indices
    right = (indices >= 0) & (indices < tf.cast(sizes, indices.dtype))
    text = "an index is out of bounds of the table in some iterations. They are"
    at = call.after_check(right, text, [indices], indices)
    return table, at + tf.cast(tf.gather(starts, rows), at.dtype)


@ragged_rule("SparseSegmentMean SparseSegmentSqrtN SparseSegmentSum", is_source=True)
def sparse_segments(call: Call, data: Value, indices: Value, segment_ids: Value) -> Any:
    """Each row has as many segments as its last id says; the rows' segments follow each other."""
    entries = Entries(call, indices, segment_ids)
    at, ids = entries.flat
    text = "a segment id is negative in some iterations. They are"
    ids = call.after_check(ids >= 0, text, [ids], ids)
    sizes = row_sizes(call, tf.cast(own_ends(call, entries.rows, ids), tf.int32))
    table, places = _of_table(call, data, at, entries.rows)
    moved = ids + tf.cast(tf.gather(sizes.starts, entries.rows), ids.dtype)
    made = call.rebuild(data=table, indices=places, segment_ids=moved)
    return Ragged.packed(made, [sizes])


@source("SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2 SparseSegmentSumGradV2")
def table_gradient(
    call: Call, grad: Value, indices: Value, segment_ids: Value, dense_output_dim0: Value
) -> Any:
    """Rows of the table that were read, with their gradients, in the order of the rows."""
    size = tf.cast(shared(dense_output_dim0, "dense_output_dim0"), tf.int64)
    entries, upstream = Entries(call, indices, segment_ids), Entries(call, grad)
    at, ids = (tf.cast(t, tf.int64) for t in entries.flat)
    right = (at >= 0) & (at < size)
    text = "an index is out of bounds of the table in some iterations. They are"
    at = call.after_check(right, text, [at], at)
    counts = tf.cast(sizes_by(call, upstream.rows).tensor, tf.int64)
    starts = tf.cumsum(counts, exclusive=True)
    right = (ids >= 0) & (ids < tf.gather(counts, entries.rows))
    text = "a segment id is out of bounds in some iterations. They are"
    ids = call.after_check(right, text, [ids], ids) + tf.gather(starts, entries.rows)
    places = at + entries.rows * size
    n = call.loop.length
    made, found = call.rebuild(
        grad=upstream.flat[0],
        indices=places,
        segment_ids=ids,
        dense_output_dim0=tf.cast(tf.cast(n, tf.int64) * size, dense_output_dim0.dtype),
    )
    own = tf.cast(found % tf.maximum(size, 1), call.output_dtype(1))
    return by_row(call, found // tf.maximum(size, 1), [made, own])


@ragged_rule("RaggedGather", is_source=True)
def ragged_gather(
    call: Call, params_nested_splits: list[Value], params_dense_values: Value, indices: Value
) -> Any:
    """The rows that the indices name, one behind the other."""
    call.require_packed()
    call.read.add("OUTPUT_RAGGED_RANK")  # the number of inputs says it
    if len(params_nested_splits) != 1 or indices.rank != 1:
        raise CannotVectorize("it has several ragged axes, or indices of several axes")
    given = (params_nested_splits[0], params_dense_values, indices)
    splits, values, at = (Entries(call, v) for v in given)
    cuts, rows = splits.flat[0], at.rows
    places = tf.cast(at.flat[0], tf.int64)
    right = (places >= 0) & (places < at_rows(splits.sizes[0], rows, places.dtype) - 1)
    text = "an index is out of bounds in some iterations. They are"
    places = call.after_check(right, text, [places], places) + _begins(splits, rows)
    begins = tf.gather(cuts, places)
    lengths = tf.gather(cuts, places + 1) - begins
    ends = tf.concat([[0], tf.cumsum(lengths)], 0)
    first = begins + tf.cast(_begins(values, rows), begins.dtype)
    behind = first - ends[:-1]  # from numbers of elements to where they come from
    made = tf.gather(values.flat[0], tf.range(ends[-1]) + tf.repeat(behind, lengths))
    own, sizes = own_splits(call, ends, at.sizes[0])
    return [own, Ragged.packed(made, [sizes])]


def _begins(entries: Entries, rows: tf.Tensor) -> tf.Tensor:
    """The place among all entries where the row of each entry begins."""
    (size,) = entries.sizes
    if isinstance(size, RowSizes):
        return tf.cast(tf.gather(size.starts, rows), rows.dtype)
    return rows * tf.cast(size, rows.dtype)
