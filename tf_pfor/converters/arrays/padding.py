"""Padding, reversing and rolling along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays import _row_windows
from tf_pfor.converters.arrays._indexing import as_dtype, gather_rows
from tf_pfor.converters.math._axis_by_row import own_axis
from tf_pfor.converters.math._families import along, table
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import Lead, expand_to_rank, fold, leading, transpose, unfold
from tf_pfor.core.values import Value, is_static, known_dims
from tf_pfor.layouts import linear

# ---------------------------------------------------------------------------
# Pad
# ---------------------------------------------------------------------------


def _padded(call: Call, input: Value, paddings: Value) -> tuple[Lead, Any]:
    """The input and the paddings [[0, 0], paddings]; unpadded axes in front may stay folded."""
    found = call.maybe_constant("paddings")
    if found is None:
        form = leading(call, [input], 0)
        zero = call.emit.constant([[0, 0]], paddings.dtype)
        return form, call.emit("ConcatV2", [zero, paddings.tensor], 0)
    free = next((i for i, p in enumerate(found) if p.any()), len(found))
    form = leading(call, [input], free)
    zero = np.zeros([1, 2], found.dtype)
    return form, np.concatenate([zero, found.reshape([-1, 2])[form.skip :]]).astype(found.dtype)


@RegisterPFor("Pad PadV2", ("input",))
def pad(call: Call, input: Value, paddings: Value, constant_values: Value | None = None) -> Any:
    """By [[0, 0], paddings]."""
    form, amounts = _padded(call, input, paddings)
    return form.result(call.rebuild(input=form.tensors[0], paddings=amounts))


@RegisterPFor("Pad", ANY)
def pad_by_row(call: Call, input: Value, paddings: Value) -> Any:
    """Paddings that differ between iterations, and add up to one size: x_i from b_i on."""
    return _by_row(call, input, paddings)


@RegisterPFor("PadV2", ANY)
def pad_with_values(call: Call, input: Value, paddings: Value, constant_values: Value) -> Any:
    """Padded with zeros; then the constant of the row wherever padded ones are false."""
    emit, rank = call.emit, call.require_rank(input)
    wide: Any
    inside: Any
    if paddings.is_stacked:
        wide = _by_row(call, input, paddings).tensor
        ones = Value.unstacked(emit.constant(np.ones(known_dims(input.inner_shape), np.bool_)))
        inside = _by_row(call, ones, paddings).tensor
    else:
        amounts = paddings.tensor
        if input.is_stacked:
            amounts = _padded(call, Value.stacked(input.tensor), paddings)[1]
        wide = emit("Pad", input.tensor, amounts)  # [n, ...] when stacked
        ones = emit("Fill", emit.shape_of(input.tensor), emit.constant(np.True_))
        inside = emit("Pad", ones, amounts)
    values = constant_values.tensor
    if constant_values.is_stacked:
        values = expand_to_rank(call, constant_values, rank)  # [n, 1, ..., 1]
    return emit("SelectV2", inside, wide, values)


def _by_row(call: Call, x: Value, paddings: Value) -> Value:
    """``x`` among zeros, paddings of each row.

    Axes that begin at different places get one zero at the end, which their gather reads for all
    that is padding.
    """
    emit, known = call.emit, linear.forms(call.op.inputs[1])
    lengths: Any = x.inner_shape
    totals: Any = [None] if known is None else [b.plus(a, 1).known for b, a in known]
    if known is None or None in totals or not is_static(lengths):
        raise CannotVectorize("the paddings, and so the shapes, may differ between iterations")
    if x.is_stacked:
        full = [t + d for t, d in zip(totals, lengths)]
        if _row_windows.are_large(call, full, lengths, x.dtype):
            return _written(call, x, paddings, full)
    amounts: list[list[int]] = [[0, 0]] if x.is_stacked else []
    for (before, _), total in zip(known, totals):
        amounts.append([0, 1] if before.known is None else [before.known, total - before.known])
    padded = emit("Pad", x.tensor, np.asarray(amounts, np.int32))
    x = Value.stacked(padded) if x.is_stacked else Value.unstacked(padded)
    starts = _not_negative(call, paddings)
    for axis, ((before, _), total, length) in enumerate(zip(known, totals, lengths)):
        if before.known is not None:
            continue
        start = emit(
            "StridedSlice",
            starts,
            [0, axis, 0],
            [0, axis + 1, 1],
            [1, 1, 1],
            begin_mask=1,
            end_mask=1,
            shrink_axis_mask=4,
        )
        at = emit("Sub", emit.constant(np.arange(length + total), start.dtype), start)
        count = emit.constant(length, at.dtype)
        is_inside = emit(
            "LogicalAnd", emit("GreaterEqual", at, emit("ZerosLike", at)), emit("Less", at, count)
        )
        x = gather_rows(call, x, emit("SelectV2", is_inside, at, count), axis)
    return x


def _written(call: Call, x: Value, paddings: Value, full: list[int]) -> Value:
    """Large rows among zeros, each written by itself on a CPU (``_row_windows``)."""
    call.note("a large window: copied row by row on a CPU, else gathered")
    amounts = _not_negative(call, paddings)
    with call.emit.as_default():
        made = _row_windows.write(x.tensor, tf.cast(amounts[:, :, 0], tf.int32), full)
    return Value.stacked(made)


def _not_negative(call: Call, paddings: Value) -> tf.Tensor:
    """The paddings of all rows, after a check where they may be negative. XLA has none."""
    tensor = call.op.inputs[1]
    bounds = call.walker.bounds.of(tensor)
    if bounds is not None and (bounds.low >= 0).all():
        return paddings.tensor
    if _is_of_slice(tensor):
        return paddings.tensor
    text = "paddings must not be negative. They are"
    zero = call.emit.constant(0, paddings.dtype)
    is_right = call.emit("GreaterEqual", paddings.tensor, zero)
    return call.after_check(is_right, text, [paddings.tensor], paddings.tensor, by_row=True)


def _is_of_slice(paddings: tf.Tensor) -> bool:
    """Whether paddings belong to a gradient: they begin where a Slice begins."""
    if paddings.op.type != "ConcatV2":
        return False
    first = paddings.op.inputs[0]
    begin = first.op.inputs[0] if first.op.type == "Reshape" else first
    return any(op.type == "Slice" and op.inputs[1] is begin for op in begin.consumers())


_MIRROR_RANK = 5
"""MirrorPad's CPU kernel takes this many axes, none of them empty."""


