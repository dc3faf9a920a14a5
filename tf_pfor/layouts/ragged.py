"""The RAGGED layout: tensors whose shape differs between rows (Agarwal, 2019).

Each row is a dense tensor, whose shape differs per row. The size of rows along an inner axis is an
int, a number that all rows share, or ``RowSizes``. Values share the same ``RowSizes`` object where
their rows are known to be equally long; nobody compares numbers to find out.

The tensor of a ragged value is *packed*: the elements of all rows one behind the other, in
row-major order, without padding. Axes behind the last axis that differs stay axes. The other
form is *padded*, [n, largest, ...], with zeros in the padding.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._types import RAGGED
from tf_pfor.core.emit import Dim, Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import (
    Cell,
    Gather,
    Hold,
    Layout,
    Rows,
    Shape,
    Stacked,
    Value,
    as_tensor_shape,
    capturing,
    dims,
)
from tf_pfor.layouts.packing import cleaned, masked, pack, pad
from tf_pfor.layouts.row_sizes import RowSizes, Size, count_of, dim, is_one, later, row_counts


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ragged(Value):
    """A tensor whose shape differs between rows; its tensor is the packed form.

    Attributes:
      sizes: the sizes of the inner axes up to the last axis that differs.
      padded: the padded form.
      loose: the padded form with anything in its padding; None if the padding is clean.
      is_tame: whether the padding of ``loose`` is finite.
      origin: the tensor of the body, for errors.
      whole: for selected rows the value that they were selected from, and their numbers, int32 [n].
    """

    layout = Layout.RAGGED
    is_standard = False

    sizes: tuple[Size, ...]
    padded: Cell
    loose: tf.Tensor | None = None
    is_tame: bool = False
    origin: tf.Tensor | None = None
    whole: tuple[Ragged, tf.Tensor] | None = None

    @classmethod
    def packed(
        cls, tensor: tf.Tensor, sizes: Sequence[Size], origin: tf.Tensor | None = None
    ) -> Ragged:
        """From the packed form; axes behind the last axis that differs are axes of ``tensor``."""
        padded = later(tensor, sizes, lambda: pad(tensor, sizes))
        inner = _inner_shape(sizes, dims(tensor))
        return cls(Cell(tensor), inner, tensor.dtype, tuple(sizes), padded, origin=origin)

    @classmethod
    def from_padded(
        cls,
        tensor: tf.Tensor,
        sizes: Sequence[Size],
        origin: tf.Tensor | None = None,
        *,
        is_clean: bool = True,
        is_tame: bool = False,
    ) -> Ragged:
        """From the padded form [n, largest, ...].

        Args:
          tensor: the padded form.
          sizes: the sizes of the inner axes up to the last one that differs.
          origin: the tensor of the body that it is.
          is_clean: whether there are zeros in the padding; else they are put there when asked for.
          is_tame: whether all in the padding is finite.
        """
        shape = dims(tensor)
        assert shape is not None
        inner = _inner_shape(sizes, (None, *shape[len(sizes) + 1 :]))
        cell = later(tensor, sizes, lambda: pack(tensor, sizes))
        clean = Cell(tensor)
        if not is_clean:
            clean = later(tensor, sizes, lambda: cleaned(tensor, cell, sizes))
        loose = None if is_clean else tensor
        return cls(cell, inner, tensor.dtype, tuple(sizes), clean, loose, is_tame, origin)

    def with_elements(self, tensor: tf.Tensor) -> Ragged:
        """Rows of the same sizes, of another packed form."""
        return Ragged.packed(tensor, self.sizes, self.origin)

    def of_rows(self, tensor: tf.Tensor, *, is_clean: bool) -> Ragged:
        """Rows of the same sizes, of another padded form; zeros in its padding if it is clean."""
        return Ragged.from_padded(tensor, self.sizes, self.origin, is_clean=is_clean)

    def fits(self, other: Ragged) -> bool:
        """Whether the axes that differ are known to have the sizes of another value's."""
        both = itertools.zip_longest(self.sizes, other.sizes)
        own = all(a is b for a, b in both if isinstance(a, RowSizes) or isinstance(b, RowSizes))
        return own and as_tensor_shape(self.inner_shape).is_compatible_with(other.inner_shape)

    def size_at(self, axis: int) -> Any:
        """The size along an inner axis: an int, ``RowSizes``, an int32 scalar; None if unknown."""
        is_merged = 0 <= axis < len(self.sizes)
        return self.sizes[axis] if is_merged else Value.size_at(self, axis)

    @property
    def n_leading(self) -> int:
        """The number of inner axes that are merged in the packed form."""
        return len(self.sizes)

    @property
    def size(self) -> RowSizes:
        """The sizes along the only axis that is merged in the packed form."""
        (size,) = self.sizes
        assert isinstance(size, RowSizes)
        return size

    @property
    def ragged_axes(self) -> list[int]:
        """The inner axes along which rows differ."""
        return [i for i, s in enumerate(self.sizes) if isinstance(s, RowSizes)]

    @property
    def in_rows(self) -> tf.Tensor:
        """The padded form, [n, largest, ...], with zeros in the padding."""
        return self.padded.get()

    @property
    def is_packed(self) -> bool:
        """Whether its packed form is there, and not only the padded one."""
        return self.cell.is_made

    @property
    def is_padded(self) -> bool:
        """Whether its padded form is there, perhaps with anything in the padding."""
        return self.loose is not None or self.padded.is_made

    @property
    def in_masked_rows(self) -> tf.Tensor:
        """``in_rows``, chosen in one pass where the padded form is all there is."""
        if self.loose is None or self.is_packed or self.padded.is_made:
            return self.in_rows
        return masked(self.loose, self.sizes)

    @property
    def in_any_rows(self) -> tf.Tensor:
        """The padded form with anything in the padding."""
        return self.in_rows if self.loose is None else self.loose

    def shape_tensor(self) -> tf.Tensor:
        """int32 [n, inner rank]: the shape of each row."""
        rest = [dim(self.tensor, k) for k in range(1, _rank(self.tensor))]
        n = count_of(self.sizes)
        columns = [_column(s, n) for s in (*self.sizes, *rest)]
        return tf.stack(columns, 1)

    def standard(self, emit: Emitter) -> Value:
        """A dense tensor [n, ...], after a check that all rows have one shape."""
        if _tf.in_xla_context(emit.graph):
            raise CannotVectorize("its shape may differ between iterations")
        with emit.as_default():
            shapes = self.shape_tensor()
            check = tf.debugging.Assert(
                tf.reduce_all(tf.equal(shapes, shapes[:1])), [self._message(), shapes], 99
            )
            with tf.control_dependencies([check]):
                dense = tf.identity(self.trimmed())
        dense.set_shape([self.in_rows.shape[0], *(self.inner_shape or ())])
        return Value.stacked(dense)

    @property
    def is_full(self) -> bool:
        """Whether all rows have one shape but for windows that reach past an edge."""
        return all(s.full is not None for s in self.sizes if isinstance(s, RowSizes))

    def trimmed(self) -> tf.Tensor:
        """The padded form, no larger than the largest row."""
        sizes: list[Any] = []
        for axis, size in enumerate(self.sizes):
            if not isinstance(size, RowSizes):
                sizes.append(-1)
            elif size.full is not None:  # also if there are no rows
                sizes.append(tf.minimum(size.full, tf.shape(self.in_rows)[axis + 1]))
            else:
                sizes.append(tf.reduce_max(tf.concat([size.tensor, [0]], 0)))
        rest = [-1] * (_rank(self.in_rows) - 1 - len(sizes))
        all_sizes = tf.stack([self.in_rows.shape[0] or -1, *sizes, *rest])
        return tf.slice(self.in_rows, [0] * _rank(self.in_rows), all_sizes)

    @property
    def name(self) -> str:
        """The op of the body that made it, for errors."""
        op = self.origin.op if self.origin is not None else None
        if op is None:
            return "It"
        return f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'})"

    def _message(self) -> str:
        named = "" if self.origin is None else f": {self.name}"
        if self.is_full:
            return (
                f"A slice reaches past the edge of the tensor in some iterations{named}, where it "
                "is shorter, and all results need one shape. Move its begin (tf.clip_by_value), "
                "or pad the tensor. Found the shapes"
            )
        return (
            f"The shape of a result of the body differs between iterations{named}. Expected: one "
            "shape. Pad it or reduce it. Found the shapes"
        )

    def ragged_tensor(self) -> tf.RaggedTensor:
        """All rows as TensorFlow's own kind: [n, ...] of ragged rank ``n_leading``."""
        found: Any = self.tensor
        kind = RAGGED
        counts: list[Any] = []  # how many there are of what axis k divides, for each row
        so_far = 1
        for size in self.sizes:
            counts.append(so_far)
            so_far = row_counts([so_far, size])
        n = count_of(self.sizes)
        for size, count in zip(reversed(self.sizes), reversed(counts)):
            if isinstance(size, RowSizes):
                lengths = size.tensor if is_one(count) else tf.repeat(size.tensor, count)
                found = kind.from_row_lengths(found, tf.cast(lengths, tf.int64), validate=False)
            else:
                total = tf.reduce_sum(tf.broadcast_to(_tensor_of(count), [n]))
                size, total = (tf.cast(s, tf.int64) for s in (size, total))
                found = kind.from_uniform_row_length(found, size, total, validate=False)
        return found

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """Its rows of ``loop``, gathered when they are read."""
        if loop.rows is None:
            return self
        rows, emit = loop.rows, loop.emit
        sizes = tuple(s.select(loop) if isinstance(s, RowSizes) else s for s in self.sizes)
        padded = Cell(
            None, lambda: emit("GatherV2", self.in_rows, rows, emit.constant(0, tf.int32))
        )

        def made() -> tf.Tensor:
            with emit.graph.as_default():
                return pack(padded.get(), sizes)

        first, taken = self.whole or (self, None)
        of_first = rows
        if taken is not None:
            of_first = emit("GatherV2", taken, rows, emit.constant(0, tf.int32))
        return dataclasses.replace(
            self,
            cell=Cell(None, made),
            sizes=sizes,
            padded=padded,
            loose=None,
            whole=(first, of_first),
        )

    def begins(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Packed elements, and int32 [n]: where the rows begin among them, if one axis differs.

        Of selected rows the elements are all there were: an element is read without a copy.
        """
        first, rows = self.whole or (self, None)
        starts = first.size.starts
        return first.tensor, starts if rows is None else tf.gather(starts, rows)

    def blanked(self, kept: tf.Tensor) -> Ragged:
        """The value with zeros in the rows outside of ``kept`` (bool [n])."""
        x = self.in_rows
        mask = tf.reshape(kept, [-1, *[1] * (_rank(x) - 1)])
        made = tf.where(mask, x, tf.zeros([], x.dtype))
        return Ragged.from_padded(made, self.sizes, self.origin)

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """Captured, in both forms."""
        see = capturing(graph, home)
        sizes = tuple(
            s.seen_from(graph, see) if isinstance(s, RowSizes) else see(s) for s in self.sizes
        )
        cell, padded = (c.seen_from(graph, see) for c in (self.cell, self.padded))
        return dataclasses.replace(
            self, cell=cell, sizes=sizes, padded=padded, loose=None, whole=None
        )


def _inner_shape(sizes: Sequence[Size], of_packed: Shape) -> Shape:
    if of_packed is None:
        return None
    return (*[s if isinstance(s, int) else None for s in sizes], *of_packed[1:])


def _rank(tensor: tf.Tensor) -> int:
    rank = tensor.shape.rank
    assert rank is not None
    return rank


def _tensor_of(size: Size) -> tf.Tensor:
    return size.tensor if isinstance(size, RowSizes) else tf.convert_to_tensor(size, tf.int32)


def _column(size: Size, n: Dim) -> tf.Tensor:
    return size.tensor if isinstance(size, RowSizes) else tf.fill([n], _tensor_of(size))


def is_ragged(value: object) -> bool:
    """Whether a value's shape differs between rows."""
    return isinstance(value, Ragged)


SAYS_SO = "where they are the same, tf.reshape(y, tf.shape(x)) says so"
"""What the user can do about the sizes of two inputs."""


def same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether sizes are known to be the same: equal ints, or the same objects."""
    return len(a) == len(b) and all(
        x is y or (isinstance(x, int) and isinstance(y, int) and x == y) for x, y in zip(a, b)
    )


# ---------------------------------------------------------------------------
# Shapes of rows
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _OfSizes(Stacked):
    """A tensor that is known to be made of sizes, also where some rows or another graph read it."""

    def mapped(self, change: Callable[[Any], Any]) -> Stacked:
        """The same of other sizes."""
        raise NotImplementedError

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """Its rows of ``loop``, made of the sizes of these rows."""
        made = loop.gathered(self, hold, gather)
        found = self.mapped(lambda s: s.select(loop) if isinstance(s, RowSizes) else s)
        source = made.source if isinstance(made, Stacked) else None
        return dataclasses.replace(found, cell=made.cell, source=source)

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """Captured, with its sizes."""
        see = capturing(graph, home)
        found = self.mapped(
            lambda s: s.seen_from(graph, see) if isinstance(s, RowSizes) else see(s)
        )
        return dataclasses.replace(found, cell=self.cell.seen_from(graph, see), source=None)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowShape(_OfSizes):
    """A vector of the sizes of a row's axes: which of them are equal to others is known."""

    sizes: tuple[Size, ...] = dataclasses.field(kw_only=True)

    def mapped(self, change: Callable[[Any], Any]) -> RowShape:
        """The shape of rows of other sizes."""
        return dataclasses.replace(self, sizes=tuple(map(change, self.sizes)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowSize(_OfSizes):
    """The size of a row along one axis, a number."""

    size: RowSizes = dataclasses.field(kw_only=True)

    def mapped(self, change: Callable[[Any], Any]) -> RowSize:
        """Another size."""
        return dataclasses.replace(self, size=change(self.size))


def shape_value(emit: Emitter, sizes: Sequence[Size], dtype: tf.DType) -> Value:
    """The vector of some sizes: a constant where none differs and all are known."""
    if all(isinstance(s, int) for s in sizes):
        array = np.asarray(sizes, dtype.as_numpy_dtype)
        return Value.unstacked(emit.constant(array), array)
    if not any(isinstance(s, RowSizes) for s in sizes):
        with emit.graph.as_default():
            return Value.unstacked(tf.cast(tf.stack([*sizes]), dtype))

    def make() -> tf.Tensor:
        with emit.graph.as_default():
            n = count_of(sizes)
            return tf.cast(tf.stack([_column(s, n) for s in sizes], 1), dtype)

    return RowShape(Cell(None, make), (len(sizes),), dtype, sizes=tuple(sizes))


def size_value(emit: Emitter, size: Size, dtype: tf.DType) -> Value:
    """One size as a number."""
    if isinstance(size, RowSizes):

        def make() -> tf.Tensor:
            with emit.graph.as_default():
                return tf.cast(size.tensor, dtype)

        return RowSize(Cell(None, make), (), dtype, size=size)
    if isinstance(size, int):
        array = np.asarray(size, dtype.as_numpy_dtype)
        return Value.unstacked(emit.constant(array), array)
    with emit.graph.as_default():
        return Value.unstacked(tf.cast(size, dtype))


def differ_in_shape(values: Iterable[Any]) -> bool:
    """Whether some are rows of different shapes, or the shapes of such."""
    return any(isinstance(v, (Ragged, RowShape, RowSize)) for v in values)
