"""Ops on shapes, and ops that change them: free in the packed form."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    constant_axes,
    from_packed,
    from_padded,
    of_elements,
    parted,
    row_ids,
    row_sizes,
    size_when_run,
    sizes_from,
    takes_packed,
)
from tf_pfor.converters.ragged._windows import size_times
from tf_pfor.converters.ragged.elementwise import elementwise
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.linear import forms
from tf_pfor.layouts.packing import pad
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
from tf_pfor.layouts.row_sizes import as_number, dim, is_one, row_counts


def sizes_of(value: Ragged) -> list[Any]:
    """The sizes of all inner axes."""
    found: list[Any] = [value.size_at(i) for i in range(value.rank)]
    for i, size in enumerate(found):
        if size is None:
            found[i] = tf.shape(value.tensor)[i - value.n_leading + 1]
    return found


@ragged_rule("Shape")
def shape(call: Call, input: Ragged) -> Any:
    """The shape of each row."""
    return shape_value(call.emit, sizes_of(input), call.output_dtype())


@ragged_rule("ShapeN")
def shape_n(call: Call, input: list[Value]) -> Any:
    """The shapes of several."""
    found: list[Value] = []
    for k, value in enumerate(input):
        if isinstance(value, Ragged):
            found.append(shape_value(call.emit, sizes_of(value), call.output_dtype(k)))
            continue
        if value.inner_shape is None or None in value.inner_shape:
            raise CannotVectorize("the shape of an input is not known")
        array = np.asarray(value.inner_shape, call.output_dtype(k).as_numpy_dtype)
        found.append(Value.unstacked(call.emit.constant(array), array))
    return found


@ragged_rule("Size")
def size(call: Call, input: Ragged) -> Any:
    """The number of elements of each row."""
    sizes = sizes_of(input)
    if len(sizes) == 1:
        return size_value(call.emit, sizes[0], call.output_dtype())
    return Value.stacked(tf.cast(row_counts(sizes), call.output_dtype()))


@ragged_rule("Rank")
def rank(call: Call, input: Ragged) -> Any:
    """The number of axes."""
    found = np.asarray(input.rank, np.int32)
    return Value.unstacked(call.emit.constant(found), found)


@ragged_rule("ExpandDims", of_shapes=True)
def expand_dims(call: Call, input: Value, dim: Value) -> Any:
    """A new axis: among the sizes, or in the packed form; of a size, a shape of one axis."""
    if isinstance(input, RowSize):
        return shape_value(call.emit, [input.size], input.dtype)
    if not isinstance(input, Ragged):
        raise CannotVectorize("numbers of one shape")
    (at,) = constant_axes(call, "dim", input.rank + 1)
    return with_new_axis(call, input, at)


def with_new_axis(call: Call, x: Ragged, at: int) -> Value:
    """``x`` with an axis of size one at this place."""
    if at < x.n_leading:
        sizes = [*x.sizes[:at], 1, *x.sizes[at:]]
        if takes_packed(call, x):
            return Ragged.packed(x.tensor, sizes)
        return _as_padded(x, lambda t: tf.expand_dims(t, at + 1), sizes)
    if takes_packed(call, x):
        return Ragged.packed(tf.expand_dims(x.tensor, at - x.n_leading + 1), x.sizes)
    return _as_padded(x, lambda t: tf.expand_dims(t, at + 1), x.sizes)


def _as_padded(x: Ragged, change: Callable[[tf.Tensor], tf.Tensor], sizes: Sequence[Size]) -> Value:
    """Applies ``change`` to the padded form, and keeps what is known of the padding."""
    is_clean = x.loose is None
    made = change(x.in_any_rows)
    return from_padded(made, sizes, is_clean=is_clean, is_tame=x.is_tame)


@ragged_rule("Cast", of_shapes=True)
def cast(call: Call, x: Value) -> Any:
    """The elements are cast; a shape stays a shape."""
    dtype = call.output_dtype()
    if isinstance(x, Ragged):
        return elementwise(call, x)
    if not dtype.is_integer:
        raise CannotVectorize("numbers of one shape")
    if isinstance(x, RowShape):
        return shape_value(call.emit, x.sizes, dtype)
    assert isinstance(x, RowSize)
    return size_value(call.emit, x.size, dtype)


@ragged_rule("Squeeze")
def squeeze(call: Call, input: Ragged) -> Any:
    """Without axes of size one."""
    axes = [a % input.rank for a in call.attr("squeeze_dims")]
    if not axes or not all(is_one(input.size_at(a)) for a in axes):
        raise CannotVectorize("which axes have size one may differ between iterations")
    return without_axes(call, input, axes)


def without_axes(call: Call, x: Ragged, axes: Sequence[int]) -> Value:
    """``x`` without some axes of size one."""
    if not axes:  # tf.squeeze without axes takes them all
        return x
    sizes = [s for i, s in enumerate(x.sizes) if i not in axes]
    behind = [a - x.n_leading + 1 for a in axes if a >= x.n_leading]
    if takes_packed(call, x):
        return Ragged.packed(tf.squeeze(x.tensor, behind) if behind else x.tensor, sizes)
    return _as_padded(x, lambda t: tf.squeeze(t, [a + 1 for a in axes]), sizes)


@ragged_rule("ConjugateTranspose Transpose")
def transpose(call: Call, x: Ragged, perm: Value) -> Any:
    """Packed where the axes that differ stay in front, else padded."""
    turned = functools.partial(tf.transpose, conjugate=call.op_type == "ConjugateTranspose")
    order = constant_axes(call, "perm", x.rank)
    count = x.n_leading
    if order[:count] == list(range(count)) and call.uses_packed:
        moved = [0, *[a - count + 1 for a in order[count:]]]
        return Ragged.packed(turned(x.tensor, moved), x.sizes)
    sizes = [size_when_run(x, a) for a in order]
    moved = turned(x.in_rows, [0, *[a + 1 for a in order]])
    return from_padded(moved, sizes, is_clean=True)


@ragged_rule("Reshape", of_shapes=True, is_source=True)
def reshape(call: Call, tensor: Value, shape: Value) -> Any:
    """Other sizes for the same elements, in the same order."""
    if not isinstance(tensor, Ragged) and call.op.inputs[1].op.type == "TensorListPopBack":
        return _as_kept(call, tensor, shape)
    if not call.uses_packed:
        return _in_padded_form(call, tensor, target_sizes(call, shape, 1))
    target = target_sizes(call, shape, 1)
    static = call.output_shape()
    if static is not None:  # tf.repeat cuts the sizes of the row out of its shape
        target = [t if d is None else d for t, d in zip(target, static, strict=True)]
    own: list[Any] = [
        *(sizes_of(tensor) if isinstance(tensor, Ragged) else tensor.inner_shape or ())
    ]
    if not isinstance(tensor, Ragged) and (tensor.inner_shape is None or None in own):
        raise CannotVectorize("the shape of the input is not known")
    target, is_exact = _without_unknown(target, own)
    if isinstance(tensor, Ragged) and same_sizes(target, own):
        return tensor
    flat = tensor.tensor if isinstance(tensor, Ragged) else call.stacked(tensor)
    n = call.loop.length
    if not is_exact:  # as many elements in all rows together say nothing about each
        before, after = (tf.broadcast_to(row_counts(s), tf.stack([n])) for s in (own, target))
        text = "the elements of a row do not fill its new shape. Elements, and the shape's"
        flat = call.after_check(tf.equal(before, after), text, [before, after], flat)
    return of_elements(call, flat, target)


def _as_kept(call: Call, tensor: Value, shape: Value) -> Value:
    """A gradient in the shape of the tensor that was broadcast; a loop has kept it for each row.

    The tensor was dense and has one shape.
    """
    count = (shape.inner_shape or (None,))[0]
    is_plain = call.uses_packed and call.loop.real is None and shape.is_stacked
    if count is None or not is_plain:
        raise CannotVectorize("the new shape differs between iterations")
    kept = shape.tensor
    one = tf.reduce_max(tf.pad(kept, [[0, 1], [0, 0]]), 0)  # zeros if there are no rows
    text = "a gradient has the shape of what differs in shape between iterations. The shapes are"
    one = call.after_check(tf.equal(kept, one), text, [kept], one)
    made = tf.reshape(tensor.tensor, tf.concat([tf.shape(kept)[:1], tf.cast(one, tf.int32)], 0))
    return call.like(made)


def _in_padded_form(call: Call, tensor: Value, target: list[Any]) -> Value:
    """A reshape of the axes behind the last one that differs; in front, axes of size one only."""
    if not isinstance(tensor, Ragged):
        raise CannotVectorize(f"a reshape to sizes that differ, {call.where_padded}")
    own, count = sizes_of(tensor), tensor.n_leading
    target, is_exact = _without_unknown(target, own)
    last = max((i + 1 for i, s in enumerate(target) if isinstance(s, RowSizes)), default=0)
    kept = [k for k in range(count) if not is_one(own[k])]
    others = [s for s in target[:last] if not is_one(s)]
    if not is_exact or not same_sizes(others, [own[k] for k in kept]):
        raise CannotVectorize(f"a reshape of axes that differ, {call.where_padded}")
    padded = tensor.in_rows
    room = iter([dim(padded, k + 1) for k in kept])
    parts = [1 if is_one(s) else next(room) for s in target[:last]] + target[last:]
    made = tf.reshape(padded, tf.stack([dim(padded, 0), *parts]))
    made.set_shape([padded.shape[0], *[s if isinstance(s, int) else None for s in parts]])
    return from_padded(made, target, is_clean=True)


def target_sizes(call: Call, shape: Value, at: int) -> list[Any]:
    """The sizes that a shape, input ``at``, says; -1 for one that follows from the others."""
    if isinstance(shape, RowShape):
        return sizes_from(call, shape)
    known = call.maybe_constant(list(call.inputs)[at])
    if known is not None:
        return [int(s) for s in known]
    if not shape.is_stacked or not shape.inner_shape or shape.inner_shape[0] is None:
        raise CannotVectorize("the new shape is not known")
    known_ones = forms(call.op.inputs[at])
    columns = tf.unstack(tf.cast(shape.tensor, tf.int32), num=shape.inner_shape[0], axis=1)
    target: list[Any] = []
    for i, column in enumerate(columns):
        own = None if known_ones is None else known_ones[i].known
        if own is None:  # -1, which stands for what is left, must be known
            text = f"size {i} of the shape is negative in some iterations. They are"
            column = call.after_check(column >= 0, text, [column], column)
        target.append(row_sizes(call, column) if own is None else own)
    return target


def _without_unknown(target: list[Any], own: list[Any]) -> tuple[list[Any], bool]:
    """A shape without -1, and whether it is known to have as many elements as the input.

    Args:
      target: the new sizes; -1 stands for one of them.
      own: the sizes of the input.
    """
    at = next((i for i, s in enumerate(target) if isinstance(s, int) and s == -1), None)
    left, top = list(own), [s for i, s in enumerate(target) if i != at]
    for size in list(top):  # sizes that both have cancel
        same = [i for i, x in enumerate(left) if x is size]
        if same and not isinstance(size, int):
            left.pop(same[0])
            top.pop(next(i for i, x in enumerate(top) if x is size))
    ints = int(np.prod([s for s in left if isinstance(s, int)] or [1]))
    over = int(np.prod([s for s in top if isinstance(s, int)] or [1]))
    rows = [s for s in left if not isinstance(s, int)]
    others = [s for s in top if not isinstance(s, int)]
    if at is None:
        return target, not rows and not others and ints == over
    if not others and len(rows) <= 1 and over and ints % over == 0:
        factor = ints // over
        found = factor if not rows else rows[0] if factor == 1 else None
        if found is None:
            found = size_times(rows[0], factor)
        return [*target[:at], found, *target[at + 1 :]], True
    found = RowSizes.of(_left_over(left, top, [s for i, s in enumerate(target) if i != at]))
    return [*target[:at], found, *target[at + 1 :]], False


def _left_over(own: list[Any], top: list[Any], others: list[Any]) -> Any:
    """The size that -1 stands for, as the kernel finds it: no zero divides.

    Args:
      own: the sizes of the input that the new shape does not have.
      top: the sizes of the new shape that the input does not have.
      others: all sizes of the new shape but -1. If one is zero, zeros of the input count as one.
    """
    is_empty = tf.equal(row_counts(others), 0)
    counted = [*map(as_number, own)]
    divisor = row_counts([tf.maximum(as_number(s), 1) for s in top])
    count = row_counts([tf.where(is_empty, tf.maximum(s, 1), s) for s in counted])
    return count // divisor


@ragged_rule("Fill", of_shapes=True, is_source=True)
def fill(call: Call, dims: Value, value: Value) -> Any:
    """A shape of the row, or of numbers of the row as in tf.ones([k]), full of one element."""
    sizes = target_sizes(call, dims, 0)
    leading, rest = parted(sizes)
    if not leading or isinstance(value, Ragged) or not call.uses_packed:
        raise CannotVectorize("the shape differs between iterations")
    each = tf.gather(call.stacked(value), row_ids(leading))
    if rest:
        wide = tf.reshape(each, tf.stack([-1, *[1] * len(rest)]))
        each = tf.broadcast_to(wide, tf.stack([tf.shape(each)[0], *rest]))
    return from_packed(each, sizes)


@ragged_rule("BroadcastGradientArgs", of_shapes=True)
def broadcast_gradient_args(call: Call, s0: Value, s1: Value) -> Any:
    """The axes along which two shapes were broadcast, per row where sizes do not tell them."""
    first, second = _numbers(call, "s0", s0), _numbers(call, "s1", s1)
    rank_ = max(len(first), len(second))
    found: tuple[list[int], list[int]] = ([], [])
    is_known = True
    for i in range(rank_):
        a, b = (1 if i < rank_ - len(s) else s[i - rank_ + len(s)] for s in (first, second))
        if is_one(a) and (not is_one(b) or i < rank_ - len(first)):
            found[0].append(i)
        elif is_one(b) and (not is_one(a) or i < rank_ - len(second)):
            found[1].append(i)
        else:
            is_known &= same_sizes([a], [b])
    if not is_known:
        return [_axes_of_rows(call, first, second), _axes_of_rows(call, second, first)]
    arrays = [np.asarray(f, call.output_dtype(k).as_numpy_dtype) for k, f in enumerate(found)]
    return [Value.unstacked(call.emit.constant(a), a) for a in arrays]


def _axes_of_rows(call: Call, own: list[Any], other: list[Any]) -> Value:
    """The axes along which each row was broadcast to another; made where a loop reads them."""
    if not call.uses_packed:
        raise CannotVectorize("sizes that differ between iterations are not known to agree")
    rank_, emit, dtype = max(len(own), len(other)), call.emit, call.output_dtype()

    def is_summed() -> tf.Tensor:
        n = call.loop.length
        shapes = [
            [tf.broadcast_to(as_number(s), [n]) for s in sizes]
            for sizes in ([1] * (rank_ - len(x)) + x for x in (own, other))
        ]
        before = np.arange(rank_) < rank_ - len(own)
        mine, others = (tf.stack(x, 1) for x in shapes)
        return before | (tf.equal(mine, 1) & tf.not_equal(others, 1))

    def beside(make: Callable[[], tf.Tensor]) -> Cell:
        def made() -> tf.Tensor:
            with emit.graph.as_default():
                return make()

        return Cell(None, made)

    mask = beside(is_summed)
    sizes = RowSizes(beside(lambda: tf.reduce_sum(tf.cast(mask.get(), tf.int32), 1)), rank_)
    packed = beside(lambda: tf.cast(tf.where(mask.get())[:, 1], dtype))
    padded = beside(lambda: pad(packed.get(), [sizes]))
    return Ragged(packed, (None,), dtype, (sizes,), padded, origin=call.op.outputs[0])


def _numbers(call: Call, name: str, value: Value) -> list[Any]:
    """The sizes that a shape says."""
    if isinstance(value, RowShape):
        return list(value.sizes)
    known = call.maybe_constant(name)
    if known is None:
        raise CannotVectorize("a shape is not known")
    return [int(s) for s in known]