@RegisterPFor("MirrorPad MirrorPadGrad", ("input",), attrs=("mode",))
def mirror_pad(call: Call, input: Value, paddings: Value) -> Any:
    """By [[0, 0], paddings]; the loop and unpadded axes in front are one axis where needed."""
    found, emit, n = call.maybe_constant("paddings"), call.emit, call.loop.length
    free = 0
    if call.require_rank(input) + 1 > _MIRROR_RANK:
        if found is not None:
            free = next((i for i, p in enumerate(found) if p.any()), len(found))
        if not free:
            raise CannotVectorize(f"the kernel takes {_MIRROR_RANK} axes, the loop included")
    if found is not None:
        amounts = np.concatenate([np.zeros([1, 2], found.dtype), found[free:]])
    else:
        zero = emit.constant([[0, 0]], paddings.dtype)
        amounts = emit("ConcatV2", [zero, paddings.tensor], 0)
    x = fold(call, input, free)
    if call.loop.static_length:
        return unfold(call, call.rebuild(input=x, paddings=amounts), input, free)
    rank = x.shape.rank  # n may be 0: one more row, which is cut off again
    assert rank is not None
    more = emit("Pad", x, np.asarray([[0, 1], *[[0, 0]] * (rank - 1)], np.int32))
    made = call.rebuild(input=more, paddings=amounts)
    lead = n if free == 0 else emit.dim(x, 0)
    lengths = emit.shape_vector([lead, *[-1] * (rank - 1)])
    return unfold(call, emit("Slice", made, [0] * rank, lengths), input, free)


# ---------------------------------------------------------------------------
# Reverse
# ---------------------------------------------------------------------------

