"""Strided slices: the vectors and masks of TensorFlow's ops as one item for each axis, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

MASKS = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One entry of a slice, ellipses written out.

    Attributes:
      kind: "new" axis, "all" of an axis, one "index" of it, or a "range".
      axis: the axis of the sliced tensor; -1 for a new one.
      begin: the begin, an int where it is known; None for the start (the end for negative strides).
      end: the end; None for the end of the axis.
      stride: its stride.
    """

    kind: str
    axis: int = -1
    begin: Any = None
    end: Any = None
    stride: int = 1

    @property
    def is_static(self) -> bool:
        """Whether begin and end are known before running."""
        return all(x is None or isinstance(x, int) for x in (self.begin, self.end))

    @property
    def python(self) -> Any:
        """The entry as an index of Python; all of the axis where it is not known before running."""
        if self.kind == "new":
            return None
        if self.kind == "all" or not self.is_static:
            return slice(None)
        return self.begin if self.kind == "index" else slice(self.begin, self.end, self.stride)

    def takes_all(self, size: int | None) -> bool:
        """True when all of an axis of this size is taken, or its only entry by an index."""
        if self.kind in ("new", "all"):
            return True
        if not self.is_static or size is None:
            return False
        if self.kind == "index":
            return size == 1 and self.begin in (0, -1)
        return self.stride == 1 and range(size)[self.python] == range(size)


def items(
    attr: Callable[[str], int],
    begin: Callable[[int], Any],
    end: Callable[[int], Any],
    strides: np.ndarray,
    rank: int,
) -> list[Item]:
    """The items of a slice, one for each axis and each new axis.

    Args:
      attr: reads a mask of the op.
      begin: reads an entry of the op's begin: an int where it is known.
      end: reads an entry of its end.
      strides: its strides.
      rank: the rank of what is sliced.
    """
    masks = {name: attr(name) for name in MASKS}

    def has(name: str, p: int) -> bool:
        return bool(masks[f"{name}_mask"] >> p & 1)

    every = range(len(strides))
    skipped = rank - sum(not has("ellipsis", p) and not has("new_axis", p) for p in every)
    found: list[Item] = []
    axis = 0
    for p in every:
        if has("ellipsis", p):
            found += [Item("all", axis + k) for k in range(skipped)]
            axis += skipped
            continue
        if has("new_axis", p):
            found.append(Item("new"))
            continue
        if has("shrink_axis", p):
            found.append(Item("index", axis, begin(p)))
        else:
            first = None if has("begin", p) else begin(p)
            last, stride = None if has("end", p) else end(p), int(strides[p])
            is_all = first is None and last is None and stride == 1
            found.append(Item("all" if is_all else "range", axis, first, last, stride))
        axis += 1
    return found + [Item("all", k) for k in range(axis, rank)]


def spec_of(items: Iterable[Item]) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Begin, end, strides and masks of a slice whose items are known before running."""
    entries = [*items]
    while entries and entries[-1].kind == "all":
        entries.pop()
    bounds: list[tuple[int, int, int]] = []
    masks: dict[str, Any] = dict.fromkeys(MASKS, 0)
    for p, item in enumerate(entries):
        is_part = item.kind in ("all", "range")
        masks["new_axis_mask"] |= (item.kind == "new") << p
        masks["shrink_axis_mask"] |= (item.kind == "index") << p
        masks["begin_mask"] |= (is_part and item.begin is None) << p
        masks["end_mask"] |= (is_part and item.end is None) << p
        first = item.begin or 0
        bounds.append((first, first + 1 if item.kind == "index" else item.end or 0, item.stride))
    numbers = np.asarray(bounds, np.int64).reshape([-1, 3])
    narrow = numbers.astype(np.int32)
    begin, end, strides = (narrow if (narrow == numbers).all() else numbers).T
    return begin, end, strides, masks
