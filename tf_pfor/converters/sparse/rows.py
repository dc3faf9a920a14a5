"""Sparse tensors with a number of entries of the row: to dense tensors, and to sparse ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import (
    Entries,
    FirstAxis,
    for_all_rows,
    room_for_all,
    room_of,
    shared,
    sizes_by,
    sparse_results,
    width_of,
)
from tf_pfor.converters.ragged._forms import (
    all_packed,
    from_padded,
)
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.converters.sparse._joint_rows import by_columns
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import Size, as_number, at_rows


def _axes(call: Call, count: int) -> Any:
    """The reduced axes of all rows, from the front."""
    axes = call.constant("reduction_axes").reshape([-1])
    return [int(a) % count + 1 for a in axes]


def _both(call: Call, shape: Value) -> list[Any]:
    """The sizes of a matrix: of each row, ints, or int32 scalars."""
    if shape.is_stacked or call.maybe_constant("a_shape") is not None:
        return target_sizes(call, shape, 2)
    return tf.unstack(tf.cast(shape.tensor, tf.int32), num=2)


def _check_inner(call: Call, tensor: tf.Tensor, a: Size, b: Size) -> tf.Tensor:
    """``tensor``, after a check that what is summed over has one size in both matrices."""
    if a is b or (isinstance(a, int) and isinstance(b, int) and a == b):
        return tensor
    sizes = [tf.cast(as_number(s), tf.int64) for s in (a, b)]
    text = "the columns of the sparse matrix are not as many as the rows of the other one. They are"
    return call.after_check(tf.equal(sizes[0], sizes[1]), text, sizes, tensor)


def _limits(sizes: list[Any], rows: tf.Tensor) -> tf.Tensor:
    """int64 [total, 2], or [2]: the shape of the matrix that each entry is in."""
    each = [at_rows(size, rows, tf.int64) for size in sizes]
    return tf.stack([tf.broadcast_to(e, tf.shape(rows)) for e in each], 1)


def _inside(call: Call, places: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Places with the row in front, all of which must be inside of the shape."""
    right = tf.reduce_all((places >= 0) & (places < shape))
    text = "an index of a sparse tensor is out of bounds in some iterations. The shape is"
    return call.after_check(right, text, [shape], places)


# ---------------------------------------------------------------------------
# To dense tensors
# ---------------------------------------------------------------------------


@ragged_rule("SparseReduceMax SparseReduceSum", of_shapes=True, is_source=True)
def reduce(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value, reduction_axes: Value
) -> Any:
    """The axes move by one."""
    entries, axes = Entries(call, input_indices, input_values), _axes(call, width_of(input_indices))
    shape = room_for_all(call, input_shape, entries)
    made = call.rebuild(
        input_indices=_inside(call, entries.places, shape),
        input_values=entries.flat[1],
        input_shape=shape,
        reduction_axes=tf.constant(axes, tf.int32),
    )
    if not input_shape.is_stacked:
        return made
    sizes: list[Any] = target_sizes(call, input_shape, 2)
    keeps = call.attr("keep_dims")
    left = [1 if k + 1 in axes else s for k, s in enumerate(sizes) if keeps or k + 1 not in axes]
    made.set_shape([call.loop.static_length, *[None] * len(left)])
    return from_padded(made, left)


@ragged_rule("SparseTensorDenseMatMul", of_shapes=True, is_source=True)
def dense_matmul(call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value) -> Any:
    """Blocks on the diagonal, or one below the other where all share ``b``.

    A block has room for the largest matrix of a row.
    """
    out, adjoint = int(call.attr("adjoint_a")), call.attr("adjoint_b")
    shape = _both(call, a_shape)
    inner, columns = (b.size_at(k) for k in ((1, 0) if adjoint else (0, 1)))
    right = b.in_rows if isinstance(b, Ragged) else b.tensor
    if inner is None:
        inner = tf.shape(right)[int(adjoint) + int(b.is_stacked)]
    right = _check_inner(call, right, shape[1 - out], inner)
    if not (a_indices.is_stacked or a_values.is_stacked or a_shape.is_stacked):
        made = by_columns(call, Value.stacked(right))
        return from_padded(made, [shape[out], columns])
    if b.is_stacked and adjoint:
        right, adjoint = tf.linalg.adjoint(right), False
    room: list[Any] = [tf.cast(largest(s), tf.int64) for s in shape]
    if b.is_stacked:
        wide = tf.shape(right)
        room[1 - out] = tf.cast(wide[1], tf.int64)
        right = tf.reshape(right, [wide[0] * wide[1], wide[2]])
    entries = Entries(call, a_indices, a_values)
    at, limits = tf.cast(entries.flat[0], tf.int64), _limits(shape, entries.rows)
    text = "an index of a sparse tensor is out of bounds in some iterations. The shapes are"
    at = call.after_check((at >= 0) & (at < limits), text, [limits], at)
    moves = [axis == out or b.is_stacked for axis in (0, 1)]
    places = [at[:, k] + entries.rows * room[k] if m else at[:, k] for k, m in enumerate(moves)]
    n = tf.cast(call.loop.length_tensor, tf.int64)
    made = call.rebuild(
        a_indices=tf.stack(places, 1),
        a_values=entries.flat[1],
        a_shape=tf.stack([n * room[k] if m else room[k] for k, m in enumerate(moves)]),
        b=right,
        adjoint_b=adjoint,
    )
    rows = tf.reshape(made, tf.stack([n, room[out], tf.shape(made, tf.int64)[1]]))
    if any(isinstance(s, RowSizes) for s in (shape[out], columns)):
        return from_padded(rows, [shape[out], columns], is_clean=True)
    return call.like(rows)


