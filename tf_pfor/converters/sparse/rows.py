"""Sparse tensors with a number of entries of the row: to dense tensors, and to sparse ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.converters.ragged._entries import (
    Entries,
    FirstAxis,
    by_row,
    require_packed,
    room_for_all,
    shared,
    sparse_results,
    with_n,
)
from tf_pfor.converters.ragged._forms import (
    after_check,
    from_padded,
    of_elements,
    rank_of,
    size_at,
)
from tf_pfor.converters.ragged.shapes import target_sizes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import dim

_BROADCAST_RANK = 5


def _axes(call: Call, count: int) -> Any:
    """The reduced axes of all rows, from the front."""
    axes = call.constant("reduction_axes").reshape([-1])
    return [int(a) % count + 1 for a in axes]


def _count(indices: Value) -> int:
    """How many axes the sparse tensor of a row has."""
    shape = indices.inner_shape
    if shape is None or len(shape) != 2 or shape[1] is None:
        raise CannotVectorize("the number of axes of the sparse tensor is unknown")
    return shape[1]


def _inside(call: Call, places: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Places with the row in front, all of which must be inside of the shape."""
    right = tf.reduce_all((places >= 0) & (places < shape))
    text = "an index of a sparse tensor is out of bounds in some iterations. The shape is"
    return after_check(call, right, text, [shape], places)


# ---------------------------------------------------------------------------
# To dense tensors
# ---------------------------------------------------------------------------


@ragged_rule("SparseReduceMax SparseReduceSum", of_shapes=True)
@source("SparseReduceMax SparseReduceSum")
def reduce(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value, reduction_axes: Value
) -> Any:
    """The axes move by one."""
    del reduction_axes
    entries, axes = Entries(call, input_indices, input_values), _axes(call, _count(input_indices))
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
    return from_padded(call, made, left)


@source("SparseTensorDenseMatMul")
def _own_matmul(call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value) -> Any:
    """Sparse matrices of own shapes, as blocks of one, by dense ones, one below the other."""
    adjoint = bool(call.attr("adjoint_b"))
    if rank_of(b) != 2 or (isinstance(b, Ragged) and adjoint):
        raise CannotVectorize("the adjoint of a dense matrix of the row's own shape")
    if adjoint and b.is_stacked:
        b, adjoint = Value.stacked(tf.linalg.adjoint(b.tensor)), False
    entries, sizes = Entries(call, a_indices, a_values), target_sizes(call, a_shape, 2)
    room_for_all(call, a_shape, entries)
    out = int(call.attr("adjoint_a"))
    height = size_at(b, int(adjoint))
    height = tf.shape(b.tensor)[int(b.is_stacked) + adjoint] if height is None else height
    inner, height = (s.tensor if isinstance(s, RowSizes) else s for s in (sizes[1 - out], height))
    text = "the matrices do not fit in some iterations. Their sizes are"
    is_right = tf.equal(inner, height)
    places = after_check(call, is_right, text, [inner, height], entries.flat[0])
    columns, totals = list(tf.unstack(places, num=2, axis=1)), list[Any](sizes)
    for axis in (out, 1 - out) if b.is_stacked else (out,):
        size: Any = sizes[axis]
        n = tf.cast(call.loop.length_tensor, tf.int64)
        if isinstance(size, RowSizes):
            columns[axis] += tf.gather(tf.cast(size.starts, tf.int64), entries.rows)
            totals[axis] = tf.reduce_sum(size.tensor)
        else:
            columns[axis] += entries.rows * tf.cast(size, tf.int64)
            totals[axis] = n * tf.cast(size, tf.int64)
    made = call.rebuild(
        a_indices=tf.stack(columns, 1),
        a_values=entries.flat[1],
        a_shape=tf.stack([tf.cast(t, tf.int64) for t in totals]),
        adjoint_b=adjoint,
        b=packed_to(b if isinstance(b, Ragged) else b.tensor, 1) if b.is_stacked else b.tensor,
    )
    return of_elements(call, made, [sizes[out], dim(made, 1)])


