"""Vectors of all rows as one, as kernels take them that put parts of many one behind the other."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.shapes import fold, inner_dims, product, transpose
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, Size
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.row_sizes import as_number, dim


def flat_of(call: Call, value: Value, *, is_vector: bool = True) -> tuple[tf.Tensor, Size]:
    """[n, k, ...] or ragged -> [total, ...]; and how many elements each row has."""
    if is_vector and value.rank != 1:
        raise CannotVectorize("its input is no vector")
    call.require_packed("how many pieces there are")
    if not isinstance(value, Ragged):
        x = call.stacked(value)
        return packed_to(x, 1), dim(x, 1)
    if value.n_leading != 1:
        raise CannotVectorize("the values differ along several axes")
    return value.tensor, value.sizes[0]


def rows_of(at: tf.Tensor, many: Size) -> tuple[tf.Tensor, tf.Tensor]:
    """The row of each element of all rows, int32 [p], and its place in the row."""
    if isinstance(many, RowSizes):
        rows = tf.gather(many.rows, at)
        return rows, at - tf.gather(many.starts, rows)
    if isinstance(many, int) and many == 1:
        return at, tf.zeros_like(at)
    rows = at // tf.maximum(many, 1)
    return rows, at - rows * many


def starts_of(call: Call, many: Size) -> Any:
    """int32 [n]: where the rows begin."""
    n = call.loop.length
    return many.starts if isinstance(many, RowSizes) else tf.range(n) * many


def joint_splits(call: Call, splits: Value, count: Size) -> tuple[tf.Tensor, Size]:
    """Row splits of all rows, [total + 1], and how many parts each row has.

    The splits of a row must begin with 0 and end with the number of its values, as the kernels
    demand of all of them.

    Args:
      call: the call.
      splits: the splits of each row.
      count: the number of values of each row.
    """
    if isinstance(splits, RowShape) and splits.sizes == (0, count):
        assert isinstance(count, RowSizes)
        end = tf.reduce_sum(count.tensor)[None]
        return tf.cast(tf.concat([count.starts, end], 0), splits.dtype), 1
    own, room = flat_of(call, splits)
    begin = tf.cast(starts_of(call, count), own.dtype)
    n = call.loop.length
    if isinstance(room, RowSizes):
        many: Size = RowSizes.of(room.tensor - 1)
        first = tf.gather(own, room.starts)
        last = tf.gather(own, room.starts + room.tensor - 1)
        at = tf.range(tf.shape(many.rows)[0]) + many.rows
        parts = tf.gather(own, at) + tf.gather(begin, many.rows)
    else:
        many = room - 1
        wide = tf.reshape(own, tf.stack([n, room]))
        first, last = wide[:, 0], wide[:, -1]
        parts = tf.reshape(wide[:, :-1] + begin[:, None], [-1])
    total = tf.broadcast_to(tf.cast(as_number(count), own.dtype), tf.stack([n]))
    right = tf.equal(first, 0) & tf.equal(last, total)
    text = "row splits must begin with 0 and end with the number of values. First and last are"
    parts = call.after_check(right, text, [first, last], parts)
    return tf.concat([parts, tf.reduce_sum(total)[None]], 0), many


def by_columns(call: Call, b: Value) -> tf.Tensor:
    """One matrix for all rows, times the columns of all of them, side by side.

    b [n, p, q] -> [p, n*q]; with ``adjoint_b`` [n, q, p] -> [n*q, p]. Back: [m, n*q].
    """
    parts = inner_dims(call, b)
    if call.attr("adjoint_b"):
        columns, right = parts[0], fold(call, b)
    else:
        columns = parts[1]
        side = transpose(call, b.tensor, [1, 0, 2])
        right = call.emit.reshape(side, [parts[0], product(call, [call.loop.length, columns])])
    made = call.rebuild(b=right)  # [m, n*q]
    split = call.emit.reshape(made, [call.emit.dim(made, 0), call.loop.length, columns])
    return transpose(call, split, [1, 0, 2])
