"""Operands of rows of different shapes, in one form: packed where they allow it, else padded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._variant_types import kept_constant
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.facts import REDUCTION, facts_of, neutral_element
from tf_pfor.core.shapes import expand_to_rank
from tf_pfor.core.values import Value
from tf_pfor.layouts import quick
from tf_pfor.layouts.packing import largest, masked, shared
from tf_pfor.layouts.pieces import elements_repeated, pieces_repeated
from tf_pfor.layouts.ragged import SAYS_SO, Ragged, RowShape, RowSizes, Size, same_sizes
from tf_pfor.layouts.ragged_parts import packed_to
from tf_pfor.layouts.row_sizes import dim, is_one, row_counts

V = TypeVar("V", bound=Value)
SET = "places that are set"
"""In ``RowSizes.shared``: for places in rows, [total, axes], the same with the row in front."""


def size_when_run(value: Value, axis: int) -> Any:
    """The same; a size that is unknown is read from the tensor."""
    size = value.size_at(axis)
    if size is not None:
        return size
    if isinstance(value, Ragged):
        return dim(value.tensor, axis - value.n_leading + 1)
    return dim(value.tensor, axis + int(value.is_stacked))


def broadcast_size(sizes: Sequence[Any], axis: int) -> Any:
    """The size of an axis of what is broadcast together."""
    found = 1
    for size in sizes:
        if is_one(size):
            continue
        if is_one(found):
            found = size
        elif not same_sizes([size], [found]):
            raise CannotVectorize(
                f"the sizes of two inputs along axis {axis}, which differ between iterations, are "
                f"not known to be the same: {SAYS_SO}"
            )
    return found


def equal_size(values: Sequence[Value], axis: int) -> Any:
    """The size of an axis that values share: the kernel checks sizes that no row changes."""
    sizes = [v.size_at(axis) for v in values]
    if any(isinstance(size, RowSizes) for size in sizes):
        return broadcast_size(sizes, axis)
    known = next((size for size in sizes if isinstance(size, int)), None)
    return size_when_run(values[0], axis) if known is None else known


def unified(
    call: Call, values: Sequence[Value], rank: int, *, broadcasts: bool = True
) -> list[Value]:
    """Values that share their sizes, after a check where these are different objects.

    Args:
      call: the call.
      values: the operands.
      rank: the inner rank of the result; the axes of operands are its last ones.
      broadcasts: whether a row of size one is repeated where another operand has more.
    """
    found = list(values)
    for axis in range(rank):
        sizes = [v.size_at(axis - rank + v.rank) for v in found]
        is_own = any(isinstance(s, RowSizes) for s in sizes)
        if is_own and call.uses_packed:
            for i, value in enumerate(found):
                if not isinstance(sizes[i], (int, RowSizes)):
                    found[i] = _with_sizes(call, value, axis - rank + value.rank)
                    sizes[i] = found[i].size_at(axis - rank + value.rank)
        known = {id(s): s for s in sizes if isinstance(s, RowSizes)}
        if len(known) < 2:
            continue
        common, check = _common(call, [*known.values()], axis, broadcasts=broadcasts)
        for i, (value, size) in enumerate(zip(found, sizes)):
            if isinstance(size, RowSizes):
                assert isinstance(value, Ragged)
                found[i] = _resized(call, value, axis - rank + value.rank, common, check)
    return found


def _with_sizes(call: Call, value: Value, axis: int) -> Ragged:
    """Rows that have one size along an axis, a number that is unknown, as if each had its own."""
    x = value.in_rows if isinstance(value, Ragged) else call.stacked(value)
    sizes = [*value.sizes] if isinstance(value, Ragged) else []
    sizes += [dim(x, k + 1) for k in range(len(sizes), axis)]
    own = quick.op("Fill", quick.stack([dim(x, 0)]), dim(x, axis + 1))
    own.set_shape([x.shape[0]])
    sizes[axis : axis + 1] = [RowSizes.of(own)]
    return Ragged.from_padded(x, sizes, call.op.outputs[0])


def with_sizes(call: Call, *places: tuple[Value, int]) -> list[tuple[Value, int]]:
    """The same, each with sizes of the row along its axis if one has: so they can be compared."""
    are_own = [isinstance(v.size_at(axis), RowSizes) for v, axis in places]
    if not any(are_own) or not call.uses_packed:
        return list(places)
    return [
        (v if own else _with_sizes(call, v, axis), axis) for own, (v, axis) in zip(are_own, places)
    ]


def agreed(call: Call, *places: tuple[V, int]) -> list[V]:
    """Values whose sizes along an axis of each must be equal, after a check where nothing says so.

    Args:
      call: the call.
      places: the values, and an inner axis of each.
    """
    sizes = [v.size_at(axis) for v, axis in places]
    known = {id(s): s for s in sizes if isinstance(s, RowSizes)}
    if len(known) < 2 or not all(isinstance(s, RowSizes) for s in sizes):
        if known:
            broadcast_size(sizes, places[0][1])
        return [v for v, _ in places]
    common, check = _common(call, [*known.values()], places[0][1], broadcasts=False)
    rows: list[tuple[Any, int]] = [*places]
    found: list[Any] = [_with_size(value, axis, common, check) for value, axis in rows]
    return found


def squared(call: Call, value: Ragged) -> Ragged:
    """Matrices with the same sizes along both of their axes, after a check if nothing says so."""
    rank = value.rank
    sizes = [value.size_at(axis) for axis in (rank - 2, rank - 1)]
    if sizes[0] is sizes[1] or not all(isinstance(s, RowSizes) for s in sizes):
        return value
    common, check = _common(call, sizes, rank - 1, broadcasts=False)
    return _with_size(value, rank - 1, common, check)


def as_large(call: Call, value: Value, axis: int, size: RowSizes) -> tuple[Value, RowSizes]:
    """A value whose rows have ``size`` along an axis, or one element; and that size, checked."""
    own = value.size_at(axis)
    assert isinstance(value, Ragged)
    assert isinstance(own, RowSizes)
    common, check = _common(call, [own, size], axis, broadcasts=True, goal=size)
    return _resized(call, value, axis, common, check), common


def _common(
    call: Call,
    sizes: Sequence[RowSizes],
    axis: int,
    *,
    broadcasts: bool,
    goal: RowSizes | None = None,
) -> tuple[RowSizes, tf.Operation]:
    """Sizes that stand for all of these, and a check of the rows at hand that they fit.

    The sizes are known apart from the check. So they are the same in all trips of a loop, while
    a row that makes no trip is not checked. A ``goal`` is the one that no other may exceed.
    """
    common, graph = RowSizes.joint(sizes) if broadcasts else sizes[0], call.emit.graph
    key = ("sizes that agree", graph, frozenset(sizes), broadcasts, goal)
    if key not in call.memo:
        call.memo[key] = _check_of_sizes(call, sizes, goal or common, axis, broadcasts=broadcasts)
    return common, call.memo[key]


def _check_of_sizes(
    call: Call, sizes: Sequence[RowSizes], common: RowSizes, axis: int, *, broadcasts: bool
) -> tf.Operation:
    """An op that fails if sizes do not fit."""
    if not call.uses_packed:
        raise CannotVectorize(
            f"the sizes of two inputs may differ, which cannot be checked {call.where_padded}: "
            f"{SAYS_SO}"
        )
    each = tf.stack([s.tensor for s in sizes])
    fits = tf.equal(each, common.tensor)
    fits = fits | tf.equal(each, 1) if broadcasts else fits
    text = f"the sizes of two inputs along axis {axis} differ in some iterations"
    if "incompatible_shape_error" in call.attrs and not call.attr("incompatible_shape_error"):
        text += _OF_ROWS_THAT_DO_NOT_FIT
    text += ". They are"
    return call.check(fits, text, [each])


_OF_ROWS_THAT_DO_NOT_FIT = (
    ", where == of one example is one False, and != one True. Reduce it by tf.reduce_all(x == y) "
    "at once, pad or cut both to one shape, or compare in tf.cond(tf.size(x) == tf.size(y), ...)"
)


def sizes_from(call: Call, shape: RowShape) -> list[Any]:
    """The sizes in a shape; numbers of the row that become sizes must not be negative."""
    found: list[Any] = []
    for i, size in enumerate(shape.sizes):
        if isinstance(size, RowSizes) and size.is_number:
            if _tf.in_xla_context(call.emit.graph):
                raise CannotVectorize("a size of the row, which cannot be checked")
            text = f"size {i} of the shape is negative in some iterations. They are"
            own = call.after_check(size.tensor >= 0, text, [size.tensor], size.tensor)
            own.set_shape(size.tensor.shape)
            size = RowSizes.of(own, size.most)
        found.append(size)
    return found


def known_sizes(shape: Value) -> list[Any]:
    """The numbers of a shape, or of a part of one, some of which are sizes of the row."""
    if isinstance(shape, RowShape):
        return [*shape.sizes]
    if shape.constant is None:
        raise CannotVectorize("a part of the shape is not known")
    return [int(s) for s in shape.constant.reshape([-1])]


def with_room(tensor: tf.Tensor, axis: int, least: Dim) -> tf.Tensor:
    """``tensor`` with zeros behind it, so that an axis has so many elements at least."""
    rank, room = tensor.shape.rank, dim(tensor, axis)
    assert rank is not None
    if isinstance(room, int) and isinstance(least, int) and room >= least:
        return tensor
    more = tf.maximum(least - room, 0)
    made = tf.pad(tensor, more * np.array([[0, int(k == axis)] for k in range(rank)], np.int32))
    made.set_shape([None if k == axis else size for k, size in enumerate(tensor.shape)])
    return made


def of_room(x: tf.Tensor, axis: int, room: Dim) -> tf.Tensor:
    """A tensor with exactly the given room along an axis."""
    if isinstance(room, int) and x.shape[axis] == room:
        return x
    wide = with_room(x, axis, room)
    is_axis = np.eye(x.shape.rank, dtype=np.int32)[axis]
    made = tf.slice(wide, np.zeros_like(is_axis), is_axis * (room + 1) - 1)  # -1: all of an axis
    known = room if isinstance(room, int) else None
    made.set_shape([known if k == axis else s for k, s in enumerate(x.shape)])
    return made


def of_equal_room(rows: Sequence[tf.Tensor], sizes: Sequence[Any]) -> list[tf.Tensor]:
    """Padded forms of rows of the same sizes, which may have room of different sizes."""
    found = [*rows]
    for axis, size in enumerate(sizes):
        if isinstance(size, RowSizes):
            found = [of_room(x, axis + 1, largest(size)) for x in found]
    return found


def _with_size(value: Ragged, axis: int, common: RowSizes, check: tf.Operation) -> Ragged:
    """``value`` with sizes along an axis that are its own, after the check that says so.

    All of one object of sizes have the same room: a padded form gets just what they need.
    """
    sizes = [*value.sizes[:axis], common, *value.sizes[axis + 1 :]]
    is_packed = value.is_packed or not value.is_padded
    if is_packed and value.sizes[axis] is common:
        return value
    with tf.control_dependencies([check]):
        x = tf.identity(value.tensor if is_packed else value.in_any_rows)
    if is_packed:
        return Ragged.packed(x, sizes, value.origin)
    is_clean, x = value.loose is None, of_room(x, axis + 1, largest(common))
    return Ragged.from_padded(x, sizes, value.origin, is_clean=is_clean, is_tame=value.is_tame)


def _resized(call: Call, value: Ragged, axis: int, common: RowSizes, check: tf.Operation) -> Value:
    """``value`` with these sizes along an axis, after a check; a row of one element repeats it."""
    own = value.sizes[axis]
    assert isinstance(own, RowSizes)
    if own is common:
        return value
    x, key = value.in_rows, ("places after a check", common, check)
    if key not in call.memo:
        places = quick.expand(quick.numbers(largest(common)), 0)
        with tf.control_dependencies([check]):
            call.memo[key] = tf.identity(places)
    is_one_element = quick.expand(quick.both("Equal", own.tensor, 1), 1)
    at = quick.where(is_one_element, 0, call.memo[key])
    last = quick.both("Maximum", quick.subtract(dim(x, axis + 1), 1), 0)
    at = quick.both("Minimum", at, last)
    wide = quick.gather(x, at, axis + 1, batch_dims=1)
    sizes = [*value.sizes[:axis], common, *value.sizes[axis + 1 :]]
    made = from_padded(wide, sizes)
    assert isinstance(made, Ragged)
    return made


def row_ids(sizes: Sequence[Size]) -> tf.Tensor:
    """int32 [total]: of which row the elements of the packed form are."""
    if len(sizes) == 1 and isinstance(sizes[0], RowSizes):
        return sizes[0].rows
    return shared(sizes, "row ids", lambda: RowSizes.of(row_counts(sizes)).rows)


def row_sizes(call: Call, tensor: tf.Tensor, most: int | None = None) -> RowSizes:
    """Numbers int32 [n] as the sizes of the rows."""
    tensor.set_shape([call.loop.static_length])
    return RowSizes.of(tensor, most)


def row_starts(sizes: Sequence[Size]) -> tf.Tensor:
    """int32 [n]: where the rows begin in the packed form."""
    if len(sizes) == 1 and isinstance(sizes[0], RowSizes):
        return sizes[0].starts
    return tf.cumsum(row_counts(sizes), exclusive=True)


def coordinates(sizes: Sequence[Size], at: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The rows of some entries of the packed form, and their places along each axis.

    Args:
      sizes: the sizes of the rows.
      at: [m], numbers of entries.
    """
    rows = quick.gather(row_ids(sizes), at)
    left = quick.subtract(at, tf.cast(quick.gather(row_starts(sizes), rows), at.dtype))
    found: list[tf.Tensor] = []
    for size in sizes[:0:-1]:
        own = tf.gather(size.tensor, rows) if isinstance(size, RowSizes) else size
        own = tf.cast(own, at.dtype)
        found.insert(0, left % own)
        left //= own
    return rows, [left, *found]


