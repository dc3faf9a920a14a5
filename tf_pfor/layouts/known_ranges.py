"""Ranges in rows that are known by name: equal ranges share their lengths, also in a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor.core.values import Cell
from tf_pfor.layouts.row_sizes import RowSizes


@dataclasses.dataclass(frozen=True, slots=True)
class KnownRange:
    """A range in each row.

    Attributes:
      begin: int32 [n], where it begins; None where that is 0, or nobody asks.
      length: its length in each row.
    """

    begin: Cell | None
    length: RowSizes

    @property
    def both(self) -> Any:
        """The begins and the lengths."""
        return None if self.begin is None else self.begin.get(), self.length


Ranges = dict[tuple[Any, Any], KnownRange]
"""By the name of a range and the room of the axis: an int, or the sizes of the rows."""


def known_ranges(memo: dict[Any, Any], loop: object) -> Ranges:
    """The ranges that the iterations of a loop know."""
    return memo.setdefault(("ragged ranges", loop), {})


def hand_on(
    outside: Ranges,
    inside: Ranges,
    lengths: dict[RowSizes, RowSizes],
    size: Callable[[RowSizes], RowSizes | None],
    begin: Callable[[tf.Tensor], tf.Tensor],
) -> None:
    """Tells the iterations of an inner loop the ranges of an outer one that they are given.

    Args:
      outside: the ranges of the outer loop.
      inside: the ranges of the inner loop, to which some are added.
      lengths: the lengths that are given, with what they are inside.
      size: the sizes inside that some outside are; None where that is not known.
      begin: the begins inside, int32 [rows of the inner loop], that some outside are.
    """
    for (name, room), known in [*outside.items()]:
        length = lengths.get(known.length)
        inner = size(room) if isinstance(room, RowSizes) else room
        if length is None or inner is None:
            continue
        whole = known.begin
        cell = None if whole is None else Cell(None, lambda t=whole: begin(t.get()))
        inside.setdefault((name, inner), KnownRange(cell, length))
