"""Indices that differ between iterations: where they come from, and how to read by them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.ranges import Bounds, Range
from tf_pfor.core.shapes import inner_dims, move_axis
from tf_pfor.core.values import Value, dims
from tf_pfor.layouts.linear import Form, forms, forms_of
from tf_pfor.layouts.ragged import RowShape, size_value

# ---------------------------------------------------------------------------
# Where an index comes from
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Index:
    """One integer that is not known before running.

    Attributes:
      value: the scalar.
      form: the same as a sum.
      tensor: the scalar of the body; None if it is one entry of a vector.
    """

    value: Value
    form: Form
    tensor: tf.Tensor | None = None


def form_of(index: int | Index) -> Form:
    """A number as a sum."""
    return Form(frozenset(), index) if isinstance(index, int) else index.form


def elements(call: Call, name: str) -> list[int | Index]:
    """The entries of the vector input ``name``: ints where they are known before running."""
    value, constant = call.value(name), call.maybe_constant(name)
    if constant is not None:
        return constant.tolist()
    vector = call.tensor_of(name)
    known = forms_of(call, vector)
    if known is None:
        raise CannotVectorize("the number of indices is unknown")
    parts = _components(vector) or [None] * len(known)
    return [
        _entry(call, value, (i, len(known)), form, part) if form.known is None else form.known
        for i, (form, part) in enumerate(zip(known, parts))
    ]


def _entry(
    call: Call, vector: Value, place: tuple[int, int], form: Form, part: tf.Tensor | None
) -> int | Index:
    """One entry of a vector, number i of so many; ``part`` is a scalar of the body that it is."""
    i, count = place
    value = None if part is None else call.value_of(part)
    if isinstance(vector, RowShape):
        value = size_value(call.emit, vector.sizes[i], vector.dtype)
    if value is None:
        made = call.emit("Unpack", vector.tensor, num=count, axis=int(vector.is_stacked))
        scalar = made[i] if count > 1 else made
        value = Value.stacked(scalar) if vector.is_stacked else Value.unstacked(scalar)
    at = value.constant
    return Index(value, form, part) if at is None else int(at.reshape([]))


def _components(vector: tf.Tensor) -> list[tf.Tensor | None] | None:
    """The scalars of the body that a vector of the body is packed from; None if unknown."""
    op = vector.op
    if op.type == "Pack" and vector.shape.rank == 1:
        return list(op.inputs)
    if op.type == "Identity":
        return _components(op.inputs[0])
    if op.type in ("ExpandDims", "Reshape") and op.inputs[0].shape.rank == 0:
        return [op.inputs[0]]
    return None


def loop_offset(call: Call, tensor: tf.Tensor | None) -> int | None:
    """The number c when a scalar of the body is the iteration number plus c, all rows active."""
    found = None if tensor is None else forms(tensor)
    if found is None or found.size != 1 or found.item().base is None:
        return None
    value = call.value_of(found.item().base)
    return found.item().constant if value is not None and call.loop.is_index(value) else None


# ---------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------


def window(call: Call, x: tf.Tensor, axis: int, first: int) -> tf.Tensor | None:
    """x[first : first + n] along ``axis``: the tensor itself when that is all of it.

    What x[i + first] is for all i at once. None where an index is out of range (the gather that
    is then made says so) or counts from the end.
    """
    shape, n = dims(x), call.loop.static_length
    if first < 0 or shape is None:
        return None
    size = shape[axis]
    if n is not None and size is not None:
        if first + n > size:
            return None
        if n == size:
            return x
    begin = [first if i == axis else 0 for i in range(len(shape))]
    lengths: list[Dim] = [call.loop.length if i == axis else -1 for i in range(len(shape))]
    return call.emit("Slice", x, begin, call.emit.shape_vector(lengths))


def take(call: Call, x: Value, axis: int, index: Index, reach: Reach | None = None) -> Value:
    """x_i[..., index_i, ...]: without ``axis``, or with it as long as ``reach``.

    Args:
      call: the call.
      x: stacked or not.
      axis: the inner axis to index.
      index: one index for each iteration; negative ones count from the end.
      reach: when a range is read that begins at ``index``.
    """
    if not x.is_stacked and reach is None:
        first = loop_offset(call, index.tensor)
        rows = None if first is None else window(call, x.tensor, axis, first)
        if rows is not None:
            return Value.stacked(move_axis(call, rows, axis, 0))
    at = positions(call, x, axis, index, reach)  # [n] or [n, k]; without n when invariant
    if x.is_stacked and reach is not None and _takes_all(x, axis, reach):
        with call.emit.graph.control_dependencies([at]):  # which has checked that it begins at 0
            return Value.stacked(call.emit("Identity", x.tensor))
    if not index.value.is_stacked:
        lead = 1 if x.is_stacked else 0
        made = call.emit("GatherV2", x.tensor, at, np.int32(axis + lead))
        return Value.stacked(made) if lead else Value.unstacked(made)
    return gather_rows(call, x, at, axis)


def _takes_all(x: Value, axis: int, reach: Reach) -> bool:
    """Whether a range that lies inside of an axis must be all of it."""
    size = None if x.inner_shape is None else x.inner_shape[axis]
    return reach.stride == 1 and size is not None and reach.count == size


def gather_rows(call: Call, x: Value, at: tf.Tensor, axis: int) -> Value:
    """x_i gathered along the inner ``axis`` by at_i, ``at`` [n, ...] being stacked."""
    if x.is_stacked:
        made = call.emit("GatherV2", x.tensor, at, np.int32(axis + 1), batch_dims=1)
        return Value.stacked(made)
    made = call.emit("GatherV2", x.tensor, at, np.int32(axis))  # [..., n, k, ...]
    return Value.stacked(move_axis(call, made, axis, 0))


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """A range of static length that begins at an index.

    Attributes:
      count: its length.
      stride: its stride, positive.
      span: the distance from its begin to its end if negative positions count from the end; None
        if they are out of range.
    """

    count: int
    stride: int = 1
    span: int | None = None


def positions(
    call: Call, x: Value, axis: int, index: Index, reach: Reach | None = None
) -> tf.Tensor:
    """The positions along ``axis`` that ``index`` and ``reach`` name, none of them negative.

    What is out of range stays out of range.
    """
    at = starts(call, x, axis, index, reach)
    if reach is None:
        return at
    emit = call.emit
    steps = emit.constant(np.arange(reach.count) * reach.stride, at.dtype)  # [k]
    return emit("AddV2", emit("ExpandDims", at, np.int32(-1)), steps)


def starts(call: Call, x: Value, axis: int, index: Index, reach: Reach | None = None) -> tf.Tensor:
    """[n] or []: where what ``index`` and ``reach`` name begins along ``axis``."""
    emit = call.emit
    at, dtype = index.value.tensor, index.value.dtype  # [n], or [] when invariant
    first = loop_offset(call, index.tensor)
    if (first is None or first < 0) and (reach is None or reach.span is not None):
        size = emit.dim(x.tensor, axis + (1 if x.is_stacked else 0))
        wrapped = emit("AddV2", at, as_dtype(call, size, dtype))
        # A range wraps only as a whole: x[-1:2] is empty and must not become a range.
        end = at if reach is None else emit("AddV2", at, emit.constant(reach.span, dtype))
        at = emit("SelectV2", emit("Less", end, emit.constant(0, dtype)), wrapped, at)
    if reach is None and _reads_zeros_outside(call):
        reach = Reach(1)
    if reach is not None and reach.count and is_inside(call, x, axis, index, reach) is not True:
        at = _kept_inside(call, x, axis, at, reach)
    return at


def _reads_zeros_outside(call: Call) -> bool:
    """Whether the gather of an index out of range makes zeros, where the op itself is an error."""
    if call.op_type == "GatherV2" or _tf.in_xla_context(call.emit.graph):
        return False  # tf.gather makes zeros on GPUs, too
    return bool(tf.config.list_logical_devices("GPU"))


def is_inside(call: Call, x: Value, axis: int, index: Index, reach: Reach) -> bool | None:
    """Whether a range of ``x`` along ``axis`` lies inside of it in all rows.

    Then its length is ``reach.count``. False if it does not in some; None if only a run can tell.
    """
    size = None if x.inner_shape is None else x.inner_shape[axis]
    found = [Bounds().of(index.value.tensor)]
    found += [] if index.tensor is None else [call.walker.bounds.of(index.tensor)]
    answers = [_answer(r, reach, size) for r in found if r is not None]
    if any(a is not None and a.all() for a in (x[0] for x in answers)):
        return True
    return False if any(x[1].any() for x in answers) else None


def _answer(at: Range, reach: Reach, size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Whether ranges that begin at ``at`` are surely inside, and whether they surely are not."""
    last, span = (reach.count - 1) * reach.stride, reach.span
    low, high = at
    if span is not None and span <= 0:  # empty, but where only the end counts from its end
        return (low + span >= 0) | (high < 0) | np.asarray(span == 0), (low >= 0) & (
            high + span < 0
        )
    limit = np.inf if size is None else size
    is_in = (low >= 0) & (high + last < limit) & np.asarray(size is not None)
    is_out = (low + last >= limit) | ((high < 0) & np.asarray(span is None))
    if span is not None:
        is_in |= (high + span < 0) & (low >= -limit) & np.asarray(size is not None)
        is_out |= ((high < 0) & (low + span >= 0)) | (high < -limit)
    return is_in, is_out