@ragged_rule("SparseTensorDenseMatMul", of_shapes=True)
def dense_matmul(call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value) -> Any:
    """Blocks on the diagonal, or one below the other where all share ``b``."""
    if isinstance(b, Ragged) or a_shape.is_stacked:
        return _own_matmul(call, a_indices, a_values, a_shape, b)
    shape = a_shape.tensor
    entries = Entries(call, a_indices, a_values)
    at, out = entries.flat[0], int(call.attr("adjoint_a"))
    full = tf.concat([[tf.cast(call.loop.length_tensor, shape.dtype)], shape], 0)
    at = _inside(call, entries.places, full)[:, 1:]
    moves = [axis == out or b.is_stacked for axis in (0, 1)]
    n: Any = tf.cast(call.loop.length_tensor, tf.int64)
    rows = entries.rows
    places = [at[:, k] + rows * shape[k] if m else at[:, k] for k, m in enumerate(moves)]
    right, adjoint = b.tensor, call.attr("adjoint_b")
    if b.is_stacked:
        right = tf.linalg.adjoint(right) if adjoint else right
        wide = tf.shape(right)
        right, adjoint = tf.reshape(right, [wide[0] * wide[1], wide[2]]), False
    made = call.rebuild(
        a_indices=tf.stack(places, 1),
        a_values=entries.flat[1],
        a_shape=tf.stack([n * shape[k] if m else shape[k] for k, m in enumerate(moves)]),
        b=right,
        adjoint_b=adjoint,
    )
    sizes = [n, shape[out], tf.shape(made, tf.int64)[1]]
    return call.like(tf.reshape(made, tf.stack(sizes)))


@ragged_rule("SparseTensorDenseAdd")
def dense_add(call: Call, a_indices: Value, a_values: Value, a_shape: Value, b: Value) -> Any:
    """One sum of tensors with one axis more."""
    if _count(a_indices) >= _BROADCAST_RANK or isinstance(b, Ragged):
        raise CannotVectorize("the kernel takes 5 axes, the loop included")
    entries = Entries(call, a_indices, a_values)
    return call.rebuild(
        a_indices=entries.places,
        a_values=entries.flat[1],
        a_shape=with_n(call, shared(a_shape, "a_shape")),
        b=call.stacked(b),
    )


# ---------------------------------------------------------------------------
# To as many entries
# ---------------------------------------------------------------------------


@ragged_rule("SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul")
def dense_cwise(
    call: Call, sp_indices: Value, sp_values: Value, sp_shape: Value, dense: Value
) -> Any:
    """The kernel broadcasts the dense side."""
    rank = _count(sp_indices)
    if rank >= _BROADCAST_RANK or isinstance(dense, Ragged):
        raise CannotVectorize("the kernel takes 5 axes, the loop included")
    entries, right = Entries(call, sp_indices, sp_values), dense.tensor
    if dense.is_stacked:
        wide = tf.shape(right)
        ones = [1] * (rank - rank_of(dense))
        right = tf.reshape(right, tf.concat([wide[:1], ones, wide[1:]], 0))
    made = call.rebuild(
        sp_indices=entries.places,
        sp_values=entries.flat[1],
        sp_shape=with_n(call, shared(sp_shape, "sp_shape")),
        dense=right,
    )
    return entries.back(made, 0)


@ragged_rule("SparseSoftmax", of_shapes=True)
def softmax(call: Call, sp_indices: Value, sp_values: Value, sp_shape: Value) -> Any:
    """The kernel has batch dimensions."""
    entries = Entries(call, sp_indices, sp_values)
    shape = room_for_all(call, sp_shape, entries)
    made = call.rebuild(
        sp_indices=entries.places,
        sp_values=entries.flat[1],
        sp_shape=shape,
    )
    return entries.back(made, 0)


@ragged_rule("SparseReshape")
def reshape(call: Call, input_indices: Value, input_shape: Value, new_shape: Value) -> Any:
    """Each index alone."""
    shared(input_shape, "input_shape")
    shared(new_shape, "new_shape")
    entries = Entries(call, input_indices)
    indices, shape = call.rebuild(input_indices=entries.flat[0])
    return [entries.back(indices, 0), Value.unstacked(shape)]


@source("SparseAddGrad")
@ragged_rule("SparseAddGrad")
def add_gradient(
    call: Call, backprop_val_grad: Value, a_indices: Value, b_indices: Value, sum_indices: Value
) -> Any:
    """The gradients of the values of both operands."""
    a, b = Entries(call, a_indices), Entries(call, b_indices)
    total = Entries(call, sum_indices, backprop_val_grad)
    made = call.rebuild(
        backprop_val_grad=total.flat[1], a_indices=a.places, b_indices=b.places,
        sum_indices=total.places,
    )  # fmt: skip
    return [a.back(made[0], 0), b.back(made[1], 1)]


