"""TensorLists as a whole; TensorArrays are made of them.

A list handle stays a scalar variant; its elements are [n] + elem (docs/decisions/0005). Single
elements are in ``tensor_list_items``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import grown_to, known_integer, source
from tf_pfor.converters.analysis._variant_types import declared_item, kind_of
from tf_pfor.converters.lists._capacity import fixed, item_of_unset, most_of_all_rows
from tf_pfor.converters.lists._equal_lengths import of_one_length
from tf_pfor.converters.lists._list_rows import (
    dense,
    from_zero,
    is_container,
    is_partial,
    known_lengths,
    longest,
    own_rows,
    pick,
    read_unstacked,
    relist,
    resized,
    row_items,
    set_rows,
    within_own,
    without_base,
    without_lengths,
)
from tf_pfor.converters.lists._lists import (
    list_rule,
    set_length,
    shape_input,
    size_of_rows,
    stack_list,
    swap,
    without_size,
)
from tf_pfor.converters.lists._ragged_items import asked_shape, read
from tf_pfor.converters.lists._row_packs import holds_packs
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.stacked_lists import ListRows, StackedList, known_rows, rows_of
from tf_pfor.core.values import Shape, Value
from tf_pfor.layouts.padded_lists import is_padded, padded_stack
from tf_pfor.layouts.ragged import RowSize, shape_value

_BEYOND = (
    "Iterations scatter into a list beyond its end: give the TensorArray the size that it needs at "
    "most."
)

# ---------------------------------------------------------------------------
# Making lists
# ---------------------------------------------------------------------------


@list_rule("EmptyTensorList")
def empty_list(call: Call, element_shape: Value, max_num_elements: Value) -> Any:
    """Only reached when stacked elements are pushed to it: elements are [n] + elem.

    Room for as many as the row with most room has: TensorFlow's gradients count trips so.
    """
    shape, room = shape_input(call, "element_shape"), max_num_elements.tensor
    if max_num_elements.is_stacked:
        room = _room_of_list(call)
        if room is None:
            room = most_of_all_rows(call, max_num_elements, call.op.inputs[1])
    return StackedList.of(call.rebuild(element_shape=shape, max_num_elements=room))


@list_rule("EmptyTensorList", ())
def empty_list_without_size(call: Call, element_shape: Value, max_num_elements: Value) -> Any:
    """Kept unchanged; under XLA, which needs the size, for now without room (``with_room``)."""
    room = max_num_elements.tensor
    if _tf.in_xla_context(call.emit.graph):
        room = np.int32(0) if known_integer(room) == -1 else fixed(room)
    return Value.unstacked(call.rebuild(max_num_elements=room))


@list_rule("TensorListReserve")
def reserve(call: Call, element_shape: Value, num_elements: Value) -> Any:
    """The rule of ``empty_list``; where the lengths differ, the list is as long as the longest."""
    shape, rows, length = shape_input(call, "element_shape"), None, num_elements.tensor
    item = item_of_unset(call)
    if item is not None:
        shape = call.emit.shape_vector([call.loop.length, *item])
    if num_elements.is_stacked:
        rows = ListRows(call.loop.length, lengths=length)
        if isinstance(num_elements, RowSize):
            sizes = num_elements.size
            rows = dataclasses.replace(rows, lengths=sizes.tensor, sizes=sizes)
        length = _room_of(call, num_elements)
    return StackedList.of(call.rebuild(element_shape=shape, num_elements=length), rows)


@list_rule("TensorListReserve", ())
def reserve_without_shape(call: Call, element_shape: Value, num_elements: Value) -> Any:
    """Kept unchanged; under XLA with the shape of the items that are written to it."""
    item = item_of_unset(call)
    if item is None:
        return Value.unstacked(call.rebuild())
    return Value.unstacked(call.rebuild(element_shape=np.asarray(item, np.int32)))


def _room_of(call: Call, lengths: Value) -> tf.Tensor:
    """int32 []: the room that a list of ``lengths`` needs, or that the list they are of has."""
    room = _room_of_list(call)
    return longest(call, lengths.tensor) if room is None else room


def _room_of_list(call: Call) -> tf.Tensor | None:
    """The room of the list whose length a new one is to have, which XLA knows before running.

    None where the length is another number, or not under XLA.
    """
    asked = source(call.op.inputs[1]).op
    if _tf.in_xla_context(call.emit.graph) and asked.type == "TensorListLength":
        like = call.walker.value_of(asked.inputs[0])
        if like is not None:
            return call.emit("TensorListLength", like.tensor)
    return None


@list_rule("TensorListFromTensor")
def from_tensor(call: Call, tensor: Value, element_shape: Value) -> Any:
    """[n, T, ...] -> [T, n, ...] -> elements [n, ...]."""
    shape = shape_input(call, "element_shape")
    return StackedList.of(
        call.rebuild(tensor=swap(call, call.stacked(tensor)), element_shape=shape)
    )


@list_rule("TensorListScatter")
def scatter(call: Call, tensor: Value, indices: Value, element_shape: Value) -> Any:
    """A new list of [n, ...] elements at invariant indices."""
    return _new_scattered(call, tensor, indices)


@list_rule("TensorListScatterV2")
def scatter_v2(
    call: Call, tensor: Value, indices: Value, element_shape: Value, num_elements: Value
) -> Any:
    """The rule of TensorListScatter, with the length."""
    if num_elements.is_stacked:
        raise CannotVectorize("a scattered list is of a length that differs between iterations")
    return _new_scattered(call, tensor, indices)


def _new_scattered(call: Call, tensor: Value, indices: Value) -> Any:
    shape = shape_input(call, "element_shape")
    if not indices.is_stacked:
        pieces = swap(call, call.stacked(tensor))  # [k, n, ...]
        return StackedList.of(call.rebuild(tensor=pieces, element_shape=shape))
    emit = call.emit
    known = call.maybe_constant("num_elements") if "num_elements" in call.inputs else None
    rows = None
    if known is not None and known >= 0:
        length = emit.constant(known.astype(np.int32))
    else:  # [n, k] -> [n], as long as the largest index says; -1 stands for none
        nothing = emit("Fill", emit.shape_vector([call.loop.length, 1]), np.int32(-1))
        spread = emit("ConcatV2", [indices.tensor, nothing], np.int32(1))
        top = emit("Max", spread, np.asarray([1], np.int32))
        lengths = emit("AddV2", top, np.int32(1))
        rows, length = ListRows(call.loop.length, lengths=lengths), longest(call, lengths)
    empty = emit("TensorListReserve", shape, length, element_dtype=tensor.dtype)
    return set_rows(call, StackedList.of(empty, rows), indices.tensor, tensor)


@list_rule("TensorListScatterIntoExistingList")
def scatter_into(call: Call, input_handle: Value, tensor: Value, indices: Value) -> Any:
    """Invariant indices write elements [n, ...], differing ones rows of them."""
    target, longer = from_zero(call, input_handle), grown_to(call.op)
    if longer is not None and _tf.in_xla_context(call.emit.graph):
        raise Refused(
            "under jit_compile a list does not grow, what is scattered beyond its end is lost: "
            "give the TensorArray the size that it needs at most, or leave out jit_compile"
        )
    if not indices.is_stacked and not is_partial(target) and known_lengths(target) is None:
        handle = target.tensor
        if longer is not None:  # the kernel adds items of float32, which end the process
            handle = set_length(call.emit, handle, np.int32(longer))
        pieces = swap(call, call.stacked(tensor))  # [k, n, ...]
        return StackedList.of(call.rebuild(input_handle=handle, tensor=pieces), rows_of(target))
    at = call.stacked(indices)
    if longer is None:
        at = _within(call, target, at)
    return set_rows(call, target, at, tensor, resizes=longer is not None)


def _within(call: Call, target: Value, indices: tf.Tensor) -> tf.Tensor:
    """Places [n, k] of a list, after a check that no active row's list is too short for them."""
    if _tf.in_xla_context(call.emit.graph):  # which has no checks
        return indices
    lengths = known_lengths(target)
    with call.emit.graph.as_default():
        if lengths is None:
            is_inside = indices < tf.raw_ops.TensorListLength(input_handle=target.tensor)
        else:
            is_inside = indices < pick(call, target, lengths)[:, None]
        if (written := known_rows(target).mask) is not None:
            is_inside |= tf.logical_not(pick(call, target, written))[:, None]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_inside), [_BEYOND])]):
            return tf.identity(indices)


