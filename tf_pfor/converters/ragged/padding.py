"""Rows of different shapes that get one shape by padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.ragged._forms import (
    after_check,
    from_packed,
    from_padded,
    row_ids,
    row_starts,
    uses_packed,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.linear import Form, forms
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule


@ragged_rule("Pad PadV2")
def pad(call: Call, input: Value, paddings: Value, *constant: Value) -> Any:
    """The gradient of a Slice to a size of the row: zeros around, up to one shape."""
    if constant:
        filled = call.maybe_constant("constant_values")
        if filled is None or filled != 0:
            raise CannotVectorize("rows of different shapes are padded by other numbers than zero")
    target, known = call.output_shape(), forms(call.op.inputs[1])
    amounts: Any = call.maybe_constant("paddings")
    if isinstance(input, Ragged) and amounts is not None and uses_packed(call):
        count = input.n_leading
        if not amounts[:count].any():  # behind the axes that differ
            behind = np.concatenate([[[0, 0]], amounts[count:]])
            return from_packed(call, tf.pad(input.tensor, behind), input.sizes)
    if isinstance(input, Ragged) and amounts is not None and len(input.ragged_axes) > 1:
        return _around(call, input, amounts)
    if not isinstance(input, Ragged) or known is None or len(input.ragged_axes) != 1:
        raise CannotVectorize("rows of several axes that differ are padded by numbers of the row")
    (axis,) = input.ragged_axes
    known = [[_resolved(call, amount) for amount in row] for row in known]
    others = [amount.known for i, row in enumerate(known) if i != axis for amount in row]
    if any(amount != 0 for amount in others):
        if amounts is not None:
            return _around(call, input, amounts)
        raise CannotVectorize("other axes are padded as well")
    amounts = tf.cast(call.stacked(paddings), tf.int32)[:, axis]
    one = target[axis] if is_static(target) else _one_size(call, input, axis, known[axis])
    if one is not None:
        return call.like(placed(input, axis, amounts[:, 0], one))
    size = input.sizes[axis]
    if not uses_packed(call) or not isinstance(size, RowSizes):
        raise CannotVectorize("the size after padding is not known")
    text = "paddings must not be negative. They are"
    amounts = after_check(call, amounts >= 0, text, [amounts], amounts)
    lengths = RowSizes.of(size.tensor + tf.reduce_sum(amounts, 1))
    room = tf.reduce_max(tf.concat([lengths.tensor, [0]], 0))
    made = placed(input, axis, amounts[:, 0], room)
    return from_padded(call, made, [*input.sizes[:axis], lengths], is_clean=True)


@ragged_rule("MirrorPad")
def mirror_pad(call: Call, input: Value, paddings: Value) -> Any:
    """Rows with their own elements around them, in reverse order."""
    del paddings
    amounts: Any = call.constant("paddings")
    if not isinstance(input, Ragged) or not uses_packed(call) or input.n_leading != 1:
        raise CannotVectorize("rows of several axes that differ are mirrored, or padded by numbers")
    packed, (size,) = input.tensor, input.sizes
    assert isinstance(size, RowSizes)
    edge = int("REFLECT" in str(call.attr("mode")))  # which is not repeated
    for axis, (front, back) in enumerate(amounts):
        if axis and front + back:  # the kernel takes nothing that is empty
            all_of_it: Any = tf.shape(packed)[axis]
            at = _mirrored(tf.range(all_of_it + int(front + back)) - int(front), all_of_it, edge)
            packed = tf.gather(packed, at, axis=axis)
    front, back = map(int, amounts[0])
    if not front + back:
        return from_packed(call, packed, [size])
    least = max(front, back) + edge
    text = f"a row has fewer than {least} elements, and cannot be mirrored. Sizes are"
    own = after_check(call, size.tensor >= least, text, [size.tensor], size.tensor)
    own.set_shape(size.tensor.shape)
    most = None if size.most is None else size.most + front + back
    wide = RowSizes.of(own + front + back, most)
    rows = row_ids([wide])
    length = tf.gather(own, rows)
    at: Any = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts([wide]), rows) - front
    at = tf.gather(size.starts, rows) + _mirrored(at, length, edge)
    return from_packed(call, tf.gather(packed, at), [wide])


def _mirrored(at: Any, size: Any, edge: int) -> Any:
    """Places before the first and behind the last element as those that stand there."""
    at = tf.where(at < 0, edge - 1 - at, at)
    return tf.where(at >= size, 2 * size - edge - 1 - at, at)


def _around(call: Call, x: Ragged, amounts: Any) -> Value:
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
    return from_padded(call, rows, sizes, is_clean=True)


def _resolved(call: Call, amount: Form) -> Form:
    """A sum with the sizes in it that are the same in all rows."""
    found = Form(frozenset(), amount.constant)
    for term in amount.terms:
        (name, place), count = term
        value = call.value_of(name[0].outputs[name[1]]) if len(name) == 2 else None
        size = value.sizes[place[0]] if isinstance(value, RowShape) else None
        if isinstance(size, int):
            found = Form(found.terms, found.constant + count * size)
        else:
            found = Form(found.terms | {term}, found.constant)
    return found


def _one_size(call: Call, x: Ragged, axis: int, amounts: Any) -> int | tf.Tensor | None:
    """The size after padding by s - k, where k is how many each row has and s one size for all."""
    total = amounts[0].plus(amounts[1], 1)
    left: list[Any] = []
    for (name, place), count in total.terms:
        value = call.value_of(name[0].outputs[name[1]]) if len(name) == 2 else None
        if isinstance(value, RowShape) and count == -1 and value.sizes[place[0]] is x.sizes[axis]:
            continue
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
    at: Any = tf.range(size)[None] - begin[:, None]
    is_inside = (at >= 0) & (at < own.tensor[:, None])
    x = value.in_rows
    rank = x.shape.rank
    assert rank is not None
    room = tf.shape(x)[axis + 1]
    wide = tf.pad(x, [[0, 1] if k == axis + 1 else [0, 0] for k in range(rank)])
    return tf.gather(wide, tf.where(is_inside, at, room), axis=axis + 1, batch_dims=1)
