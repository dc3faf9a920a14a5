"""Text that comes apart: as many pieces, characters or n-grams in each row as the row has.

The kernels take many texts at once and put the pieces one behind the other, as the packed form
does: one call for the texts of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._entries import own_splits, sizes_by
from tf_pfor.converters.ragged._forms import (
    aligned,
    all_packed,
    constant_axes,
    of_elements,
    row_ids,
    unified,
)
from tf_pfor.converters.ragged.scatter import own_counts
from tf_pfor.converters.sparse._joint_rows import flat_of, joint_splits, rows_of
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.ragged import Ragged, RowSizes, Size, same_sizes, shape_value
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import as_number, dim, row_counts

# ---------------------------------------------------------------------------
# Pieces
# ---------------------------------------------------------------------------


@ragged_rule("StringSplit StringSplitV2", is_source=True)
def split(call: Call, input: Value, separator: Value) -> Any:
    """The pieces of all texts; the first column of their indices says of which text."""
    if separator.is_stacked:
        raise CannotVectorize("the separator differs between iterations")
    texts, many = flat_of(call, input)
    indices, pieces, _ = call.rebuild(input=texts)
    columns = tf.cast(indices, tf.int32)
    rows, place = rows_of(columns[:, 0], many)
    sizes = sizes_by(call, rows)
    own = tf.stack([tf.cast(place, tf.int64), indices[:, 1]], 1)

    def most() -> tf.Tensor:
        n = call.loop.length
        found = tf.math.unsorted_segment_max(columns[:, 1] + 1, rows, n)
        return tf.maximum(found, 0)  # of no pieces

    longest = RowSizes(Cell(None, lambda: _in_graph(call, most)))
    return [
        *all_packed([own, pieces], [sizes]),
        shape_value(call.emit, [many, longest], tf.int64),
    ]


def _in_graph(call: Call, make: Callable[..., Any]) -> tf.Tensor:
    with call.emit.graph.as_default():
        return make()


@ragged_rule("UnicodeDecode UnicodeDecodeWithOffsets", is_source=True)
def decode(call: Call, input: Value) -> Any:
    """The characters of all texts, and with each where it begins."""
    texts, many = flat_of(call, input)
    splits, *parts = call.rebuild(input=texts)
    own, sizes = own_splits(call, splits, many)
    return [own, *all_packed(parts, [sizes])]


@ragged_rule("StringNGrams", is_source=True)
def ngrams(call: Call, data: Value, data_splits: Value) -> Any:
    """The n-grams of all rows."""
    flat, count = flat_of(call, data)
    splits, many = joint_splits(call, data_splits, count)
    made, ends = call.rebuild(data=flat, data_splits=splits)
    if call.attr("pad_width") and (call.attr("left_pad") or call.attr("right_pad")):
        made, ends = _of_rows_with_data(call, made, ends, count, many)
    room = data_splits.sizes[0] if isinstance(data_splits, Ragged) else None
    assert not isinstance(room, (int, tf.Tensor))
    own, sizes = own_splits(call, ends, many, room)
    return [Ragged.packed(made, [sizes]), own]


@ragged_rule("UnicodeEncode", is_source=True)
def encode(call: Call, input_values: Value, input_splits: Value) -> Any:
    """The texts of all rows, of their characters."""
    flat, count = flat_of(call, input_values)
    splits, many = joint_splits(call, input_splits, count)
    made = call.rebuild(input_values=flat, input_splits=splits)
    if isinstance(many, RowSizes):
        return Ragged.packed(made, [many])
    return call.like(tf.reshape(made, tf.stack([call.loop.length, many])))


def _of_rows_with_data(
    call: Call, made: tf.Tensor, ends: tf.Tensor, count: Size, many: Size
) -> tuple[tf.Tensor, tf.Tensor]:
    """Without n-grams of nothing but padding in rows that have no data: the kernel makes none."""
    n = call.loop.length
    has_data = tf.broadcast_to(as_number(count) > 0, tf.stack([n]))
    kept = tf.repeat(has_data, as_number(many))  # of the parts of all rows
    counts = ends[1:] - ends[:-1]
    made = tf.boolean_mask(made, tf.repeat(kept, counts))
    ends = tf.cumsum(tf.where(kept, counts, tf.zeros_like(counts)))
    return made, tf.concat([tf.zeros([1], ends.dtype), ends], 0)


# ---------------------------------------------------------------------------
# Joined, and elementwise
# ---------------------------------------------------------------------------


@ragged_rule("ReduceJoin")
def reduce_join(call: Call, inputs: Ragged, reduction_indices: Value) -> Any:
    """Over axes that all rows share: packed. Over the last ones that differ: by parts of rows."""
    rank, count = inputs.rank, inputs.n_leading
    axes = constant_axes(call, "reduction_indices", rank)
    if call.attr("keep_dims") or not call.uses_packed:
        raise CannotVectorize("joined axes stay as axes of size 1, or in a map of a map")
    behind = [a for a in axes if a >= count]
    x, separator = inputs.tensor, call.attr("separator")
    if axes[: len(behind)] != behind:
        raise CannotVectorize("the first axes are joined before the last ones")
    if behind:
        moved = np.asarray([a - count + 1 for a in behind], np.int32)
        x = call.rebuild(inputs=x, reduction_indices=moved)
    left = axes[len(behind) :]
    if not left:
        return Ragged.packed(x, inputs.sizes)
    if left != list(range(count - len(left), count))[::-1]:
        raise CannotVectorize("axes in front of others that differ are joined")
    kept, joined = inputs.sizes[: count - len(left)], inputs.sizes[count - len(left) :]
    lengths = row_counts(joined)
    if kept:  # a text for each place of the axes that stay
        lengths = tf.repeat(lengths, row_counts(kept))
    parts = tf.repeat(tf.range(tf.shape(lengths)[0]), lengths)
    if separator:  # the kernel for segments leaves it out behind an empty text
        starts = tf.cumsum(lengths, exclusive=True)
        place = tf.range(tf.shape(parts)[0]) - tf.gather(starts, parts)
        is_behind = tf.reshape(place > 0, tf.stack([-1, *[1] * (len(x.shape) - 1)]))
        x = tf.strings.join([tf.where(is_behind, separator, ""), x])
    made = tf.strings.unsorted_segment_join(x, parts, tf.shape(lengths)[0])
    rest = [dim(made, k) for k in range(1, len(made.shape))]
    return of_elements(call, made, [*kept, *rest])


@ragged_rule("UnsortedSegmentJoin")
def segment_join(call: Call, inputs: Value, segment_ids: Value, num_segments: Value) -> Any:
    """The segments of all rows follow each other."""
    if not isinstance(segment_ids, Ragged):
        raise CannotVectorize("the segments are of one number of texts")
    call.require_packed("segments of a number of texts")
    if not isinstance(inputs, Ragged) or inputs.rank != 1 or segment_ids.rank != 1:
        raise CannotVectorize("the joined text is no variable-length vector")
    ids, rows, n = segment_ids.tensor, row_ids(inputs.sizes), call.loop.length
    own = own_counts(call, num_segments, "segments") if num_segments.is_stacked else None
    if own is None:
        count = tf.cast(num_segments.tensor, ids.dtype)
        first, total = tf.cast(rows, ids.dtype) * count, tf.cast(n, ids.dtype) * count
    else:
        count, first = (tf.cast(tf.gather(x, rows), ids.dtype) for x in (own.tensor, own.starts))
        total = tf.reduce_sum(own.tensor)
    if not same_sizes(inputs.sizes, segment_ids.sizes):
        a, b = (as_number(v.sizes[0]) for v in (inputs, segment_ids))
        text = "texts and segment ids differ in number in some iterations. The numbers are"
        ids = call.after_check(tf.equal(a, b), text, [a, b], ids)
    text = "a segment id is negative, or not below the number of segments. They are"
    ids = call.after_check((ids >= 0) & (ids < count), text, [ids], ids)
    total = tf.cast(total, num_segments.dtype)
    made = call.rebuild(inputs=inputs.tensor, segment_ids=ids + first, num_segments=total)
    if own is not None:
        return Ragged.packed(made, [own])
    return call.like(tf.reshape(made, tf.stack([n, tf.cast(count, tf.int32)])))


@ragged_rule("StringJoin")
def join(call: Call, inputs: list[Value]) -> Any:
    """Packed: texts of the same sizes, and scalars."""
    operands, sizes = _alike(call, inputs)
    return Ragged.packed(call.rebuild(inputs=operands), sizes)


@ragged_rule("Substr")
def substr(call: Call, *values: Value) -> Any:
    """Packed: places and lengths are of one shape for the kernel."""
    operands, sizes = _alike(call, values)
    if operands[1].shape.rank != operands[2].shape.rank or not isinstance(values[0], Ragged):
        like = next(t for t, v in zip(operands, values) if isinstance(v, Ragged))
        operands = [tf.broadcast_to(t, tf.shape(like)) for t in operands]
    return Ragged.packed(call.rebuild(**dict(zip(call.inputs, operands))), sizes)


def _alike(call: Call, values: Sequence[Value]) -> tuple[list[tf.Tensor], tuple[Size, ...]]:
    """Operands that are ragged with the same sizes, or scalars, in the packed form."""
    call.require_packed("its inputs differ in shape")
    rank = max(v.rank for v in values)
    if any(v.rank not in (0, rank) for v in values):
        raise CannotVectorize("its inputs have different shapes")
    values = unified(call, values, rank, broadcasts=False)
    sizes = next(v.sizes for v in values if isinstance(v, Ragged))
    found = [aligned(call, v, sizes, rank) for v in values]
    if any(t is None for t in found):
        raise CannotVectorize("its inputs have different shapes")
    return [t for t in found if t is not None], sizes