def takes_packed(call: Call, *values: Value) -> bool:
    """Whether the packed form of one of some values is there, for what is as cheap in either."""
    known = [v for v in values if isinstance(v, Ragged)]
    return call.uses_packed and any(v.is_packed or not v.is_padded for v in known)


def aligned(
    call: Call, value: Value, sizes: Sequence[Size], rank: int, *, may_repeat: bool = False
) -> tf.Tensor | None:
    """``value`` so that it broadcasts with the packed form of these sizes; None if it does not.

    Args:
      call: the call.
      value: an operand of broadcasting.
      sizes: the sizes of the leading axes of the result.
      rank: the inner rank of the result.
      may_repeat: whether elements may be repeated along axes that differ between rows.
    """
    missing, count = rank - value.rank, len(sizes)
    mine = [value.size_at(i - missing) for i in range(count)]
    if isinstance(value, Ragged) and not all(is_one(s) for s in mine):
        if not missing and same_sizes(mine, sizes):
            return packed_to(value, count)
        return _repeated_along(value, sizes, mine, count - missing) if may_repeat else None
    if not all(is_one(s) for s in mine):
        return None
    leading = max(count - missing, 0)  # its own axes of size one
    tensor = value.standard(call.emit).tensor
    if not value.is_stacked:
        return tf.reshape(tensor, tf.shape(tensor)[leading:]) if leading else tensor
    fixed = Value.stacked(tf.squeeze(tensor, [*range(1, leading + 1)]) if leading else tensor)
    wide = expand_to_rank(call, fixed, rank - count)
    return tf.gather(wide, row_ids(sizes))


