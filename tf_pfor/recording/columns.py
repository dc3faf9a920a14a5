"""Columns: one input of calls that run together, read from what ran before."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_pfor._tf import _eager_ops
from tf_pfor.recording.nodes import Ran, Recorded

Place: TypeAlias = tuple[int, int, int | None]
"""Where a value is: the number of a run, that of its result, and the row. A run of one call has no
rows. ``(TENSORS, k, None)`` is the tensor number k."""

TENSORS = -1

Rows: TypeAlias = np.ndarray | slice | list[int] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """The values of a column that come from one place.

    Attributes:
      source: the number of a run; TENSORS: tensors that were not recorded.
      index: the number of the result of the run.
      rows: the rows of the result; None: all rows in order. For TENSORS, their numbers.
      is_single: whether the run is of one call, so that its results have no rows.
      places: the places in the column; None: the column has only this piece.
    """

    source: int
    index: int
    rows: Rows
    is_single: bool
    places: np.ndarray | None

    def made(self, rans: Sequence[Ran], tensors: Sequence[Any]) -> tf.Tensor:
        """The tensor [k, ...] whose rows the piece takes."""
        if isinstance(self.rows, list):
            return tf.stack([tensors[k] for k in self.rows])
        made = rans[self.source].results[self.index]
        if self.is_single:
            return tf.expand_dims(made, 0)
        return made[self.rows] if isinstance(self.rows, slice) else made

    @property
    def taken(self) -> np.ndarray | None:
        """The rows that are gathered; None: all."""
        return self.rows if isinstance(self.rows, np.ndarray) else None


Column: TypeAlias = list[Piece]


def column_of(places: Sequence[Place], counts: Sequence[int]) -> Column:
    """The column of values at ``places``; ``counts``: the number of calls of each run."""
    groups: dict[tuple[int, int], list[int]] = {}
    for at, (source, index, _) in enumerate(places):
        groups.setdefault((source, 0 if source == TENSORS else index), []).append(at)
    is_only = len(groups) == 1
    column: Column = []
    for (source, index), members in groups.items():
        rows: Rows
        is_single = places[members[0]][2] is None
        if source == TENSORS:
            rows = [places[at][1] for at in members]
        elif is_single:
            rows = None if len(members) == 1 else np.zeros(len(members), np.int32)
        else:
            rows = _rows([places[at][2] for at in members], counts[source], is_only=is_only)
        where = None if is_only else np.array(members, np.int32)
        column.append(Piece(source, index, rows, is_single, where))
    return column


def _rows(rows: list[Any], count: int, *, is_only: bool) -> Rows:
    """Rows of a result of ``count`` rows as ``Piece.rows``."""
    first, last = rows[0], rows[0] + len(rows)
    if rows == list(range(first, last)):
        if len(rows) == count:
            return None
        if is_only and 2 * len(rows) > count:  # the gradient of a slice has as many rows
            return slice(first, last)
    return np.array(rows, np.int32)


def read(column: Column, rans: Sequence[Ran], tensors: Sequence[Any]) -> tf.Tensor:
    """[k, ...] of a column."""
    made = [piece.made(rans, tensors) for piece in column]
    rows = [piece.taken for piece in column]
    places = [piece.places for piece in column]
    if len(column) == 1 and rows[0] is None:
        return made[0]

    def gathered(*made: tf.Tensor) -> tf.Tensor:
        pieces = list(map(_rows_of, made, rows))
        return pieces[0] if len(pieces) == 1 else tf.dynamic_stitch(places, pieces)

    def gradient(dy: tf.Tensor) -> list[Any]:
        found: list[Any] = []
        for x, r, p in zip(made, rows, places):
            part = _rows_of(dy, p)
            found.append(part if r is None else tf.IndexedSlices(part, tf.constant(r), tf.shape(x)))
        return found

    # TensorFlow's gradient of a gather has eight ops, this one has a gather for each piece.
    return _eager_ops.with_gradient("gathered", gathered, made, gradient)


def _rows_of(x: tf.Tensor, rows: np.ndarray | None) -> tf.Tensor:
    return x if rows is None else tf.raw_ops.GatherV2(params=x, indices=rows, axis=0)


def joined(items: Sequence[Any]) -> tf.Tensor:
    """[k, ...] of k values: recorded ones that have run, and tensors."""
    numbers: dict[Ran, int] = {}
    tensors: list[Any] = []
    places: list[Place] = []
    for x in items:
        if not isinstance(x, Recorded):
            places.append((TENSORS, len(tensors), None))
            tensors.append(x)
            continue
        ran = x.node.run()
        row = None if ran.is_single else x.node.row
        places.append((numbers.setdefault(ran, len(numbers)), x.index, row))
    rans = list(numbers)
    return read(column_of(places, [ran.count for ran in rans]), rans, tensors)
