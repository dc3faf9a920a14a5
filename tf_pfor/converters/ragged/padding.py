"""Rows of different shapes that get one shape by padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    from_padded,
    gradient_of,
    size_when_run,
    zeros_of,
)
from tf_pfor.converters.ragged._windows import Moved, size_plus
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Shape, Value, dims, is_static
from tf_pfor.layouts.linear import Form, forms
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSize, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule


@ragged_rule("Pad PadV2", is_source=True)
def pad(call: Call, input: Value, paddings: Value, *constant: Value) -> Any:
    """Numbers around: zeros up to one shape, as in the gradient of a Slice, or any others."""
    filled = call.maybe_constant("constant_values") if constant else 0
    found = None
    if filled is not None and filled == 0 and isinstance(input, Ragged):
        found = _among_zeros(call, input, paddings)
    if found is not None:
        return found
    moved, before = _wider(call, input, paddings, call.output_shape())
    places = [at - moved.of(a) for at, a in zip(moved.places, before)]
    inside = [(at >= 0) & (at < moved.size(k)) for k, at in enumerate(places)]
    fill = tf.stop_gradient(constant[0].tensor) if constant else None  # as the kernel's
    return moved.read(places, tf.reduce_all(tf.stack(inside), 0), fill)


def _wider(call: Call, x: Value, paddings: Value, target: Shape) -> tuple[Moved, list[Any]]:
    """A result that is larger than ``x``, and how much stands before each axis."""
    amounts, found = _amounts(call, paddings), list[Any]()
    known = forms(call.op.inputs[1])
    for axis, (a, b) in enumerate(amounts):
        size = target[axis] if target is not None else None
        own = size_when_run(x, axis)
        if size is None and isinstance(own, RowSizes) and known is not None:
            assert isinstance(x, Ragged)
            size = _one_size(call, x, axis, [_resolved(call, amount) for amount in known[axis]])
        found.append(size_plus(own, a, b) if size is None else size)
    changed = [
        k for k, pair in enumerate(amounts) if not all(isinstance(a, int) and a == 0 for a in pair)
    ]
    changed += x.ragged_axes if isinstance(x, Ragged) else []
    behind = len(found) - 1 - max(changed, default=0)
    return Moved(call, x, found, behind), [a for a, _ in amounts]


def _amounts(call: Call, paddings: Value) -> list[tuple[Any, Any]]:
    """The sizes of padding before and behind each axis: ints, scalars, or int32 [n]."""
    found = call.maybe_constant("paddings")
    if found is not None:
        return [(int(a), int(b)) for a, b in found]
    if not paddings.inner_shape or paddings.inner_shape[0] is None:
        raise CannotVectorize("how many axes are padded is not known")
    numbers = tf.cast(paddings.tensor, tf.int32)
    text = "paddings must not be negative. They are"
    numbers = call.after_check(numbers >= 0, text, [numbers], numbers)
    numbers.set_shape(paddings.tensor.shape)
    known = forms(call.op.inputs[1])
    each: list[tuple[Any, Any]] = []
    for axis in range(paddings.inner_shape[0]):
        sides: list[Any] = [numbers[..., axis, side] for side in (0, 1)]
        if known is not None:
            fixed = [amount.known for amount in known[axis]]
            sides = [x if k is None else int(k) for x, k in zip(sides, fixed)]
        each.append((sides[0], sides[1]))
    return each


def _among_zeros(call: Call, input: Ragged, paddings: Value) -> Value | None:
    """Zeros around, in the form that the rows have; None where it takes the places of all."""
    target, known = call.output_shape(), forms(call.op.inputs[1])
    amounts = call.maybe_constant("paddings")
    if amounts is not None and call.uses_packed:
        count = input.n_leading
        if not amounts[:count].any():  # behind the axes that differ
            behind = np.concatenate([[[0, 0]], amounts[count:]])
            return Ragged.packed(tf.pad(input.tensor, behind), input.sizes)
    if amounts is not None and len(input.ragged_axes) > 1:
        return _around(input, amounts)
    if known is None or len(input.ragged_axes) != 1:
        return None
    (axis,) = input.ragged_axes
    known = [[_resolved(call, amount) for amount in row] for row in known]
    others = [amount.known for i, row in enumerate(known) if i != axis for amount in row]
    if any(amount != 0 for amount in others):
        return None if amounts is None else _around(input, amounts)
    amounts = tf.cast(call.stacked(paddings), tf.int32)[:, axis]
    one = target[axis] if is_static(target) else _one_size(call, input, axis, known[axis])
    if one is not None:
        return call.like(placed(input, axis, amounts[:, 0], one))
    size = input.sizes[axis]
    if not call.uses_packed or not isinstance(size, RowSizes):
        raise CannotVectorize("the size after padding is not known")
    text = "paddings must not be negative. They are"
    amounts = call.after_check(amounts >= 0, text, [amounts], amounts)
    lengths = RowSizes.of(size.tensor + tf.reduce_sum(amounts, 1))
    room = tf.reduce_max(tf.concat([lengths.tensor, [0]], 0))
    made = placed(input, axis, amounts[:, 0], room)
    return from_padded(made, [*input.sizes[:axis], lengths], is_clean=True)


@ragged_rule("MirrorPad", is_source=True)
def mirror_pad(call: Call, input: Value, paddings: Value) -> Any:
    """Rows with their own elements around them, in reverse order."""
    return _mirrored_rows(call, input, paddings, call.output_shape())


def _mirrored_rows(call: Call, input: Value, paddings: Value, target: Shape) -> Value:
    moved, before = _wider(call, input, paddings, target)
    edge = int("REFLECT" in str(call.attr("mode")))  # which is not repeated
    places, right = list[Any](), list[Any]()
    for axis, (at, a) in enumerate(zip(moved.places, before)):
        own = moved.size(axis)
        at -= moved.of(a)
        right.append((at >= edge - own) & (at < 2 * own - edge))
        places.append(_mirrored(at, own, edge))
    text = "a row has fewer elements than it is padded by, and cannot be mirrored. Paddings are"
    places[0] = call.after_check(tf.stack(right), text, [paddings.tensor], places[0])
    return moved.read(places)


@ragged_rule("MirrorPadGrad")
def mirror_pad_gradient(call: Call, input: Value, paddings: Value) -> Any:
    """Gradients of the elements, which each of their copies adds to."""
    sizes = [
        size_plus(size_when_run(input, k), *(-a for a in pair))
        for k, pair in enumerate(_amounts(call, paddings))
    ]
    own = zeros_of(call, sizes, input.dtype)
    wide = dims(call.op.inputs[0])
    return gradient_of(call, lambda x: _mirrored_rows(call, x, paddings, wide), own, input)


def _mirrored(at: Dim, size: Any, edge: int) -> Any:
    """Places before the first and behind the last element as those that stand there."""
    at = tf.where(at < 0, edge - 1 - at, at)
    return tf.where(at >= size, 2 * size - edge - 1 - at, at)


def _around(x: Ragged, amounts: Any) -> Value:
    """Zeros around rows, as many as all share, of several axes."""
    rows, sizes = x.in_rows, list[Any](x.sizes)
    for axis, (front, back) in enumerate(amounts):
        size = sizes[axis] if axis < len(sizes) else None
        if isinstance(size, RowSizes):
            # zeros lie behind the end of each row already
            sizes[axis] = RowSizes.of(
                size.tensor + int(front + back),
                None if size.most is None else size.most + int(front + back),
            )
        elif size is not None:
            sizes[axis] = size + int(front + back)
    rows = tf.pad(rows, [[0, 0], *[[int(a), int(b)] for a, b in amounts]])
    return from_padded(rows, sizes, is_clean=True)


def _resolved(call: Call, amount: Form) -> Form:
    """A sum with the sizes in it that are the same in all rows."""
    found = Form(frozenset(), amount.constant)
    for term in amount.terms:
        (name, place), count = term
        size = _size_named(call, name, place)
        if isinstance(size, int):
            found = Form(found.terms, found.constant + count * size)
        else:
            found = Form(found.terms | {term}, found.constant)
    return found


def _size_named(call: Call, name: Any, place: Any) -> Any:
    """The size of a row that a term of a sum is; None for any other number."""
    if name[0] == "StridedSlice" and name[-1] == (0, 0, 0, 0, 1):  # shape[k]
        name, place = name[1:3]
    value = call.value_of(name[0].outputs[name[1]]) if len(name) == 2 else None
    if isinstance(value, RowSize):
        return value.size
    return value.sizes[place[0]] if isinstance(value, RowShape) and place else None


def _one_size(call: Call, x: Ragged, axis: int, amounts: Any) -> int | tf.Tensor | None:
    """The size after padding by s - k, where k is how many each row has and s one size for all."""
    total = amounts[0].plus(amounts[1], 1)
    left: list[Any] = []
    for (name, place), count in total.terms:
        if count == -1 and _size_named(call, name, place) is x.sizes[axis]:
            continue
        value = call.value_of(name[0].outputs[name[1]]) if len(name) == 2 else None
        left.append((value, place, count))
    if len(left) + 1 != len(total.terms):
        return None
    if not left:
        return total.constant
    value, place, count = left[0]
    if len(left) > 1 or count != 1 or total.constant or value is None or value.is_stacked:
        return None
    return tf.cast(value.tensor[place], tf.int32)


def placed(value: Ragged, axis: int, begin: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """[n, ..., size, ...]: the rows from ``begin`` on, among zeros."""
    own = value.sizes[axis]
    assert isinstance(own, RowSizes)
    at = tf.range(size)[None] - begin[:, None]
    is_inside = (at >= 0) & (at < own.tensor[:, None])
    x = value.in_rows
    rank = x.shape.rank
    assert rank is not None
    room = tf.shape(x)[axis + 1]
    wide = tf.pad(x, [[0, 1] if k == axis + 1 else [0, 0] for k in range(rank)])
    return tf.gather(wide, tf.where(is_inside, at, room), axis=axis + 1, batch_dims=1)