def _repeated_along(
    value: Ragged, sizes: Sequence[Size], mine: Sequence[Any], count: int
) -> tf.Tensor | None:
    """Packed rows, broadcast along the first or the last axes, as in x[:, None] and x[None].

    Args:
      value: the rows.
      sizes: the sizes of the leading axes of the result.
      mine: the sizes of the rows along these axes.
      count: the number of these axes that the rows have.

    Returns:
      The packed form; None where both the first and the last axes are repeated.
    """
    own = [i for i, size in enumerate(mine) if not is_one(size)]
    fits = all(same_sizes([mine[i]], [sizes[i]]) for i in own)
    before, after = sizes[: own[0]], sizes[own[-1] + 1 :]
    is_first, is_last = (not all(map(is_one, some)) for some in (before, after))
    is_gap = len(own) < own[-1] + 1 - own[0]
    if not fits or is_gap or (is_first and is_last) or value.n_leading > count:
        return None
    x, within = packed_to(value, count), sizes[own[0] : own[-1] + 1]
    if is_last:
        ids = lambda: RowSizes.of(_times(row_counts(after), within)).rows  # noqa: E731
        return elements_repeated(x, shared(sizes, ("elements", own[-1]), ids))
    if not is_first:
        return x
    if not any(isinstance(s, RowSizes) for s in before):
        return None
    return pieces_repeated(
        x,
        shared(within, "splits", lambda: _splits(within)),
        shared(before, "rows", lambda: row_ids(before)),
    )