along(table("ReverseV2"), "tensor", "axis")


@RegisterPFor("ReverseV2", ("axis",))
@RegisterPFor("ReverseV2", ("axis", "tensor"))
def reverse_by_row(call: Call, tensor: Value, axis: Value) -> Any:
    """Along an axis of the row: which of the reversed tensors a row has is selected."""
    rank, emit, x = call.require_rank(tensor), call.emit, call.stacked(tensor)
    own = own_axis(call, axis, rank)
    wide = emit.reshape(own, [call.loop.length, *[1] * rank])
    made = x
    for k in range(rank):
        turned = call.rebuild(tensor=x, axis=np.asarray([k + 1], np.int32))
        made = emit("SelectV2", emit("Equal", wide, emit.constant(k, tf.int32)), turned, made)
    return made


@RegisterPFor("Reverse", ("tensor",))
def reverse(call: Call, tensor: Value, dims: Value) -> Any:
    """ReverseV2 of the axes that ``dims`` marks: unlike Reverse it takes n = 0."""
    axes = np.flatnonzero(call.constant("dims")) + 1
    return call.emit("ReverseV2", tensor.tensor, axes.astype(np.int32))


@RegisterPFor("ReverseSequence", ("input",), attrs=("batch_dim", "seq_dim"))
def reverse_sequence(call: Call, input: Value, seq_lengths: Value) -> Any:
    """The same lengths in every row: both axes move by one."""
    return call.rebuild(seq_dim=call.attr("seq_dim") + 1, batch_dim=call.attr("batch_dim") + 1)


@RegisterPFor("ReverseSequence", ("input", "seq_lengths"), attrs=("batch_dim", "seq_dim"))
def reverse_sequence_by_row(call: Call, input: Value, seq_lengths: Value) -> Any:
    """The batch axis comes first, and the loop is folded into it: [n*b, ...]."""
    rank, batch, seq = call.require_rank(input), call.attr("batch_dim"), call.attr("seq_dim")
    order = [batch, *(i for i in range(rank) if i != batch)]
    moved = Value.stacked(transpose(call, input.tensor, [0, *(i + 1 for i in order)]))
    made = call.rebuild(
        input=fold(call, moved),
        seq_lengths=fold(call, seq_lengths),
        seq_dim=order.index(seq),
        batch_dim=0,
    )
    shape = None if moved.inner_shape is None else moved.inner_shape
    out = unfold(call, made, moved, inner_shape=shape)
    if batch == 0:
        return out
    back = [0, *(order.index(i) + 1 for i in range(rank))]
    return Value.stacked(transpose(call, out.tensor, back))


# ---------------------------------------------------------------------------
# Roll
# ---------------------------------------------------------------------------


along(table("Roll"), "input", "axis")


@RegisterPFor("Roll", ANY)
def roll_by_row(call: Call, input: Value, shift: Value, axis: Value) -> Any:
    """y_i[j] = x_i[(j - shift_i) mod size], one gather for each axis."""
    if axis.is_stacked:
        raise CannotVectorize("the axes differ between iterations")
    axes = call.constant("axis").reshape([-1]) % call.require_rank(input)
    emit, x = call.emit, input
    if not len(axes):
        return input
    by = emit.reshape(call.stacked(shift), [call.loop.length, len(axes)])  # [n, axes]
    for i, k in enumerate(axes):
        size = as_dtype(call, emit.dim(x.tensor, int(k) + (1 if x.is_stacked else 0)), by.dtype)
        begin = np.asarray([0, i], np.int32)
        end = np.asarray([0, i + 1], np.int32)
        one = emit("StridedSlice", by, begin, end, [1, 1], begin_mask=1, end_mask=1)  # [n, 1]
        zero = emit.constant(0, by.dtype)
        every = emit("Range", zero, size, emit.constant(1, by.dtype))  # [size]
        nonzero = emit("Maximum", size, emit.constant(1, by.dtype))
        at = emit("FloorMod", emit("Sub", every, one), nonzero)  # [n, size]
        x = gather_rows(call, x, at, int(k))
    return x
