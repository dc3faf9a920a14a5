"""Slices to sizes of the row, which make ragged rows, and slices of ragged rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor._tf import _graphs
from tf_pfor._tf._strided_slices import Item, spec_of
from tf_pfor.converters.arrays._slice_items import items_of
from tf_pfor.converters.ragged._forms import (
    from_padded,
    row_ids,
    row_starts,
)
from tf_pfor.converters.ragged._windows import (
    packed_range,
    packed_window,
    place_of,
    range_in,
)
from tf_pfor.converters.ragged.shapes import with_new_axis
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Cell, Value, is_static
from tf_pfor.layouts.packing import largest
from tf_pfor.layouts.pieces import joined, ranges
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSize, RowSizes, shape_value, size_value
from tf_pfor.layouts.ragged_rules import ragged_rule, source
from tf_pfor.layouts.row_sizes import Size, dim

_ALL = Item("all")


@source("StridedSlice")
def sliced(call: Call, input: Value, begin: Value, end: Value, strides: Value) -> Any:
    """x[:k], x[a:b, :w]: ranges whose bounds differ between rows."""
    is_all = call.loop.is_whole and not call.loop.is_block
    if _graphs.are_rows(call.op) and is_all and not input.is_stacked and call.uses_packed:
        return Ragged.packed(input.tensor, [_row_sizes(*map(call.stacked, (begin, end)))])
    items = items_of(call, input.rank)
    if any(i.kind == "index" and not i.is_static for i in items):
        raise CannotVectorize("an index differs between iterations, beside a range that does")
    if all(i.is_static for i in items):
        raise CannotVectorize("nothing differs between iterations")
    left = [i for i in items if i.kind != "index"]
    return cut(call, without_known(input, items), left, is_stacked=input.is_stacked)


def without_known(x: Value, items: Sequence[Item]) -> tf.Tensor:
    """A tensor from which all ranges and indices are cut that are the same in all rows."""
    if all(item.kind == "all" or not item.is_static for item in items):
        return x.tensor
    lead = [slice(None)] if x.is_stacked else []
    return x.tensor[tuple([*lead, *[item.python for item in items]])]


def _row_sizes(begin: tf.Tensor, end: tf.Tensor) -> RowSizes:
    """The sizes of rows that lie one behind the other; the bounds are [n, 1]."""
    starts, ends = (tf.cast(x, tf.int32) for x in (begin, end))
    splits = tf.concat([tf.zeros([1], tf.int32), ends[:, 0]], 0)
    return RowSizes(Cell((ends - starts)[:, 0]), splits=splits)


def cut(call: Call, whole: tf.Tensor, items: Sequence[Item], *, is_stacked: bool) -> Value:
    """The ranges that differ, of a tensor [n, ...] from which all others have been cut."""
    lead = int(is_stacked)
    sizes: list[Any] = []
    starts: list[Any] = []
    for axis, item in enumerate(items):
        room = dim(whole, axis + lead)
        if item.is_static:
            sizes.append(room)
            starts.append(None)
            continue
        if item.stride < 1:
            raise CannotVectorize("a slice with a negative stride and bounds that differ")
        start, lengths = range_in(call, item, room)
        sizes.append(lengths)
        starts.append(start)
    last = max(i for i, s in enumerate(sizes) if isinstance(s, RowSizes))
    is_front = starts[0] is None and items[0].stride == 1 and is_stacked
    if last == 0 and is_front and call.uses_packed:
        return from_padded(_moved(whole, 0, None, 1, sizes[0]), sizes[:1])
    if last == 0 and call.uses_packed:
        return Ragged.packed(
            packed_range(whole, starts[0], sizes[0], items[0].stride, is_stacked=is_stacked),
            sizes[:1],
        )
    if call.uses_packed and any(start is not None for start in starts[: last + 1]):
        strides = [item.stride for item in items[: last + 1]]
        packed = packed_window(whole, starts, sizes[: last + 1], strides, is_stacked=is_stacked)
        return Ragged.packed(packed, sizes[: last + 1])
    x = whole if is_stacked else call.stacked(Value.unstacked(whole))
    for axis in range(last + 1):
        if isinstance(sizes[axis], RowSizes):
            x = _moved(x, axis, starts[axis], items[axis].stride, sizes[axis])
    return from_padded(x, sizes[: last + 1])


def _moved(x: tf.Tensor, axis: int, start: Any, stride: int, lengths: RowSizes) -> tf.Tensor:
    """[n, ...] with the range of an axis in front."""
    known = x.shape[axis + 1]
    room = tf.shape(x)[axis + 1] if known is None else known
    most = largest(lengths)
    if start is None and stride == 1:
        if isinstance(room, int) and isinstance(most, int) and most == room:
            return x
        keep = [slice(None)] * (axis + 1)
        return x[tuple([*keep, slice(0, most)])]
    at: tf.Tensor = (tf.range(most) * stride)[None]
    if start is not None:
        at += start[:, None]
    at = tf.broadcast_to(at, tf.stack([tf.shape(x)[0], most]))
    return tf.gather(x, tf.minimum(at, tf.maximum(room - 1, 0)), axis=axis + 1, batch_dims=1)


# ---------------------------------------------------------------------------
# Of ragged rows
# ---------------------------------------------------------------------------


@ragged_rule("StridedSlice", of_shapes=True)
def slice_of_ragged(call: Call, input: Value, begin: Value, end: Value, strides: Value) -> Any:
    """Slices of the axes behind the sizes; an element or a range of the axis that differs."""
    if isinstance(input, RowShape):
        return _of_shape(call, input)
    if isinstance(input, RowSize) and [i.kind for i in items_of(call, 0)] == ["new"]:
        return shape_value(call.emit, [input.size], input.dtype)
    if not isinstance(input, Ragged):
        raise CannotVectorize("the bounds are shapes that differ between iterations")
    return of_items(call, input, items_of(call, input.rank))


def of_items(call: Call, input: Ragged, items: list[Item]) -> Any:
    leading, behind = _parted(input, items)
    if not all(i.is_static for i in behind):
        fixed = [i if i.is_static else _ALL for i in behind]
        return _behind(call, of_items(call, input, [*leading, *fixed]), leading, behind)
    if not call.uses_packed:
        return _of_padded(call, input, leading, behind)
    x = input
    if any(i.kind != "all" for i in behind):
        made = x.tensor[tuple([slice(None), *[i.python for i in behind]])]
        x = Ragged.packed(made, x.sizes, call.op.outputs[0])
    x, leading = _without_ones(x, leading)
    count = x.n_leading
    differs = [i for i in leading if i.kind not in ("all", "new")]
    if differs and (count != 1 or len(leading) != 1):
        return _in_front(call, x, x.in_rows, leading)
    if differs:
        (item,) = differs
        return _element(call, x, item) if item.kind == "index" else _range(call, x, item)
    made: Any = x
    for at, item in enumerate(leading):
        made = with_new_axis(call, made, at) if item.kind == "new" else made
    return made


def _parted(x: Ragged, items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Items of the leading axes, and of the axes behind."""
    seen = 0
    leading: list[Item] = []
    for item in items:
        if seen == x.n_leading:
            break
        leading.append(item)
        seen += item.kind != "new"
    return leading, [*items[len(leading) :]]


