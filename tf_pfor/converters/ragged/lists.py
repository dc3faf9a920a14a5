"""Lists of own length and rows of different shapes: one is made of the other.

A list of which each row has its own length is as long as the longest, and knows the lengths
(``ListRows.lengths``). Made of ragged rows, items behind the end of a row are zeros, which nobody
reads; stacked, it is padded, and the lengths are its sizes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._list_rows import from_zero, known_lengths, pick
from tf_pfor.converters.lists._lists import shape_input, size_of_rows, swap
from tf_pfor.converters.lists._row_packs import holds_packs
from tf_pfor.converters.ragged._forms import from_padded
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import ListRows, StackedList
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule, source


@ragged_rule("TensorListFromTensor")
def from_ragged(call: Call, tensor: Value, element_shape: Value) -> Any:
    """Rows that differ along their first axis: lists of as many items as they have."""
    del element_shape
    if not isinstance(tensor, Ragged) or tensor.n_leading != 1:
        raise CannotVectorize("the items of the list would differ in shape")
    (size,) = tensor.sizes
    assert isinstance(size, RowSizes)
    items = swap(call, tensor.in_rows)  # [T, n, ...]
    shape = call.emit.shape_of(items)[1:]
    made = call.emit(
        "TensorListFromTensor", items, shape if None in items.shape[1:] else items.shape[1:]
    )
    lengths = size.tensor
    _sizes(call)[id(lengths)] = (lengths, size)
    return StackedList.of(made, ListRows(call.loop.length, lengths=lengths))


@source("TensorListStack")
def stack(call: Call, input_handle: Value, element_shape: Value) -> Any:
    """The items of each row up to the end of its list."""
    del element_shape
    if _tf.in_xla_context(call.emit.graph):
        raise CannotVectorize("a stack of lists of own length, under jit_compile")
    if call.attr("element_dtype") == tf.variant or holds_packs(input_handle):
        raise CannotVectorize("a stack of lists")
    listed = from_zero(call, input_handle)
    lengths = known_lengths(listed)
    shape = call.output_shape()
    if lengths is None or shape is None:
        raise CannotVectorize("the length of the list is not known")
    asked = shape_input(call, "element_shape", size_of_rows(call, listed), known=shape[1:])
    whole = call.emit(
        "TensorListStack", listed.tensor, asked, element_dtype=call.attr("element_dtype")
    )  # [T, size, ...]
    padded = swap(call, pick(call, listed, whole, axis=1))  # [n, T, ...]
    own = pick(call, listed, lengths)
    size = _sizes(call).get(id(own), (own, None))[1] or RowSizes.of(own)
    static = call.loop.static_length
    padded.set_shape([static, None, *shape[1:]])
    return from_padded(call, padded, [size])


def _sizes(call: Call) -> dict[int, tuple[tf.Tensor, RowSizes]]:
    """The sizes of rows that became the lengths of lists: what is made of these has the same."""
    return call.walker.memo.setdefault("sizes of lists", {})
