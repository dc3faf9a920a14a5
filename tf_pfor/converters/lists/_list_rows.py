"""The rows of stacked TensorLists: reading and writing where iterations differ.

The converters of list ops, of conditionals and of loops use it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._variant_types import declared_item, item_at
from tf_pfor.converters.lists._lists import (
    cast,
    declared_shape,
    set_length,
    size_of_rows,
    stack_list,
    updated,
    with_size,
    without_size,
)
from tf_pfor.converters.lists._ragged_items import DIFFER, padded_shape
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop
from tf_pfor.core.shapes import inner_dims
from tf_pfor.core.stacked_lists import (
    Holds,
    ListRows,
    PendingSum,
    StackedList,
    known_rows,
    list_with_rows,
    rows_of,
)
from tf_pfor.core.values import Shape, Value, as_shape, dims, is_static, merge
from tf_pfor.layouts.padded_lists import padded_stack, unpadded


def row_ids(call: Call, value: Value) -> tf.Tensor:
    """int32 [n]: the rows of the elements that are this loop's iterations."""
    ids = known_rows(value).ids
    return call.loop.places if ids is None else ids


def pick(call: Call, value: Value, tensor: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """The rows of the loop at hand: elements of the list ``value`` are along ``axis``."""
    if known_rows(value).ids is None:
        return tensor
    return call.emit("GatherV2", tensor, known_rows(value).ids, np.int32(axis))


def shape_of_items(call: Call, value: Value, made: tf.Tensor | None = None) -> tf.Tensor:
    """int32: the shape [size, ...] of the elements of a stacked list, as far as it is known.

    The body calls it ``made``, if that is given; else ``call`` is about it.
    """
    known = _tf.list_element(value.tensor)
    if known_rows(value).holds.items and not known_rows(value).holds.numbers:
        return padded_shape(call, known_rows(value))
    if known is None or not known[1].is_fully_defined():
        item = as_shape(item_at(call) if made is None else declared_item(call, made))
        if is_static(item):
            return call.emit.shape_vector([size_of_rows(call, value), *item])
    return declared_shape(call, value.tensor)


def dense(
    call: Call,
    value: Value,
    shape: tf.Tensor | None = None,
    dtype: tf.DType | None = None,
    *,
    may_pad: bool = True,
) -> tf.Tensor:
    """All elements of a stacked list: [T, size, ...].

    Args:
      call: the call.
      value: the list.
      shape: the shape of an element, [size, ...]; None for the declared shape.
      dtype: the dtype of the elements, where nothing else may tell it.
      may_pad: nothing depends on T (``_padded``).
    """
    found = _tf.list_element(value.tensor)
    shape = shape_of_items(call, value) if shape is None else shape
    if found is not None:
        dtype = found[0]
    elif "element_dtype" in call.attrs:
        dtype = call.attr("element_dtype")
    if dtype is None:
        raise CannotVectorize("it is not known what a list holds")
    if dtype == tf.variant:
        raise CannotVectorize("the elements of a list of lists are wanted as one tensor")
    if may_pad:
        whole = padded_stack(call.emit, value.tensor, shape, dtype)
    else:
        whole = call.emit("TensorListStack", value.tensor, shape, element_dtype=dtype)
    op = value.tensor.op
    while op.type == "TensorListResize":
        op = op.inputs[0].op
    if op.type == "TensorListFromTensor" and op.inputs[0].shape.rank:
        items = tf.TensorShape([None, *op.inputs[0].shape[1:]])
        if not whole.shape.is_compatible_with(items):
            raise CannotVectorize("items of a list have other shapes")
        whole.set_shape(items)
    return whole


def from_zero(call: Call, value: Value) -> Value:
    """``value`` as a list of stacked elements that begins at 0 in all rows."""
    value = stack_list(call, value)
    rows = rows_of(value)
    if rows is None or rows.starts is None:
        return value
    emit = call.emit
    whole = dense(call, value)  # [T, size, ...]
    with emit.graph.as_default():
        count, size = tf.shape(whole)[0], tf.shape(whole)[1]
        at = tf.minimum(tf.range(count)[:, None] + rows.starts, count - 1)  # [T, size]
        at = tf.stack([at, tf.broadcast_to(tf.range(size), tf.shape(at))], 2)
        moved = tf.gather_nd(whole, at)
    lengths = emit("Sub", lengths_of(call, value), rows.starts)
    rows = dataclasses.replace(rows, lengths=lengths, starts=None, base=None)
    return relist(call, StackedList.of(value.tensor, rows), moved)


def relist(call: Call, value: Value, tensor: tf.Tensor) -> Value:
    """The list ``value`` with other elements: ``tensor`` is [T, size, ...]."""
    shape = shape_of_items(call, value)
    made = unpadded(call.emit, call.emit("TensorListFromTensor", tensor, shape), value.tensor)
    return StackedList.of(made, rows_of(value))


def written(loop: Loop, rows: ListRows, active: tf.Tensor) -> ListRows:
    """Rows of which only rows that are ``active`` (bool [n]) are written, too."""
    emit, mask = loop.emit, active
    if rows.ids is not None:
        none = emit("Fill", emit.shape_vector([rows.size]), np.bool_(False))
        mask = emit("TensorScatterUpdate", none, emit("ExpandDims", rows.ids, 1), active)
    if rows.mask is not None:
        mask = tf.logical_and(mask, rows.mask)
    return dataclasses.replace(rows, mask=mask)


def own_rows(call: Call, value: Value) -> Value:
    """The list with the rows of this loop only: a copy, where it holds others too."""
    if known_rows(value).ids is None:
        return value
    value = from_zero(call, value)
    assert rows_of(value) is not None
    picked = pick(call, value, dense(call, value), axis=1)  # [T, k, ...]
    shape = shape_of_items(call, value)
    if shape.shape.rank != 0:
        shape = with_size(call, without_size(call, shape), call.loop.length)
    lengths = known_rows(value).lengths
    rows, known = None, known_rows(value)
    if lengths is not None or known.holds.items:
        own = None if lengths is None else pick(call, value, lengths)
        rows = ListRows(
            call.loop.length,
            lengths=own,
            may_agree=known.may_agree,
            holds=Holds(known.holds.items, known.holds.numbers),
        )
    made = call.emit("TensorListFromTensor", picked, shape)
    return StackedList.of(unpadded(call.emit, made, value.tensor), rows)


def row_items(call: Call, source: Value, whole: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """[T, size, ...] at [t_i, i] -> [n, ...], or [n, k, ...] for k indices in each row."""
    emit, inner = call.emit, (dims(whole) or ())[2:]
    if 0 in inner and is_static(inner):  # which the kernel refuses
        lead = [call.loop.length, *(emit.dim(index, i) for i in range(1, index.shape.rank))]
        shape = emit.shape_vector([*lead, *inner])
        return emit("Fill", shape, emit.constant(np.zeros((), whole.dtype.as_numpy_dtype)))
    return emit("GatherNd", whole, row_positions(call, source, index))


def is_partial(target: Value) -> bool:
    """True when only some rows of the elements may be written."""
    rows = rows_of(target)
    return rows is not None and (rows.ids is not None or rows.mask is not None)


def known_lengths(target: Value) -> tf.Tensor | None:
    return known_rows(target).lengths


def within_own(call: Call, listed: Value, index: Value) -> tf.Tensor:
    """Indices, a number or [k] of all rows or of each, after a check that their lists reach there.

    A list is as long as the longest row: nothing is behind the end of another row.
    """
    lengths, at = known_lengths(listed), index.tensor
    if lengths is None or call.emit.is_trial:
        return at
    own, mask = pick(call, listed, lengths), known_rows(listed).mask
    what = "written" if call.op_type == "TensorListSetItem" else "read"
    text = f"an item behind the end of a list is {what} in some iterations. Index, lengths"
    with call.emit.graph.as_default():
        last = tf.reduce_max(at, -1) if index.rank == 1 else at
        is_right = last < own
        if mask is not None:  # a row that writes nothing may say any place
            is_right |= tf.logical_not(pick(call, listed, mask))
    return call.after_check(is_right, text, [at, own], at)


def set_some(call: Call, target: Value, index: tf.Tensor, item: Value, *, resizes: bool) -> Value:
    """The same element of the active rows: read, merge, write; the list stays in place."""
    emit, handle = call.emit, target.tensor
    new = call.stacked(item)
    if resizes:
        target = grown(call, target, index)
        handle = target.tensor
    if is_partial(target):
        old = emit(
            "TensorListGetItem",
            handle,
            index,
            whole_element(call, target, item),
            element_dtype=item.dtype,
        )  # [size, ...]
        new = merged(call, target, old, new)
    made = emit("TensorListSetItem", handle, index, new)
    return StackedList.of(made, rows_of(target))


def whole_element(call: Call, target: Value, item: Value, skip: int = 0) -> tf.Tensor:
    """int32 [size] + the item's shape without its first ``skip`` axes."""
    if item.inner_shape is None:
        raise CannotVectorize("an item of unknown rank is written to some rows of a list")
    return call.emit.shape_vector([size_of_rows(call, target), *inner_dims(call, item)[skip:]])


def merged(call: Call, target: Value, old: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
    """``new`` in the active rows, ``old`` in the others: [size, ...]."""
    rows, emit = rows_of(target), call.emit
    assert rows is not None
    new = once(call, new)
    if rows.ids is None:
        return new if rows.mask is None else where_rows(emit, rows.mask, new, old)
    if rows.mask is not None:
        mask = emit("GatherV2", rows.mask, rows.ids, np.int32(0))
        new = where_rows(emit, mask, new, emit("GatherV2", old, rows.ids, np.int32(0)))
    where = emit("ExpandDims", rows.ids, np.int32(1))  # [k, 1]
    return updated(emit, old, where, new)


def once(call: Call, new: tf.Tensor) -> tf.Tensor:
    """``new`` without gradients in rows that only stand in for others (``Loop.real``)."""
    real = call.loop.real
    if real is None or not new.dtype.is_floating:
        return new
    return call.emit("Select", real, new, call.emit("StopGradient", new))


def where_rows(emit: Emitter, mask: tf.Tensor, new: tf.Tensor, old: tf.Tensor) -> tf.Tensor:
    """Rows of ``new`` where the mask is true, else of ``old``."""
    rank = new.shape.rank
    if rank is None:
        raise CannotVectorize("an item of unknown rank is written to some rows of a list")
    for _ in range(rank - 1):
        mask = emit("ExpandDims", mask, np.int32(-1))
    return emit("SelectV2", mask, new, old)


def push(call: Call, target: Value, item: Value) -> Value:
    """The list with [n, ...] at its end, which is no list itself."""
    rows, emit = rows_of(target), call.emit
    if rows is not None and not (rows.is_even and rows.lengths is None):
        index = pick(call, target, lengths_of(call, target))  # [n]
        return set_rows(call, target, index, item, resizes=True)
    new = call.stacked(item)
    if rows is not None and rows.ids is not None:  # others are done: nobody reads what they get
        shape = whole_element(call, target, item)
        zero = emit.constant(np.zeros((), item.dtype.as_numpy_dtype))
        new = merged(call, target, emit("Fill", shape, zero), new)
    return StackedList.of(emit("TensorListPushBack", target.tensor, new), rows)


def last_places(call: Call, source: Value) -> tuple[tf.Tensor, tf.Tensor]:
    """The ends of all rows' lists after a pop, and the places of popped items: [size], [n]."""
    emit, lengths = call.emit, lengths_of(call, source)
    last = emit("Sub", lengths, np.int32(1))  # [size]
    if known_rows(source).mask is not None:
        last = emit("SelectV2", known_rows(source).mask, last, lengths)
    ids = known_rows(source).ids
    index = pick(call, source, last)  # [n]
    if ids is not None:
        where = emit("ExpandDims", ids, np.int32(1))
        last = emit("TensorScatterUpdate", lengths, where, index)
    return last, emit("Maximum", index, np.int32(0))


def set_rows(
    call: Call, target: Value, index: tf.Tensor, item: Value, *, resizes: bool = False
) -> Value:
    """list[t_i]_i = item_i: the list as [T, size, ...], a scatter at [t_i, i], and back.

    Args:
      call: the call.
      target: a STACKED_LIST.
      index: int32 [n], or [n, k] to write k elements in each row.
      item: the item to write, of inner shape elem or [k] + elem; repeated if invariant.
      resizes: whether the list grows to hold all indices.
    """
    emit, many = call.emit, index.shape.rank == 2
    new = once(call, call.stacked(item))  # [n, ...]
    if resizes:
        target = grown(call, target, emit("Max", index, np.ones(1, np.int32)) if many else index)
    shape = whole_element(call, target, item, skip=int(many))
    whole = dense(call, target, shape)  # [T, size, ...]
    rows = rows_of(target)
    if rows is not None and rows.mask is not None:
        mask = pick(call, target, rows.mask)
        index = where_rows(emit, mask, index, emit("ZerosLike", index))
        new = where_rows(emit, mask, new, row_items(call, target, whole, index))
    at = row_positions(call, target, index)
    return relist(call, target, updated(emit, whole, at, new))


def read_unstacked(call: Call, source: Value, index: Value, element: Shape) -> tf.Tensor:
    """Elements of an unstacked list at differing places: [T, ...] -> [n, ...] or [n, k, ...].

    Not with TensorListGather: its gradient forgets all but one of the rows that read the same.

    Args:
      call: a call with the inputs ``element_shape`` and the attribute ``element_dtype``.
      source: the list, UNSTACKED.
      index: int32 [n], or [n, k].
      element: the static shape of an element.
    """
    emit, given = call.emit, call.inputs["element_shape"]
    assert isinstance(given, Value)
    if is_static(element):
        shape = emit.constant(np.asarray(element, np.int32))
    elif given.is_stacked:
        shape = emit.constant(np.int32(-1))
    else:
        shape = cast(call, given.tensor, tf.int32)
    dtype = call.attr("element_dtype")
    whole = padded_stack(emit, source.tensor, shape, dtype)  # [T, ...]
    return emit("GatherV2", whole, index.tensor, np.int32(0))


def row_positions(call: Call, target: Value, index: tf.Tensor) -> tf.Tensor:
    """[t_i, i], the places in [T, size] of the indices: [n, 2], or [n, k, 2] for k indices."""
    emit, ids = call.emit, row_ids(call, target)
    if index.shape.rank == 2:
        ids = emit("BroadcastTo", emit("ExpandDims", ids, np.int32(1)), emit.shape_of(index))
    return emit("Pack", [index, ids], axis=-1)


def lengths_of(call: Call, target: Value) -> tf.Tensor:
    """int32 [size]: the length of each row's list."""
    known = known_lengths(target)
    if known is not None:
        return known
    length = call.emit("TensorListLength", target.tensor)
    size = call.emit.shape_vector([size_of_rows(call, target)])
    return call.emit("Fill", size, length)


def grown(call: Call, target: Value, index: tf.Tensor) -> Value:
    """The list long enough to be written at ``index`` (int32 [n] or []), in the active rows."""
    emit = call.emit
    need = emit("AddV2", index, np.int32(1))
    if need.shape.rank == 0:
        need = emit("Fill", emit.shape_vector([call.loop.length]), need)
    old = lengths_of(call, target)  # [size]
    new = emit("Maximum", pick(call, target, old), need)  # [n]
    if (written := known_rows(target).mask) is not None:
        mask = pick(call, target, written)
        new = emit("SelectV2", mask, new, pick(call, target, old))
    if known_rows(target).ids is not None:
        where = emit("ExpandDims", known_rows(target).ids, np.int32(1))
        new = emit("TensorScatterUpdate", old, where, new)  # [size]
    return resized(call, target, new)


def resized(call: Call, target: Value, lengths: tf.Tensor) -> Value:
    """The list with these lengths (int32 [size]), as long as the longest of them."""
    handle = set_length(call.emit, target.tensor, longest(call, lengths))
    rows = rows_of(target) or ListRows(call.loop.length)
    return StackedList.of(handle, dataclasses.replace(rows, lengths=lengths))


def longest(call: Call, lengths: tf.Tensor) -> tf.Tensor:
    """The largest of ``lengths``; 1 if there is no row (see ``reachable``)."""
    top = call.emit("Max", lengths, np.asarray([0], np.int32))
    count = dims(lengths)
    if count is not None and count[0]:
        return top
    is_empty = call.emit("Equal", call.emit.as_tensor(call.emit.dim(lengths, 0)), np.int32(0))
    return call.emit("SelectV2", is_empty, np.int32(1), top)


def reachable(call: Call, value: Value, index: tf.Tensor) -> tuple[Value, tf.Tensor]:
    """A list and an index in it; where no row tells how long it is, it has an item 0 for that."""
    lengths, emit = known_lengths(value), call.emit
    size = None if rows_of(value) is None else known_rows(value).size
    if lengths is None or (isinstance(size, int) and size) or _tf.in_xla_context(emit.graph):
        return value, index
    some = emit("Minimum", emit.as_tensor(emit.dim(lengths, 0)), np.int32(1))
    length = emit("TensorListLength", value.tensor)
    length = emit("Maximum", length, emit("Sub", np.int32(1), some))
    made = StackedList.of(set_length(emit, value.tensor, length), rows_of(value))
    return made, emit("Mul", index, some)


# ---------------------------------------------------------------------------
# Lists that are not made by writing into one
# ---------------------------------------------------------------------------


def with_base(value: Value) -> Value:
    """A list of some rows that ``carried_on`` tells from others."""
    return list_with_rows(value, dataclasses.replace(known_rows(value), base=object()))


def carried_on(call: Call, old: Value, new: Value, made: tf.Tensor) -> Value:
    """A loop variable after a trip: ``new`` in the active rows, ``old`` in the others.

    Nothing is done where ``new`` was made from ``old`` by writes of the active rows; another list
    is copied into it. The body calls it ``made``.
    """
    if rows_of(old) is None or (known_rows(old).ids is None and known_rows(old).mask is None):
        return new
    if rows_of(new) is not None and known_rows(new).base is known_rows(old).base:
        return new
    known = _tf.list_element(old.tensor)
    if known is None or known[0] == tf.variant:
        raise CannotVectorize("a list of lists is replaced in a loop that rows leave")
    old, new = from_zero(call, old), from_zero(call, new)
    if known_rows(old).holds.items or known_rows(new).holds.items:
        raise CannotVectorize(f"{DIFFER}, in a list that a loop replaces")
    rows = rows_of(old)
    assert rows is not None
    if known_lengths(old) is not None or known_lengths(new) is not None:
        old, new, lengths = _of_equal_length(call, old, new)
        rows = dataclasses.replace(rows, lengths=lengths)
    ours = dense(call, new, shape_of_items(call, new, made))  # [T, k or size, ...]
    ours = pick(call, new, ours, axis=1)  # [T, k, ...]
    shape = shape_of_items(call, old, made)
    if tf.get_static_value(shape) is None:
        shape = _like(call, ours, old)  # elements that nobody wrote yet count as zeros
    both = call.emit("ConcatV2", [dense(call, old, shape), ours], np.int32(1))
    merged_rows = call.emit("GatherV2", both, _order(call, old), np.int32(1))  # [T, size, ...]
    whole = call.emit("TensorListFromTensor", merged_rows, shape_of_items(call, old, made))
    return StackedList.of(unpadded(call.emit, whole, old.tensor), rows)


def _of_equal_length(call: Call, old: Value, new: Value) -> tuple[Value, Value, tf.Tensor]:
    """Both lists as long as the longer one, and the lengths of the rows: int32 [size]."""
    emit = call.emit
    before, now = lengths_of(call, old), pick(call, new, lengths_of(call, new))  # [size], [k]
    lengths = emit("GatherV2", emit("ConcatV2", [before, now], 0), _order(call, old), np.int32(0))
    sizes = [emit("TensorListLength", v.tensor) for v in (old, new)]
    size = emit("Maximum", *sizes)
    old, new = (StackedList.of(set_length(emit, v.tensor, size), rows_of(v)) for v in (old, new))
    return old, new, lengths


def _like(call: Call, items: tf.Tensor, value: Value) -> tf.Tensor:
    """int32 [size, ...]: the shape of an element of ``value``, from [T, k, ...] of another list."""
    known = _tf.list_element(value.tensor)
    told = as_shape(known[1][1:]) if known is not None and known[1].rank else None
    shape = merge(as_shape(items.shape[2:]), told)
    if shape is None or not is_static(shape):
        raise CannotVectorize("a list of elements of unknown shape is replaced in a loop")
    return call.emit.shape_vector([size_of_rows(call, value), *shape])


def _order(call: Call, old: Value) -> tf.Tensor:
    """int32 [size]: row i of [old rows, new rows]; the new ones where they are active."""
    emit, rows = call.emit, rows_of(old)
    assert rows is not None
    size, here = emit.as_tensor(size_of_rows(call, old)), call.loop.places
    ids = row_ids(call, old)
    new = emit("AddV2", here, size)  # [k]
    if rows.mask is not None:
        new = emit("SelectV2", pick(call, old, rows.mask), new, ids)
    if rows.ids is None:
        return new
    everyone = emit("Range", np.int32(0), size, np.int32(1))
    return emit("TensorScatterUpdate", everyone, emit("ExpandDims", ids, np.int32(1)), new)


def is_kept(value: Value) -> bool:
    """Whether a stacked list holds packs, or is a list of optionals, as far as is known."""
    rows = rows_of(value)
    has_own = rows is not None and (rows.holds.packs or rows.lengths is not None)
    return isinstance(value, PendingSum) or (has_own and is_container(value))


def is_container(value: Value) -> bool:
    """Whether a stacked list holds lists or optionals, as far as is known."""
    if isinstance(value, PendingSum):
        return True
    known = _tf.list_element(value.tensor)
    return known is None or known[0] == tf.variant


def without_base(rows: ListRows | None) -> ListRows | None:
    """``rows`` of a list that is no longer the one a loop carried in or branches made."""
    if rows is None:
        return None
    return dataclasses.replace(rows.holding(by_branch=()), base=None, whole=None)


def with_lengths(call: Call, value: Value, lengths: tf.Tensor) -> Value:
    """A stacked list with these lengths, int32 [size]."""
    rows = rows_of(value) or ListRows(call.loop.length)
    rows = dataclasses.replace(rows, lengths=lengths, is_even=False)
    return list_with_rows(value, rows)


def without_lengths(rows: ListRows | None) -> ListRows | None:
    """``rows`` of a list that is equally long in all of them."""
    return None if rows is None else dataclasses.replace(rows, lengths=None)