def _kept_inside(call: Call, x: Value, axis: int, at: tf.Tensor, reach: Reach) -> tf.Tensor:
    """The begins of ranges, checked to lie inside; XLA, which has no check, moves them."""
    emit, dtype = call.emit, at.dtype
    last = emit.constant((reach.count - 1) * reach.stride, dtype)
    size = as_dtype(call, emit.dim(x.tensor, axis + (1 if x.is_stacked else 0)), dtype)
    zero, limit = emit.constant(0, dtype), emit("Sub", size, last)
    if _tf.in_xla_context(emit.graph):
        return emit(
            "Maximum", emit("Minimum", at, emit("Sub", limit, emit.constant(1, dtype))), zero
        )
    is_in = emit("LogicalAnd", emit("GreaterEqual", at, zero), emit("Less", at, limit))
    if call.loop.real is not None:
        is_in = emit("LogicalOr", is_in, emit("LogicalNot", call.loop.real))
    where = _tf.user_line(call.op) or "line unknown"
    shorter = "" if reach.span is None else ", where it is shorter, and all need one length"
    text = (
        f"{call.op_type} of length {reach.count} ({where}) reaches past the edge of the tensor in "
        f"some iterations{shorter}. Move its begin (tf.clip_by_value), or pad the tensor. It "
        "begins at:"
    )
    with emit.graph.as_default():
        check = tf.debugging.Assert(tf.reduce_all(is_in), [text, at], 20)
        with tf.control_dependencies([check]):
            return tf.identity(at)


