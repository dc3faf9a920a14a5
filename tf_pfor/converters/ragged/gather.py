"""Gathers by ragged indices, concatenation, and shapes that are joined."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.ragged._forms import (
    SET,
    agreed,
    constant_axes,
    equal_size,
    from_padded,
    known_sizes,
    of_equal_room,
    padded,
    row_ids,
    row_starts,
    size_when_run,
    unified,
    with_room,
)
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import largest, mask_of
from tf_pfor.layouts.pieces import joined
from tf_pfor.layouts.ragged import (
    Ragged,
    RowShape,
    RowSizes,
    Size,
    is_ragged,
    same_sizes,
    shape_value,
    size_value,
)
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.ragged_rules import ragged_rule
from tf_pfor.layouts.row_sizes import as_number, dim


@ragged_rule("GatherV2", of_shapes=True, of_one_axis=True)
def gather(call: Call, params: Value, indices: Value, axis: Value) -> Any:
    """From a table or a tensor of the row by ragged indices; of ragged rows by indices."""
    if isinstance(params, RowShape):
        return _some_sizes(call, params, indices)
    if not (is_ragged(params) or is_ragged(indices)):  # the indices are sizes of rows
        raise CannotVectorize("numbers of one shape")
    (at,) = constant_axes(call, "axis", params.rank)
    batch: int = call.attr("batch_dims")
    batch += indices.rank if batch < 0 else 0
    is_behind = isinstance(params, Ragged) and at >= params.n_leading and not indices.is_stacked
    if is_behind and not batch and call.uses_packed:  # an axis that all share
        assert isinstance(params, Ragged)
        made = tf.gather(params.tensor, indices.tensor, axis=at - params.n_leading + 1)
        return Ragged.packed(made, params.sizes)
    is_of_rows = not isinstance(params, Ragged) or params.n_leading == 1
    if at or batch or not call.uses_packed or not is_of_rows:
        return _along(call, params, indices, at, batch)
    if isinstance(indices, Ragged) and not isinstance(params, Ragged):
        if not params.is_stacked:
            made = tf.gather(params.tensor, indices.tensor)
            return Ragged.packed(made, indices.sizes)
        where = _set_places(indices) if indices.rank == 1 else None
        if where is None:
            rows = _rows_like(indices.tensor, indices.sizes)
            where = tf.stack([rows, indices.tensor], -1)
        return Ragged.packed(tf.gather_nd(params.tensor, where), indices.sizes)
    assert isinstance(params, Ragged)
    size = params.size
    if isinstance(indices, Ragged):
        rows = _rows_like(indices.tensor, indices.sizes)
        places, sizes = tf.cast(indices.tensor, tf.int32), tf.gather(size.tensor, rows)
        starts = tf.gather(row_starts(params.sizes), rows)
        made = tf.gather(params.tensor, _checked(call, places, sizes, size) + starts)
        return Ragged.packed(made, indices.sizes)
    places = tf.cast(indices.tensor, tf.int32)
    shape = [-1, *[1] * indices.rank]
    elements, begins = params.begins()
    sizes, starts = (tf.reshape(t, shape) for t in (size.tensor, begins))
    return Value.stacked(tf.gather(elements, _checked(call, places, sizes, size) + starts))


def _set_places(indices: Ragged) -> tf.Tensor | None:
    """[total, 2]: the rows and places that ``tf.where`` has found, if the indices are its own."""
    (size,) = indices.sizes[:1]
    known = size.shared.get(SET, {}) if isinstance(size, RowSizes) else {}
    tensor = indices.tensor
    while tensor.op.type in ("Identity", "Squeeze") and tensor.ref() not in known:
        tensor = tensor.op.inputs[0]
    found = known.get(tensor.ref())
    return found if found is not None and found.shape[1] == 2 else None


def _along(call: Call, params: Value, indices: Value, at: int, batch: int) -> Value:
    """Along any axis, with axes of both that belong together."""
    for axis in range(batch):
        if len({isinstance(v.size_at(axis), RowSizes) for v in (params, indices)}) > 1:
            raise CannotVectorize("axes that belong together are not known to be of one size")
        params, indices = agreed(call, (params, axis), (indices, axis))
    both = [v for v in (params, indices) if isinstance(v, Ragged)]
    count = max(v.n_leading for v in both)
    if len(both) == 2 and count <= batch and call.uses_packed:
        wide, places = (packed_to(v, count) for v in both)
        made = tf.gather(wide, places, axis=at - count + 1, batch_dims=batch - count + 1)
        return Ragged.packed(made, next(v.sizes for v in both if v.n_leading == count))
    return _padded_along(call, params, indices, at, batch)


def _padded_along(call: Call, params: Value, indices: Value, at: int, batch: int) -> Value:
    """In the padded form: the padding of indices reads the first element."""
    if not params.is_stacked and batch:
        params = Value.stacked(call.stacked(params)).with_inner_shape(params.inner_shape)
    axis = at + int(params.is_stacked)
    table = params.in_any_rows if isinstance(params, Ragged) else params.tensor
    if not table.shape[axis]:
        call.require_packed("from an axis that may be empty")
        table = with_room(table, axis, 1)
    is_own = indices.is_stacked or batch > 0
    places = padded(call, indices, indices.rank) if is_own else indices.tensor
    if is_own and not indices.is_stacked:
        places = call.stacked(indices)
    if batch:
        table, places = of_equal_room([table, places], [params.size_at(k) for k in range(batch)])
    places = _inside(call, params, indices, at, places)
    side = int(is_own and params.is_stacked)
    made = tf.gather(table, places, axis=axis, batch_dims=batch + side)
    if not params.is_stacked:  # the rows stand where the indices do
        rank = made.shape.rank
        assert rank is not None
        made = tf.transpose(made, [at, *range(at), *range(at + 1, rank)])
    sizes = [params.size_at(k) for k in range(params.rank)]
    sizes[at : at + 1] = [indices.size_at(k) for k in range(batch, indices.rank)]
    sizes = [dim(made, k + 1) if s is None else s for k, s in enumerate(sizes)]
    return from_padded(made, sizes)


def _inside(call: Call, params: Value, indices: Value, at: int, places: tf.Tensor) -> Any:
    """Padded places, after a check that they are inside of the row, if rows differ there."""
    size = params.size_at(at)
    if not isinstance(size, RowSizes) or _tf.in_xla_context(call.emit.graph):
        return places
    wide = places if places.shape.rank > indices.rank else places[None]
    room = tf.reshape(tf.cast(size.tensor, wide.dtype), [-1, *[1] * indices.rank])
    is_right = (wide >= 0) & (wide < room)
    if isinstance(indices, Ragged):
        count = indices.n_leading
        mask: Any = mask_of(indices.sizes, [dim(wide, k + 1) for k in range(count)])
        is_right |= ~mask[(..., *[tf.newaxis] * (indices.rank - count))]
    text = "an index is out of bounds in some iterations. The sizes are"
    return call.after_check(is_right, text, [size.tensor], places)


def _rows_like(tensor: tf.Tensor, sizes: tuple[Size, ...]) -> tf.Tensor:
    """The row number of each element of a packed tensor, in its shape and dtype."""
    rows = tf.cast(row_ids(sizes), tensor.dtype)
    rank = tensor.shape.rank
    assert rank is not None
    wide = tf.reshape(rows, [-1, *[1] * (rank - 1)])
    return tf.broadcast_to(wide, tf.shape(tensor))


def _checked(call: Call, at: tf.Tensor, sizes: tf.Tensor, size: RowSizes) -> tf.Tensor:
    """Places that must be inside of the row."""
    text = "an index is out of bounds in some iterations. The sizes are"
    return call.after_check((at >= 0) & (at < sizes), text, [size.tensor], at)


@ragged_rule("ConcatV2", of_shapes=True)
def concat(call: Call, values: list[Value], axis: Value) -> Any:
    """Along an axis that differs, or one behind these; of shapes, a shape."""
    if any(isinstance(v, RowShape) for v in values):
        if all(isinstance(v, RowShape) or v.constant is not None for v in values):
            return _joined_shapes(call, values)
        values = [Value.stacked(v.tensor) if isinstance(v, RowShape) else v for v in values]
    rank = values[0].rank
    (at,) = constant_axes(call, "axis", rank)
    first = next((v for v in values if isinstance(v, Ragged)), None)
    if first is None:
        raise CannotVectorize("numbers of one shape")
    count = first.n_leading
    if call.uses_packed and at >= count:
        if all(isinstance(v, Ragged) and v.n_leading == count for v in values):
            values = unified(call, values, rank, broadcasts=False)
            first = values[0]
            assert isinstance(first, Ragged)
        same = [isinstance(v, Ragged) and same_sizes(v.sizes, first.sizes) for v in values]
        if not all(same):
            raise CannotVectorize("the sizes of what is joined are not known to be the same")
        made = tf.concat([v.tensor for v in values], at - count + 1)
        return Ragged.packed(made, first.sizes)
    if count != 1 or not call.uses_packed or not all(_is_of_rows(v) for v in values):
        return _joined_padded(call, values, rank, at)
    parts = [_as_rows(call, v) for v in values]
    lengths = [size.tensor for _, size in parts]
    bounds = [size.most for _, size in parts]
    most = None if None in bounds else sum(b for b in bounds if b is not None)
    total = RowSizes.of(tf.add_n(lengths), most)
    begins, count = list[Any](), 0
    for tensor, size in parts:
        begins.append(size.starts + count)
        count += tf.shape(tensor)[0]
    pieces = tf.reshape(tf.range(tf.size(begins)), tf.stack([len(parts), -1]))
    order = tf.reshape(tf.transpose(pieces), [-1])
    whole = tf.concat([tensor for tensor, _ in parts], 0)
    return Ragged.packed(joined(whole, tf.concat([*begins, [count]], 0), order), [total])


def _is_of_rows(value: Value) -> bool:
    """Whether at most the first axis differs."""
    return not isinstance(value, Ragged) or value.n_leading == 1


def _joined_padded(call: Call, values: list[Value], rank: int, at: int) -> Value:
    """In the padded form: each place of the result reads its part where that has it."""
    values = [v if v.is_stacked else call.like(call.stacked(v)) for v in values]
    sizes: list[Any] = [None] * rank
    for k in range(rank):
        if k != at:
            values = agreed(call, *((v, k) for v in values))
            sizes[k] = equal_size(values, k)
    rows = [padded(call, v, rank) for v in values]
    lengths = [size_when_run(v, at) for v in values]
    rows = of_equal_room(rows, sizes)
    wide = tf.concat(rows, at + 1)
    if not any(isinstance(s, RowSizes) for s in lengths):
        whole = sum(lengths) if all(isinstance(s, int) for s in lengths) else tf.add_n(lengths)
        return from_padded(wide, [*sizes[:at], whole, *sizes[at + 1 :]])
    total = functools.reduce(_sum_of_sizes, lengths, 0)
    place = tf.range(largest(total))[None]
    source, begin, room = tf.zeros_like(place), 0, 0
    for length, x in zip(lengths, rows):
        own = length.tensor[:, None] if isinstance(length, RowSizes) else length
        is_mine = (place >= begin) & (place < begin + own)
        source = tf.where(is_mine, place - begin + room, source)
        begin, room = begin + own, room + dim(x, at + 1)
    made = tf.gather(wide, source, axis=at + 1, batch_dims=1)
    return from_padded(made, [*sizes[:at], total, *sizes[at + 1 :]])


def _as_rows(call: Call, value: Value) -> tuple[tf.Tensor, RowSizes]:
    """A part of a concatenation, packed, with its sizes."""
    if isinstance(value, Ragged):
        if value.n_leading != 1 or not isinstance(value.sizes[0], RowSizes):
            raise CannotVectorize("the joined tensors differ along several axes")
        return value.tensor, value.sizes[0]
    tensor = call.stacked(value)
    shape = tf.shape(tensor)
    return packed_to(tensor, 1), RowSizes.of(tf.fill([shape[0]], shape[1]), tensor.shape[1])


def _joined_shapes(call: Call, values: list[Value]) -> Any:
    sizes = [s for value in values for s in known_sizes(value)]
    return shape_value(call.emit, sizes, call.output_dtype())


@ragged_rule("ConcatOffset", of_shapes=True)
def concat_offset(call: Call, concat_dim: Value, shape: list[Value]) -> Any:
    """The begins of the parts of a concatenation: sums of their sizes along its axis."""
    (at,) = call.constant("concat_dim").reshape([-1])
    found, offset = list[Any](), 0
    for value in shape:
        sizes = known_sizes(value)
        place: list[Any] = [0] * len(sizes)
        place[at] = offset
        found.append(shape_value(call.emit, place, call.output_dtype()))
        offset = _sum_of_sizes(offset, sizes[at])
    return found


def _sum_of_sizes(a: Size, b: Size) -> Any:
    if isinstance(a, int) and (isinstance(b, int) or not a):
        return a + b if isinstance(b, int) else b
    bounds: list[Any] = [s.most if isinstance(s, RowSizes) else s for s in (a, b)]
    numbers: list[Any] = [as_number(s) for s in (a, b)]
    is_known = all(isinstance(s, int) for s in bounds)
    return RowSizes.of(numbers[0] + numbers[1], bounds[0] + bounds[1] if is_known else None)


def _some_sizes(call: Call, params: RowShape, indices: Value) -> Any:
    """Some numbers of a shape."""
    known = indices.constant
    if known is None:
        raise CannotVectorize("which sizes are meant is not known")
    if known.ndim == 0:
        return size_value(call.emit, params.sizes[int(known)], params.dtype)
    return shape_value(call.emit, [params.sizes[int(i)] for i in known.reshape([-1])], params.dtype)