# ---------------------------------------------------------------------------
# To as many entries
# ---------------------------------------------------------------------------


@ragged_rule("SparseAddGrad", is_source=True)
def add_gradient(call: Call, *_: Value) -> Any:
    """The gradients of the values of both operands."""
    parts, inputs = for_all_rows(call, "a_indices", "b_indices", "sum_indices backprop_val_grad")
    return [part.back(made, k) for k, (part, made) in enumerate(zip(parts, call.rebuild(**inputs)))]


@ragged_rule("SparseSliceGrad", is_source=True)
def slice_gradient(call: Call, *_: Value) -> Any:
    """The gradient of the values that were sliced."""
    start = shared(call.value("input_start"), "input_start")
    (given, _taken), inputs = for_all_rows(
        call, "input_indices", "output_indices backprop_val_grad"
    )
    start = tf.concat([tf.zeros([1], start.dtype), start], 0)
    return given.back(call.rebuild(**inputs, input_start=start), 0)


# ---------------------------------------------------------------------------
# To other numbers of entries
# ---------------------------------------------------------------------------

_TWO = ("a_indices a_values", "b_indices b_values")


@ragged_rule("SparseAdd", is_source=True)
def add(call: Call, *_: Value) -> Any:
    """One sum of sparse tensors with one axis more."""
    shared(call.value("thresh"), "thresh")
    inputs = for_all_rows(call, *_TWO, shapes="a_shape b_shape")[1]
    return sparse_results(call, *call.rebuild(**inputs))


@ragged_rule("SparseSparseMaximum SparseSparseMinimum", is_source=True)
def extremum(call: Call, a_indices: Value, *_: Value) -> Any:
    """The extremum of two sparse tensors with one axis more."""
    inputs = for_all_rows(call, *_TWO, shapes="a_shape b_shape")[1]
    return sparse_results(call, *call.rebuild(**inputs), width=width_of(a_indices))


@ragged_rule("SparseReduceMaxSparse SparseReduceSumSparse", is_source=True)
def reduce_to_sparse(call: Call, input_indices: Value, *_: Value) -> Any:
    """The axes move by one."""
    inputs = for_all_rows(call, "input_indices input_values", shapes="input_shape")[1]
    count = width_of(input_indices)
    axes = sorted(set(_axes(call, count)))
    if len(axes) == count and not call.attr("keep_dims"):
        raise CannotVectorize("all axes are reduced: the result has none")
    inputs["input_indices"] = _inside(call, inputs["input_indices"], inputs["input_shape"])
    made = call.rebuild(**inputs, reduction_axes=tf.constant(axes, tf.int32))
    width = count if call.attr("keep_dims") else count - len(axes)
    return sparse_results(call, *made, width=width)


@ragged_rule("SparseSlice", is_source=True)
def slice_(call: Call, *_: Value) -> Any:
    """All of the rows, and the slice behind."""
    begin = shared(call.value("start"), "start")
    inputs = for_all_rows(call, "indices values", shapes="shape size")[1]
    start = tf.concat([tf.zeros([1], begin.dtype), begin], 0)
    return sparse_results(call, *call.rebuild(**inputs, start=start))