# ---------------------------------------------------------------------------
# Reading lists
# ---------------------------------------------------------------------------


@list_rule("TensorListStack", attrs=("num_elements",))
def stack(call: Call, input_handle: Value, element_shape: Value) -> Any:
    """Elements [n, ...] -> [T, n, ...] -> [n, T, ...]."""
    holds = known_rows(input_handle).holds
    if call.attr("element_dtype") == tf.variant and (holds.packs or holds.items):
        raise CannotVectorize("the lists in a list are wanted as one tensor")
    known = call.output_shape()
    source, length = from_zero(call, input_handle), known[0] if known else None
    shape = asked_shape(call, source, _element(call))
    if holds.items and not holds.numbers:
        return _of_ragged_items(call, source, shape)
    if is_padded(call.op):
        return _padded(call, source, shape)
    may_be_longer = _tf.in_xla_context(call.emit.graph) and known_lengths(source) is not None
    source = of_one_length(call, source, length)
    whole = call.rebuild(input_handle=source.tensor, element_shape=shape)  # [T, size, ...]
    if may_be_longer:
        with call.emit.graph.as_default():
            whole = whole[:length]
    if whole.dtype == tf.variant:
        return StackedList.of(whole, without_base(rows_of(source)))
    return swap(call, pick(call, source, whole, axis=1))


