"""The items of a StridedSlice, one for each axis, and the same slice of a stacked tensor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_pfor._tf._strided_slices import MASKS, Item, items
from tf_pfor.converters.arrays._indexing import Reach, elements, form_of
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value


def items_of(call: Call, rank: int) -> list[Item]:
    """The slice that a StridedSlice op means, one item for each axis and each new axis."""
    begin, end = (elements(call, name).__getitem__ for name in ("begin", "end"))
    return items(call.attr, begin, end, call.constant("strides"), rank)


def windows_of(call: Call, rank: int) -> list[Item]:
    """``items_of``; the end of a range that is not known before running is its ``Reach``."""
    return [_window(item) if item.kind == "range" else item for item in items_of(call, rank)]


def _window(item: Item) -> Item:
    if item.is_static:
        return item
    length = None
    if item.begin is not None and item.end is not None:
        length = form_of(item.end).plus(form_of(item.begin), -1).known
    if length is None or item.stride < 1:
        raise CannotVectorize("the length of the slice may differ between iterations")
    reach = Reach(max(0, -(-length // item.stride)), item.stride, length)
    return dataclasses.replace(item, end=reach)


def shifted_masks(call: Call) -> dict[str, Any]:
    """Begin, end, strides and masks after a first axis of which all is kept, unread."""
    changes: dict[str, Any] = {name: call.attr(name) << 1 for name in MASKS}
    changes["begin_mask"] |= 1
    changes["end_mask"] |= 1
    for name, first in (("begin", 0), ("end", 0), ("strides", 1)):
        value, found = call.inputs[name], call.maybe_constant(name)
        assert isinstance(value, Value)
        if value.is_stacked:
            raise CannotVectorize(f"'{name}' differs between iterations")
        if found is not None:
            changes[name] = np.concatenate([[first], found]).astype(found.dtype)
        else:
            head = call.emit.constant([first], value.dtype)
            changes[name] = call.emit("ConcatV2", [head, value.tensor], 0)
    return changes


def is_constant(call: Call) -> bool:
    return all(call.maybe_constant(name) is not None for name in ("begin", "end", "strides"))