def _times(count: Any, sizes: Sequence[Size]) -> tf.Tensor:
    """int32 [total]: a number of the row, or of all rows, for each element of the packed form."""
    rows = row_ids(sizes)
    return tf.gather(tf.broadcast_to(count, tf.shape(row_counts(sizes))), rows)


def _splits(sizes: Sequence[Size]) -> tf.Tensor:
    """int32 [n + 1]: where the rows begin in the packed form, and where the last one ends."""
    return RowSizes.of(row_counts(sizes)).splits


def padded(call: Call, value: Value, rank: int) -> tf.Tensor:
    """The padded form [n, ...] of inner rank ``rank``; what is invariant stays as it is."""
    if isinstance(value, Ragged):
        return expand_to_rank(call, Value.stacked(value.in_rows), rank)
    if value.is_stacked:
        return expand_to_rank(call, value, rank)
    return value.tensor


def repeated(value: Value) -> Value:
    """A value with elements of the row in its padding: what is finite there stays finite.

    Rows of no elements have ones.
    """
    if not isinstance(value, Ragged):
        return value
    x = value.in_rows
    for axis, size in enumerate(value.sizes):
        if isinstance(size, RowSizes):
            room = tf.shape(x)[axis + 1]
            at = tf.minimum(tf.range(room)[None], tf.maximum(size.tensor - 1, 0)[:, None])
            x = tf.gather(x, at, axis=axis + 1, batch_dims=1)
    if x.dtype != tf.string:
        is_empty = tf.equal(row_counts(value.sizes), 0)
        ones = tf.ones([], x.dtype)
        x = tf.where(tf.reshape(is_empty, [-1, *[1] * value.rank]), ones, x)
    return Value.stacked(x)