@source("SparseSliceGrad")
@ragged_rule("SparseSliceGrad")
def slice_gradient(
    call: Call, backprop_val_grad: Value, input_indices: Value, input_start: Value,
    output_indices: Value,
) -> Any:  # fmt: skip
    """The gradient of the values that were sliced."""
    start = shared(input_start, "input_start")
    given, taken = Entries(call, input_indices), Entries(call, output_indices, backprop_val_grad)
    made = call.rebuild(
        backprop_val_grad=taken.flat[1],
        input_indices=given.places,
        input_start=tf.concat([tf.zeros([1], start.dtype), start], 0),
        output_indices=taken.places,
    )
    return given.back(made, 0)


# ---------------------------------------------------------------------------
# To other numbers of entries
# ---------------------------------------------------------------------------


@source("SparseAdd")
@ragged_rule("SparseAdd")
def add(
    call: Call, a_indices: Value, a_values: Value, a_shape: Value, b_indices: Value,
    b_values: Value, b_shape: Value, thresh: Value,
) -> Any:  # fmt: skip
    """One sum of sparse tensors with one axis more."""
    shared(thresh, "thresh")
    a, b = Entries(call, a_indices, a_values), Entries(call, b_indices, b_values)
    indices, values, shape = call.rebuild(
        a_indices=a.places, a_values=a.flat[1], a_shape=with_n(call, shared(a_shape, "a_shape")),
        b_indices=b.places, b_values=b.flat[1], b_shape=with_n(call, shared(b_shape, "b_shape")),
    )  # fmt: skip
    return [*sparse_results(call, indices, values), Value.unstacked(shape[1:])]


@source("SparseSparseMaximum SparseSparseMinimum")
@ragged_rule("SparseSparseMaximum SparseSparseMinimum")
def extremum(
    call: Call, a_indices: Value, a_values: Value, a_shape: Value, b_indices: Value,
    b_values: Value, b_shape: Value,
) -> Any:  # fmt: skip
    """Of two sparse tensors with one axis more."""
    a, b = Entries(call, a_indices, a_values), Entries(call, b_indices, b_values)
    indices, values = call.rebuild(
        a_indices=a.places, a_values=a.flat[1], a_shape=with_n(call, shared(a_shape, "a_shape")),
        b_indices=b.places, b_values=b.flat[1], b_shape=with_n(call, shared(b_shape, "b_shape")),
    )  # fmt: skip
    return sparse_results(call, indices, values, _count(a_indices))


@ragged_rule("SparseConcat")
def concat(call: Call, indices: list[Value], values: list[Value], shapes: list[Value]) -> Any:
    """The axis moves by one; the kernel sorts what it joins, by row first."""
    axis, parts = call.attr("concat_dim"), []
    for at, x in zip(indices, values):
        parts.append(Entries(call, at, x))
    made = call.rebuild(
        indices=[p.places for p in parts],
        values=[p.flat[1] for p in parts],
        shapes=[with_n(call, shared(s, "shapes")) for s in shapes],
        concat_dim=axis if axis < 0 else axis + 1,
    )
    return [*sparse_results(call, made[0], made[1]), Value.unstacked(made[2][1:])]


@source("SparseReduceMaxSparse SparseReduceSumSparse")
@ragged_rule("SparseReduceMaxSparse SparseReduceSumSparse")
def reduce_to_sparse(
    call: Call, input_indices: Value, input_values: Value, input_shape: Value, reduction_axes: Value
) -> Any:
    """The axes move by one."""
    del reduction_axes
    shape = with_n(call, shared(input_shape, "input_shape"))
    entries = Entries(call, input_indices, input_values)
    count = _count(input_indices)
    axes = sorted(set(_axes(call, count)))
    if len(axes) == count and not call.attr("keep_dims"):
        raise CannotVectorize("all axes are reduced: the result has none")
    indices, values, out = call.rebuild(
        input_indices=_inside(call, entries.places, shape),
        input_values=entries.flat[1],
        input_shape=shape,
        reduction_axes=tf.constant(axes, tf.int32),
    )
    width = count if call.attr("keep_dims") else count - len(axes)
    return [*sparse_results(call, indices, values, width), Value.unstacked(out[1:])]


