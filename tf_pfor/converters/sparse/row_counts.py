"""Counts as sparse tensors, variable-length ranges, ragged tensors that become sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import as_dtype, row_numbers
from tf_pfor.converters.ragged._entries import (
    Entries,
    FirstAxis,
    by_row,
    own_splits,
    shared,
    sizes_by,
    sparse_rule,
    width_of,
    with_n,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import fold, inner_dims
from tf_pfor.core.values import Value, known_dims
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.ragged_rules import ragged_rule, source


def _has_weights(weights: Value) -> bool:
    """Whether each number has a weight; a tensor without elements means that none has."""
    if isinstance(weights, Ragged):
        return True
    if weights.inner_shape is None or None in weights.inner_shape:
        raise CannotVectorize("the shape of the weights is unknown")
    return 0 not in weights.inner_shape


def _one_more(call: Call, tensor: tf.Tensor) -> tf.Tensor:
    """The rows, and one of zeros more where there may be none: the kernels refuse none."""
    if call.loop.static_length not in (None, 0):
        return tensor
    rank = tensor.shape.rank or 1
    return tf.pad(tensor, [[0, 1], *[[0, 0]] * (rank - 1)])


def _counted(call: Call, made: Any, rows: tf.Tensor, values: tf.Tensor, axis: Any) -> list[Value]:
    """Counts of all rows as counts of each row.

    Args:
      call: the call.
      made: the kernel's results for all rows.
      rows: the row of each number.
      values: the numbers.
      axis: the first axis that was merged with the row, None if the row stands in front.
    """
    n = call.loop.length
    indices, counts, _ = made
    total = tf.cast(n, tf.int64) if axis is None else axis.total
    is_own = indices[:, 0] < total  # not of a row that only stands where there may be none
    indices, counts = tf.boolean_mask(indices, is_own), tf.boolean_mask(counts, is_own)
    if axis is None:
        of, own = indices[:, 0], indices[:, 1:]
        first: list[Any] = []
    else:
        of, own = axis.split(indices)
        first = [tf.fill([n], axis.size)]
    least, most = call.attr("minlength"), call.attr("maxlength")
    if most >= 0:
        last = tf.fill([n], tf.constant(most, tf.int64))
    else:
        largest = tf.math.unsorted_segment_max(
            tf.cast(values, tf.int64), tf.cast(rows, tf.int32), n
        )
        last = tf.maximum(tf.maximum(largest, 0) + 1, least)
    return [*by_row(call, of, [own, counts]), Value.stacked(tf.stack([*first, last], 1))]


@source("DenseCountSparseOutput")
def counts_of_dense(call: Call, values: Value, weights: Value) -> Any:
    """The kernel counts the rows of a matrix apart."""
    call.require_packed()
    x = call.stacked(values)
    shape = tf.shape(x)
    rows = tf.repeat(tf.range(shape[0]), tf.reduce_prod(shape[1:]))
    wide = tf.reshape(x, [-1, shape[-1]])
    each = weights.tensor
    if _has_weights(weights):
        each = tf.reshape(call.stacked(weights), [-1, shape[-1]])
        each = _one_more(call, each)
    made = call.rebuild(values=_one_more(call, wide), weights=each)
    axis = FirstAxis(call, shape[1]) if values.rank == 2 else None
    return _counted(call, made, rows, tf.reshape(x, [-1]), axis)


@ragged_rule("DenseCountSparseOutput")
def counts_of_ragged(call: Call, values: Value, weights: Value) -> Any:
    """The kernel of ragged tensors counts the rows apart."""
    if values.rank != 1:
        raise CannotVectorize("matrices that differ in shape")
    weighted = _has_weights(weights)
    entries = Entries(call, *([values, weights] if weighted else [values]))
    lengths = sizes_by(call, entries.rows).tensor
    made = tf.raw_ops.RaggedCountSparseOutput(
        splits=tf.cast(tf.concat([[0], tf.cumsum(_one_more(call, lengths))], 0), tf.int64),
        values=entries.flat[0],
        weights=entries.flat[1] if weighted else tf.zeros([0], weights.dtype),
        **{k: call.attr(k) for k in ("minlength", "maxlength", "binary_output")},
    )
    return _counted(call, made, entries.rows, entries.flat[0], None)


@RegisterPFor("RaggedBincount", ANY, attrs=("binary_output",))
def ragged_bincount(call: Call, splits: Value, values: Value, size: Value, weights: Value) -> Any:
    """The ragged rows of all rows, one behind the other: [n*b, bins]."""
    if size.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    emit = call.emit
    (count,), (many,) = inner_dims(call, values), inner_dims(call, splits)
    first = emit("Mul", row_numbers(call, tf.int64, 2), as_dtype(call, count, tf.int64))
    ends = emit("AddV2", call.stacked(splits), first)  # [n, b + 1]
    ends = emit("Reshape", emit("Slice", ends, [0, 1], [-1, -1]), [-1])
    none = emit.constant(np.zeros([0]), weights.dtype)
    made = call.rebuild(
        splits=emit("ConcatV2", [emit.constant(np.zeros([1], np.int64)), ends], np.int32(0)),
        values=fold(call, values),
        weights=fold(call, weights) if _has_weights(weights) else none,
    )
    rows = emit.dim_math("Sub", many, 1)
    bins = as_dtype(call, size.tensor, tf.int32)
    return call.like(emit.reshape(made, [call.loop.length, rows, bins]))


@source("RaggedCountSparseOutput")
def counts_of_splits(call: Call, splits: Value, values: Value, weights: Value) -> Any:
    """The ragged rows of all rows, one behind the other."""
    call.require_packed()
    weighted = _has_weights(weights)
    x, ends = call.stacked(values), call.stacked(splits)
    shape, count = tf.shape(x), tf.shape(ends)[1] - 1
    first = tf.cast(tf.range(shape[0]) * shape[1], ends.dtype)[:, None]
    joined = tf.concat([[0], tf.reshape(ends[:, 1:] + first, [-1])], 0)
    if call.loop.static_length in (None, 0):
        joined = tf.concat([joined, joined[-1:]], 0)  # the kernel refuses to have no rows
    each = tf.reshape(call.stacked(weights), [-1]) if weighted else tf.zeros([0], weights.dtype)
    flat = tf.reshape(x, [-1])
    made = call.rebuild(splits=joined, values=flat, weights=each)
    return _counted(
        call, made, tf.repeat(tf.range(shape[0]), shape[1]), flat, FirstAxis(call, count)
    )


@ragged_rule("SparseCountSparseOutput", is_source=True)
def counts_of_sparse(
    call: Call, indices: Value, values: Value, dense_shape: Value, weights: Value
) -> Any:
    """The first axis is a batch, which takes all rows."""
    shape, weighted = shared(dense_shape, "dense_shape"), _has_weights(weights)
    given = [indices, values, weights] if weighted else [indices, values]
    entries = Entries(call, *given)
    axis = FirstAxis(call, shape[0]) if known_dims(indices.inner_shape)[1] == 2 else None
    if axis is None:
        at, full = entries.places, with_n(call, dense_shape)
    else:
        at, full = axis.merged(entries), tf.concat([[axis.total], shape[1:]], 0)
    each = entries.flat[2] if weighted else tf.zeros([0], weights.dtype)
    full += tf.concat([[1], tf.zeros_like(full[1:])], 0)  # kernels refuse to have no rows
    made = call.rebuild(indices=at, values=entries.flat[1], dense_shape=full, weights=each)
    return _counted(call, made, entries.rows, entries.flat[1], axis)


@sparse_rule("SparseBincount", attrs=("binary_output",))
def sparse_bincount(
    call: Call, indices: Value, values: Value, dense_shape: Value, size: Value, weights: Value
) -> Any:
    """The kernel counts the rows of a matrix apart: [n, k], or [n * first, k]."""
    shape, weighted = shared(dense_shape, "dense_shape"), _has_weights(weights)
    bins, is_matrix = shared(size, "size"), width_of(indices) == 2
    given = [indices, values, weights] if weighted else [indices, values]
    entries = Entries(call, *given, may_be_equal=True)
    each = entries.flat[2] if weighted else tf.zeros([0], weights.dtype)
    changes: dict[str, Any] = {"values": entries.flat[1], "weights": each}
    if not is_matrix:
        full = with_n(call, dense_shape)
        return call.rebuild(indices=entries.places, dense_shape=full, **changes)
    axis = FirstAxis(call, shape[0])
    full = tf.stack([axis.total, shape[1]])
    made = call.rebuild(indices=axis.merged(entries), dense_shape=full, **changes)
    inner = [tf.cast(k, tf.int32) for k in (shape[0], bins)]
    return call.like(tf.reshape(made, tf.stack([call.loop.length, *inner])))


def _by_entry(value: Value, rows: tf.Tensor) -> tf.Tensor:
    """A scalar of each row, or one of all rows, at the entries of ``rows``."""
    if value.is_stacked:
        return tf.gather(value.tensor, rows)
    return tf.broadcast_to(value.tensor, tf.shape(rows))


@ragged_rule("RaggedRange", of_shapes=True, is_source=True)
def ragged_range(call: Call, starts: Value, limits: Value, deltas: Value) -> Any:
    """The ranges of all rows, one behind the other; a row has as many as its vectors say."""
    given = (starts, limits, deltas)
    vectors = [v for v in given if v.rank]
    if vectors:
        entries = Entries(call, *vectors)
        rows, size, flat = entries.rows, entries.sizes[0], iter(entries.flat)
    else:
        call.require_packed()
        rows, size, flat = tf.range(tf.cast(call.loop.length, tf.int64)), 1, iter(())
    wide = [next(flat) if v.rank else _by_entry(v, rows) for v in given]
    splits, values = call.rebuild(starts=wide[0], limits=wide[1], deltas=wide[2])
    own, sizes = own_splits(call, splits, size)
    return [own, Ragged.packed(values, [sizes])]
