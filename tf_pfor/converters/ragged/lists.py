"""Variable-length lists and ragged rows: one is made of the other.

A variable-length list is as long as its longest row, and knows the lengths (``ListRows.lengths``).
If it is made of ragged rows, items behind the end of a row are zeros, which nobody reads. The
stack of the list is padded, and the lengths are its sizes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._list_rows import from_zero, known_lengths, pick
from tf_pfor.converters.lists._lists import swap
from tf_pfor.converters.lists._ragged_items import asked_shape, leading_sizes
from tf_pfor.converters.lists._row_packs import holds_packs
from tf_pfor.converters.ragged._forms import from_padded
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import Holds, ListRows, StackedList, known_rows
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source


@ragged_rule("TensorListFromTensor")
def from_ragged(call: Call, tensor: Value, element_shape: Value) -> Any:
    """Lists of as many items as a row has along its first axis; items may differ in shape, too."""
    assert isinstance(tensor, Ragged)
    size, *inner = tensor.sizes
    rest = [-1 if d is None else d for d in tensor.tensor.shape[1:]] if inner else []
    items = swap(call, tensor.in_rows)  # [T, n, ...]
    shape = call.emit.shape_of(items)[1:]
    made = call.emit(
        "TensorListFromTensor", items, shape if None in items.shape[1:] else items.shape[1:]
    )
    rows = ListRows(call.loop.length, holds=Holds((*inner, *rest)), is_even=True)
    if isinstance(size, RowSizes):
        rows = dataclasses.replace(rows, lengths=size.tensor, sizes=size, is_even=False)
    return StackedList.of(made, rows)


@source("TensorListStack")
def stack(call: Call, input_handle: Value, element_shape: Value) -> Any:
    """The items of each row up to the end of its list."""
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("a stack of variable-length lists, under jit_compile")
    if call.attr("element_dtype") == tf.variant or holds_packs(input_handle):
        raise CannotVectorize("a stack of lists")
    listed = from_zero(call, input_handle)
    lengths = known_lengths(listed)
    shape = call.output_shape()
    if lengths is None or shape is None:
        raise CannotVectorize("the length of the list is not known")
    asked = asked_shape(call, listed, shape[1:])
    whole = call.emit(
        "TensorListStack", listed.tensor, asked, element_dtype=call.attr("element_dtype")
    )  # [T, size, ...]
    padded = swap(call, pick(call, listed, whole, axis=1))  # [n, T, ...]
    size = known_rows(listed).known_sizes
    if size is None or known_rows(listed).ids is not None:
        size = RowSizes.of(pick(call, listed, lengths))
    static = call.loop.static_length
    padded.set_shape([static, None, *shape[1:]])
    return from_padded(padded, [size, *leading_sizes(known_rows(listed))])
