"""RaggedTensors of the body: made dense, counted. The number of values differs per row."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import by_row, longest, numbers_of_rows, own_splits
from tf_pfor.converters.ragged._forms import from_padded
from tf_pfor.converters.sparse._joint_rows import flat_of, joint_splits, rows_of
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSize, RowSizes, Size, same_sizes, shape_value
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import dim


@ragged_rule("RaggedTensorToTensor", is_source=True)
def to_tensor(
    call: Call,
    shape: Value,
    values: Value,
    default_value: Value,
    row_partition_tensors: list[Value],
) -> Any:
    """All rows as one RaggedTensor, which becomes as wide as the widest row; each row is cut."""
    if default_value.is_stacked or not call.uses_packed:
        raise CannotVectorize("'default_value' differs between iterations, or in a map of a map")
    flat, count = flat_of(call, values, is_vector=False)
    partition, counts, lengths = _partition(call, row_partition_tensors, count)
    many = counts[0]
    sizes: list[Any] = [many, *_widths(call, lengths, counts)]
    given = [-1, *[s if isinstance(s, int) else -1 for s in sizes[1:]]]
    rest = flat.shape[1:]
    if not rest.is_fully_defined():
        raise CannotVectorize("the shape of the values is not known")
    wide = call.rebuild(
        shape=call.emit.constant([*given, *rest], tf.int64),
        values=flat,
        row_partition_tensors=partition,
    )  # [total, ...]
    differ = [s for s in sizes[1:] if isinstance(s, RowSizes)]
    if isinstance(many, RowSizes):
        packed = Ragged.packed(wide, [many])
        if not differ:
            return packed
        return from_padded(packed.in_rows, sizes)
    full = tf.concat([[call.loop.length, many], tf.shape(wide)[1:]], 0)
    made = tf.reshape(wide, full)
    known = [many if isinstance(many, int) else None, *wide.shape[1:]]
    made.set_shape([call.loop.static_length, *known])
    return from_padded(made, sizes) if differ else call.like(made)


@ragged_rule("RaggedTensorToSparse", is_source=True)
def to_sparse(call: Call, rt_nested_splits: list[Value], rt_dense_values: Value) -> Any:
    """All rows as one RaggedTensor, whose entries are cut row by row."""
    flat, count = flat_of(call, rt_dense_values, is_vector=False)
    levels, counts, lengths = _joint_levels(call, rt_nested_splits, count)
    at, values, _ = call.rebuild(rt_nested_splits=levels, rt_dense_values=flat)
    rows, own = rows_of(tf.cast(at[:, 0], tf.int32), counts[0])
    own = tf.concat([tf.cast(own, at.dtype)[:, None], at[:, 1:]], 1)
    own.set_shape([None, len(levels) + rt_dense_values.rank])
    widths = [longest(call, *level) for level in zip(lengths, counts)]
    rest = [dim(flat, k) for k in range(1, rt_dense_values.rank)]
    shape = shape_value(call.emit, [counts[0], *widths, *rest], call.output_dtype(2))
    return [*by_row(call, rows, [own, values]), shape]


def _joint_levels(
    call: Call, given: list[Value], count: Size
) -> tuple[list[tf.Tensor], list[Size], list[tf.Tensor]]:
    """The row splits of all rows, the number of parts of each row, and the lengths of all parts."""
    levels: list[tf.Tensor] = []
    counts: list[Size] = []
    for splits in reversed(given):
        joint, count = joint_splits(call, splits, count)
        levels.insert(0, joint)
        counts.insert(0, count)
    return levels, counts, [t[1:] - t[:-1] for t in levels]


def _partition(
    call: Call, given: list[Value], count: Size
) -> tuple[list[tf.Tensor], list[Size], list[tf.Tensor]]:
    """The partition of all rows; by levels, how many parts each row has, and their lengths."""
    kinds = call.attr("row_partition_types")
    if all(kind == "ROW_SPLITS" for kind in kinds):
        return _joint_levels(call, given, count)
    if len(kinds) != 2 or kinds[1] != "VALUE_ROWIDS":
        raise CannotVectorize("the rows of several levels are given by the numbers of their values")
    many = _number(given[0])
    ids, room = flat_of(call, given[1])
    if room is not count and not (isinstance(room, int) and room == count):
        raise CannotVectorize("values and the numbers of their rows are not known to be as many")
    n, rows = call.loop.length, numbers_of_rows(call, count)
    if isinstance(many, RowSizes):
        limit, first = tf.gather(many.tensor, rows), tf.gather(many.starts, rows)
        total = tf.reduce_sum(many.tensor)
    else:
        limit, first, total = tf.convert_to_tensor(many), rows * many, n * many
    limit, first = (tf.cast(t, ids.dtype) for t in (limit, first))
    text = "the number of a row is out of bounds in some iterations. They are"
    ids = first + call.after_check((ids >= 0) & (ids < limit), text, [ids], ids)
    total = tf.cast(total, ids.dtype)
    lengths = tf.math.unsorted_segment_sum(tf.ones_like(ids), ids, total)
    return [total, ids], [many], [lengths]


def _number(value: Value) -> Size:
    """A number of rows."""
    if isinstance(value, RowSize):
        return value.size
    if value.constant is not None:
        return int(value.constant)
    number = tf.cast(value.tensor, tf.int32)
    return RowSizes.of(number) if value.is_stacked else number


def _widths(call: Call, lengths: list[tf.Tensor], counts: list[Size]) -> list[Size]:
    """The dense sizes of the ragged axes: given sizes, else the longest in each row."""
    shape = call.maybe_constant("shape")
    if shape is None:
        raise CannotVectorize("the shape is not known before running")
    given = [int(s) for s in shape] if shape.ndim else [-1] * (len(lengths) + 1)
    if given[0] >= 0 and not (isinstance(counts[0], int) and counts[0] == given[0]):
        raise CannotVectorize("so many rows, where there may be others")
    levels = zip(given[1:], lengths, counts)
    return [size if size >= 0 else longest(call, own, many) for size, own, many in levels]


@ragged_rule("RaggedBincount", is_source=True)
def bincount(call: Call, splits: Value, values: Value, size: Value, weights: Value) -> Any:
    """The counts of the parts of all rows."""
    bins = call.walker.bounds.constant(call.op.inputs[2])
    if bins is None and size.is_stacked:
        raise CannotVectorize("the number of bins, and so the shape, may differ")
    flat, count = flat_of(call, values)
    joint, many = joint_splits(call, splits, count)
    if weights.inner_shape == (0,) and not weights.is_stacked:
        weigh = weights.tensor
    elif isinstance(weights, Ragged) and isinstance(count, RowSizes):
        if weights.sizes[0] is not count or weights.rank != 1:
            raise CannotVectorize("weights of another number than there are numbers")
        weigh = weights.tensor
    else:
        raise CannotVectorize("weights of one number in all iterations")
    width = size.tensor if bins is None else call.emit.constant(bins)
    made = call.rebuild(splits=joint, values=flat, size=width, weights=weigh)
    if isinstance(many, RowSizes):
        return Ragged.packed(made, [many])
    return call.like(tf.reshape(made, tf.stack([call.loop.length, many, tf.cast(width, tf.int32)])))


@ragged_rule("RaggedCross", is_source=True)
def cross(
    call: Call,
    ragged_values: list[Value],
    ragged_row_splits: list[Value],
    sparse_indices: list[Value],
    sparse_values: list[Value],
    sparse_shape: list[Value],
    dense_inputs: list[Value],
) -> Any:
    """The ragged rows of all rows stand one behind the other, and so do the rows of matrices."""
    if sparse_indices or sparse_values or sparse_shape:
        raise CannotVectorize("sparse tensors are crossed with others")
    numbers: list[Size] = []
    flat: list[tf.Tensor] = []
    splits: list[tf.Tensor] = []
    for values, own in zip(ragged_values, ragged_row_splits):
        data, count = flat_of(call, values)
        joint, many = joint_splits(call, own, count)
        flat.append(data)
        splits.append(joint)
        numbers.append(many)
    dense: list[tf.Tensor] = []
    for value in dense_inputs:
        x: Any = call.stacked(value)
        if isinstance(value, Ragged) or x.shape.rank != 3 or None in x.shape[1:]:
            raise CannotVectorize("the shape of a dense input is not known before running")
        dense.append(tf.reshape(x, [-1, x.shape[2]]))
        numbers.append(x.shape[1])
    if not all(same_sizes([m], numbers[:1]) for m in numbers):
        raise CannotVectorize("its inputs are not known to have as many rows")
    made, ends = call.rebuild(ragged_values=flat, ragged_row_splits=splits, dense_inputs=dense)
    own, sizes = own_splits(call, ends, numbers[0])
    return [Ragged.packed(made, [sizes]), own]
