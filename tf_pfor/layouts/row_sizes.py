"""Sizes of rows along an axis that differs between them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.values import Cell, Rows
from tf_pfor.layouts import cpu_kernels, quick
from tf_pfor.layouts.quick import dim as dim
from tf_pfor.layouts.size_rules import Rule, SizeRule


class RowSizes:
    """The sizes of the rows along one axis.

    Args:
      cell: the sizes, int32 [n].
      most: an upper bound of the sizes, where it is known before running.
      full: for windows of one length the size of windows that do not reach past an edge.
      is_number: whether it is a number of the row that may be negative, and no size yet.
      rows: the row number of each entry of the packed form, where it is known.
      splits: int32 [n + 1], the begins of rows in the packed form, and the end, where known.
      whole: for selected rows the sizes that they were selected from.
      parts: the sizes that these follow from, by a rule or as sizes of what is broadcast together.
      rule: the way in which they follow; None for what is broadcast together.

    ``shared`` keeps tensors that are made of the sizes, once for all readers (``packing``).
    """

    __slots__ = (
        "__weakref__",
        "_all",
        "_followers",
        "_loop",
        "_made",
        "_rows",
        "_splits",
        "_starts",
        "cell",
        "full",
        "is_number",
        "most",
        "parts",
        "rule",
        "shared",
        "whole",
    )

    def __init__(
        self,
        cell: Cell,
        most: int | None = None,
        full: int | None = None,
        *,
        is_number: bool = False,
        rows: tf.Tensor | None = None,
        splits: tf.Tensor | None = None,
        whole: RowSizes | None = None,
        parts: Sequence[RowSizes] = (),
        rule: Rule | None = None,
    ):
        self.cell = cell
        self.most = most
        self.full = full
        self.is_number = is_number
        self.whole = whole
        self._all: RowSizes | None = None if whole is None else whole.of_all_rows
        self._rows = Cell(rows, lambda: beside(self.tensor, self._make_rows))
        self._splits = Cell(splits, lambda: beside(self.tensor, self._make_splits))
        self._starts = Cell(
            None, lambda: beside(self.tensor, lambda: quick.part(self.splits, 0, -1))
        )
        self.shared: dict[Any, Any] = {}
        self._made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._loop: Rows | None = None  # whose rows were selected
        self._followers: dict[Any, RowSizes] = {}  # by rule and parts
        self.parts = tuple(parts)
        self.rule = rule
        for part in self.parts:
            part._followers[_name(self.parts, rule)] = self

    @classmethod
    def of(cls, tensor: tf.Tensor, most: int | None = None, full: int | None = None) -> RowSizes:
        """From a tensor int32 [n]."""
        return cls(Cell(tensor), most, full)

    @classmethod
    def joint(cls, sizes: Sequence[RowSizes]) -> RowSizes:
        """The sizes of what is broadcast together: the same object for the same sizes.

        So no trip of a loop changes what follows from sizes that no trip changes. Whether they
        fit is for the reader to check. Where they do not, these are some numbers.
        """
        parts = [*dict.fromkeys(part for s in sizes for part in s.joined or [s])]
        if len(parts) == 1:
            return parts[0]
        bounds = [p.most for p in parts]
        most = None if None in bounds else max(b for b in bounds if b is not None)
        return cls.following(parts, None, most)

    @classmethod
    def following(
        cls, parts: Sequence[RowSizes], rule: Rule | None, most: int | None = None
    ) -> RowSizes:
        """The sizes that follow from others by a rule: the same object for the same ones."""
        found = parts[0]._followers.get(_name(parts, rule))
        if found is not None:
            return found
        wholes, loop = [p.whole for p in parts if p.whole is not None], parts[0]._loop
        if loop is not None and all(p._loop is loop for p in parts):
            return cls.following(wholes, rule, most).select(loop)
        make = _broadcast if rule is None else rule.on

        def made() -> tf.Tensor:
            given = [p.tensor for p in parts]
            return beside(max(given, key=_tf.depth_of), lambda: make(given))

        return cls(Cell(None, made), most, parts=parts, rule=rule)

    @property
    def joined(self) -> tuple[RowSizes, ...]:
        """The sizes of which each was broadcast with the others; none for other sizes."""
        return () if self.rule else self.parts

    def follows_from(self, known: Sequence[RowSizes]) -> tuple[Sequence[RowSizes], Rule | None]:
        """The sizes, of some, that these follow from, and the rule; no sizes if they do not."""
        if self.parts:
            return self.parts, self.rule
        rule, read = SizeRule.of(self.tensor, [s.tensor for s in known])
        return [known[k] for k in read] if rule else (), rule

    def follows(self, made: RowSizes) -> RowSizes:
        """These sizes in place of ``made``, if both follow from the same ones by the same rule."""
        if self.rule is None:
            return made
        rule, read = SizeRule.of(made.tensor, [p.tensor for p in self.parts])
        return self if rule == self.rule and read == [*range(len(self.parts))] else made

    @property
    def of_all_rows(self) -> RowSizes:
        """The sizes before any selection, of all rows; these sizes if nothing was selected."""
        return self._all or self

    @property
    def tensor(self) -> tf.Tensor:
        """int32 [n]."""
        return self.cell.get()

    @property
    def rows(self) -> tf.Tensor:
        """int32 [total]: the row number of each entry of the packed form."""
        return self._rows.get()

    @property
    def starts(self) -> tf.Tensor:
        """int32 [n]: where the rows begin in the packed form."""
        return self._starts.get()

    @property
    def splits(self) -> tf.Tensor:
        """int32 [n + 1]: where the rows begin in the packed form, and where the last one ends."""
        return self._splits.get()

    def _make_splits(self) -> tf.Tensor:
        made = quick.concat([[0], quick.op("Cumsum", self.tensor, 0)])
        n = self.tensor.shape[0]
        made.set_shape([None if n is None else n + 1])
        return made

    def _make_rows(self) -> tf.Tensor:
        """Counts the begins of rows; several begins fall together where rows are empty.

        On CPUs a range of int64 for each row is faster: its upper halves are the row's number.
        """
        if cpu_kernels.may_run():
            first = quick.op("Cast", quick.numbers(quick.dim(self.tensor, 0)), DstT=tf.int64)
            first = quick.multiply(first, 2**32)
            last = quick.add(first, quick.op("Cast", self.tensor, DstT=tf.int64))
            _, made = quick.op("RaggedRange", first, last, np.int64(1), Tsplits=tf.int32)
            halves = quick.op("Bitcast", made, type=tf.int32)
            place = [0, 1], [0, 2], [1, 1]  # of halves[:, 1]
            return quick.op(
                "StridedSlice", halves, *place, begin_mask=1, end_mask=1, shrink_axis_mask=2
            )
        begins, total = self.splits[1:-1], self.splits[-1]
        marks = tf.scatter_nd(begins[:, None], tf.ones_like(begins), tf.stack([total + 1]))
        return tf.cumsum(marks)[:total]

    def select(self, loop: Rows) -> RowSizes:
        """The sizes of the rows of ``loop``: the same object at each call."""
        if loop.rows is None:
            return self
        if loop not in self._made:
            rows, emit = loop.rows, loop.emit

            def make() -> tf.Tensor:
                return emit("GatherV2", self.tensor, rows, emit.constant(0, tf.int32))

            parts = [p.select(loop) for p in self.parts]
            cell = Cell(None, make)
            made = RowSizes(cell, self.most, self.full, whole=self, parts=parts, rule=self.rule)
            made.is_number, made._loop = self.is_number, loop
            self._made[loop] = made
        return self._made[loop]

    def seen_from(self, graph: tf.Graph, see: Callable[..., Any]) -> RowSizes:
        """The same sizes for ops of another graph: the same object at each call."""
        if graph not in self._made:
            parts = [p.seen_from(graph, see) for p in self.parts]
            made = parts[0]._followers.get(_name(parts, self.rule)) if parts else None
            if made is None:
                cell = self.cell.seen_from(graph, see)
                made = RowSizes(cell, self.most, self.full, parts=parts, rule=self.rule)
                made.is_number = self.is_number
                made._all = None if self._all is None else self._all.seen_from(graph, see)
            self._made[graph] = made
        return self._made[graph]


def _name(parts: Sequence[RowSizes], rule: Rule | None) -> Any:
    return (rule, *parts) if rule else frozenset(parts)


def _broadcast(sizes: Sequence[tf.Tensor]) -> tf.Tensor:
    """int32 [n]: the sizes of rows; of rows of one element the sizes of others."""
    found = sizes[0]
    for other in sizes[1:]:
        found = quick.where(quick.both("Equal", found, 1), other, found)
    found.set_shape(sizes[0].shape)
    return found


Size = int | tf.Tensor | RowSizes
"""The size of rows along one axis: an int, int32 [] where all are equal, or ``RowSizes``."""


def is_one(size: Any) -> bool:
    """Whether an axis has size one in all rows."""
    return isinstance(size, int) and size == 1


def as_number(size: Any) -> Any:
    """A size as a number: int32 [n], or one that all rows share."""
    return size.tensor if isinstance(size, RowSizes) else size


def at_rows(size: Size, rows: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The size in the row of each of some entries; one number if all rows share it."""
    return tf.cast(tf.gather(size.tensor, rows) if isinstance(size, RowSizes) else size, dtype)


