"""Ops that move the elements of ragged rows: rolls, repetitions, gradients of slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._strided_slices import Item
from tf_pfor.converters.arrays._slice_items import items_of
from tf_pfor.converters.ragged import slices
from tf_pfor.converters.ragged._forms import (
    agreed,
    as_large,
    behind,
    constant_axes,
    from_packed,
    from_padded,
    of_room,
    parted,
    row_ids,
    row_starts,
    size_when_run,
    with_room,
)
from tf_pfor.converters.ragged._windows import Moved, place_of, range_in, size_times
from tf_pfor.converters.ragged.shapes import target_sizes, without_axes
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSizes, same_sizes
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import Size, dim, dims_of, is_one


@ragged_rule("Roll")
def roll(call: Call, input: Value, shift: Value, axis: Value) -> Any:
    """Along the axis that differs, each row by itself; along others as they are."""
    if not isinstance(input, Ragged) or shift.rank:
        raise CannotVectorize("it rolls along several axes, or by numbers that differ in shape")
    call.require_packed("rows of different shapes are rolled")
    (at,) = constant_axes(call, "axis", input.rank)
    moved = behind(call, input, [at])
    if moved is not None:
        if shift.is_stacked:
            raise CannotVectorize("it rolls by numbers that differ, behind an axis that differs")
        return Ragged.packed(tf.roll(input.tensor, shift.tensor, moved[0]), input.sizes)
    if input.n_leading != 1:
        raise CannotVectorize("it rolls one of several axes that differ")
    size = input.size
    rows, starts = row_ids([size]), row_starts([size])
    by = tf.cast(shift.tensor, tf.int32)
    by = tf.gather(by, rows) if shift.is_stacked else by
    first = tf.gather(starts, rows)
    place = tf.range(tf.shape(rows)[0]) - first - by
    place = tf.math.floormod(place, tf.gather(size.tensor, rows))
    return Ragged.packed(tf.gather(input.tensor, first + place), [size])


@ragged_rule("ReverseSequence")
def reverse_sequence(call: Call, input: Value, seq_lengths: Value) -> Any:
    """The loop is folded into the batch axis; what is reversed must be there, and is no padding."""
    if not isinstance(input, Ragged):
        raise CannotVectorize("the number of lengths differs between iterations")
    batch, axis, rank = call.attr("batch_dim"), call.attr("seq_dim"), input.rank
    known = seq_lengths.sizes if isinstance(seq_lengths, RowShape) else ()
    input, seq_lengths = agreed(call, (input, batch), (seq_lengths, 0))
    sizes, own = [input.size_at(i) for i in range(rank)], input.size_at(axis)
    assert isinstance(input, Ragged)
    if isinstance(seq_lengths, Ragged):
        lengths = seq_lengths.in_rows
        rows = of_room(input.in_rows, batch + 1, dim(lengths, 1))
    else:
        lengths, rows = call.stacked(seq_lengths), input.in_rows
    if isinstance(own, RowSizes) and not all(s is own for s in known or [None]):
        call.require_packed("a row may be shorter than what is reversed")
        limit = tf.cast(own.tensor, lengths.dtype)
        text = "more is reversed than there is in some iterations. Lengths, and sizes, are"
        lengths = call.after_check(lengths <= limit[:, None], text, [lengths, limit], lengths)
    order = [0, batch + 1, *(i for i in range(1, rank + 1) if i != batch + 1)]
    moved = tf.transpose(rows, order)  # [n, b, ...]
    made = call.rebuild(
        input=tf.reshape(moved, tf.concat([[tf.size(lengths)], tf.shape(moved)[2:]], 0)),
        seq_lengths=tf.reshape(lengths, [-1]),
        seq_dim=order.index(axis + 1) - 1,
        batch_dim=0,
    )
    made = tf.reshape(made, tf.shape(moved))
    made.set_shape(moved.shape)
    back = tf.transpose(made, np.argsort(order))
    return from_padded(back, sizes, is_clean=True)


@ragged_rule("ReverseV2")
def reverse(call: Call, tensor: Value, axis: Value) -> Any:
    """Each row by itself: from its own last element on."""
    if not isinstance(tensor, Ragged):
        raise CannotVectorize("the axes differ between iterations")
    axes = constant_axes(call, "axis", tensor.rank)
    moved = behind(call, tensor, axes)
    if moved is not None:
        return Ragged.packed(tf.reverse(tensor.tensor, moved), tensor.sizes)
    made, sizes = tensor.in_rows, tensor.sizes
    for a in axes:
        size = sizes[a] if a < len(sizes) else None
        if isinstance(size, RowSizes):
            made = tf.reverse_sequence(made, size.tensor, a + 1, 0)
        else:
            made = tf.reverse(made, [a + 1])
    return from_padded(made, sizes)


@ragged_rule("BroadcastTo Tile", of_shapes=True, is_source=True)
def broadcast_to(call: Call, input: Value, shape: Value) -> Any:
    """One element of each row, or what is shared, repeated to a shape of the row."""
    is_tile, is_ragged = call.op_type == "Tile", isinstance(input, Ragged)
    if isinstance(input, Ragged) and is_tile:
        known = call.maybe_constant("multiples")
        if known is not None:
            return repeated(call, input, [int(m) for m in known])
    is_known = isinstance(shape, RowShape) or is_ragged
    if not is_known and not (shape.is_stacked and call.uses_packed):
        raise CannotVectorize("what is repeated differs in shape")
    sizes = given = target_sizes(call, shape, 1)
    missing = len(sizes) - input.rank
    mine = [input.size_at(k - missing) for k in range(len(sizes))]
    if is_tile:
        is_plain = is_known and all(is_one(m) or is_one(t) for m, t in zip(mine, sizes))
        if call.uses_packed and not is_plain:
            return _tiled(call, input, sizes)
        sizes = _repeated_sizes(input, sizes)
    elif not is_known:
        return _spread(call, input, sizes, mine)
    if is_ragged or not call.uses_packed:
        return broadcast(call, input, sizes)
    leading, behind = parted(sizes)
    own = mine[len(leading) :]
    if any(not is_one(s) for s in mine[: len(leading)]):
        return broadcast(call, input, sizes)
    flat = call.stacked(input)
    flat = tf.reshape(flat, tf.stack([tf.shape(flat)[0], *own]))
    packed = tf.gather(flat, row_ids(leading))
    if not is_tile:
        packed = tf.broadcast_to(packed, tf.stack([tf.shape(packed)[0], *behind]))
    elif not same_sizes(behind, own):
        packed = tf.tile(packed, tf.stack([1, *given[len(leading) :]]))
    return from_packed(packed, sizes)


def _tiled(call: Call, x: Value, multiples: list[Any]) -> Value:
    """Repeated along any axes, as often as the row says: the places modulo the sizes."""
    changed = [k for k, m in enumerate(multiples) if not is_one(m)]
    changed += x.ragged_axes if isinstance(x, Ragged) else []
    behind = len(multiples) - 1 - max(changed, default=-1)
    mine = [size_when_run(x, k) for k in range(len(multiples))]
    sizes = [size_times(m, t) for m, t in zip(mine, multiples)]
    moved = Moved(call, x, sizes, behind)
    return moved.read([at % moved.size(k) for k, at in enumerate(moved.places)])


def _spread(call: Call, input: Value, sizes: list[Any], mine: list[Any]) -> Value:
    """A tensor of one shape, repeated to sizes that differ per row; ``mine`` are its own."""
    missing = len(sizes) - input.rank
    if not all(is_one(own) or same_sizes([s], [own]) for s, own in zip(sizes, mine)):
        raise CannotVectorize("what is repeated has a size that is not known to be its own")
    changed = [k for k, (s, own) in enumerate(zip(sizes, mine)) if not same_sizes([s], [own])]
    moved = Moved(call, input, sizes, len(sizes) - 1 - max([*changed, missing - 1]))
    places = zip(moved.places[missing:], mine[missing:])
    return moved.read([0 if is_one(own) else at for at, own in places])


def _repeated_sizes(x: Value, multiples: list[Any]) -> list[Any]:
    """The sizes of rows that are repeated along axes of one element only."""
    mine = [x.size_at(i) for i in range(len(multiples))]
    if not all(is_one(m) or is_one(t) for m, t in zip(mine, multiples)):
        raise CannotVectorize("what is repeated has more than one element along that axis")
    return [t if is_one(m) else m for m, t in zip(mine, multiples)]


def repeated(call: Call, x: Ragged, multiples: list[int]) -> Value:
    """Ragged rows repeated a number of times that all share."""
    if not call.uses_packed or x.n_leading != 1:
        return _repeated_padded(x, multiples)
    first, *others = multiples
    tensor = tf.tile(x.tensor, [1, *others]) if set(others) - {1} else x.tensor
    if first == 1:
        return Ragged.packed(tensor, x.sizes)
    size = x.size
    most = None if size.most is None else size.most * first
    made = RowSizes.of(size.tensor * first, most)
    rows = row_ids([made])
    place = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts([made]), rows)
    place = tf.math.floormod(place, tf.gather(size.tensor, rows))
    packed = tf.gather(tensor, tf.gather(row_starts([size]), rows) + place)
    return Ragged.packed(packed, [made])


def _repeated_padded(x: Ragged, multiples: list[int]) -> Value:
    """In the padded form, one axis after the other."""
    rows, sizes = x.in_rows, [*x.sizes]
    for axis, many in enumerate(multiples):
        size = sizes[axis] if axis < len(sizes) else None
        if many == 1:
            continue
        if not isinstance(size, RowSizes):
            rows = tf.tile(rows, [many if k == axis + 1 else 1 for k in range(len(rows.shape))])
            if size is not None:
                sizes[axis] = size * many
            continue
        most = None if size.most is None else size.most * many
        sizes[axis] = total = RowSizes.of(size.tensor * many, most)
        at = tf.range(largest(total))[None] % tf.maximum(size.tensor, 1)[:, None]
        rows = tf.gather(rows, at, axis=axis + 1, batch_dims=1)
    return from_padded(rows, sizes)


def broadcast(call: Call, x: Value, sizes: list[Any]) -> Value:
    """``x`` broadcast to a shape that differs per row, in the padded form."""
    sizes, missing = list(sizes), len(sizes) - x.rank
    room: list[Any] = []  # None where it is the room of the rows
    for i, size in enumerate(sizes):
        mine = x.size_at(i - missing)
        if isinstance(mine, RowSizes) and isinstance(size, RowSizes) and mine is not size:
            x, size = as_large(call, x, i - missing, size)
            mine = sizes[i] = size
        elif isinstance(size, RowSizes) and isinstance(mine, int) and mine > 1:
            sizes[i] = mine
            room.append(_checked_size(call, size, mine))
            continue
        elif isinstance(size, tf.Tensor) and isinstance(mine, int) and mine > 1:
            sizes[i] = mine
            room.append(size)  # which the op compares with its own
            continue
        is_same = same_sizes([mine], [size])
        if not (is_one(mine) or is_same):
            raise CannotVectorize("what is repeated has more than one element along that axis")
        room.append(None if is_same else largest(size))
    if not missing and not any(r is not None for r in room):
        return x
    wide = x.in_rows if isinstance(x, Ragged) else call.stacked(x)
    n, *own = dims_of(wide)
    room = [own[i - missing] if r is None else r for i, r in enumerate(room)]
    for _ in range(missing):
        wide = tf.expand_dims(wide, 1)
    made = tf.broadcast_to(wide, tf.stack([n, *room]))
    made.set_shape([None, *[r if isinstance(r, int) else None for r in room]])
    return from_padded(made, sizes)


def _checked_size(call: Call, size: RowSizes, own: int) -> tf.Tensor:
    """The size of more than one element, which a shape of numbers of the row must say as well."""
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("a size that a shape of the row says, which cannot be checked")
    text = f"what has {own} elements is repeated to another size in some iterations. Sizes are"
    return call.after_check(tf.equal(size.tensor, own), text, [size.tensor], tf.constant(own))


@ragged_rule("StridedSliceGrad", of_shapes=True)
def slice_gradient(
    call: Call, shape: Value, begin: Value, end: Value, strides: Value, dy: Value
) -> Any:
    """The gradient of the sliced tensor, ``dy`` with zeros around: of one shape, or ragged."""
    if not isinstance(shape, RowShape):
        return slices.gradient_of_range(call, dy)
    sizes = list(shape.sizes)
    items = items_of(call, len(sizes))
    if isinstance(dy, Ragged) and all(k.kind in ("all", "new") for k in items):
        return without_axes(call, dy, [i for i, k in enumerate(items) if k.kind == "new"])
    (size, *rest), first = sizes, items[0]
    if not isinstance(size, RowSizes) or not call.uses_packed or first.kind == "new":
        return _by_axes(call, dy, sizes, items)
    if any(isinstance(s, RowSizes) for s in rest):
        return _by_axes(call, dy, sizes, items)
    total = tf.reduce_sum(size.tensor)
    starts = row_starts([size])
    if first.kind == "index":
        packed = _around(call.stacked(dy), rest, items[1:])
        places = starts + place_of(call, first, size)
    else:
        is_reversed = slices.is_reversal(first)
        if not isinstance(dy, Ragged) or dy.n_leading != 1 or not (first.stride > 0 or is_reversed):
            raise CannotVectorize("the gradient of a slice of several kinds")
        if is_reversed:
            first_of_row, lengths = size.tensor - 1, size
        else:
            first_of_row, lengths = range_in(call, first, size)
        rows = row_ids(dy.sizes)
        inside = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts(dy.sizes), rows)
        starts = starts if first_of_row is None else starts + first_of_row
        places = tf.gather(starts, rows) + inside * first.stride
        packed = _around(dy.tensor, rest, items[1:])
        places = tf.where(inside < tf.gather(lengths.tensor, rows), places, total)
    behind = tf.shape(packed)[1:]
    made = tf.scatter_nd(places[:, None], packed, tf.concat([[total + 1], behind], 0))[:-1]
    made.set_shape([None, *packed.shape[1:]])
    return Ragged.packed(made, [size])


def _by_axes(call: Call, dy: Value, sizes: list[Any], items: list[Item]) -> Value:
    """The gradient of a slice in the padded form, one axis after the other."""
    found, axis, ahead = dy.in_rows if isinstance(dy, Ragged) else call.stacked(dy), 1, [*sizes]
    for item in items:
        if item.kind == "new":
            found = tf.squeeze(found, axis)
            continue
        size = ahead.pop(0)
        if item.kind != "all":
            if item.kind == "index":
                found = tf.expand_dims(found, axis)
            first, length = _read_of(call, item, size)
            place = tf.range(largest(size))[None] - tf.reshape(first, [-1, 1])
            at = place // item.stride
            is_read = (place % item.stride == 0) & (at >= 0) & (at < tf.reshape(length, [-1, 1]))
            found = with_room(found, axis, 1)
            last = tf.shape(found)[axis] - 1
            at = tf.broadcast_to(at, tf.stack([tf.shape(found)[0], tf.shape(at)[1]]))
            found = tf.gather(found, tf.clip_by_value(at, 0, last), axis=axis, batch_dims=1)
            n, size = tf.unstack(tf.shape(is_read))
            ones = [1] * (found.shape.rank - axis - 1)
            kept = tf.reshape(is_read, tf.stack([n, *[1] * (axis - 1), size, *ones]))
            found = tf.where(kept, found, tf.zeros([], found.dtype))
        axis += 1
    return from_padded(found, sizes, is_clean=True)


def _read_of(call: Call, item: Item, size: Size) -> tuple[Any, Any]:
    """The begin of a slice along an axis, and its number of elements: int32 [] or [n]."""
    if isinstance(size, RowSizes) and item.kind == "range":
        if slices.is_reversal(item):
            return size.tensor - 1, size.tensor
        if item.stride < 1:
            raise CannotVectorize("the gradient of a slice that runs backwards")
        begin, length = range_in(call, item, size)
        return 0 if begin is None else begin, length.tensor
    if isinstance(size, RowSizes):
        return place_of(call, item, size), 1
    if not item.is_static or not (item.kind == "index" or isinstance(size, int)):
        raise CannotVectorize("the gradient of a slice of several axes that differ")
    if item.kind == "index":
        return item.begin + (size if item.begin < 0 else 0), 1
    read = range(size)[item.python]
    return read.start, len(read)


def _around(dy: tf.Tensor, sizes: list[Any], items: list[Item]) -> tf.Tensor:
    """[m, ...] among zeros: the gradient of a slice of the axes behind the first, [m, *sizes]."""
    if all(k.kind == "all" for k in items):
        return dy
    if not all(isinstance(s, int) for s in sizes) or not all(k.is_static for k in items):
        raise CannotVectorize("the gradient of a slice of several axes")
    count = int(np.prod(sizes))
    read = np.arange(count).reshape(sizes)[tuple(k.python for k in items)].ravel()
    places = np.full([count], read.size, np.int32)  # of which nothing was read: the zero behind
    places[read] = np.arange(read.size)
    flat = tf.pad(tf.reshape(dy, [-1, read.size]), [[0, 0], [0, 1]])
    made = tf.gather(flat, places, axis=1)
    return tf.reshape(made, [-1, *sizes]) if count else made
