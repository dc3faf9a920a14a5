"""Lists of stacked elements, and what is known of the rows that these have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.core.values import Cell, Gather, Hold, Layout, Rows, Shape, Value, capturing, dims

Kept = tuple[tuple[tf.DType, Any], ...]
"""Dtypes and static shapes of what a branch keeps in an Optional; in place of the shape of an
Optional what that may hold, for each branch: a tuple of such."""

OF_SHAPES, OF_SIZES = "shapes", "sizes"
"""``Holds.numbers``: the shapes of rows, or their sizes along one axis."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Holds:
    """The elements of a list, or the content of an Optional, that are not just stacked tensors.

    Attributes:
      items: the sizes of an item along its axes, for a list of items whose shape differs between
        rows (``_ragged_items.py``). A list of such lists has the same sizes. Other lists have none.
      numbers: OF_SHAPES or OF_SIZES where the items are not such tensors, but numbers of them.
      parts: for Optionals that hold rows of different shapes: the part of each component
        (``_ragged_optionals.py``).
      by_branch: for an Optional that branches made. Each branch has the rows that took it, int32
        [k], its Optional, and the ``parts`` of that. The rows are None for the rows of the loop.
      packs: for a list of lists whether these are packs (``_row_packs.py``), and not just lists of
        all rows.
      keeps: for a list of Optionals that are not made: the content of an Optional.
      beside: the lists beside this one. For ``packs`` under XLA these stand in the place of packs
        (``_nested_lengths.py``). For ``keeps`` the handle is a list of the first component, and
        these are lists of the others.
    """

    items: tuple[Any, ...] = ()
    numbers: str = ""
    parts: tuple[Any, ...] = ()
    by_branch: Sequence[tuple[tf.Tensor | None, tf.Tensor, tuple[Any, ...]]] = ()
    packs: bool = False
    keeps: tuple[Kept, ...] = ()
    beside: Sequence[tf.Tensor] = ()

    def parts_for(self, rows: tf.Tensor | None) -> tuple[Any, ...]:
        """``parts`` of what was made for these rows; of all if it was not made for them."""
        own = [parts for part, _, parts in self.by_branch if part is rows and rows is not None]
        return own[0] if own else self.parts

    def select(self, loop: Rows) -> Holds:
        """The same for the rows of a branch or a loop."""
        return dataclasses.replace(
            self,
            by_branch=tuple((None, t, ()) for part, t, _ in self.by_branch if part is loop.rows),
            items=tuple(s.select(loop) if hasattr(s, "select") else s for s in self.items),
            parts=tuple(p and p.select(loop) for p in self.parts_for(loop.rows)),
        )

    def seen_from(self, graph: tf.Graph, see: Callable[..., Any]) -> Holds:
        """The same for ops of another graph, in which ``see`` captures tensors."""
        return dataclasses.replace(
            self,
            by_branch=(),
            beside=tuple(map(see, self.beside)),
            items=tuple(_size_seen(s, graph, see) for s in self.items),
            parts=tuple(p and p.seen_from(graph, see) for p in self.parts),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ListRows:
    """A STACKED_LIST whose elements are not just the rows of the loop at hand.

    Attributes:
      size: the number of rows of the elements, an int or a scalar int32 tensor.
      ids: int32 [loop length], the rows of the elements that are active iterations; None when all
        rows are, in order.
      mask: bool [size], the rows that may be written; None for all.
      lengths: int32 [size], the end of each row's list where ends differ; None when they are equal.
        The list is as long as the longest row.
      sizes: the ``RowSizes`` whose tensor the lengths are, if the lengths have not changed since.
      starts: int32 [size], the begin of each row's list; None if all begin at 0.
      is_even: all active rows are as long as the list; other rows may hold anything at its end.
      may_agree: whether all rows may be equally long, for a list that was kept in a list or an
        Optional. It is only known at run time.
      whole: [T, size, ...], all elements, for a list that a loop only pops.
      base: an object that identifies the list that a loop carried in. It stays while active rows
        are written, and so says that the other rows have not changed.
      holds: the facts of its elements.
    """

    size: Any
    ids: tf.Tensor | None = None
    mask: tf.Tensor | None = None
    lengths: tf.Tensor | None = None
    sizes: Any = None
    starts: tf.Tensor | None = None
    is_even: bool = False
    may_agree: bool = False
    whole: Any = None
    base: object | None = None
    holds: Holds = dataclasses.field(default_factory=Holds)

    @property
    def known_sizes(self) -> Any:
        """The ``RowSizes`` whose tensor the lengths are, None if they are not known."""
        return self.sizes if self.sizes is not None and self.sizes.tensor is self.lengths else None

    def holding(self, **changes: object) -> ListRows:
        """The same rows of a list that holds something else; the fields of ``Holds`` say what."""
        return dataclasses.replace(self, holds=dataclasses.replace(self.holds, **changes))

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> ListRows:
        """The same for ops of another graph."""
        see = capturing(graph, home)
        sizes, holds = _size_seen(self.sizes, graph, see), self.holds.seen_from(graph, see)
        rows = dataclasses.replace(self, sizes=sizes, holds=holds)
        return ListRows(**{f.name: see(getattr(rows, f.name)) for f in dataclasses.fields(rows)})


def _size_seen(size: Any, graph: tf.Graph, see: Callable[..., Any]) -> Any:
    return size.seen_from(graph, see) if hasattr(size, "seen_from") else see(size)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StackedList(Value):
    """A TensorList (or Optional) handle whose contents are stacked.

    Attributes:
      rows: the rows of its elements; None for the rows of the loop.
    """

    layout = Layout.STACKED_LIST

    rows: ListRows | None = None

    @classmethod
    def of(cls, tensor: tf.Tensor, rows: ListRows | None = None) -> StackedList:
        """The list or the Optional with this handle."""
        return cls(Cell(tensor), dims(tensor), tensor.dtype, rows)

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The whole list; which of its rows are meant stands beside it."""
        del hold, gather
        return dataclasses.replace(self, rows=loop.rows_of_list(self.rows))

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """Captured, with all that is known of its rows."""
        cell = self.cell.seen_from(graph, capturing(graph, home))
        return dataclasses.replace(self, cell=cell, rows=_seen(self.rows, graph, home))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PendingSum(StackedList):
    """A sum of lists of lists, or of Optionals, that nobody has put together; it has no handle.

    Attributes:
      terms: the terms.
    """

    terms: tuple[Value, ...] = ()

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The sum of the selected terms."""
        del hold, gather
        if loop.rows is None:
            return self
        terms = tuple(t.select(loop) for t in self.terms)
        return dataclasses.replace(self, rows=loop.rows_of_list(self.rows), terms=terms)

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """The sum of the captured terms."""
        terms = tuple(t.seen_from(graph, home) for t in self.terms)
        return dataclasses.replace(self, rows=_seen(self.rows, graph, home), terms=terms)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OpenOptional(StackedList):
    """An Optional that is not made: its values stand beside; it has no handle.

    Attributes:
      alternatives: for each branch the values that it would put into the Optional.
    """

    alternatives: Sequence[Sequence[Value]] = ()

    def mapped(self, change: Callable[[Value], Value], rows: ListRows | None) -> OpenOptional:
        """The Optional with other values and rows."""
        alternatives = tuple([*map(change, each)] for each in self.alternatives)
        return dataclasses.replace(self, rows=rows, alternatives=alternatives)

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The selected values."""
        del hold, gather
        if loop.rows is None:
            return self
        return self.mapped(lambda v: v.select(loop), loop.rows_of_list(self.rows))

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """The captured values."""
        return self.mapped(lambda v: v.seen_from(graph, home), _seen(self.rows, graph, home))


def _seen(rows: ListRows | None, graph: tf.Graph, home: tf.Graph | None) -> ListRows | None:
    return None if rows is None else rows.seen_from(graph, home)


def rows_of(value: Value) -> ListRows | None:
    """The rows of a list's elements; None also for a list that is not stacked."""
    return value.rows if isinstance(value, StackedList) else None


_NOTHING = ListRows(None)


def known_rows(value: Value) -> ListRows:
    """The rows of a list, to read from: without any facts where it is just a list."""
    return rows_of(value) or _NOTHING


def list_with_rows(value: Value, rows: ListRows | None) -> StackedList:
    """A stacked list with other rows."""
    if isinstance(value, StackedList):
        return dataclasses.replace(value, rows=rows)
    return StackedList(value.cell, value.inner_shape, value.dtype, rows)


def received(
    tensor: tf.Tensor, layout: Layout, inner: Shape, rows: ListRows | None = None
) -> Value:
    """A tensor that a branch or a loop got as an argument, as a Value."""
    if layout is Layout.STACKED:
        return Value.stacked(tensor).with_inner_shape(inner)
    if layout is Layout.STACKED_LIST:
        return StackedList.of(tensor, rows)
    return Value.unstacked(tensor)