def parted(sizes: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The sizes up to the last one that differs between rows, and those behind."""
    last = max((i for i, s in enumerate(sizes) if isinstance(s, RowSizes)), default=-1)
    return [*sizes[: last + 1]], [*sizes[last + 1 :]]


def from_padded(
    tensor: tf.Tensor, sizes: Sequence[Any], *, is_clean: bool = False, is_tame: bool = False
) -> Value:
    """A result from its padded form: ragged, or dense if no size differs.

    Args:
      tensor: [n, largest, ...].
      sizes: the sizes of its inner axes.
      is_clean: whether there are zeros in the padding.
      is_tame: whether all in the padding is finite.
    """
    leading, _ = parted(sizes)
    if not leading:
        return Value.stacked(tensor)
    return Ragged.from_padded(tensor, leading, is_clean=is_clean, is_tame=is_tame)


def from_packed(tensor: tf.Tensor, sizes: Sequence[Any]) -> Ragged:
    """A ragged result from its packed form and the sizes of all axes."""
    leading, rest = parted(sizes)
    tensor.set_shape([None, *[s if isinstance(s, int) else None for s in rest]])
    return Ragged.packed(tensor, leading)


def all_packed(tensors: tf.Tensor | Iterable[tf.Tensor], sizes: Sequence[Size]) -> list[Value]:
    """Ragged results of the same sizes; one tensor is one."""
    several = [tensors] if isinstance(tensors, tf.Tensor) else tensors
    return [Ragged.packed(t, sizes) for t in several]


def constant_axes(call: Call, name: str, rank: int) -> list[int]:
    """An input that names axes, which must be known, from the front."""
    found = call.maybe_constant(name)
    if found is None:
        found = kept_constant(call, call.tensor_of(name))
    if found is None:
        found = call.constant(name)  # which says that it is none
    return [int(a) % rank if rank else 0 for a in found.reshape([-1])]


def behind(call: Call, x: Ragged, axes: Sequence[int]) -> list[int] | None:
    """The same axes of the packed form; None if it may not be used, or has not all of them.

    It has the axes behind the last one that differs between rows.
    """
    if not call.uses_packed or any(a < x.n_leading for a in axes):
        return None
    return [a - x.n_leading + 1 for a in axes]


def over_axes(
    call: Call,
    x: Ragged,
    axes: Sequence[int],
    *,
    left: Sequence[Size] | None = None,
    run: Callable[[tf.Tensor, list[int]], tf.Tensor] | None = None,
) -> Value:
    """An op over axes of each row: packed where all rows share them, else padded.

    In the padding are elements that change no result.

    Args:
      call: the call.
      x: the rows.
      axes: the inner axes, from the front.
      left: the sizes of the result, if other axes than these are left or kept.
      run: makes the result of a form and of the axes in that; the op itself if it is None.
    """
    run = run or functools.partial(_rebuilt, call)
    moved = behind(call, x, axes)
    if moved is not None:
        return Ragged.packed(run(x.tensor, moved), x.sizes)
    rows = x.in_rows
    if facts_of(call.op_type).neutral is not None:
        neutral = neutral_element(call.op_type, x.dtype)
        rows = x.in_masked_rows if neutral == 0 else masked(x.in_any_rows, x.sizes, neutral)
    return from_padded(run(rows, [a + 1 for a in axes]), x.sizes if left is None else left)


def _rebuilt(call: Call, tensor: tf.Tensor, axes: list[int]) -> tf.Tensor:
    """The op on another tensor and other axes, as its facts name these inputs."""
    facts = facts_of(call.op_type)
    where = np.asarray(axes if facts.family == REDUCTION else axes[0], np.int32)
    return call.rebuild(**{next(iter(call.inputs)): tensor, facts.axes[0]: where})


def of_elements(call: Call, made: tf.Tensor, sizes: Sequence[Any]) -> Value:
    """A result whose elements follow each other, row by row."""
    leading, rest = parted(sizes)
    if not leading:
        return call.like(tf.reshape(made, tf.stack([call.loop.length, *sizes])))
    return from_packed(tf.reshape(made, tf.stack([-1, *rest])), sizes)


def zeros_of(call: Call, sizes: Sequence[Any], dtype: tf.DType) -> Value:
    """Rows of these sizes, with zeros in them: input of a linear op, whose gradient is asked."""
    are_bounded = all(s.most is not None for s in sizes if isinstance(s, RowSizes))
    if not (are_bounded or call.uses_packed):
        raise CannotVectorize(f"how large rows may be is not known, {call.where_padded}")
    zeros = tf.zeros(tf.stack([call.loop.length, *map(largest, sizes)]), dtype)
    known = [s if isinstance(s, int) else None for s in map(largest, sizes)]
    zeros.set_shape([call.loop.static_length, *known])
    return from_padded(zeros, sizes, is_clean=True)


def gradient_of(call: Call, rule: Callable[[Value], Value], input: Value, upstream: Value) -> Value:
    """The result of a gradient op, by the rule of the op whose gradient it is.

    A rule is made of ops that have gradients: a gradient op needs no formula of its own.

    Args:
      call: the gradient op.
      rule: makes the padded rows of the result of an input.
      input: rows, which differ in size or not.
      upstream: gradients of the result: rows of the sizes of the result.
    """
    sizes = input.sizes if isinstance(input, Ragged) else ()
    rows = input.in_rows if isinstance(input, Ragged) else call.stacked(input)
    x = tf.identity(rows)
    made = rule(from_padded(x, sizes, is_clean=True))
    if isinstance(made, Ragged) is not isinstance(upstream, Ragged):
        raise CannotVectorize("what flows back is not known to have the sizes of the result")
    if isinstance(made, Ragged) and isinstance(upstream, Ragged):
        for axis in range(max(made.n_leading, upstream.n_leading)):
            made, upstream = agreed(call, (made, axis), (upstream, axis))
        parts = of_equal_room([made.in_any_rows, upstream.in_rows], made.sizes)
    else:
        parts = [call.stacked(made), call.stacked(upstream)]
    (back,) = tf.gradients(parts[0], x, parts[1], unconnected_gradients="zero")
    return from_padded(back, sizes)
