"""Ops that leave the axes in front alone, sorts, repetitions and stacks of ragged rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    agreed,
    all_packed,
    behind,
    from_padded,
    of_equal_room,
    of_room,
    row_sizes,
    unified,
    with_room,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import lowest
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.packing import largest, masked
from tf_pfor.layouts.ragged import (
    Ragged,
    RowShape,
    RowSize,
    RowSizes,
    Size,
    same_sizes,
    shape_value,
    size_value,
)
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import as_number, dim


@ragged_rule("OneHot", is_source=True)
def one_hot(call: Call, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Any:
    """Packed where the new axis is behind those that differ; else padded, and as deep as any."""
    rank = indices.rank
    if on_value.is_stacked or off_value.is_stacked or not call.uses_packed:
        raise CannotVectorize("its depth or its values differ between iterations")
    axis: int = call.attr("axis") % (rank + 1)
    if isinstance(indices, Ragged) and axis >= indices.n_leading and not depth.is_stacked:
        made = call.rebuild(indices=indices.tensor, axis=axis - indices.n_leading + 1)
        return Ragged.packed(made, indices.sizes)
    last: Any = _own_depth(call, indices, depth) if depth.is_stacked else None
    most = largest(last) if depth.is_stacked else depth.tensor
    at = indices.in_rows if isinstance(indices, Ragged) else call.stacked(indices)
    wide = call.rebuild(indices=at, depth=most, axis=axis + 1)
    sizes = [indices.size_at(i) for i in range(rank)]
    sizes.insert(axis, last)
    known = [call.emit.dim(wide, i + 1) if s is None else s for i, s in enumerate(sizes)]
    return from_padded(wide, known)


def _own_depth(call: Call, indices: Value, depth: Value) -> RowSizes:
    """The depth of each row; a size of the row itself where it is known to be one."""
    if isinstance(depth, RowSize) and not depth.size.is_number:
        return depth.size
    own = depth.tensor if depth.dtype == tf.int32 else tf.cast(depth.tensor, tf.int32)
    for size in indices.sizes if isinstance(indices, Ragged) else ():
        if isinstance(size, RowSizes) and size.tensor is own:
            return size
    text = "the depth is negative in some iterations. They are"
    own = call.after_check(own >= 0, text, [own], own)
    return row_sizes(call, own)


@ragged_rule("Split SplitV")
def split(call: Call, *_: Value) -> Any:
    """Along an axis that all rows share."""
    value, others = call.value("value"), [k for k in call.inputs if k != "value"]
    if not isinstance(value, Ragged):
        raise CannotVectorize("it is split into parts of sizes that differ")
    known = {name: call.constant(name) for name in others}
    axis = np.int32(_behind(call, value, int(known["split_dim"])))
    return _packed(call, value.sizes, **{**known, "value": value.tensor, "split_dim": axis})


def _packed(call: Call, sizes: Sequence[Size], **inputs: Any) -> list[Value]:
    """The results of the op on packed forms of rows of these sizes."""
    return all_packed(call.rebuild(**inputs), sizes)


@ragged_rule("Unpack", of_shapes=True)
def unpack(call: Call, value: Value) -> Any:
    """Along an axis that all rows share, or of which each row has ``num``; a shape into sizes."""
    before, num = call.attr("axis") % value.rank, call.attr("num")
    if isinstance(value, RowShape):
        return [size_value(call.emit, size, value.dtype) for size in value.sizes]
    if not isinstance(value, Ragged):
        raise CannotVectorize("numbers of one shape")
    size = value.sizes[before] if before < value.n_leading else None
    if isinstance(size, int) or (isinstance(size, RowSizes) and call.uses_packed):
        rows, rest = value.in_rows, [s for k, s in enumerate(value.sizes) if k != before]
        if isinstance(size, RowSizes):
            text = f"{num} values are unpacked, and a row has another number. The numbers are"
            rows = of_room(rows, before + 1, num)
            rows = call.after_check(tf.equal(size.tensor, num), text, [size.tensor], rows)
        parts = tf.unstack(rows, num, before + 1)
        return [from_padded(p, rest, is_clean=True) for p in parts]
    axis = _behind(call, value, before)
    return _packed(call, value.sizes, value=value.tensor, axis=axis)


def _behind(call: Call, value: Ragged, axis: int) -> int:
    """An axis behind those that differ, in the packed form."""
    moved = behind(call, value, [axis % value.rank])
    if moved is None:
        raise CannotVectorize("the axis differs between iterations, or stands before one that does")
    return moved[0]


@ragged_rule("Pack", of_shapes=True)
def pack(call: Call, values: list[Value]) -> Any:
    """A stack of rows of the same sizes; of numbers, some of which are sizes, a shape."""
    if not any(isinstance(v, Ragged) for v in values):
        return stacked_sizes(call, values)
    if not all(isinstance(v, Ragged) for v in values):
        raise CannotVectorize("some of what is stacked has one shape in all iterations")
    rank = values[0].rank
    found = unified(call, values, rank, broadcasts=False)
    sizes = [v.sizes for v in found if isinstance(v, Ragged)]
    if not all(same_sizes(s, sizes[0]) for s in sizes):
        raise CannotVectorize("the stacked tensors differ in shape")
    axis, count = call.attr("axis") % (rank + 1), len(sizes[0])
    if axis >= count and call.uses_packed:
        tensors = [v.tensor for v in found]
        return Ragged.packed(tf.stack(tensors, axis - count + 1), sizes[0])
    wide = [v.in_rows for v in found if isinstance(v, Ragged)]
    wide = of_equal_room(wide, sizes[0])
    every = [*sizes[0][:axis], len(found), *sizes[0][axis:]] if axis < count else list(sizes[0])
    return from_padded(tf.stack(wide, axis + 1), every, is_clean=True)


def stacked_sizes(call: Call, values: list[Value]) -> Any:
    """A shape of numbers, some of which are sizes of the row."""
    if values[0].rank or not any(isinstance(v, RowSize) for v in values):
        raise CannotVectorize("numbers of one shape")
    return shape_value(call.emit, [_size_of(v) for v in values], call.output_dtype())


def _size_of(value: Value) -> Any:
    if isinstance(value, RowSize):
        return value.size
    if value.constant is not None:
        return int(value.constant)
    if value.is_stacked:
        return RowSizes(Cell(tf.cast(value.tensor, tf.int32)), is_number=True)
    return tf.cast(value.tensor, tf.int32)


@ragged_rule("TopKV2", is_source=True)
def top_k(call: Call, input: Value, k: Value) -> Any:
    """The largest along the last axis; all of them for a sort. What is padding is smallest.

    Where ``k`` differs per row all are sorted, and the first ones taken.
    """
    is_ragged = isinstance(input, Ragged)
    *leading, size = [input.size_at(axis) for axis in range(input.rank)]
    if is_ragged and not isinstance(size, RowSizes) and not k.is_stacked and call.uses_packed:
        return _packed(call, input.sizes, input=input.tensor)
    if isinstance(size, RowSizes) is not is_ragged or not (is_ragged or k.is_stacked):
        raise CannotVectorize("how many are taken differs between iterations")
    if None in (*leading, size):
        raise CannotVectorize("the size of an axis is not known before running")
    if isinstance(input, Ragged):
        x = masked(input.in_rows, input.sizes, lowest(input.dtype))
        room: object = tf.shape(x)[-1]
    else:
        x, room = call.stacked(input), np.asarray(size, np.int32)
    if isinstance(k, RowSize) and k.size is size:
        return [from_padded(t, [*leading, size]) for t in call.rebuild(input=x, k=room)]
    count = call.maybe_constant("k")
    if not call.uses_packed:
        raise CannotVectorize(
            "a row may be shorter than what is taken, which cannot be checked "
            f"{call.where_padded}: take the first ones of tf.sort(x)"
        )
    limit = as_number(size)
    if count is None:
        own = _number(call, k)
        text = "as many are taken as there are not in some iterations. These, and sizes, are"
        own = call.after_check((own >= 0) & (own <= limit), text, [own, limit], own)
        left = row_sizes(call, own, size if isinstance(size, int) else None)
        return [from_padded(t, [*leading, left]) for t in call.rebuild(input=x, k=room)]
    text = f"some iterations have less than {int(count)} elements. The sizes"
    x = call.after_check(limit >= int(count), text, [limit], x)
    x = with_room(x, input.rank, int(count))  # if there are no rows
    made = call.rebuild(input=x, k=np.int32(count))
    return [from_padded(t, [*leading, int(count)]) for t in made]


def _number(call: Call, value: Value) -> tf.Tensor:
    """int32 [n]: a number of each row."""
    if isinstance(value, RowSize):
        return value.size.tensor
    return tf.cast(call.stacked(value), tf.int32)


@ragged_rule("InTopK InTopKV2")
def in_top_k(call: Call, predictions: Value, targets: Value, k: Value | None = None) -> Any:
    """Whether targets [b] are among the largest of [b, classes]; the smallest number is in none."""
    if k is not None and k.is_stacked:
        raise CannotVectorize("how many are the largest differs between iterations")
    predictions, targets = agreed(call, (predictions, 0), (targets, 0))
    batch, classes = (predictions.size_at(axis) for axis in range(2))
    are_packed = isinstance(predictions, Ragged) and isinstance(targets, Ragged)
    if are_packed and not isinstance(classes, RowSizes) and call.uses_packed:
        return _packed(call, [batch], predictions=predictions.tensor, targets=targets.tensor)
    x = predictions.in_rows if isinstance(predictions, Ragged) else call.stacked(predictions)
    at = targets.in_rows if isinstance(targets, Ragged) else call.stacked(targets)
    x, at = of_equal_room([x, at], [batch])
    if isinstance(predictions, Ragged) and isinstance(classes, RowSizes):  # else it is no class
        x = masked(x, predictions.sizes, tf.float32.min)
        own = tf.cast(classes.tensor, at.dtype)[:, None]
        at = tf.where(at < own, at, -tf.ones_like(at))
    flat = tf.reshape(x, tf.stack([tf.size(at), dim(x, 2)]))
    made = call.rebuild(predictions=flat, targets=tf.reshape(at, [-1]))
    return from_padded(tf.reshape(made, tf.shape(at)), [batch])
