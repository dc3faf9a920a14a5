"""Sets, crosses and decoded sequences: sparse tensors as large as the data of a row says."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import (
    Entries,
    FirstAxis,
    by_row,
    own_ends,
    require_packed,
    shared,
    sparse_results,
    with_n,
)
from tf_pfor.converters.ragged._forms import row_starts
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.ragged_rules import ragged_rule, source

# ---------------------------------------------------------------------------
# Sets along the last axis
# ---------------------------------------------------------------------------


def _sets(call: Call, indices: tf.Tensor, values: tf.Tensor, shape: tf.Tensor) -> list[Value]:
    """Results of a set operation: the last size is that of the largest set of each row."""
    n: Any = call.loop.length
    last = own_ends(call, indices[:, 0], indices[:, -1])
    others = tf.broadcast_to(shape[1:-1], tf.concat([[n], tf.shape(shape[1:-1])], 0))
    own = tf.concat([others, tf.cast(last, shape.dtype)[:, None]], 1)
    return [*sparse_results(call, indices, values), Value.stacked(own)]


@source("DenseToDenseSetOperation")
def of_dense_sets(call: Call, set1: Value, set2: Value) -> Any:
    """One more leading axis."""
    require_packed(call)
    return _sets(call, *call.rebuild(set1=call.stacked(set1), set2=call.stacked(set2)))


@source("DenseToSparseSetOperation")
@ragged_rule("DenseToSparseSetOperation")
def of_dense_and_sparse(
    call: Call, set1: Value, set2_indices: Value, set2_values: Value, set2_shape: Value
) -> Any:
    """One more leading axis."""
    if isinstance(set1, Ragged):
        raise CannotVectorize("the dense sets differ in shape")
    second = Entries(call, set2_indices, set2_values)
    made = call.rebuild(
        set1=call.stacked(set1),
        set2_indices=second.places,
        set2_values=second.flat[1],
        set2_shape=with_n(call, shared(set2_shape, "set2_shape")),
    )
    return _sets(call, *made)


@source("SparseToSparseSetOperation")
@ragged_rule("SparseToSparseSetOperation")
def of_sparse_sets(
    call: Call, set1_indices: Value, set1_values: Value, set1_shape: Value, set2_indices: Value,
    set2_values: Value, set2_shape: Value,
) -> Any:  # fmt: skip
    """One more leading axis."""
    first = Entries(call, set1_indices, set1_values)
    second = Entries(call, set2_indices, set2_values)
    made = call.rebuild(
        set1_indices=first.places,
        set1_values=first.flat[1],
        set1_shape=with_n(call, shared(set1_shape, "set1_shape")),
        set2_indices=second.places,
        set2_values=second.flat[1],
        set2_shape=with_n(call, shared(set2_shape, "set2_shape")),
    )
    return _sets(call, *made)


@ragged_rule("SetSize")
def set_size(call: Call, set_indices: Value, set_values: Value, set_shape: Value) -> Any:
    """One more leading axis."""
    entries = Entries(call, set_indices, set_values)
    return call.rebuild(
        set_indices=entries.places,
        set_values=entries.flat[1],
        set_shape=with_n(call, shared(set_shape, "set_shape")),
    )


@ragged_rule("EditDistance")
def edit_distance(
    call: Call, hypothesis_indices: Value, hypothesis_values: Value, hypothesis_shape: Value,
    truth_indices: Value, truth_values: Value, truth_shape: Value,
) -> Any:  # fmt: skip
    """One more leading axis."""
    found, right = (
        Entries(call, hypothesis_indices, hypothesis_values),
        Entries(call, truth_indices, truth_values),
    )
    sizes = [with_n(call, shared(s, "shape")) for s in (hypothesis_shape, truth_shape)]
    more = tf.concat([[1], tf.zeros_like(sizes[0][1:])], 0)  # the kernel refuses to have no rows
    made = call.rebuild(
        hypothesis_indices=found.places,
        hypothesis_values=found.flat[1],
        hypothesis_shape=sizes[0] + more,
        truth_indices=right.places,
        truth_values=right.flat[1],
        truth_shape=sizes[1] + more,
    )
    n: Any = call.loop.length
    return call.like(made[:n])


@source("ListDiff")
@ragged_rule("ListDiff")
def list_difference(call: Call, x: Value, y: Value) -> Any:
    """Of pairs of a row and an element."""
    first, second = Entries(call, x), Entries(call, y)
    both = tf.concat([first.flat[0], second.flat[0]], 0)
    elements, ids = tf.unique(both, tf.int64)
    many = tf.size(elements, tf.int64)
    pairs = ids + tf.concat([first.rows, second.rows], 0) * many
    count = tf.shape(first.rows)[0]
    left = tf.raw_ops.ListDiff(x=pairs[:count], y=pairs[count:], out_idx=tf.int64)
    rows = tf.gather(first.rows, left.idx)
    if isinstance(x, Ragged):
        before = tf.gather(tf.cast(row_starts(first.sizes), tf.int64), rows)
    else:
        before = rows * tf.cast(tf.shape(call.stacked(x))[1], tf.int64)
    own = tf.cast(left.idx - before, call.output_dtype(1))
    return by_row(call, rows, [tf.gather(first.flat[0], left.idx), own])


# ---------------------------------------------------------------------------
# Crosses
# ---------------------------------------------------------------------------


@source("SparseCross SparseCrossHashed SparseCrossV2")
@ragged_rule("SparseCross SparseCrossHashed SparseCrossV2")
def crosses(
    call: Call, indices: list[Value], values: list[Value], shapes: list[Value],
    dense_inputs: list[Value], *options: Value,
) -> Any:  # fmt: skip
    """The first axis is a batch, which takes all rows."""
    names = [a.name for a in call.schema.inputs][4:]  # type: ignore[union-attr]
    for name, value in zip(names, options):
        shared(value, name)
    if any(isinstance(v, Ragged) for v in dense_inputs):
        raise CannotVectorize("the dense inputs differ in shape")
    if shapes:
        axis = FirstAxis(call, shared(shapes[0], "shapes")[0])
    else:
        axis = FirstAxis(call, tf.shape(call.stacked(dense_inputs[0]), tf.int64)[1])
    parts = [Entries(call, at, x) for at, x in zip(indices, values)]
    wide = [call.stacked(v) for v in dense_inputs]
    made = call.rebuild(
        indices=[axis.merged(p) for p in parts],
        values=[p.flat[1] for p in parts],
        shapes=[tf.concat([[axis.total], shared(s, "shapes")[1:]], 0) for s in shapes],
        dense_inputs=[tf.reshape(w, [axis.total, tf.shape(w, tf.int64)[2]]) for w in wide],
    )
    rows, own = axis.split(made[0])
    last = own_ends(call, rows, own[:, 1])
    sizes = tf.stack([tf.fill(tf.shape(last), axis.size), last], 1)
    return [*by_row(call, rows, [own, made[1]]), Value.stacked(sizes)]


# ---------------------------------------------------------------------------
# Decoded sequences: the batch is axis 1
# ---------------------------------------------------------------------------


@source("CTCBeamSearchDecoder CTCGreedyDecoder")
def decoded(call: Call, inputs: Value, sequence_length: Value) -> Any:
    """[n, t, b, c] -> [t, n*b, c]; the paths are sparse tensors [n*b, longest]."""
    require_packed(call)
    if call.loop.static_length in (None, 0):
        raise CannotVectorize("the kernel refuses an empty batch")
    x, length = call.stacked(inputs), call.stacked(sequence_length)
    shape = tf.shape(x)
    n, frames, batch, classes = (shape[i] for i in range(4))
    wide = tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [frames, n * batch, classes])
    made = call.rebuild(inputs=wide, sequence_length=tf.reshape(length, [-1]))
    paths = len(call.op.outputs) // 3
    axis = FirstAxis(call, batch)
    columns: list[list[Value]] = [[], [], []]
    for k in range(paths):
        rows, own = axis.split(made[k])
        last = own_ends(call, rows, own[:, 1])
        at, values = by_row(call, rows, [own, made[paths + k]])
        columns[0].append(at)
        columns[1].append(values)
        sizes = tf.stack([tf.fill(tf.shape(last), axis.size), last], 1)
        columns[2].append(Value.stacked(sizes))
    chances = tf.reshape(made[-1], [n, batch, tf.shape(made[-1])[1]])
    return [*(value for column in columns for value in column), Value.stacked(chances)]


@source("ComputeAccidentalHits")
def accidental_hits(call: Call, true_classes: Value, sampled_candidates: Value) -> Any:
    """The batch takes all rows; candidates of a row are classes of its own, behind the others'."""
    require_packed(call)
    wide: Any = call.stacked(true_classes)
    shape: Any = tf.shape(wide)
    candidates: Any = sampled_candidates.tensor
    count = tf.shape(candidates, tf.int64)[-1]
    if sampled_candidates.is_stacked:
        low = tf.minimum(tf.reduce_min(wide), tf.reduce_min(candidates))
        high = tf.maximum(tf.reduce_max(wide), tf.reduce_max(candidates))
        first = tf.range(shape[0], dtype=tf.int64) * (high - low + 1)
        wide = wide + first[:, None, None]
        candidates = tf.reshape(candidates + first[:, None], [-1])
    flat = tf.reshape(wide, [shape[0] * shape[1], shape[2]])
    number = call.attr("num_true")
    at, ids, weights = tf.raw_ops.ComputeAccidentalHits(
        true_classes=flat, sampled_candidates=candidates, num_true=number
    )
    size = tf.maximum(shape[1], 1)
    ids = ids % count if sampled_candidates.is_stacked else ids
    return by_row(call, at // size, [at % size, ids, weights])
