"""TensorLists, one element at a time: get, set, push, pop.

An index that is the same for all rows reads or writes one element [n, ...] of the list, in
place where TensorFlow can. One that differs needs the list as one tensor [T, n, ...].
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import known_integer
from tf_pfor.converters.analysis._variant_types import uses
from tf_pfor.converters.lists._list_rows import (
    dense,
    from_zero,
    is_partial,
    known_lengths,
    last_places,
    pick,
    push,
    reachable,
    read_unstacked,
    resized,
    row_items,
    set_rows,
    set_some,
    within_own,
)
from tf_pfor.converters.lists._lists import list_rule, shape_input, size_of_rows, stack_list
from tf_pfor.converters.lists._nested_lengths import popped
from tf_pfor.converters.lists._ragged_items import asked_shape, read, written
from tf_pfor.converters.lists._row_packs import put, taken
from tf_pfor.converters.lists._unpacked_lists import keeps
from tf_pfor.converters.lists._unpacked_lists import popped as popped_open
from tf_pfor.converters.lists._unpacked_lists import pushed as pushed_open
from tf_pfor.converters.lists._unpacked_optionals import is_opened
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.stacked_lists import StackedList, known_rows, rows_of
from tf_pfor.core.values import Value, is_static
from tf_pfor.layouts.ragged_rules import ragged_rule


@list_rule("TensorListGetItem")
def get_item(call: Call, input_handle: Value, index: Value, element_shape: Value) -> Any:
    """list[t]_i = list[t][i]: one element, all rows."""
    if index.is_stacked:
        return _get_per_row(call, input_handle, index)
    source = from_zero(call, input_handle)
    shape = asked_shape(call, source, call.output_shape())
    filled, at = reachable(call, source, within_own(call, source, index))
    item = call.rebuild(input_handle=filled.tensor, index=at, element_shape=shape)
    if item.dtype == tf.variant:
        return taken(call, source, item, call.op.outputs[0])
    return read(call, source, pick(call, source, item))  # [n, ...]


def _get_per_row(call: Call, source: Value, index: Value) -> Any:
    """list[t_i]_i: a gather of [T, ...] if the list is unstacked, else of [T, n, ...]."""
    if call.attr("element_dtype") == tf.variant:
        raise CannotVectorize("the lists that are read from a list differ between iterations")
    if not source.is_stacked:
        return read_unstacked(call, source, index, call.output_shape())
    source = from_zero(call, source)
    whole = dense(call, source, _element_of_rows(call, source))  # [T, size, ...]
    return read(call, source, row_items(call, source, whole, within_own(call, source, index)))


def _element_of_rows(call: Call, source: Value) -> tf.Tensor:
    """int32 shape of a stacked element: [size, ...]."""
    shape, size = call.output_shape(), size_of_rows(call, source)
    if known_rows(source).holds.items:
        return asked_shape(call, source, shape)
    if is_static(shape):
        return call.emit.shape_vector([size, *shape])
    return shape_input(call, "element_shape", size, tf.int32)


@ragged_rule("TensorListSetItem", of_shapes=True)
@list_rule("TensorListSetItem", attrs=("resize_if_index_out_of_bounds",))
def set_item(call: Call, input_handle: Value, index: Value, item: Value) -> Any:
    """list[t][i] = item_i: one element, all rows, in place where nobody else holds the list."""
    target = from_zero(call, input_handle)
    resizes = bool(call.attrs["resize_if_index_out_of_bounds"].b)
    if resizes and _tf.in_xla_context(call.emit.graph):
        _check_room(call)
    if item.dtype == tf.variant:
        if index.is_stacked or is_partial(target):
            raise CannotVectorize("a list of lists is written where iterations differ")
        target, new = put(call, target, item)
        made = call.rebuild(input_handle=target.tensor, item=new)
        return StackedList.of(made, rows_of(target))
    target, item = written(call, target, item)
    place = index.tensor if resizes else within_own(call, target, index)
    if index.is_stacked:
        return set_rows(call, target, place, item, resizes=resizes)
    target, at = reachable(call, target, place)
    if is_partial(target) or (resizes and known_lengths(target) is not None):
        return set_some(call, target, at, item, resizes=resizes)
    made = call.rebuild(input_handle=target.tensor, index=at, item=call.stacked(item))
    return StackedList.of(made, rows_of(target))


def _check_room(call: Call) -> None:
    """Refuses a list of no items that is to grow: XLA drops items written beyond the end."""
    for op, _ in uses(call, call.op.inputs[0]):
        if op.type == "TensorListReserve" and known_integer(op.inputs[1]) == 0:
            raise Refused(
                "under jit_compile a TensorArray of size 0 does not grow, what is written to it is "
                "lost: give it the size that it needs at most, or leave out jit_compile"
            )


@ragged_rule("TensorListPushBack", of_shapes=True)
@list_rule("TensorListPushBack")
def push_back(call: Call, input_handle: Value, tensor: Value) -> Any:
    """Pushes [n, ...]."""
    if is_opened(tensor):
        return pushed_open(call, input_handle, tensor)
    target = stack_list(call, input_handle)
    if tensor.dtype != tf.variant:
        return push(call, *written(call, target, tensor))
    if known_lengths(target) is not None:
        raise CannotVectorize(
            "lists are pushed to lists whose rows differ in length, as gradients of gradients of "
            "loops in loops may: take one of the gradients around the map"
        )
    target, new = put(call, target, tensor)
    return StackedList.of(call.rebuild(input_handle=target.tensor, tensor=new), rows_of(target))


@list_rule("TensorListPopBack")
def pop_back(call: Call, input_handle: Value, element_shape: Value) -> Any:
    """Pops [n, ...]; where the lengths differ, reads each row's last element."""
    source = stack_list(call, input_handle)
    if keeps(source):
        return popped_open(call, source)
    rows, is_list = rows_of(source), call.attr("element_dtype") == tf.variant
    is_even = rows is None or (rows.lengths is None and (rows.is_even or not is_partial(source)))
    if is_even or is_list:
        if not is_even and not call.emit.is_trial:
            raise CannotVectorize("lists are popped from lists whose rows differ in length")
        shape = asked_shape(call, source, call.output_shape(1))
        handle, item = call.rebuild(input_handle=source.tensor, element_shape=shape)
        if not is_list:
            return [StackedList.of(handle, rows), read(call, source, pick(call, source, item))]
        own = None
        if rows is not None and rows.holds.beside:
            rows, own = popped(call, source)
        item = taken(call, source, item, call.op.outputs[1], own)
        return [StackedList.of(handle, rows), item]
    last, at = last_places(call, source)
    if known_rows(source).whole is not None:
        rows = dataclasses.replace(known_rows(source), lengths=last)
        whole = known_rows(source).whole.get()
        item = read(call, source, row_items(call, source, whole, at))
        return [StackedList.of(source.tensor, rows), item]
    whole = dense(call, source, asked_shape(call, source, call.output_shape(1)))  # [T, size, ...]
    item = read(call, source, row_items(call, source, whole, at))
    return [resized(call, source, last), item]