def _behind(call: Call, made: Value, leading: Sequence[Item], behind: Sequence[Item]) -> Value:
    """Items with numbers that are not known, of axes that all rows share.

    Args:
      call: the call.
      made: the result of all other items.
      leading: the items in front, which are done.
      behind: these, and others that are done.
    """
    axis = sum(item.kind != "index" for item in leading)
    for item in behind:
        if not item.is_static:
            made = _of_axis(call, made, axis, item)
        axis += item.kind != "index"
    return made


def _of_axis(call: Call, x: Value, axis: int, item: Item) -> Value:
    """An index or a range of one axis that all rows share."""
    if isinstance(x, Ragged) and item.kind == "index" and call.uses_packed:
        behind = axis - x.n_leading + 1
        own = place_of(call, item, dim(x.tensor, behind))
        at = tf.gather(own, row_ids(x.sizes))
        return Ragged.packed(tf.gather(x.tensor, at, axis=behind, batch_dims=1), x.sizes)
    rows = x.in_rows if isinstance(x, Ragged) else call.stacked(x)
    sizes: list[Any] = [*x.sizes] if isinstance(x, Ragged) else []
    sizes += [dim(rows, k + 1) for k in range(len(sizes), axis)]
    rows, lengths = _along(call, rows, axis, item, dim(rows, axis + 1))
    return from_padded(rows, sizes if lengths is None else [*sizes, lengths])


