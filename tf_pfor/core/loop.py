"""Loop: the number of iterations, and the mask of the active ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.pending import Packed
from tf_pfor.core.stacked_lists import ListRows
from tf_pfor.core.values import (
    Cell,
    Gather,
    Hold,
    RowSource,
    Shape,
    Stacked,
    Value,
    is_static,
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PaddedRows:
    """A static number of rows that do what the rows of a mask do and nothing else.

    No row sees data on which it would fail, and what the others compute is thrown away.

    Attributes:
      mask: bool [n].
      one: int32 [], one of the rows of the mask; 0 if it has none.
      rows: int32 [n], each row of the mask itself, and ``one`` for all others.
    """

    mask: tf.Tensor
    one: tf.Tensor
    rows: tf.Tensor


class Exchange(Protocol):
    """The other replicas of a distributed map, in each of which some of the iterations run."""

    @property
    def count(self) -> int:
        """The number of replicas."""
        ...

    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum of ``x`` of all replicas."""
        ...

    def joined(self, x: tf.Tensor, rows: Dim) -> tf.Tensor:
        """``x`` of all replicas, one behind the other along axis 0: so many rows together."""
        ...


class Block(NamedTuple):
    """The place of some iterations among all of them.

    Attributes:
      first: the number of the first one, an int32 scalar.
      total: the number of all iterations.
      exchange: the replicas that have the others; None for blocks, which run one after the other.
    """

    first: tf.Tensor
    total: Dim
    exchange: Exchange | None = None