@ragged_rule("SparseSplit", is_source=True)
def split(call: Call, split_dim: Value, *_: Value) -> Any:
    """The axis moves by one."""
    axis, count = int(call.constant("split_dim")), call.attr("num_split")
    inputs = for_all_rows(call, "indices values", shapes="shape")[1]
    axis = tf.constant(axis if axis < 0 else axis + 1, split_dim.dtype)
    made = call.rebuild(**inputs, split_dim=axis)
    found = [sparse_results(call, *made[k::count]) for k in range(count)]
    return [value for column in zip(*found) for value in column]


@ragged_rule("SparseFillEmptyRows", is_source=True, of_shapes=True)
def fill_empty_rows(
    call: Call, indices: Value, values: Value, dense_shape: Value, default_value: Value
) -> Any:
    """The first axis of all rows is one axis."""
    shared(default_value, "default_value")
    size = _first_size(call, dense_shape)
    entries, axis = Entries(call, indices, values), FirstAxis(call, size)
    at, x, is_empty, places = call.rebuild(
        indices=axis.merged(entries),
        values=entries.flat[1],
        dense_shape=tf.concat([[axis.total], room_of(call, dense_shape)[2:]], 0),
    )
    rows, own = axis.split(at)
    return _filled(call, entries, size, rows, [own, x], is_empty, places)


def _first_size(call: Call, shape: Value) -> Size:
    """The first size of a shape, which may be the row's own."""
    return target_sizes(call, shape, 2)[0] if shape.is_stacked else shape.tensor[0]


@ragged_rule("RaggedFillEmptyRows", is_source=True)
def fill_empty_ragged_rows(
    call: Call, value_rowids: Value, values: Value, nrows: Value, default_value: Value
) -> Any:
    """The ragged rows of all rows are one after the other."""
    size = tf.maximum(shared(nrows, "nrows"), 1)
    shared(default_value, "default_value")
    entries = Entries(call, value_rowids, values)
    at, total = entries.flat[0], tf.cast(call.loop.length, tf.int64) * nrows.tensor
    is_in = (at >= 0) & (at < nrows.tensor)
    ids = tf.where(is_in, at + entries.rows * size, total)
    ids, filled, is_empty, places = call.rebuild(
        value_rowids=ids, values=entries.flat[1], nrows=total
    )
    rows = ids // size
    own = [ids - rows * size, filled]
    return _filled(call, entries, nrows.tensor, rows, own, is_empty, places)


def _filled(
    call: Call,
    entries: Entries,
    size: Size,
    rows: tf.Tensor,
    made: list[tf.Tensor],
    is_empty: tf.Tensor,
    places: tf.Tensor,
) -> list[Value]:
    """Entries with those that were put in, which parts of a row were empty, and the old places.

    Args:
      call: the call.
      entries: the entries that were given.
      size: the number of parts of a row.
      rows: the row of each entry of the result.
      made: the entries of the result.
      is_empty: for each part of all rows, whether it was empty.
      places: the places of given entries among all entries of the result.
    """
    sizes = sizes_by(call, rows)
    starts = tf.cast(tf.cumsum(sizes.tensor, exclusive=True), tf.int64)
    if isinstance(size, RowSizes):
        empty = Ragged.packed(is_empty, [size])
    else:
        empty = tf.reshape(is_empty, tf.stack([call.loop.length, tf.cast(size, tf.int32)]))
        empty = call.like(empty).with_inner_shape(call.output_shape(2) or (None,))
    return [
        *all_packed(made, [sizes]),
        empty,
        entries.back(places - tf.gather(starts, entries.rows), 3),
    ]


@ragged_rule("RaggedFillEmptyRowsGrad SparseFillEmptyRowsGrad", is_source=True)
def fill_empty_rows_gradient(call: Call, reverse_index_map: Value, grad_values: Value) -> Any:
    """Gradients of what was there, and of the default the sum of all others."""
    call.require_packed()
    own, made = Entries(call, reverse_index_map), Entries(call, grad_values)
    counts = tf.math.bincount(
        tf.cast(made.rows, tf.int32), minlength=call.loop.length, maxlength=call.loop.length
    )
    starts = tf.cast(tf.cumsum(counts, exclusive=True), tf.int64)
    places = own.flat[0] + tf.gather(starts, own.rows)
    grads = made.flat[0]
    is_own = tf.scatter_nd(places[:, None], tf.ones_like(places), tf.shape(grads, tf.int64)) > 0
    others = tf.where(is_own, tf.zeros_like(grads), grads)
    default = tf.math.unsorted_segment_sum(others, made.rows, call.loop.length)
    return [own.back(tf.gather(grads, places), 0), Value.stacked(default)]
