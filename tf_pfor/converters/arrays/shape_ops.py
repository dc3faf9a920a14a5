"""Ops that change or ask for shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.arrays._indexing import column
from tf_pfor.converters.math._axis_by_row import cube_rank
from tf_pfor.converters.math._families import behind_n, prepend_shape, shape_query, table
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank, inner_dims, leading, product, reshaped, transpose
from tf_pfor.core.values import Shape, Unstacked, Value, is_static, known_dims, merge, size_of
from tf_pfor.layouts.linear import forms_of

prepend_shape(table("Empty", "init"), "shape")  # what is written in place is of each row its own

# ---------------------------------------------------------------------------
# Reshape
# ---------------------------------------------------------------------------


@RegisterPFor("Reshape", ANY)
def reshape(call: Call, tensor: Value, shape: Value) -> Any:
    """[n, ...] -> [n] + shape, from the folded form where there is one."""
    target = _target(call, "shape")
    if shape.is_stacked and not is_static(target):
        raise CannotVectorize("the new shape differs between iterations")
    tensor = _asked_for(call, target, tensor)
    if not tensor.is_stacked:
        return Value.unstacked(call.emit("Reshape", tensor.tensor, np.asarray(target, np.int32)))
    if target is not None and is_static(target):
        return reshaped(call, tensor, list(target))
    parts = _with_one_inferred(call, tensor, list(target)) if target is not None else None
    if parts is not None:
        return reshaped(call, tensor, parts)
    return call.emit(
        "Reshape", tensor.any_form, behind_n(call, _without_minus_one(call, tensor, shape))
    )


def _target(call: Call, name: str) -> Shape:
    """The inner shape that input ``name`` asks for, as far as it is known."""
    known, shape = call.maybe_constant(name), call.output_shape()
    return shape if known is None else merge(shape, tuple(None if d < 0 else int(d) for d in known))


def _asked_for(call: Call, target: Shape, value: Value) -> Value:
    """``value``, after a check that each row asks for the shape that the body has anyway.

    The shape of the result follows from the input: reshape(x, [k, 2]) of four elements is [2, 2].

    Args:
      call: a Reshape or a BroadcastTo.
      target: the static shape of the result, where rows ask for their own.
      value: the input.
    """
    shape, asked, emit = call.value("shape"), call.op.inputs[1], call.emit
    is_kept = asked.op.type == "TensorListPopBack"  # for a gradient, which asks for what there was
    if not shape.is_stacked or not target or is_kept or _tf.in_xla_context(emit.graph):
        return value
    found = forms_of(call, asked)
    known = [None] * len(target) if found is None else [form.known for form in found]
    if known == [*target]:
        return value
    is_right = emit("Equal", shape.tensor, emit.constant(np.asarray(target), shape.dtype))
    if call.op_type == "Reshape":  # one size may be -1, for what is left
        is_left = emit("Equal", shape.tensor, emit.constant(-1, shape.dtype))
        is_right = emit("LogicalOr", is_right, is_left)
        if sum(k is None or k < 0 for k in known) > 1:
            count = emit("Sum", emit("Cast", is_left, DstT=tf.int32), [1], keep_dims=True)
            is_right = emit("LogicalAnd", is_right, emit("Less", count, emit.constant(2, tf.int32)))
    text = f"the shape is not {[*target]} in some iterations. It is"
    made = call.after_check(is_right, text, [shape.tensor], value.tensor, by_row=True)
    if not value.is_stacked:
        return Value.unstacked(made)
    return Value.stacked(made).with_inner_shape(value.inner_shape)


def _with_one_inferred(call: Call, tensor: Value, target: list[int | None]) -> list[Dim] | None:
    """``target`` with its only unknown dimension computed; None if more are unknown."""
    known = size_of([d for d in target if d is not None])
    if target.count(None) != 1 or not known or tensor.inner_shape is None:
        return None
    sizes = inner_dims(call, tensor)  # may know more than the body
    static = size_of([p for p in sizes if isinstance(p, int)])
    unknown = [p for p in sizes if isinstance(p, tf.Tensor)]
    if not unknown:
        size: Dim = static // known
    else:
        size = product(call, unknown)
        if static % known == 0:
            size = product(call, [static // known, size])
        else:
            size = call.emit(
                "FloorDiv", call.emit.as_tensor(product(call, [static, size])), np.int32(known)
            )
    return [size if d is None else d for d in target]


def _without_minus_one(call: Call, tensor: Value, shape: Value) -> tf.Tensor:
    """The vector ``shape``; a -1 in it is replaced by what it stands for.

    Reshape itself could not infer it when n is 0.
    """
    emit, dtype = call.emit, shape.dtype
    if call.loop.static_length:
        return shape.tensor
    rows = emit.constant(0, tf.int32)
    inner = emit(
        "StridedSlice", emit("Shape", tensor.tensor, out_type=dtype), [1], [0], [1], end_mask=1
    )
    size = emit("Prod", inner, rows)
    known = emit("Maximum", emit("Neg", emit("Prod", shape.tensor, rows)), emit.constant(1, dtype))
    is_free = emit("Less", shape.tensor, emit.constant(0, dtype))
    return emit("SelectV2", is_free, emit("FloorDiv", size, known), shape.tensor)


@RegisterPFor("ExpandDims", ("input",))
def expand_dims(call: Call, input: Value, dim: Value) -> Any:
    """A one at ``dim`` of the inner shape."""
    axis = int(call.constant("dim").reshape([]))
    parts = inner_dims(call, input)
    parts.insert(axis + len(parts) + 1 if axis < 0 else axis, 1)
    return reshaped(call, input, parts)


@RegisterPFor("Squeeze", ANY, attrs=("squeeze_dims",))
def squeeze(call: Call, input: Value) -> Any:
    """Drops inner axes of size one."""
    rank = call.require_rank(input)
    drop = {a % rank for a in call.attr("squeeze_dims")}
    if not drop:
        if not is_static(input.inner_shape):
            raise CannotVectorize("Squeeze of all ones needs a static shape")
        drop = {i for i, d in enumerate(input.inner_shape or ()) if d == 1}
    elif None in [known_dims(input.inner_shape)[i] for i in drop]:
        return call.rebuild(squeeze_dims=[i + 1 for i in sorted(drop)])  # it checks the size
    parts = [d for i, d in enumerate(inner_dims(call, input)) if i not in drop]
    return reshaped(call, input, parts)


# ---------------------------------------------------------------------------
# Transpose
# ---------------------------------------------------------------------------


@RegisterPFor("Transpose", ("perm",))
@RegisterPFor("Transpose", ("perm", "x"))
def transpose_by_row(call: Call, x: Value, perm: Value) -> Any:
    """A gather: the element at (i, j ...) lies at the sum of each times the stride of its axis."""
    rank, emit = cube_rank(call, x), call.emit
    if not x.inner_shape or _tf.in_xla_context(emit.graph):
        raise CannotVectorize("a permutation that cannot be checked, under jit_compile")
    size = x.inner_shape[0] or 0
    order = emit("Cast", perm.tensor, DstT=tf.int32)  # [n, rank]
    negative = emit("Less", order, emit.constant(0, tf.int32))
    order = emit("SelectV2", negative, emit("AddV2", order, emit.constant(rank, tf.int32)), order)
    used = emit("OneHot", order, np.int32(rank), emit.constant(1), emit.constant(0), axis=-1)
    is_good = emit("All", emit("Equal", emit("Sum", used, np.int32(1)), emit.constant(1)), [1])
    text = "some iterations have no permutation of the axes. They have"
    order = call.after_check(is_good, text, [order], order, by_row=True)
    strides = emit.constant(np.asarray([size ** (rank - 1 - a) for a in range(rank)], np.int32))
    own = emit("GatherV2", strides, order, np.int32(0))  # [n, rank]
    grid = np.indices([size] * rank).reshape([rank, -1]).astype(np.int32)
    at = emit("MatMul", own, emit.constant(grid))  # [n, size ** rank]
    flat = emit.reshape(call.stacked(x), [call.loop.length, size**rank])
    made = emit("GatherV2", flat, at, np.int32(1), batch_dims=1)
    return emit.reshape(made, [call.loop.length, *[size] * rank])


@RegisterPFor("ConjugateTranspose Transpose", ("x",))
def transpose_by(call: Call, x: Value, perm: Value) -> Any:
    """By [0, perm + 1]; axes that stay in front may stay folded."""
    order = call.maybe_constant("perm")
    if order is None:
        one = call.emit.constant(1, perm.dtype)
        zero = call.emit.constant([0], perm.dtype)
        moved = call.emit("AddV2", perm.tensor, one)
        return call.rebuild(perm=call.emit("ConcatV2", [zero, moved], 0))
    inner = [int(p) % len(order) for p in order]
    free = next((i for i, p in enumerate(inner) if i != p), len(inner))
    form = leading(call, [x], free)
    shifted = [0, *[form.axis(p) for p in inner[form.skip :]]]
    if call.op_type == "Transpose":
        return form.result(transpose(call, form.tensors[0], shifted))
    return form.result(
        call.rebuild(x=form.tensors[0], perm=np.asarray(shifted, perm.dtype.as_numpy_dtype))
    )


# ---------------------------------------------------------------------------
# Repeating
# ---------------------------------------------------------------------------


@RegisterPFor("Tile", ("input",))
def tile(call: Call, input: Value, multiples: Value) -> Any:
    """By [1, multiples]."""
    found = call.maybe_constant("multiples")
    if found is None:
        one = call.emit.constant([1], multiples.dtype)
        return call.rebuild(multiples=call.emit("ConcatV2", [one, multiples.tensor], 0))
    free = next((i for i, m in enumerate(found) if m != 1), len(found))
    if free == len(found):
        return input
    form = leading(call, [input], free)
    repeats = np.asarray([1, *found[form.skip :]], found.dtype)
    return form.result(call.rebuild(input=form.tensors[0], multiples=repeats))


@RegisterPFor("BroadcastTo", ANY)
def broadcast_to(call: Call, input: Value, shape: Value) -> Any:
    """[n, ...] -> [n, 1, ..., 1, ...] -> [n] + shape."""
    target = _target(call, "shape")
    if shape.is_stacked and not is_static(target):
        raise CannotVectorize("the new shape differs between iterations")
    input = _asked_for(call, target, input)
    if is_static(target):
        if target == input.inner_shape:
            return input
        if not input.is_stacked:
            full = call.emit("BroadcastTo", input.tensor, np.asarray(target, np.int32))
            return Value.unstacked(full)
        wide = expand_to_rank(call, input, len(target))
        lengths = call.emit.shape_vector([call.loop.length, *target])
        return call.emit("BroadcastTo", wide, lengths)
    rank = call.emit("Size", shape.tensor) if target is None else len(target)
    wide = expand_to_rank(call, input, rank)
    return call.emit("BroadcastTo", wide, behind_n(call, shape.tensor))


@RegisterPFor("Fill", ANY)
def fill(call: Call, dims: Value, value: Value) -> Any:
    """Broadcasts [n, 1, ..., 1] to [n] + dims."""
    target = _target(call, "dims")
    if dims.is_stacked and not is_static(target):
        raise CannotVectorize("the shape differs between iterations")
    if not value.is_stacked and is_static(target):
        return Value.unstacked(call.emit("Fill", np.asarray(target, np.int32), value.tensor))
    rank = call.emit("Size", dims.tensor) if target is None else len(target)
    wide = expand_to_rank(call, value, rank)
    if is_static(target):
        lengths = call.emit.shape_vector([call.loop.length, *target])
    else:
        lengths = behind_n(call, dims.tensor)
    return call.emit("BroadcastTo", wide, lengths)


# ---------------------------------------------------------------------------
# Questions about shapes: loop-invariant
# ---------------------------------------------------------------------------


def _answer(call: Call, index: int, constant: object, make: Callable[..., Any]) -> Value:
    """A loop-invariant answer that is emitted when somebody reads it."""
    dtype = call.output_dtype(index)
    if constant is None:
        return Unstacked.deferred(make, call.output_shape(index), dtype)
    array = np.asarray(constant, dtype.as_numpy_dtype)
    return Unstacked.deferred(
        lambda: call.emit.constant(array, dtype),
        array.shape,
        dtype,
        known=array,
    )


def _inner_shape_tensor(call: Call, value: Value, dtype: tf.DType) -> tf.Tensor:
    """The inner shape as a vector; one of the dimensions is not static."""
    if not value.is_stacked:
        return call.emit("Shape", value.tensor, out_type=dtype)
    full = call.emit("Shape", value.tensor, out_type=dtype)
    return call.emit("StridedSlice", full, [1], [0], [1], end_mask=1)


def _shape(call: Call, input: Value) -> Any:
    static = input.inner_shape if is_static(input.inner_shape) else None
    dtype = call.output_dtype()
    return _answer(call, 0, static, lambda: _inner_shape_tensor(call, input, dtype))


def _shape_n(call: Call, input: list[Value]) -> Any:
    out: list[Value] = []
    for i, value in enumerate(input):
        static = value.inner_shape if is_static(value.inner_shape) else None
        dtype = call.output_dtype(i)
        out.append(
            _answer(call, i, static, lambda v=value, d=dtype: _inner_shape_tensor(call, v, d))
        )
    return out


def _rank(call: Call, input: Value) -> Any:
    def make() -> tf.Tensor:
        return call.emit("Sub", call.emit("Rank", input.tensor), np.int32(1))

    return _answer(call, 0, input.inner_rank, make)


def _size(call: Call, input: Value) -> Any:
    static = size_of(input.inner_shape) if is_static(input.inner_shape) else None
    dtype = call.output_dtype()

    def make() -> tf.Tensor:
        return call.emit("Prod", _inner_shape_tensor(call, input, dtype), np.int32(0))

    return _answer(call, 0, static, make)


shape_query(table("Rank"), _rank)
shape_query(table("Shape"), _shape)
shape_query(table("ShapeN"), _shape_n)
shape_query(table("Size"), _size)


# ---------------------------------------------------------------------------
# Numbers in a row
# ---------------------------------------------------------------------------


@RegisterPFor("Range", ANY)
def range_of(call: Call, start: Value, limit: Value, delta: Value) -> Any:
    """start_i + delta * [0, 1, ..., k - 1], where the length k is the same in all iterations."""
    if delta.is_stacked:
        raise CannotVectorize("the step differs between iterations")
    count = _range_length(call)
    step = call.maybe_constant("delta")
    if count is None or step is None:
        raise CannotVectorize("the length may differ between iterations")
    offsets = call.emit.constant(np.arange(count).astype(step.dtype) * step, start.dtype)  # [k]
    made = call.emit("AddV2", column(call, start, 1), offsets)
    return made if start.is_stacked else Value.unstacked(made)


def _range_length(call: Call) -> int | None:
    """The static length of a Range whose start and limit move together."""
    shape = call.output_shape()
    if shape is not None and shape[0] is not None:
        return shape[0]
    start, limit, _ = (forms_of(call, t) for t in call.op.inputs)
    delta = call.maybe_constant("delta")
    if start is None or limit is None or delta is None or delta == 0:
        return None
    length = limit.item().plus(start.item(), -1).known
    return None if length is None else max(0, -int(-length // delta))


@RegisterPFor("LinSpace", ANY)
def lin_space(call: Call, start: Value, stop: Value, num: Value) -> Any:
    """start_i + step_i * [0, ..., num - 2], and stop_i itself."""
    if num.is_stacked:
        raise CannotVectorize("the length differs between iterations")
    count = int(call.constant("num"))
    dtype = start.dtype
    first, last = column(call, start, 1), column(call, stop, 1)  # [n, 1] or [1]
    first, last = (
        t if v.is_stacked else call.emit("BroadcastTo", t, call.emit.shape_vector([n, 1]))
        for t, v, n in ((first, start, call.loop.length), (last, stop, call.loop.length))
    )
    if count == 1:
        return first
    steps = call.emit.constant(np.arange(count - 1).astype(dtype.as_numpy_dtype), dtype)
    gaps = call.emit.constant(count - 1, dtype)
    width = call.emit("RealDiv", call.emit("Sub", last, first), gaps)
    head = call.emit("AddV2", first, call.emit("Mul", width, steps))  # [n, num - 1]
    return call.emit("ConcatV2", [head, last], 1)


@RegisterPFor("BroadcastGradientArgs", ())
def broadcast_gradient_args(call: Call, s0: Value, s1: Value) -> Any:
    """Kept unchanged; the results are constants if both shapes are: gradients reduce by them."""
    first, second = s0.constant, s1.constant
    if first is None or second is None:
        return [Value.unstacked(t) for t in call.rebuild()]
    with tf.init_scope():
        if not tf.executing_eagerly():
            return [Value.unstacked(t) for t in call.rebuild()]
        found = tf.raw_ops.BroadcastGradientArgs(s0=tf.constant(first), s1=tf.constant(second))
        arrays = [f.numpy() for f in found]
    return [Value.unstacked(call.emit.constant(a), a) for a in arrays]


@RegisterPFor("BroadcastGradientArgs", ("s0", "s1"))
def broadcast_gradient_args_of_rows(call: Call, s0: Value, s1: Value) -> Any:
    """The axes to add up, of shapes that a loop has kept for each row: the same for all rows."""
    ranks = [(v.inner_shape or (None,))[0] for v in (s0, s1)]
    counts = [k for k in ranks if k is not None]
    if len(counts) < 2 or _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("the ranks of the shapes are not known before running")
    _graph, rank = call.emit.graph, max(counts)
    with call.emit.as_default():
        wide = [
            tf.pad(call.stacked(v), [[0, 0], [rank - k, 0]], constant_values=1)
            for v, k in zip((s0, s1), counts)
        ]
        shapes: list[Any] = []
        for own, other, count in zip(wide, wide[::-1], counts):
            is_one = tf.equal(own, 1)
            differs = is_one & tf.not_equal(other, 1)
            if call.loop.real is not None:
                differs &= call.loop.real[:, None]
            grew = tf.reduce_any(differs, 0)  # in some rows
            text = "an operand was broadcast in some iterations only"
            is_right = tf.reduce_all(is_one | ~grew, 1)
            found = tf.where(grew, tf.ones([], own.dtype), tf.constant(2, own.dtype))
            found = call.after_check(is_right, text, [own], found, by_row=True)
            shapes.append(found[rank - count :])
        made = call.rebuild(s0=shapes[0], s1=shapes[1])
    return [Value.unstacked(t) for t in made]