class Loop:
    """The loop that is being removed, in one graph.

    Attributes:
      static_length: the number of iterations when it is known before running, else None.
      rows: int32 [length], which iterations of ``parent`` the active ones inside a branch or a
        while loop are; None when all are active. A row may stand there several times, where a
        static length must be filled: it then computes the same thing several times.
      parent: the loop around the branch or while loop, None for the outermost.
      axes: the names by which collectives know this loop.
      block: the place of some iterations among all; None when these are all.
      real: bool [length], False for iterations that stand in for others (``padded``): they repeat
        what another one computes, and nobody reads it. No gradient may come back through them,
        not even one that a custom gradient makes of zero. None: all are real.
    """

    def __init__(
        self,
        length: int | tf.Tensor,
        emit: Emitter,
        *,
        rows: tf.Tensor | None = None,
        parent: Loop | None = None,
        axes: frozenset[str] = frozenset(),
        block: Block | None = None,
        real: tf.Tensor | None = None,
        stand_in: tuple[tf.Tensor, tf.Tensor] | None = None,
    ):
        static = length if isinstance(length, int) else tf.get_static_value(length)
        self.static_length: int | None = None if static is None else int(static)
        self.rows = rows
        self.parent = parent
        self.emit = emit
        self._stand_in = stand_in
        self.axes = axes if parent is None else parent.axes
        self._block = block if parent is None else parent._block
        if real is None and parent is not None and parent.real is not None:
            zero = np.int32(0)
            real = parent.real if rows is None else emit("GatherV2", parent.real, rows, zero)
        self.real = real
        if isinstance(length, tf.Tensor):
            self._length = Cell(length)
        else:
            self._length = Cell(None, lambda: emit.constant(np.int32(length)))
        if parent is not None and rows is None:
            self._index = parent._index
        else:
            self._index = Cell(None, self._make_index)

    def _make_index(self) -> tf.Tensor:
        if self.parent is not None and self.rows is not None:
            if self.parent.is_whole:
                return self.rows
            return self.emit("GatherV2", self.parent.index, self.rows, np.int32(0))
        return self.places

    @property
    def length(self) -> Dim:
        """n: an int when static, else a scalar int32 tensor."""
        return self.length_tensor if self.static_length is None else self.static_length

    @property
    def length_tensor(self) -> tf.Tensor:
        """n as a scalar int32 tensor."""
        return self._length.get()

    @property
    def is_whole(self) -> bool:
        """True when all iterations of the outermost loop are active, in order."""
        return self.rows is None and (self.parent is None or self.parent.is_whole)

    @property
    def index(self) -> tf.Tensor:
        """int32 [n]: the iteration numbers of the active iterations."""
        return self._index.get()

    @property
    def places(self) -> tf.Tensor:
        """int32 [n]: 0 ... n - 1, the places of the active iterations among themselves."""
        if self.static_length is not None:
            return self.emit.constant(np.arange(self.static_length, dtype=np.int32))
        return self.emit("Range", np.int32(0), self.length_tensor, np.int32(1))

    def only_real(self, stacked: tf.Tensor) -> tf.Tensor:
        """[length, ...] with zeros in the iterations that stand in for others."""
        if self.real is None:
            return stacked
        return self.emit("Select", self.real, stacked, self.emit("ZerosLike", stacked))

    @property
    def is_block(self) -> bool:
        """True for some iterations of a loop, and not all."""
        return self._block is not None

    @property
    def block(self) -> Block | None:
        """The place of some iterations among all; None when these are all."""
        return self._block

    @property
    def numbers(self) -> tf.Tensor:
        """int32 [n]: the user's numbers of the active iterations, also in blocks."""
        return (
            self.index if self._block is None else self.emit("AddV2", self.index, self._block.first)
        )

    @property
    def total(self) -> Dim:
        """The number of iterations of the user's loop, active or not, in all blocks."""
        if self._block is not None:
            return self._block.total
        return self.length if self.parent is None else self.parent.total

    def index_value(self) -> Value:
        """The iteration number, as the body sees it."""
        return Stacked(self._index, (), tf.int32)

    def is_index(self, value: Value) -> bool:
        """True when ``value`` is the number of the iteration, 0 ... n - 1, all active."""
        return self.is_whole and value.cell is self._index

    def inside(self, emit: Emitter) -> Loop:
        """The same iterations, in the graph of a branch or a loop body."""
        return Loop(self.length, emit, parent=self)

    def subset(self, rows: tf.Tensor, emit: Emitter) -> Loop:
        """The child loop whose iterations are ``rows`` (int32 [k]) of this one's."""
        return Loop(emit.dim(rows, 0), emit, rows=rows, parent=self)

    def padded(self, rows: PaddedRows, emit: Emitter) -> Loop:
        """The child loop of the same length in which one row stands in for those not of a mask."""
        mask = rows.mask
        real = mask if self.real is None else emit("LogicalAnd", mask, self.real)
        stand_in = (mask, rows.one)
        return Loop(self.length, emit, rows=rows.rows, parent=self, real=real, stand_in=stand_in)

    def rows_of(self, whole: tf.Tensor, inner: Shape) -> tf.Tensor:
        """The rows of this loop, [length] + inner, of a tensor of all rows of the parent loop.

        Where one row stands in for others and a row is a single number, a select puts it there. It
        takes a fourth of the time of a gather, whose gradient adds up unread rows.
        """
        emit, rows, zero = self.emit, self.rows, np.int32(0)
        assert rows is not None
        is_number = is_static(inner) and math.prod(inner) == 1 and not _is_handle(whole.dtype)
        if self._stand_in is None or not is_number:
            return emit("GatherV2", _densely(whole, emit), rows, zero)
        mask, one = self._stand_in
        number = emit("GatherV2", whole, one, zero)
        others = emit("StopGradient", emit("BroadcastTo", number, emit.shape_of(whole)))
        return emit("Select", mask, whole, others)

    @property
    def mask(self) -> tf.Tensor | None:
        """bool [length]: the rows that do what they do for themselves; None if no row stands in."""
        return None if self._stand_in is None else self._stand_in[0]

    def updatable(
        self,
        whole: tf.Tensor,
        inner: Shape,
        variable: tf.Tensor,
        rows: Callable[[], tf.Tensor] | None = None,
    ) -> Stacked:
        """A loop variable, of which single items are read and updated without gathering its rows.

        Args:
          whole: its tensor, of all rows of the parent loop.
          inner: the static shape of a row.
          variable: the same at the begin of the trip.
          rows: makes the rows as those see them that stand in for others; None to gather them.
        """
        cell = Cell(None, rows or (lambda: self.rows_of(whole, inner)))
        assert self.rows is not None
        source = RowSource(Cell(whole), Cell(self.rows), variable=variable)
        return Stacked(cell, inner, whole.dtype, source=source)

    def seen_from(self, emit: Emitter) -> Loop:
        """This loop for ops that ``emit`` adds to another graph, inside or after this one."""
        length = self.static_length
        if length is None:
            length = self._seen(self.length_tensor, emit)
        rows = None if self.rows is None else self._seen(self.rows, emit)
        real = None if self.real is None else self._seen(self.real, emit)
        return Loop(
            length,
            emit,
            rows=rows,
            parent=self.parent,
            axes=self.axes,
            block=self._block,
            real=real,
        )

    def _seen(self, tensor: tf.Tensor, emit: Emitter) -> tf.Tensor:
        return _tf.captured(_tf.as_captured_by(tensor, self.emit.graph), emit.graph)

    def take(self, value: Value, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The value of the parent loop as a value of this loop (``Value.select``)."""
        return value.select(self, hold, gather)

    def gathered(
        self, value: Stacked, hold: Hold | None = None, gather: Gather | None = None
    ) -> Value:
        """The rows of a stacked tensor of the parent loop.

        They are gathered when somebody needs all of them; ``row_reads`` reads an element
        (``x[t]``) without that.
        """
        rows, emit, source = self.rows, self.emit, value.source
        if source is None:
            source = RowSource(value.cell) if hold is None else hold(value)
        if rows is None:
            if isinstance(value, Packed):
                return Stacked(value.cell, value.inner_shape, value.dtype, value.folded, source)
            return dataclasses.replace(value, source=source)
        parent = self.parent
        assert parent is not None
        if parent.is_index(value):
            return self.index_value()
        zero = np.int32(0)

        def take_rows(whole: tf.Tensor) -> tf.Tensor:
            return self.rows_of(whole, value.inner_shape)

        def elsewhere(graph: tf.Graph) -> tf.Tensor:
            later = Emitter(graph)
            whole = _densely(value.seen_from(graph, parent.emit.graph).tensor, later)
            return later("GatherV2", whole, self._seen(rows, later), zero)

        cell = Cell(None, lambda: (gather or take_rows)(value.tensor), elsewhere)
        source = source.through(Cell(rows), lambda outer: emit("GatherV2", outer, rows, zero))
        return Stacked(cell, value.inner_shape, value.dtype, source=source)

    def rows_of_list(self, known: ListRows | None) -> ListRows | None:
        """The rows of this loop in a list, from the rows ``known`` of the parent loop."""
        if self.rows is None:
            return known
        assert self.parent is not None
        known = known or ListRows(self.parent.length)
        ids = self.rows
        if known.ids is not None:
            ids = self.emit("GatherV2", known.ids, self.rows, np.int32(0))
        holds = known.holds.select(self)
        return dataclasses.replace(known, ids=ids, is_even=False, sizes=None, holds=holds)


def _is_handle(dtype: tf.DType) -> bool:
    return dtype in (tf.resource, tf.variant)


def _densely(whole: tf.Tensor, emit: Emitter) -> tf.Tensor:
    """``whole``, with a dense gradient if rows of it are gathered under XLA, as elsewhere.

    The gradient of a gather is IndexedSlices, which nobody expects of a tape around a map. The
    gradient of a Reshape is dense. In the body of a loop it would have to keep an unknown shape.
    """
    in_loop = type(emit.graph).__name__ == "WhileBodyFuncGraph"
    has_gradient = whole.dtype.is_floating or whole.dtype.is_complex
    is_known = whole.shape.is_fully_defined() or not in_loop
    if not has_gradient or not is_known or not _tf.in_xla_context(emit.graph):
        return whole
    return emit("Reshape", whole, emit.shape_of(whole))
