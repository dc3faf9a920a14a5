"""The axes of a call's arguments that have the number of rows: one trace takes any number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_pfor.core import nests
from tf_pfor.core.nests import Nest
from tf_pfor.tracing.fingerprint import Walk

Shape = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The places of the number of rows.

    Attributes:
      leaves: arguments, each with the axis that has the number; None if all rows share it.
      are_seen: whether the user's function gets all rows at once, and could ask for their number.
    """

    leaves: Iterable[tuple[Any, int | None]]
    are_seen: bool = False

    def unsized(self, walk: Walk, n_closed: int) -> list[Shape] | None:
        """The shapes of a walk's inputs, of any number of rows; None if there must be a number.

        No rows are a case of their own: TensorFlow's constant folding fails on some. One row is
        what all rows share in ``vectorized_map``, and what is broadcast in a function that sees it.

        Args:
          walk: over the call.
          n_closed: the number of its first inputs that the function closes over, and so sees whole.
        """
        axes = dict[int, tuple[int, int]]()
        shared = set[int]()
        for leaf, axis in self.leaves:
            is_ragged = isinstance(leaf, tf.RaggedTensor)
            part = leaf.row_splits if is_ragged else leaf
            number = walk.numbers.get(id(part))
            if axis is None and number is not None:
                shared.add(number)
            if leaf is None or axis is None:
                continue
            rank = 0 if number is None else len(walk.shapes[number])
            if number is None or number < n_closed or not -rank <= axis < rank:
                return None
            if axes.setdefault(number, (axis % rank, int(is_ragged))) != (axis % rank, is_ragged):
                return None
        if not shared.isdisjoint(axes):
            return None
        sizes = {k: (walk.shapes[k][axis] or 0) - more for k, (axis, more) in axes.items()}
        several = {size for size in sizes.values() if size != 1}
        if 0 in several or not sizes or (len(several) > 1 and not self.are_seen):
            return None
        shapes = [*walk.shapes]
        for k, (axis, _) in axes.items():
            if sizes[k] != 1 or not (several or self.are_seen):
                shapes[k] = (*shapes[k][:axis], None, *shapes[k][axis + 1 :])
        return None if shapes == walk.shapes else shapes


def in_front(*arguments: object, shared: object = (), are_seen: bool = False) -> Rows:
    """The places for arguments with the rows on axis 0, and for arguments that all share."""
    of = [(x, None if are_seen and _is_scalar(x) else 0) for x in _leaves(arguments)]
    return Rows([*of, *((x, None) for x in _leaves(shared))], are_seen)


def _leaves(nest: Nest) -> list[Any]:
    try:
        return tf.nest.flatten(nests.from_user(nest))
    except TypeError:  # keys that have no order: what checks the argument says so
        return []


def _is_scalar(x: object) -> bool:
    return not getattr(x, "shape", ())
