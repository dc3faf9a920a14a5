"""AddN of stacked lists, of which some may hold more rows than others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.lists._broadcast_lists import is_zeros
from tf_pfor.converters.lists._list_rows import (
    dense,
    from_zero,
    is_kept,
    known_lengths,
    once,
    own_rows,
    relist,
    shape_of_items,
    without_base,
)
from tf_pfor.converters.lists._lists import (
    set_length,
    stack_list,
    swap,
    updated,
    with_size,
    without_size,
)
from tf_pfor.converters.lists._ragged_items import DIFFER
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import (
    ListRows,
    PendingSum,
    StackedList,
    known_rows,
    list_with_rows,
    rows_of,
)
from tf_pfor.core.values import Cell, Value
from tf_pfor.layouts.padded_lists import equally_long, unpadded
from tf_pfor.layouts.ragged import same_sizes


def sum_of_lists(call: Call, values: Sequence[Value]) -> Value:
    """AddN of lists, element by element, of which some may hold more rows than the loop has."""
    if not _tf.in_xla_context(call.emit.graph):  # there they may say where the list ends
        values = [v for v in values if v.is_stacked or not is_zeros(v.tensor)] or values[:1]
    if not values[1:]:
        return values[0]
    parts = [stack_list(call, v) for v in values]
    if any(known_rows(v).holds.parts for v in parts):
        raise CannotVectorize("a sum of optionals of rows of different shapes")
    held = [known_rows(v).holds for v in parts if known_rows(v).holds.items]
    made = _sum_of_parts(call, parts)
    if not held:
        return made
    first, *others = held
    if any(o.numbers != first.numbers or not same_sizes(o.items, first.items) for o in others):
        raise CannotVectorize(DIFFER)
    rows = rows_of(made) or ListRows(call.loop.length, is_even=True)
    rows = rows.holding(items=first.items, numbers=first.numbers)
    return list_with_rows(made, rows)


def _sum_of_parts(call: Call, parts: Sequence[Value]) -> Value:
    if any(is_kept(v) for v in parts) and not _tf.in_xla_context(call.emit.graph):
        return _sum_of_containers(call, parts)
    parts = [from_zero(call, v) for v in parts]
    whole = next((v for v in parts if known_rows(v).ids is not None), None)
    if whole is None or rows_of(whole) is None:
        rows = next((rows_of(v) for v in parts if rows_of(v) is not None), None)
        rows = next((rows_of(v) for v in parts if known_lengths(v) is not None), rows)
        rows, has_lengths = without_base(rows), any(known_lengths(v) is not None for v in parts)
        if has_lengths and _tf.in_xla_context(call.emit.graph):
            whole = _whole_sum(call, parts)
            return relist(call, StackedList.of(parts[0].tensor, rows), whole)
        made = call.emit("AddN", _equally_long(call, parts))
        return StackedList.of(made, rows)
    own = [v for v in parts if v is not whole]
    spread = [StackedList.of(_spread(call, own_rows(call, v), whole), rows_of(v)) for v in own]
    made = call.emit("AddN", _equally_long(call, [whole, *spread]))
    return StackedList.of(made, rows_of(whole))


def _sum_of_containers(call: Call, parts: Sequence[Value]) -> Value:
    """AddN of lists of lists, of which all but one must be zeros, or of optionals.

    Whoever reads a sum of optionals reads all of them and adds their values.
    """
    terms = [v for v in parts if ("zeros", v.cell) not in call.memo]
    if len(terms) < 2:
        return terms[0] if terms else parts[0]
    flat = tuple(t for v in terms for t in (v.terms if isinstance(v, PendingSum) else [v]))
    rows = ListRows(call.loop.length)
    return PendingSum(Cell(None, _not_put_together), (), tf.variant, rows, flat)


def _not_put_together() -> tf.Tensor:
    raise CannotVectorize("lists of lists, or optionals that are kept, are added")


def _equally_long(call: Call, parts: Sequence[Value]) -> list[tf.Tensor]:
    """The handles of lists that are equally long in each row, also when there is no row.

    XLA cannot change their lengths; no rows are no such case there, where shapes are static.
    """
    emit = call.emit
    if _tf.in_xla_context(emit.graph) or all(known_lengths(v) is None for v in parts):
        return [v.tensor for v in parts]
    first = next((v for v in parts if known_lengths(v) is None), parts[0])
    length = emit("TensorListLength", first.tensor)
    return [
        v.tensor if known_lengths(v) is None else set_length(emit, v.tensor, length) for v in parts
    ]


def _whole_sum(call: Call, parts: Sequence[Value]) -> tf.Tensor:
    """[T, size, ...]: the sum of lists that XLA cannot make longer, whose room differs."""
    wholes = [dense(call, v) for v in parts]
    if any(t.shape.rank is None for t in wholes):
        raise CannotVectorize("lists of items of unknown rank are added")
    return call.emit("AddN", equally_long(call.emit, wholes))


def _spread(call: Call, part: Value, whole: Value) -> tf.Tensor:
    """The list ``part`` of the active rows with as many rows as ``whole``, zeros in the others.

    A list with one element set, as gradients make them, costs one element.
    """
    emit, target = call.emit, rows_of(whole)
    assert target is not None
    assert target.ids is not None
    if target.mask is not None:
        raise CannotVectorize("lists are added where only some rows are written")
    at = emit("ExpandDims", target.ids, np.int32(1))

    def scattered(item: tf.Tensor) -> tf.Tensor:  # [k, ...] -> [size, ...]
        item = once(call, item)
        shape = with_size(call, without_size(call, emit.shape_of(item)), target.size)
        zero = emit.constant(np.zeros((), item.dtype.as_numpy_dtype))
        zeros = emit("Fill", shape, zero)
        return updated(emit, zeros, at, item)

    handle, written = part.tensor, []
    while handle.op.type == "TensorListSetItem":
        written.append((handle.op.inputs[1], handle.op.inputs[2]))
        handle = handle.op.inputs[0]
    if handle.op.type != "TensorListReserve" or any(x.dtype == tf.variant for _, x in written):
        items = swap(call, scattered(swap(call, dense(call, part))))  # [T, size, ...]
        made = emit("TensorListFromTensor", items, shape_of_items(call, whole))
        return unpadded(emit, made, handle)
    shape = shape_of_items(call, whole)
    length = emit("TensorListLength", whole.tensor)
    if not written:
        raise CannotVectorize("a list without elements is added")
    dtype = written[0][1].dtype
    made = emit("TensorListReserve", shape, length, element_dtype=dtype)
    for index, item in reversed(written):
        made = emit("TensorListSetItem", made, index, scattered(item))
    return made