def row_counts(sizes: Sequence[Size]) -> Any:
    """The number of entries of the packed form in each row: int32 [n], or one number."""
    found: Any = 1
    for number in map(as_number, sizes):
        found = number if is_one(found) else found * number
    return found


def later(tensor: tf.Tensor, sizes: Sequence[Size], make: Callable[[], tf.Tensor]) -> Cell:
    """A cell whose tensor ``make`` makes of a tensor and sizes when it is read.

    It does so in the graph that sees both: a branch may make sizes of what stands outside.
    """

    def made() -> tf.Tensor:
        given = [*map(as_number, sizes)]
        tensors = [t for t in given if isinstance(t, tf.Tensor)]
        return beside(max([tensor, *tensors], key=_tf.depth_of), make)

    return Cell(None, made)


def beside(tensor: tf.Tensor, make: Callable[[], tf.Tensor]) -> tf.Tensor:
    """The result of ``make`` in the graph of a tensor: a loop may be the first to ask."""
    if not tf.is_symbolic_tensor(tensor):
        return make()
    with tensor.graph.as_default():
        return make()


def count_of(sizes: Sequence[Size]) -> tf.Tensor | int:
    """n, of the rows."""
    first = next(s for s in sizes if isinstance(s, RowSizes)).tensor
    return quick.dim(first, 0)


def dims_of(tensor: tf.Tensor, first: int = 0, end: int | None = None) -> list[int | tf.Tensor]:
    """The sizes of some axes, ints where they are known."""
    known: list[Any] = tensor.shape.as_list()
    places = range(len(known))[first:end]
    return [quick.dim(tensor, i) for i in places]