def _of_ragged_items(call: Call, source: Value, shape: tf.Tensor) -> Value:
    """[n, T, ...] of rows of different shapes; the lists are equally long."""
    if known_lengths(source) is not None:
        raise CannotVectorize("a stack of variable-length lists, of items of different shapes")
    dtype = call.output_dtype()
    whole = padded_stack(call.emit, source.tensor, shape, dtype)  # [T, size, ...]
    count = call.emit.dim(whole, 0)
    return read(call, source, swap(call, pick(call, source, whole, axis=1)), [count])


def _padded(call: Call, source: Value, shape: tf.Tensor) -> tf.Tensor:
    """[n, T, ...], zeros behind the end of the list of a row."""
    whole = padded_stack(call.emit, source.tensor, shape, call.output_dtype())  # [T, size, ...]
    return swap(call, pick(call, source, _cleared(call, source, whole), axis=1))


def _cleared(call: Call, source: Value, whole: tf.Tensor) -> tf.Tensor:
    """All elements [T, size, ...] of a list, with zeros behind the end of each row."""
    lengths = known_lengths(source)
    if lengths is None:
        return whole
    with call.emit.graph.as_default():
        is_item = tf.transpose(tf.sequence_mask(lengths, tf.shape(whole)[0]))  # [T, size]
        ones = tf.ones([tf.rank(whole) - 2], tf.int32)
        is_item = tf.reshape(is_item, tf.concat([tf.shape(is_item), ones], 0))
        return tf.where(is_item, whole, tf.zeros_like(whole))


def _element(call: Call) -> Shape:
    """The static shape of an element, of an op that returns several."""
    shape = call.output_shape()
    return None if shape is None else shape[1:]


