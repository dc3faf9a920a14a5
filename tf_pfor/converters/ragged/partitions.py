"""Partitions, and places that put them together again, where rows have their own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import own_ends, require_packed, sizes_by
from tf_pfor.converters.ragged._forms import rank_of
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import source


def _flat(call: Call, value: Value, axes: int) -> tf.Tensor:
    """[n, d1 ... dk, ...] -> [n*d1...dk, ...]."""
    wide = call.stacked(value)
    made = tf.reshape(wide, tf.concat([[-1], tf.shape(wide)[axes + 1 :]], 0))
    made.set_shape([None, *wide.shape[axes + 1 :]])
    return made


def _rows(call: Call, value: Value) -> tf.Tensor:
    """int32: of which row each entry of a stacked value is."""
    shape = tf.shape(call.stacked(value))
    return tf.repeat(tf.range(shape[0]), tf.reduce_prod(shape[1:]))


@source("DynamicPartition")
def partition(call: Call, data: Value, partitions: Value) -> Any:
    """One partition of all rows: in each part the entries of a row stand before the next's."""
    require_packed(call)
    rank = rank_of(partitions)
    rows, ids = _rows(call, partitions), _flat(call, partitions, rank)
    parts = call.rebuild(data=_flat(call, data, rank), partitions=ids)
    count = call.attr("num_partitions")
    of = tf.dynamic_partition(rows, ids, count)
    parts = parts if isinstance(parts, list) else [parts]
    return [
        Ragged.packed(part, [sizes_by(call, rows)], call.op.outputs[k])
        for k, (part, rows) in enumerate(zip(parts, of))
    ]


@source("DynamicStitch ParallelDynamicStitch")
def stitch(call: Call, indices: list[Value], data: list[Value]) -> Any:
    """Places behind those of the rows before: a row is as long as its largest place says."""
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