def _along(
    call: Call, rows: tf.Tensor, axis: int, item: Item, size: Size
) -> tuple[tf.Tensor, RowSizes | None]:
    """An index or a range of one axis of a size, in the padded form; and its lengths."""
    if item.kind == "index":
        at = place_of(call, item, size)
        return tf.gather(rows, at, axis=axis + 1, batch_dims=1), None
    if item.stride >= 1:
        start, lengths = range_in(call, item, size)
        return _moved(rows, axis, start, item.stride, lengths), lengths
    if not isinstance(size, RowSizes) or not is_reversal(item):
        raise CannotVectorize("a slice with a negative stride and bounds that differ")
    at = size.tensor[:, None] - 1 - tf.range(tf.shape(rows)[axis + 1])
    return tf.gather(rows, tf.maximum(at, 0), axis=axis + 1, batch_dims=1), size


def is_reversal(item: Item) -> bool:
    """Whether a range has all elements backwards."""
    return item.stride == -1 and item.begin is None and item.end is None


def _of_padded(call: Call, x: Ragged, leading: list[Item], behind: list[Item]) -> Value:
    """Under XLA, and in maps of maps: of the padded form."""
    items = [*leading, *behind]
    sizes = _sizes_of_slice(x, items)
    if sizes is not None:
        made = x.in_rows[tuple([slice(None), *[i.python for i in items]])]
        return from_padded(made, sizes, is_clean=True)
    keep = [slice(None)] * (x.n_leading + 1)
    rows = x.in_rows[tuple([*keep, *[i.python for i in behind]])]
    return _in_front(call, x, rows, leading)


def _in_front(call: Call, x: Ragged, rows: tf.Tensor, items: Sequence[Item]) -> Value:
    """Slices of all leading axes, one after the other, of ``rows``: the padded form of ``x``."""
    sizes, left = list[Any](), list(x.sizes)
    for item in items:
        at = len(sizes)
        if item.kind == "new":
            rows = tf.expand_dims(rows, at + 1)
            sizes.append(1)
            continue
        size = left.pop(0)
        if item.kind == "all":
            sizes.append(size)
        elif isinstance(size, RowSizes) or not item.is_static:
            size = size if isinstance(size, RowSizes) else dim(rows, at + 1)
            rows, lengths = _along(call, rows, at, item, size)
            sizes += [] if lengths is None else [lengths]
        else:
            rows = rows[tuple([*[slice(None)] * (at + 1), item.python])]
            if item.kind == "range":
                sizes.append(rows.shape[at + 1] or tf.shape(rows)[at + 1])
    return from_padded(rows, sizes)


def _sizes_of_slice(x: Ragged, items: Sequence[Item]) -> list[Any] | None:
    """The sizes after a slice that is the same in all rows, of axes that all share; else None."""
    sizes, left = list[Any](), list(x.sizes)
    for item in items:
        if item.kind == "new":
            sizes.append(1)
            continue
        if not item.is_static:
            return None
        size = left.pop(0) if left else None
        if size is None:  # an axis behind the sizes
            continue
        if item.kind == "all":
            sizes.append(size)
        elif not isinstance(size, int):
            return None
        elif item.kind == "range":
            sizes.append(len(range(*item.python.indices(size))))
    return sizes


def _without_ones(x: Ragged, leading: list[Item]) -> tuple[Ragged, list[Item]]:
    """Without the axes of size one of which the only element is taken."""
    sizes, left, at = list[Any](), list[Item](), 0
    for item in leading:
        if item.kind == "new":
            left.append(item)
            continue
        size, at = x.sizes[at], at + 1
        if item.kind == "index" and isinstance(size, int) and size == 1 and item.begin in (0, -1):
            continue
        sizes.append(size)
        left.append(item)
    if len(sizes) == x.n_leading:
        return x, left
    return Ragged.packed(x.tensor, sizes, x.origin), left


def _of_shape(call: Call, input: RowShape) -> Any:
    items = items_of(call, 1)
    if len(items) != 1 or not items[0].is_static or items[0].kind == "new":
        raise CannotVectorize("it slices a shape by numbers that differ")
    found = input.sizes[items[0].python]
    if not isinstance(found, tuple):
        return size_value(call.emit, found, input.dtype)
    return shape_value(call.emit, found, input.dtype)


def _element(call: Call, x: Ragged, item: Item) -> Value:
    """x[i]: an element that each row must have."""
    size = x.size
    at = place_of(call, item, size)
    elements, starts = x.begins()
    return Value.stacked(tf.gather(elements, starts + at))


