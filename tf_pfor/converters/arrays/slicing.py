"""Slices: begins and ends that are the same in all iterations, and ones that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor._tf._strided_slices import MASKS, Item, spec_of
from tf_pfor.converters.arrays import _row_windows
from tf_pfor.converters.arrays._indexing import (
    Index,
    Reach,
    elements,
    gather_nd_rows,
    is_inside,
    loop_offset,
    positions,
    row_numbers,
    starts,
    take,
)
from tf_pfor.converters.arrays._slice_items import (
    is_constant,
    items_of,
    shifted_masks,
    windows_of,
)
from tf_pfor.converters.math._families import behind_n
from tf_pfor.converters.math._slice_gradients import piece_or_zeros
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, PastEdge
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, leading, reshaped, transpose
from tf_pfor.core.values import Value, dims, is_static

# ---------------------------------------------------------------------------
# StridedSlice
# ---------------------------------------------------------------------------


@RegisterPFor("StridedSlice", ("input",), attrs=MASKS)
def strided_slice(call: Call, input: Value, begin: Value, end: Value, strides: Value) -> Any:
    """The same slice of every row: all masks move by one; a Reshape where all is taken."""
    _check_rank(input.inner_rank)
    if input.inner_rank is None or not is_constant(call):
        return call.rebuild(input=input.tensor, **shifted_masks(call))
    return _constant_slice(call, input, items_of(call, input.inner_rank))


def _check_rank(inner_rank: int | None) -> None:
    """The gradient kernel returns memory that nobody wrote for more than 8 axes."""
    if inner_rank is not None and inner_rank > 7:
        raise CannotVectorize("the kernels of slices take 8 axes, the loop included")


def _constant_slice(call: Call, input: Value, items: list[Item]) -> Value:
    """A slice that is known before running, of a stacked or an invariant tensor."""
    shape = input.inner_shape
    assert shape is not None
    if all(item.kind == "all" for item in items):
        return input
    if not input.is_stacked:
        return Value.unstacked(_emit_slice(call, input.tensor, items))
    if all(item.kind == "new" or item.takes_all(shape[item.axis]) for item in items):
        sizes = inner_dims(call, input)
        kept = [item for item in items if item.kind != "index"]
        return reshaped(call, input, [1 if k.kind == "new" else sizes[k.axis] for k in kept])
    free = next((i for i, item in enumerate(items) if item.kind != "all"), len(items))
    form = leading(call, [input], free)
    made = _emit_slice(call, form.tensors[0], [_ALL, *items[form.skip :]])
    rest = dims(made)
    return form.result(made, None if rest is None else (*shape[: form.skip], *rest[1:]))


def _emit_slice(call: Call, tensor: tf.Tensor, items: Sequence[Item]) -> Any:
    *vectors, masks = spec_of(items)
    return call.emit("StridedSlice", tensor, *vectors, **masks)


@RegisterPFor("StridedSlice", ANY, attrs=MASKS)
def strided_slice_by_row(call: Call, input: Value, begin: Value, end: Value, strides: Value) -> Any:
    """Another slice of every row: what is constant is cut first, the rest is gathered.

    x[i] for the number i of the iteration is x itself; x_i[a_i, b_i] is one GatherNd;
    x_i[a_i : a_i + k] gathers a_i + [0, ..., k - 1].
    """
    if strides.is_stacked:
        raise CannotVectorize("the strides differ between iterations")
    items = windows_of(call, call.require_rank(input))
    ranges = [k for k in items if isinstance(k.end, Reach)]
    inside = [is_inside(call, input, k.axis, k.begin, k.end) for k in ranges]
    if False in inside:
        raise CannotVectorize("it reaches past the edge in some iterations, where it is shorter")
    if None in inside:
        raise PastEdge(
            "it may reach past the edge in some iterations, where it is shorter",
            lambda: _read(call, input, items),
        )
    return _read(call, input, items)


def _read(call: Call, input: Value, items: list[Item]) -> Value:
    """Cuts what is constant, then reads the other axes by their indices."""
    cut = [k if k.is_static else Item("all", k.axis) for k in items]
    x = _constant_slice(call, input, cut)
    left = [k for k in items if k.kind != "index" or not k.is_static]  # one for each axis of x
    todo = [i for i, k in enumerate(left) if not k.is_static]
    if not x.is_stacked:  # an axis read by the number of the iteration: no gather
        for i in todo:
            begin = left[i].begin
            if left[i].kind == "index" and loop_offset(call, begin.tensor) is not None:
                x = take(call, x, i, begin)
                del left[i]
                break
        todo = [i for i, k in enumerate(left) if not k.is_static]
    kinds = {left[i].kind for i in todo}
    if len(todo) > 1 and todo == [*range(len(todo))] and kinds == {"index"}:
        return gather_nd_rows(call, x, [left[i].begin for i in todo])
    are_ranges = kinds <= {"range"}
    if are_ranges and todo and x.is_stacked:
        made = _large_window(call, x, [left[i] if i in todo else None for i in range(len(left))])
        if made is not None:
            return made
    # Ranges keep their axis: the first one leaves least for the others, and in large pieces.
    for i in todo if are_ranges else reversed(todo):
        x = take(call, x, i, left[i].begin, left[i].end)
    return x


def _large_window(call: Call, x: Value, items: list[Item | None]) -> Value | None:
    """Windows that are copied row by row (``_row_windows``), None if they are gathered.

    Args:
      call: the op.
      x: the tensor that is read.
      items: the range of each axis, None for all of it.
    """
    shape: Any = x.inner_shape
    if shape is None or len(shape) != len(items):
        return None
    sizes = [d if k is None else k.end.count for d, k in zip(shape, items)]
    if any(k and k.stride != 1 for k in items):
        return None
    if not _row_windows.are_large(call, shape, sizes, x.dtype):
        return None
    firsts = [k and starts(call, x, i, k.begin, k.end) for i, k in enumerate(items)]
    return _by_windows(call, lambda at: _row_windows.read(x.tensor, at, sizes), firsts)


def _by_windows(call: Call, copy: Callable[..., Any], firsts: Sequence[Any]) -> Value:
    """The result of ``copy`` for begins int32 [n, rank].

    ``firsts`` has numbers [n] or [] for an axis, None for 0.
    """
    call.note("a large window: copied row by row on a CPU, else gathered")
    with call.emit.as_default():
        n = call.loop.length
        wide = [tf.broadcast_to(0 if f is None else tf.cast(f, tf.int32), [n]) for f in firsts]
        at = tf.stack(wide, 1)
        at.set_shape([call.loop.static_length, len(firsts)])
        made = copy(at)
    return Value.stacked(made)


_ALL = Item("all")

# ---------------------------------------------------------------------------
# The gradient of StridedSlice
# ---------------------------------------------------------------------------


@RegisterPFor("StridedSliceGrad", ("dy",), attrs=MASKS)
def strided_slice_grad(
    call: Call, shape: Value, begin: Value, end: Value, strides: Value, dy: Value
) -> Any:
    """Puts dy among zeros, the same for every row; a Reshape where all was taken."""
    sizes = call.maybe_constant("shape")
    _check_rank(None if sizes is None else len(sizes))
    if sizes is not None and is_constant(call):
        return _constant_grad(call, dy, items_of(call, len(sizes)), [int(s) for s in sizes])
    changes = shifted_masks(call)
    return call.rebuild(shape=behind_n(call, shape.tensor), dy=dy.tensor, **changes)


def _constant_grad(call: Call, dy: Value, items: list[Item], sizes: list[int]) -> Value:
    """Puts dy, of the shape of the slice, among zeros of the shape ``sizes``."""
    if all(item.kind == "new" or item.takes_all(sizes[item.axis]) for item in items):
        if all(item.kind in ("all", "range") for item in items):
            return dy
        return reshaped(call, dy, sizes)
    return _piece(call, dy, items, sizes) or _among_zeros(call, dy, items, sizes)


def _piece(call: Call, dy: Value, items: list[Item], sizes: list[int]) -> Value | None:
    """The gradient of a slice that takes a part of axis 0 and all of the others; else None."""
    first, *others = items
    if first.axis != 0 or not first.is_static or first.kind == "all" or first.stride != 1:
        return None
    if not all(item.takes_all(sizes[item.axis]) for item in others):
        return None
    every = range(sizes[0])
    places = every[first.python] if first.kind == "range" else [first.begin % sizes[0]]
    if not places:
        return None
    return piece_or_zeros(
        call, dy, places[0], len(places), sizes, lambda: _among_zeros(call, dy, items, sizes)
    )


def _among_zeros(call: Call, dy: Value, items: list[Item], sizes: list[int]) -> Value:
    *vectors, masks = spec_of([_ALL, *items])
    full = call.emit.shape_vector([call.loop.length, *sizes])
    made = call.emit("StridedSliceGrad", full, *vectors, dy.tensor, **masks)
    return Value.stacked(made)


@RegisterPFor("StridedSliceGrad", ANY, attrs=MASKS)
def strided_slice_grad_by_row(
    call: Call, shape: Value, begin: Value, end: Value, strides: Value, dy: Value
) -> Any:
    """Scatters dy to other places in every row, then among the zeros that are constant."""
    sizes = call.maybe_constant("shape")
    if sizes is None or strides.is_stacked:
        raise CannotVectorize("the shape of the sliced tensor is not a constant")
    _check_rank(len(sizes))
    items = windows_of(call, len(sizes))
    cut = [k if k.is_static else Item("all", k.axis) for k in items]
    left = [k for k in items if k.kind != "index" or not k.is_static]
    wide = Value.stacked(call.stacked(dy))
    if not all(k.is_static for k in left):
        wide = _written(call, wide, left, sizes) or _scattered(call, wide, left, sizes)
    return _constant_grad(call, wide, cut, [int(s) for s in sizes])


def _written(call: Call, dy: Value, items: list[Item], sizes: np.ndarray) -> Value | None:
    """Large windows of stride 1, each row written by itself on a CPU; None for any others."""
    if not all(k.is_static or (k.kind == "range" and k.stride == 1) for k in items):
        return None
    if any(k.kind == "index" for k in items) or not is_static(dy.inner_shape):
        return None
    own = dy.inner_shape
    full = [d if k.is_static else int(sizes[k.axis]) for k, d in zip(items, own)]
    if not _row_windows.are_large(call, full, own, dy.dtype):
        return None
    firsts: list[Any] = [None] * len(items)
    for i, k in enumerate(items):
        if not k.is_static:
            size = Value.unstacked(call.emit.constant(np.zeros([full[i]], np.bool_)))
            firsts[i] = starts(call, size, 0, k.begin, k.end)
    return _by_windows(call, lambda at: _row_windows.write(dy.tensor, at, full), firsts)


def _scattered(call: Call, dy: Value, items: list[Item], sizes: np.ndarray) -> Value:
    """[n, ...] with the axes of ``items`` that vary read by index -> those axes in full size."""
    emit = call.emit
    todo = [i for i, k in enumerate(items) if not k.is_static]
    present = [i for i, k in enumerate(items) if k.kind != "index" or k.is_static]
    ranges = [i for i in todo if items[i].kind == "range"]
    order = [*ranges, *(i for i in present if i not in ranges)]
    # [n, r1, r2, ..., rest]: the axes that are ranges in front
    moved = transpose(call, dy.tensor, [0, *(present.index(i) + 1 for i in order)])
    dtype = items[todo[0]].begin.value.dtype
    rank = 1 + len(ranges)
    columns = [row_numbers(call, dtype, rank)]
    for i in todo:
        item = items[i]
        size = Value.unstacked(emit.constant(np.zeros([int(sizes[item.axis])], np.bool_)))
        at = positions(call, size, 0, item.begin, item.end)
        if not item.begin.value.is_stacked:
            at = emit("ExpandDims", at, np.int32(0))
        shape = [-1, *[1] * len(ranges)]
        if item.kind == "range":
            shape[1 + ranges.index(i)] = item.end.count
        columns.append(at if at.shape.rank == rank else emit("Reshape", at, shape))
    lengths = [items[i].end.count for i in ranges]
    grid = emit.shape_vector([call.loop.length, *lengths])
    indices = emit("Pack", [emit("BroadcastTo", c, grid) for c in columns], axis=rank)
    inner = inner_dims(call, dy)
    rest = [inner[present.index(i)] for i in order[len(ranges) :]]
    full = emit.shape_vector([call.loop.length, *(int(sizes[items[i].axis]) for i in todo), *rest])
    made = emit("ScatterNd", indices, moved, emit("Cast", full, DstT=dtype))  # [n, all todo, rest]
    now = [*todo, *order[len(ranges) :]]
    perm = [0, *(now.index(i) + 1 for i in range(len(items)))]
    return Value.stacked(transpose(call, made, perm))


@RegisterPFor("TensorStridedSliceUpdate", ("input", "value"), attrs=MASKS)
def tensor_strided_slice_update(
    call: Call, input: Value, begin: Value, end: Value, strides: Value, value: Value
) -> Any:
    """The same place in every row: all masks move by one."""
    return call.rebuild(input=input.tensor, value=value.tensor, **shifted_masks(call))


# ---------------------------------------------------------------------------
# Slice
# ---------------------------------------------------------------------------


@RegisterPFor("Slice", ("input",))
def slice_of_all(call: Call, input: Value, begin: Value, size: Value) -> Any:
    """From [0, begin], of size [-1, size]; axes that are taken whole may stay folded."""
    first, lengths = call.maybe_constant("begin"), call.maybe_constant("size")
    if first is None or lengths is None or input.inner_shape is None:
        zero = call.emit.constant([0], begin.dtype)
        minus = call.emit.constant([-1], size.dtype)
        return call.rebuild(
            input=input.tensor,
            begin=call.emit("ConcatV2", [zero, begin.tensor], 0),
            size=call.emit("ConcatV2", [minus, size.tensor], 0),
        )
    whole = [b == 0 and s in (-1, d) for b, s, d in zip(first, lengths, input.inner_shape)]
    if all(whole):
        return input
    form = leading(call, [input], whole.index(False))
    made = call.emit(
        "Slice",
        form.tensors[0],
        np.asarray([0, *first[form.skip :]], first.dtype),
        np.asarray([-1, *lengths[form.skip :]], lengths.dtype),
    )
    return form.result(made)


@RegisterPFor("Slice", ANY)
def slice_by_row(call: Call, input: Value, begin: Value, size: Value) -> Any:
    """x_i[a_i : a_i + k]: what is constant is cut first, the rest gathered."""
    lengths = call.maybe_constant("size")
    if lengths is None:
        raise CannotVectorize("the size of the slice is not a constant")
    items: list[Item] = []
    for axis, (first, length) in enumerate(zip(elements(call, "begin"), lengths)):
        length = int(length)
        if isinstance(first, Index) and length < 0:
            raise CannotVectorize("the length of the slice may differ between iterations")
        end = Reach(length) if isinstance(first, Index) else first + length
        items.append(Item("range", axis, first, None if length < 0 else end))
    return _checked_read(call, input, items)


def _checked_read(call: Call, input: Value, items: list[Item]) -> Value:
    """The read of ``_read``; a Slice must not go beyond the tensor where a StridedSlice may."""
    for item in (k for k in items if k.is_static):
        size = None if input.inner_shape is None else input.inner_shape[item.axis]
        if size is None or (item.begin if item.end is None else item.end) > size:
            raise CannotVectorize("a constant part of the slice may be out of range")
    return _read(call, input, items)
