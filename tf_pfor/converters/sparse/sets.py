"""Sets, crosses and decoded sequences: sparse tensors as large as the data of a row says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._entries import (
    Entries,
    FirstAxis,
    by_row,
    own_ends,
    room_for_all,
    shared,
    sparse_results,
    sparse_rule,
    width_of,
)
from tf_pfor.converters.ragged._forms import (
    coordinates,
    row_starts,
    with_room,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.shapes import inner_dims
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, Size, shape_value
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.ragged_rules import ragged_rule, source

# ---------------------------------------------------------------------------
# Sets along the last axis
# ---------------------------------------------------------------------------


class _Sets:
    """Sets along the last axis of rows, as one sparse tensor.

    Attributes:
      places: int64 [total, 1 + m], with the row in front.
      values: [total].
      shape: int64 [1 + m], with room for all.
      groups: the sizes of a row's axes before the last, along which its sets stand.
    """

    def __init__(self, call: Call, *given: Value):
        if len(given) == 3:
            entries = Entries(call, *given[:2])
            self.shape = room_for_all(call, _same_groups(given[2]), entries)
            self.places, self.values = entries.places, entries.flat[1]
            self.groups = _groups_in(given[2], width_of(given[0]))
            return
        call.require_packed()
        (value,) = given
        rank = value.rank
        if not isinstance(value, Ragged):
            wide, self.groups = call.stacked(value), inner_dims(call, value)[:-1]
            self.shape = tf.shape(wide, tf.int64)
            self.places = tf.where(tf.fill(tf.shape(wide), True))
            self.values = tf.reshape(wide, [-1])
            return
        if any(a < rank - 1 for a in value.ragged_axes):
            raise CannotVectorize("how many sets there are differs between iterations")
        self.values = packed_to(value, rank)
        sizes = [value.size_at(k) for k in range(rank)]
        self.groups = sizes[:-1]
        places = tf.range(tf.shape(self.values, tf.int64)[0])
        rows, columns = coordinates(sizes, places)
        self.places = tf.stack([tf.cast(rows, tf.int64), *columns], 1)
        self.shape = tf.shape(value.in_any_rows, tf.int64)


def _same_groups(shape: Value) -> Value:
    """A shape whose last size alone may differ between rows."""
    if isinstance(shape, RowShape):
        if any(isinstance(s, RowSizes) for s in shape.sizes[:-1]):
            raise CannotVectorize("how many sets there are differs between iterations")
    elif shape.is_stacked:
        raise CannotVectorize("the shape may differ between iterations")
    return shape


def _groups_in(shape: Value, width: int) -> Sequence[Size]:
    """The sizes but the last of a shape of ``width`` sizes, which passed ``_same_groups``."""
    if isinstance(shape, RowShape):
        return shape.sizes[:-1]
    if shape.constant is not None:
        return [int(size) for size in shape.constant[:-1]]
    return [tf.cast(shape.tensor[k], tf.int32) for k in range(width - 1)]


_OPERATIONS = "DenseToDenseSetOperation DenseToSparseSetOperation SparseToSparseSetOperation"


@ragged_rule(_OPERATIONS, is_source=True)
def of_sets(call: Call, *given: Value) -> Any:
    """One more leading axis: sparse sets of all rows."""
    first = 3 if call.op_type.startswith("Sparse") else 1
    a, b = _Sets(call, *given[:first]), _Sets(call, *given[first:])
    made = tf.raw_ops.SparseToSparseSetOperation(
        set1_indices=a.places,
        set1_values=a.values,
        set1_shape=a.shape,
        set2_indices=b.places,
        set2_values=b.values,
        set2_shape=b.shape,
        set_operation=call.attr("set_operation"),
        validate_indices=call.attr("validate_indices"),
    )
    indices = made.result_indices
    last = tf.cast(own_ends(call, indices[:, 0], indices[:, -1]), tf.int32)
    pairs = zip(a.groups, b.groups)
    sizes = [x if isinstance(x, int) else y for x, y in pairs]  # the kernel checks that x is y
    shape = shape_value(call.emit, [*sizes, RowSizes(Cell(last))], call.output_dtype(2))
    return [*sparse_results(call, indices, made.result_values), shape]


@sparse_rule("SetSize", attrs=("validate_indices",), of_shapes=True)
def set_size(call: Call, set_indices: Value, set_values: Value, set_shape: Value) -> Any:
    """One more leading axis."""
    entries = Entries(call, set_indices, set_values, may_be_equal=True)
    shape = room_for_all(call, _same_groups(set_shape), entries)
    made = call.rebuild(set_indices=entries.places, set_values=entries.flat[1], set_shape=shape)
    groups = _groups_in(set_shape, width_of(set_indices))
    inner = [size if isinstance(size, int) else None for size in groups]
    made.set_shape([call.loop.static_length, *inner])  # the op's shape function knows no rank
    return made


@sparse_rule("EditDistance", attrs=("normalize",), of_shapes=True)
def edit_distance(
    call: Call,
    hypothesis_indices: Value,
    hypothesis_values: Value,
    hypothesis_shape: Value,
    truth_indices: Value,
    truth_values: Value,
    truth_shape: Value,
) -> Any:
    """One more leading axis."""
    emit, rank = call.emit, width_of(hypothesis_indices)
    pairs = (hypothesis_indices, hypothesis_values), (truth_indices, truth_values)
    found, right = (Entries(call, *pair, may_be_equal=True) for pair in pairs)
    both = (hypothesis_shape, found), (truth_shape, right)
    more = emit.constant(np.asarray([1, *[0] * rank], np.int64))  # it refuses to have no rows
    sizes = [
        emit("AddV2", room_for_all(call, _same_groups(s), entries), more) for s, entries in both
    ]
    made = call.rebuild(
        hypothesis_indices=found.places,
        hypothesis_values=found.flat[1],
        hypothesis_shape=sizes[0],
        truth_indices=right.places,
        truth_values=right.flat[1],
        truth_shape=sizes[1],
    )
    size = emit.shape_vector([call.loop.length, *[-1] * (rank - 1)])
    return call.like(emit("Slice", made, np.zeros([rank], np.int32), size))


@ragged_rule("ListDiff", is_source=True)
def list_difference(call: Call, x: Value, y: Value) -> Any:
    """The difference of lists of pairs, of a row and an element."""
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


@ragged_rule("SparseCross SparseCrossHashed SparseCrossV2", is_source=True)
def crosses(
    call: Call,
    indices: list[Value],
    values: list[Value],
    shapes: list[Value],
    dense_inputs: list[Value],
    *options: Value,
) -> Any:
    """The first axis is a batch, which takes all rows."""
    names = [a.name for a in call.schema.inputs][4:]
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
    return [*by_row(call, rows, [own, made[1]]), axis.shapes(last)]


# ---------------------------------------------------------------------------
# Decoded sequences: the batch is axis 1
# ---------------------------------------------------------------------------


_DECODERS = "CTCBeamSearchDecoder CTCGreedyDecoder"


@ragged_rule(_DECODERS, is_source=True)
def decoded(call: Call, inputs: Value, sequence_length: Value) -> Any:
    """[n, t, b, c] -> [t, n*b, c]; the paths are sparse tensors [n*b, longest]."""
    call.require_packed()
    if isinstance(sequence_length, Ragged):
        raise CannotVectorize("the batch differs between iterations")
    length = call.stacked(sequence_length)
    x = call.stacked(inputs) if not isinstance(inputs, Ragged) else inputs.in_rows
    if isinstance(inputs, Ragged):
        if inputs.ragged_axes != [0]:
            raise CannotVectorize("the batch or the classes differ between iterations")
        frames = inputs.size
        text = "a sequence is longer than its row. Lengths and numbers of frames are"
        is_right = length <= frames.tensor[:, None]
        length = call.after_check(is_right, text, [length, frames.tensor], length)
    x = with_room(x, 1, 1)  # the kernel refuses to have no frames, and an empty batch
    if call.loop.static_length in (None, 0):  # a row more has a frame, as beams need one
        x = tf.pad(x, [[0, 1], [0, 0], [0, 0], [0, 0]])
        length = tf.pad(length, [[0, 1], [0, 0]], constant_values=1)
    shape = tf.shape(x)
    count, frames, batch, classes = (shape[i] for i in range(4))
    wide = tf.reshape(tf.transpose(x, [1, 0, 2, 3]), [frames, count * batch, classes])
    made = call.rebuild(inputs=wide, sequence_length=tf.reshape(length, [-1]))
    paths = len(call.op.outputs) // 3
    axis = FirstAxis(call, batch)
    columns: list[list[Value]] = [[], [], []]
    for k in range(paths):
        there = made[k][:, 0] < axis.total  # not of the row more
        rows, own = axis.split(tf.boolean_mask(made[k], there))
        last = own_ends(call, rows, own[:, 1])
        at, values = by_row(call, rows, [own, tf.boolean_mask(made[paths + k], there)])
        columns[0].append(at)
        columns[1].append(values)
        columns[2].append(axis.shapes(last))
    n = call.loop.length
    chances = tf.reshape(made[-1], [count, batch, tf.shape(made[-1])[1]])[:n]
    return [*(value for column in columns for value in column), Value.stacked(chances)]


@source("ComputeAccidentalHits")
def accidental_hits(call: Call, true_classes: Value, sampled_candidates: Value) -> Any:
    """The batch takes all rows; candidates of a row are classes of its own, behind the others'."""
    call.require_packed()
    call.read.update(("seed", "seed2"))  # it does not draw
    wide = call.stacked(true_classes)
    shape = tf.shape(wide)
    candidates = sampled_candidates.tensor
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