def _range(call: Call, x: Ragged, item: Item) -> Value:
    """x[a:b] of each row."""
    size = x.size
    if item.stride < 1:
        if is_reversal(item):
            return _reversed(x, size)
        raise CannotVectorize("a slice with a negative stride")
    begin, lengths = range_in(call, item, size)
    if begin is None and lengths is size:
        return x
    starts = row_starts(x.sizes) if begin is None else row_starts(x.sizes) + begin
    if item.stride == 1:
        return Ragged.packed(ranges(x.tensor, starts, lengths.tensor), [lengths])
    rows = row_ids([lengths])
    at = tf.range(tf.shape(rows)[0]) - tf.gather(row_starts([lengths]), rows)
    at = at * item.stride + tf.gather(starts, rows)
    return Ragged.packed(tf.gather(x.tensor, at), [lengths])


def _reversed(x: Ragged, size: RowSizes) -> Value:
    """All elements backwards, of which the rows are then put in their order."""
    cuts = tf.reverse(tf.shape(x.tensor)[0] - size.splits, [0])
    order = tf.range(tf.shape(size.tensor)[0] - 1, -1, -1)
    return Ragged.packed(joined(tf.reverse(x.tensor, [0]), cuts, order), [size])


def gradient_of_range(call: Call, dy: Value) -> Any:
    """The gradient of a tensor of one shape: ``dy`` with zeros around the ranges."""
    target = _full_sizes(call)
    items = items_of(call, len(target))
    if not isinstance(dy, Ragged) or any(i.kind == "index" and not i.is_static for i in items):
        raise CannotVectorize("the gradient of a slice at an index that differs")
    full = iter(target)
    sizes = [1 if i.kind == "new" else next(full) for i in items]
    kept = [(i, size) for i, size in zip(items, sizes) if i.kind != "index"]
    x = dy.in_rows
    for axis, (item, size) in enumerate(kept):
        if not item.is_static:
            x = _placed(call, x, axis, item, size)
    if all(i.kind == "all" or not i.is_static for i in items):
        return Value.stacked(x)
    # Of no rows the longest has no items, where the slice of each row has some.
    room = [_taken(tf.shape(x)[k + 1], item, size) for k, (item, size) in enumerate(kept)]
    x = tf.reshape(x, tf.stack([tf.shape(x)[0], *room]))
    return Value.stacked(_among_zeros(x, items, target))


def _taken(found: tf.Tensor, item: Item, full: int | tf.Tensor) -> int | tf.Tensor:
    """The size of what an item takes of an axis: the size that was found if nothing else tells."""
    if item.kind in ("all", "new") or not item.is_static:
        return full
    return len(range(full)[item.python]) if isinstance(full, int) else found


def _full_sizes(call: Call) -> list[int | tf.Tensor]:
    """The sizes of the tensor that was cut, which all rows share."""
    known, shape = call.maybe_constant("shape"), call.value("shape")
    if known is not None:
        return [int(size) for size in known]
    if shape.is_stacked or not is_static(shape.inner_shape):
        raise CannotVectorize("the shape of the sliced tensor is not known")
    return tf.unstack(tf.cast(shape.tensor, tf.int32), *shape.inner_shape)


def _placed(call: Call, x: tf.Tensor, axis: int, item: Item, full: int | tf.Tensor) -> tf.Tensor:
    """[n, ...] whose elements along an axis stand at their places in the range, among zeros."""
    start, lengths = range_in(call, item, full)
    room, every = tf.shape(x)[axis + 1], tf.range(full)[None]
    at = every if start is None else every - start[:, None]
    is_inside = at >= 0
    if item.stride != 1:
        is_inside &= tf.equal(at % item.stride, 0)
        at //= item.stride
    is_inside &= at < lengths.tensor[:, None]
    more = [[0, 1] if k == axis + 1 else [0, 0] for k in range(len(x.shape))]
    return tf.gather(tf.pad(x, more), tf.where(is_inside, at, room), axis=axis + 1, batch_dims=1)


def _among_zeros(
    x: tf.Tensor, items: Sequence[Item], target: Sequence[int | tf.Tensor]
) -> tf.Tensor:
    """[n, ...] in a tensor [n, *target], for the items that are the same in all rows."""
    begin, end, strides, masks = spec_of([_ALL, *[i if i.is_static else _ALL for i in items]])
    shape = tf.stack([tf.shape(x)[0], *target])
    return tf.raw_ops.StridedSliceGrad(
        shape=shape, begin=begin, end=end, strides=strides, dy=x, **masks
    )