@source("SparseSlice")
@ragged_rule("SparseSlice")
def slice_(
    call: Call, indices: Value, values: Value, shape: Value, start: Value, size: Value
) -> Any:
    """All of the rows, and the slice behind."""
    begin = shared(start, "start")
    entries = Entries(call, indices, values)
    at, x, out = call.rebuild(
        indices=entries.places,
        values=entries.flat[1],
        shape=with_n(call, shared(shape, "shape")),
        start=tf.concat([tf.zeros([1], begin.dtype), begin], 0),
        size=with_n(call, shared(size, "size")),
    )
    return [*sparse_results(call, at, x), Value.unstacked(out[1:])]


@source("SparseSplit")
@ragged_rule("SparseSplit")
def split(call: Call, split_dim: Value, indices: Value, values: Value, shape: Value) -> Any:
    """The axis moves by one."""
    axis, count = int(call.constant("split_dim")), call.attr("num_split")
    entries = Entries(call, indices, values)
    made = call.rebuild(
        split_dim=tf.constant(axis if axis < 0 else axis + 1, split_dim.dtype),
        indices=entries.places,
        values=entries.flat[1],
        shape=with_n(call, shared(shape, "shape")),
    )
    found: list[list[Value]] = [[], [], []]
    for k in range(count):
        at, x = sparse_results(call, made[k], made[count + k])
        found[0].append(at)
        found[1].append(x)
        found[2].append(Value.unstacked(made[2 * count + k][1:]))
    return [value for column in found for value in column]


@source("SparseFillEmptyRows")
@ragged_rule("SparseFillEmptyRows")
def fill_empty_rows(
    call: Call, indices: Value, values: Value, dense_shape: Value, default_value: Value
) -> Any:
    """The first axis of all rows is one axis."""
    shape = shared(dense_shape, "dense_shape")
    shared(default_value, "default_value")
    entries, axis = Entries(call, indices, values), FirstAxis(call, shape[0])
    at, x, is_empty, places = call.rebuild(
        indices=axis.merged(entries),
        values=entries.flat[1],
        dense_shape=tf.concat([[axis.total], shape[1:]], 0),
    )
    rows, own = axis.split(at)
    made = by_row(call, rows, [own, x])
    assert isinstance(made[0], Ragged)
    (sizes,) = made[0].sizes
    starts = tf.cast(tf.cumsum(sizes.tensor, exclusive=True), tf.int64)  # type: ignore[union-attr]
    empty = tf.reshape(is_empty, [call.loop.length, tf.cast(axis.size, tf.int32)])
    own_places = entries.back(places - tf.gather(starts, entries.rows), 3)
    return [*made, call.like(empty).with_inner_shape(call.output_shape(2) or (None,)), own_places]


@source("RaggedFillEmptyRows")
@ragged_rule("RaggedFillEmptyRows")
def fill_empty_ragged_rows(
    call: Call, value_rowids: Value, values: Value, nrows: Value, default_value: Value
) -> Any:
    """The ragged rows of all rows are one after the other."""
    size: Any = tf.maximum(shared(nrows, "nrows"), 1)
    shared(default_value, "default_value")
    entries = Entries(call, value_rowids, values)
    at, total = entries.flat[0], tf.cast(call.loop.length, tf.int64) * nrows.tensor
    is_in = (at >= 0) & (at < nrows.tensor)
    ids = tf.where(is_in, at + entries.rows * size, total)
    ids, filled, is_empty, places = call.rebuild(
        value_rowids=ids, values=entries.flat[1], nrows=total
    )
    rows = ids // size
    made = by_row(call, rows, [ids - rows * size, filled])
    assert isinstance(made[0], Ragged)
    (sizes,) = made[0].sizes
    starts = tf.cast(tf.cumsum(sizes.tensor, exclusive=True), tf.int64)  # type: ignore[union-attr]
    empty = tf.reshape(is_empty, tf.stack([call.loop.length, tf.cast(nrows.tensor, tf.int32)]))
    own_places = entries.back(places - tf.gather(starts, entries.rows), 3)
    return [*made, call.like(empty).with_inner_shape(call.output_shape(2) or (None,)), own_places]


@source("RaggedFillEmptyRowsGrad SparseFillEmptyRowsGrad")
@ragged_rule("RaggedFillEmptyRowsGrad SparseFillEmptyRowsGrad")
def fill_empty_rows_gradient(call: Call, reverse_index_map: Value, grad_values: Value) -> Any:
    """Gradients of what was there, and of the default the sum of all others."""
    require_packed(call)
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
