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

# ---------------------------------------------------------------------------
# Where an index comes from
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Affine:
    """One number of the body as ``base + offset``.

    Attributes:
      base: a tensor of the body with one element; None for a constant.
      offset: the number that is added to it.
    """

    base: tf.Tensor | None
    offset: int


def affine(call: Call, tensor: tf.Tensor) -> Affine:
    """Follows one integer of the body through reshapes and added constants."""
    offset = 0
    while True:
        constant = _one(_tf.static_value(tensor)) if tensor.dtype.is_integer else None
        if constant is not None:
            return Affine(None, offset + constant)
        found = _step(tensor)
        if found is None:
            return Affine(tensor, offset)
        tensor, added = found
        offset += added


def _one(array: np.ndarray | None) -> int | None:
    return int(array.reshape([])) if array is not None and np.size(array) == 1 else None


def _step(tensor: tf.Tensor) -> tuple[tf.Tensor, int] | None:
    """The tensor that ``tensor`` is made from, and the constant added to it."""
    op = tensor.op
    if op.type in ("ExpandDims", "Identity", "Pack", "Reshape", "Squeeze"):
        source = op.inputs[0]
        is_one = source.shape.num_elements() == 1
        return (source, 0) if is_one and (op.type != "Pack" or len(op.inputs) == 1) else None
    if op.type == "Cast" and op.inputs[0].dtype == tf.int32 and tensor.dtype == tf.int64:
        return op.inputs[0], 0
    if op.type in ("Add", "AddV2", "Sub") and tensor.dtype.is_integer:
        left, right = op.inputs
        added = _one(_tf.static_value(right))
        if added is not None and left.shape.rank == tensor.shape.rank:
            return left, -added if op.type == "Sub" else added
        added = _one(_tf.static_value(left)) if op.type != "Sub" else None
        if added is not None and right.shape.rank == tensor.shape.rank:
            return right, added
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """One scalar index.

    Attributes:
      constant: its value when it is known before running, else None.
      value: the scalar Value, when it is not.
      affine: its origin.
    """

    constant: int | None
    value: Value | None
    affine: Affine

    @property
    def varying(self) -> Value:
        """Its value, where it is not known before running."""
        assert self.value is not None
        return self.value

    def minus(self, other: Index) -> int | None:
        """The difference of two indices when it is known before running."""
        if self.affine.base is not other.affine.base:
            return None
        return self.affine.offset - other.affine.offset


def elements(call: Call, name: str) -> list[Index]:
    """The entries of the vector input ``name``, each with what is known of it alone."""
    value = call.inputs[name]
    assert isinstance(value, Value)
    constant = call.maybe_constant(name)
    if constant is not None:
        return [Index(int(c), None, Affine(None, int(c))) for c in constant]
    position = [a.name for a in call.schema.inputs].index(name)
    return elements_of(call, call.op.inputs[position], value)


def elements_of(call: Call, vector: tf.Tensor, value: Value) -> list[Index]:
    """The entries of a vector of the body, which is ``value``, each with what is known of it."""
    parts = _components(vector)
    count = vector.shape[0]
    if count is None:
        raise CannotVectorize("the number of indices is unknown")
    if parts is None or len(parts) != count:
        parts = [None] * count
    return [_index(call, value, part, i) for i, part in enumerate(parts)]


def _index(call: Call, vector: Value, part: tf.Tensor | None, i: int) -> Index:
    if part is not None:
        value = call.value_of(part)
        constant = _one(_tf.static_value(part) if value is None else value.constant)
        if constant is not None:
            return Index(constant, None, Affine(None, constant))
        if value is not None:
            return Index(None, value, affine(call, part))
    lead = 1 if vector.is_stacked else 0
    begin, end = np.asarray([0, i], np.int32), np.asarray([0, i + 1], np.int32)
    entry = call.emit(
        "StridedSlice",
        vector.tensor,
        begin[1 - lead :],
        end[1 - lead :],
        [1] * (1 + lead),
        begin_mask=lead,
        end_mask=lead,
        shrink_axis_mask=1 << lead,
    )
    value = Value.stacked(entry) if lead else Value.unstacked(entry)
    return Index(None, value, Affine(entry, 0))


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


def loop_offset(call: Call, index: Index) -> int | None:
    """The number c when ``index`` is the iteration number plus c, all rows being active."""
    base = index.affine.base
    value = None if base is None else call.value_of(base)
    if value is None or not call.loop.is_index(value):
        return None
    return index.affine.offset


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
        first = loop_offset(call, index)
        rows = None if first is None else window(call, x.tensor, axis, first)
        if rows is not None:
            return Value.stacked(move_axis(call, rows, axis, 0))
    at = positions(call, x, axis, index, reach)  # [n] or [n, k]; without n when invariant
    assert index.value is not None
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
    assert index.value is not None
    at, dtype = index.value.tensor, index.value.dtype  # [n], or [] when invariant
    first = loop_offset(call, index)
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
    if index.constant is not None:
        known = [Range(*[np.asarray(index.constant, np.float64)] * 2)]
    else:
        assert index.value is not None
        base, stored = index.affine.base, Bounds().of(index.value.tensor)
        known = [] if stored is None else [stored]
        if base is not None and base.graph is call.op.graph:
            found, more = call.walker.bounds.of(base), index.affine.offset
            known += [] if found is None else [Range(found.low + more, found.high + more)]
    answers = [_answer(r, reach, size) for r in known]
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
    dtype = indices[0].varying.dtype
    columns: list[tf.Tensor] = []
    for axis, index in enumerate(indices):
        at = positions(call, x, axis, index)
        assert index.value is not None
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
