"""The items of a StridedSlice, one for each axis, and the same slice of a stacked tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.arrays._indexing import Index, Reach, elements
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Value
from tf_pfor.layouts.linear import forms

MASKS = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One entry of a slice, ellipses written out.

    Attributes:
      kind: "new" axis, "all" of an axis, one "index" of it, or a "range".
      axis: the axis of the sliced tensor; -1 for a new one.
      begin: the begin; None for the start (or for the end when the stride is negative).
      end: the end; None for the end of the axis.
      stride: its stride.
      reach: set for a range that begins at another place in each iteration.
    """

    kind: str
    axis: int = -1
    begin: Index | None = None
    end: Index | None = None
    stride: int = 1
    reach: Reach | None = None

    @property
    def first(self) -> Index:
        """The begin, of an item that has one."""
        assert self.begin is not None
        return self.begin

    @property
    def window(self) -> Reach:
        """The reach, of an item that has one."""
        assert self.reach is not None
        return self.reach

    @property
    def varies(self) -> bool:
        """True when begin or end is not known before running."""
        return any(i is not None and i.constant is None for i in (self.begin, self.end))

    def takes_all(self, size: int | None) -> bool:
        """True when all of an axis of this size is taken, or its only entry by an index."""
        if self.kind in ("new", "all"):
            return True
        if self.varies or size is None:
            return False
        if self.kind == "index":
            return size == 1 and self.first.constant in (0, -1)
        begin = 0 if self.begin is None else self.begin.constant
        end = size if self.end is None else self.end.constant
        return self.stride == 1 and end >= size and (begin == 0 or begin <= -size)  # type: ignore[operator]


def items_of(call: Call, rank: int) -> list[Item]:
    """The slice that a StridedSlice op means, one item for each axis and each new axis."""
    masks = {name: call.attr(name) for name in MASKS}
    begin, end = elements(call, "begin"), elements(call, "end")
    strides = [int(s) for s in call.constant("strides")]
    spans = None if is_constant(call) else _spans(call)
    every = range(len(strides))
    dots = [p for p in every if masks["ellipsis_mask"] >> p & 1]
    new = [p for p in every if masks["new_axis_mask"] >> p & 1 and p not in dots]
    skipped = rank - (len(strides) - len(dots) - len(new))  # axes without an entry
    out: list[Item] = []
    axis = 0
    for p in every:
        if p in dots:
            out += [Item("all", axis + i) for i in range(skipped)]
            axis += skipped
        elif p in new:
            out.append(Item("new"))
        else:
            out.append(
                _entry(
                    axis,
                    begin[p],
                    end[p],
                    strides[p],
                    spans[p] if spans else None,
                    from_start=bool(masks["begin_mask"] >> p & 1),
                    to_end=bool(masks["end_mask"] >> p & 1),
                    shrinks=bool(masks["shrink_axis_mask"] >> p & 1),
                )
            )
            axis += 1
    return out + [Item("all", i) for i in range(axis, rank)]


def _spans(call: Call) -> list[int | None] | None:
    """The distance from each begin to its end, where it is known although both are not."""
    begins, ends = (forms(t) for t in call.op.inputs[1:3])
    if begins is None or ends is None:
        return None
    return [end.plus(begin, -1).known for begin, end in zip(begins, ends)]


def _entry(
    axis: int,
    begin: Index,
    end: Index,
    stride: int,
    span: int | None,
    *,
    from_start: bool,
    to_end: bool,
    shrinks: bool,
) -> Item:
    if shrinks:
        return Item("index", axis, begin)
    if from_start and to_end and stride == 1:
        return Item("all", axis)
    item = Item("range", axis, None if from_start else begin, None if to_end else end, stride)
    if not item.varies:
        return item
    length = end.minus(begin)
    length = None if from_start or to_end else span if length is None else length
    if length is None or stride < 1:
        raise CannotVectorize("the length of the slice may differ between iterations")
    return dataclasses.replace(item, reach=Reach(max(0, -(-length // stride)), stride, length))


def spec_of(items: Sequence[Item], dtype: tf.DType, *, lead: bool) -> dict[str, Any]:
    """Inputs and masks of a StridedSlice that says ``items``, after a first axis that it keeps."""
    entries = [Item("all"), *items] if lead else list(items)
    while entries and entries[-1].kind == "all":
        entries.pop()
    begin, end = np.zeros([2, len(entries)], dtype.as_numpy_dtype)
    masks = dict.fromkeys(MASKS, 0)
    for p, item in enumerate(entries):
        bit = 1 << p
        if item.kind == "new":
            masks["new_axis_mask"] |= bit
        elif item.kind == "index":
            begin[p] = item.first.constant
            end[p] = begin[p] + 1
            masks["shrink_axis_mask"] |= bit
        elif item.kind == "all":
            masks["begin_mask"] |= bit
            masks["end_mask"] |= bit
        else:
            masks["begin_mask"] |= bit if item.begin is None else 0
            masks["end_mask"] |= bit if item.end is None else 0
            begin[p] = 0 if item.begin is None else item.begin.constant
            end[p] = 0 if item.end is None else item.end.constant
    strides = np.asarray([e.stride for e in entries], dtype.as_numpy_dtype)
    return {"begin": begin, "end": end, "strides": strides, **masks}


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