@list_rule("TensorListGather")
def gather(call: Call, input_handle: Value, indices: Value, element_shape: Value) -> Any:
    """Elements at k places: [k, n, ...] -> [n, k, ...]; differing indices gather rows."""
    if call.attr("element_dtype") == tf.variant and holds_packs(input_handle):
        raise CannotVectorize("several lists are gathered from a list of lists")
    if not indices.is_stacked:
        source = from_zero(call, input_handle)
        shape = shape_input(call, "element_shape", size_of_rows(call, source), known=_element(call))
        at = within_own(call, source, indices)
        items = call.rebuild(input_handle=source.tensor, indices=at, element_shape=shape)
        return swap(call, pick(call, source, items, axis=1))
    if not input_handle.is_stacked:
        return read_unstacked(call, input_handle, indices, _element(call))
    source = from_zero(call, input_handle)
    shape = shape_input(call, "element_shape", size_of_rows(call, source), known=_element(call))
    whole = dense(call, source, shape)
    return row_items(call, source, whole, within_own(call, source, indices))  # [n, k, ...]


# ---------------------------------------------------------------------------
# Lengths and shapes
# ---------------------------------------------------------------------------


@list_rule("TensorListLength")
def length(call: Call, input_handle: Value) -> Any:
    """The same for all rows, unless lists of different lengths were made."""
    source = stack_list(call, input_handle)
    starts = known_rows(source).starts
    own = known_lengths(source)
    if own is None:
        own = call.rebuild(input_handle=source.tensor)
        if starts is None:
            return Value.unstacked(own)
    return pick(call, source, own if starts is None else call.emit("Sub", own, starts))


@list_rule("TensorListResize")
def resize(call: Call, input_handle: Value, size: Value) -> Any:
    """Resizes all rows to one size, with unset items; to differing sizes by the largest size."""
    target = from_zero(call, input_handle)
    if not (size.is_stacked or is_partial(target) or is_container(target)):
        if known_lengths(target) is not None:
            target = relist(call, target, _cleared(call, target, dense(call, target)))
        made = call.rebuild(input_handle=target.tensor)
        return StackedList.of(made, without_lengths(rows_of(target)))
    if known_rows(target).mask is not None:
        raise CannotVectorize("a list is resized where only some rows are active")
    target = own_rows(call, target)
    return resized(call, target, call.stacked(size))


@list_rule("TensorListElementShape")
def element_shape(call: Call, input_handle: Value) -> Any:
    """The declared shape without the loop axis; a constant where the body knows it."""
    rows = known_rows(input_handle)
    holds = kind_of(call, call.op.inputs[0]) if rows.holds.items else None
    if (
        rows.holds.items
        and holds != tf.variant
        and not rows.holds.numbers
        and -1 not in rows.holds.items
    ):
        return shape_value(call.emit, rows.holds.items, call.output_dtype())
    declared = declared_item(call, call.op.inputs[0])
    if declared.is_fully_defined():
        shape = np.asarray(declared.as_list(), call.output_dtype().as_numpy_dtype)
        return Value.unstacked(call.emit.constant(shape), constant=shape)
    found = _tf.list_element(call.op.inputs[0])
    source = stack_list(call, input_handle)
    made = call.rebuild(input_handle=source.tensor)
    if found is not None and found[0] == tf.variant:
        return Value.unstacked(made)
    return Value.unstacked(without_size(call, made))


# ---------------------------------------------------------------------------
# Several lists
# ---------------------------------------------------------------------------


@list_rule("TensorListConcatLists")
def concat_lists(call: Call, input_a: Value, input_b: Value) -> Any:
    """Both stacked; the elements of the second list follow the elements of the first."""
    a, b = stack_list(call, input_a), stack_list(call, input_b)
    for value in (a, b):
        if rows_of(value) is not None:
            raise CannotVectorize("lists are joined where only some rows are active")
    return StackedList.of(call.rebuild(input_a=a.tensor, input_b=b.tensor))


@list_rule("TensorListPushBackBatch")
def push_back_batch(call: Call, input_handles: Value, tensor: Value) -> Any:
    """A vector of b lists: [n, b, ...] -> [b, n, ...], an element [n, ...] for each."""
    handles = stack_list(call, input_handles)
    if rows_of(handles) is not None:
        raise CannotVectorize("several lists are pushed to where only some rows are active")
    items = swap(call, call.stacked(tensor))  # [b, n, ...]
    return StackedList.of(call.rebuild(input_handles=handles.tensor, tensor=items))