def gather_nd_rows(call: Call, x: Value, indices: Sequence[Index]) -> Value:
    """x_i[a_i, b_i, ...]: one GatherNd by all indices, of the first axes of ``x``."""
    dtype = indices[0].value.dtype
    columns: list[tf.Tensor] = []
    for axis, index in enumerate(indices):
        at = positions(call, x, axis, index)
        if not index.value.is_stacked:
            at = call.emit("BroadcastTo", at, call.emit.shape_vector([call.loop.length]))
        columns.append(at)
    if x.is_stacked:
        columns.insert(0, row_numbers(call, dtype))
    return Value.stacked(call.emit("GatherNd", x.tensor, call.emit("Pack", columns, axis=1)))


def row_numbers(call: Call, dtype: tf.DType, rank: int = 1) -> tf.Tensor:
    """0 ... n - 1 as [n, 1, ..., 1] of this rank."""
    n, emit = call.loop.static_length, call.emit
    shape = [-1, *[1] * (rank - 1)]
    if n is not None:
        return emit.constant(np.arange(n, dtype=dtype.as_numpy_dtype).reshape([n, *shape[1:]]))
    zero, one = emit.constant(0, tf.int32), emit.constant(1, tf.int32)
    numbers = emit("Range", zero, call.loop.length_tensor, one)
    if dtype != tf.int32:
        numbers = emit("Cast", numbers, DstT=dtype)
    return numbers if rank == 1 else emit("Reshape", numbers, shape)


def with_row(call: Call, indices: Value) -> tf.Tensor:
    """Index vectors with the number of the row in front: [n, ..., m] -> [n, ..., 1 + m]."""
    emit, stacked = call.emit, call.stacked(indices)
    rank = call.require_rank(indices, "the indices")
    shape = emit.shape_vector([call.loop.length, *inner_dims(call, indices)[:-1], 1])
    rows = emit("BroadcastTo", row_numbers(call, indices.dtype, rank + 1), shape)
    return emit("ConcatV2", [rows, stacked], -1)


def moved_ids(call: Call, ids: Value, count: Dim) -> tf.Tensor:
    """Ids, [n, ...], of which each row has ``count`` different ones: row i moved by i*count.

    Negative ids become -1. Ids from ``count`` on become n*count, the first id that no row has. So
    ids out of range stay out of range.
    """
    emit, dtype = call.emit, ids.dtype
    size, rank = as_dtype(call, count, dtype), call.require_rank(ids, "the ids")
    first = emit("Mul", row_numbers(call, dtype, rank + 1), size)  # [n, 1, ..., 1]
    moved = emit("AddV2", ids.tensor, first)
    zero, minus = emit.constant(0, dtype), emit.constant(-1, dtype)
    is_high = emit("GreaterEqual", ids.tensor, size)
    moved = emit("SelectV2", is_high, times_n(call, count, dtype), moved)
    return emit("SelectV2", emit("Less", ids.tensor, zero), minus, moved)


def times_n(call: Call, count: Dim, dtype: tf.DType) -> tf.Tensor:
    """N * count, as a scalar."""
    n = call.loop.static_length
    if n is not None and isinstance(count, int):
        return call.emit.constant(n * count, dtype)
    a, b = as_dtype(call, call.loop.length, dtype), as_dtype(call, count, dtype)
    return call.emit("Mul", a, b)


def as_dtype(call: Call, size: Dim, dtype: tf.DType) -> tf.Tensor:
    """A dimension as a scalar of this integer dtype."""
    if isinstance(size, tf.Tensor):
        return size if size.dtype == dtype else call.emit("Cast", size, DstT=dtype)
    return call.emit.constant(size, dtype)


def column(call: Call, scalar: Value, extra: int) -> tf.Tensor:
    """A scalar of each iteration as [n, 1, ..., 1]; an invariant one stays a scalar."""
    if not scalar.is_stacked or extra == 0:
        return scalar.tensor
    return call.emit.reshape(scalar.tensor, [call.loop.length, *[1] * extra])
