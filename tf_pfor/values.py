"""What a tensor of the body has become: ``Layout`` and ``Value``."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np
import tensorflow as tf

from tf_pfor import _tf

Shape = tuple[int | None, ...] | None
"""A static shape; None for an unknown dimension, and for an unknown rank."""


Kept = tuple[tuple[tf.DType, Any], ...]
"""Dtypes and static shapes of what a branch keeps in an Optional; in place of the shape of an
Optional what that may hold, for each branch: a tuple of such."""


class Layout(enum.Enum):
    """How a value of the body is stored in the vectorized graph."""

    UNSTACKED = "unstacked"  # one tensor for all iterations: loop-invariant
    STACKED = "stacked"  # axis 0 is the loop
    STACKED_LIST = "stacked_list"  # a scalar TensorList whose elements are stacked
    BY_ROW = "by_row"  # a TensorList of the items of row 0, then those of row 1 ... (by_row.py)
    REPEATED = "repeated"  # a TensorList that holds one invariant tensor in all places (repeats.py)
    RAGGED = "ragged"  # padded; iterations differ in shape


class Cell:
    """A tensor, or the recipe for one that is emitted when somebody first asks.

    ``elsewhere`` makes it in another graph, if it was never asked for in its own. A branch or a
    body that is done cannot capture anything more.
    """

    __slots__ = ("_elsewhere", "_make", "_tensor")

    def __init__(
        self,
        tensor: tf.Tensor | None,
        make: Callable[[], tf.Tensor] | None = None,
        elsewhere: Callable[[Any], tf.Tensor] | None = None,
    ):
        self._tensor = tensor
        self._make = make
        self._elsewhere = elsewhere

    @property
    def is_made(self) -> bool:
        """Whether the tensor has been emitted."""
        return self._tensor is not None

    def get(self) -> tf.Tensor:
        """The tensor; emits it the first time."""
        if self._tensor is None:
            assert self._make is not None
            self._tensor, self._make, self._elsewhere = self._make(), None, None
        return self._tensor

    def seen_from(self, graph: Any, see: Callable[[tf.Tensor], tf.Tensor]) -> Cell:
        """The cell for ops of another graph, in which ``see`` captures what was made."""
        make = self._elsewhere
        return Cell(None, lambda: see(self.get()) if make is None or self.is_made else make(graph))

    def pass_on(self, tensor: tf.Tensor) -> None:
        """Whoever asks from now on gets ``tensor``, which is the same."""
        self._tensor = tensor


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A stacked value in its other form: the loop merged with the first inner axes.

    ``tensor`` has shape [n * d1 * ... * d_axes, ...rest] where the inner shape is
    [d1, ..., d_axes, ...rest]. Kernels with a batch dimension leave this form; the next one
    takes it as it is, so that no Reshape stands between a MatMul and its BiasAdd.

    ``columns`` are what lies side by side on its last axis, where it was made in such blocks.
    """

    held: tf.Tensor | Cell
    axes: int
    columns: tuple[tf.Tensor, ...] = ()

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor, emitted when it is first read."""
        return self.held.get() if isinstance(self.held, Cell) else self.held

    @property
    def is_made(self) -> bool:
        """Whether the tensor has been emitted."""
        return not isinstance(self.held, Cell) or self.held.is_made

    def check(self, inner_shape: Shape, n: int | None) -> None:
        """Holds a tensor that was made against what it is the folded form of, n rows of a shape.

        Raises:
          ValueError: if it cannot be that.
        """
        found = dims(self.tensor) if self.is_made else None
        if found is None or inner_shape is None:
            return
        lead = (n, *inner_shape[: self.axes])
        merge(found, (size_of(lead) if is_static(lead) else None, *inner_shape[self.axes :]))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ListRows:
    """A STACKED_LIST whose elements are not just the rows of the loop at hand.

    Attributes:
      size: how many rows the elements have, an int or a scalar int32 tensor.
      ids: int32 [loop length], which rows of the elements the active iterations are; None when
        they are all of them, in order.
      mask: bool [size], the rows that may be written; None for all.
      lengths: int32 [size], where each row's list ends where that differs (the list is as long as
        the longest); None when they are equal.
      starts: int32 [size], where each row's list begins; None if all begin at 0.
      made_for: of an Optional that branches made, for each the rows that took it, int32 [k], and
        its own Optional; None for the rows if they are those of the loop.
      holds_packs: of a list of lists, whether these are packs (``_containers.py``), and not just
        lists of all rows.
      ends: of a list that holds packs, under XLA: what stands in their place (``_ends.py``).
      terms: of an Optional that is a sum that nobody has put together yet: what is added.
      opened: of an Optional that was not made: for each branch the values that it would hold.
      keeps: of a list of such Optionals: what these would hold. It is a list of the first of it;
        ``ends`` are those of the others.
      is_even: all active rows are as long as the list; the others may hold anything at its end.
      may_agree: whether rows may all be as long, which is only known when it runs: of what was kept
        in a list or an Optional.
      whole: [T, size, ...], all elements, of a list that a loop only pops.
      base: what tells the list that a loop carried in; it stays while active rows are written,
        and so says that the other rows are as they were.
      items: what a BY_ROW value holds.
    """

    size: Any
    ids: tf.Tensor | None = None
    mask: tf.Tensor | None = None
    lengths: tf.Tensor | None = None
    starts: tf.Tensor | None = None
    made_for: Sequence[tuple[tf.Tensor | None, tf.Tensor]] = ()
    holds_packs: bool = False
    ends: Sequence[tf.Tensor] = ()
    terms: Sequence[Value] = ()
    opened: Sequence[Sequence[Value]] = ()
    keeps: tuple[Kept, ...] = ()
    is_even: bool = False
    may_agree: bool = False
    whole: Any = None
    base: object | None = None
    items: Items | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What a BY_ROW value holds: ``count`` items of one dtype and static shape in each row.

    The count is an int, or a scalar int32 tensor.
    """

    dtype: tf.DType
    shape: tuple[int, ...]
    count: Any


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """What a REPEATED value holds: ``item``, loop-invariant, in each of ``count`` places.

    The count is an int32 scalar, stacked where the lists of the rows differ in length.
    """

    item: Value
    count: Value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowSource:
    """Where the rows of a value lie that is gathered only when all of it is read.

    Attributes:
      whole: the tensor [N, ...] around the branch or the loop.
      rows: int32 [n], which rows of it this value is; None for all, in order.
      steps: a TensorList whose element t is ``whole[:, t]``, to read ``x[t]`` in a loop without a
        full-size gradient for each read; None where there is no loop.
    """

    whole: Cell
    rows: Cell | None = None
    steps: Cell | None = None

    def through(self, rows: Cell, compose: Callable[[tf.Tensor], tf.Tensor]) -> RowSource:
        """The source of a subset: ``rows`` of this one's rows."""
        outer = self.rows
        inner = rows if outer is None else Cell(None, lambda: compose(outer.get()))
        return dataclasses.replace(self, rows=inner)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Product:
    """a_i^T b_i of two matrices, [r, k] and [r, m], each stored as it is or transposed.

    ``transpose_a`` and ``transpose_b`` are those of the MatMul: a is [r, k] if ``transpose_a``,
    b is [r, m] if not ``transpose_b``.
    """

    a: Value
    b: Value
    transpose_a: bool
    transpose_b: bool

    @property
    def rows(self) -> int:
        """The inner size r."""
        return _static(self.a, 0 if self.transpose_a else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the product, [k, m]."""
        k = _static(self.a, 1 if self.transpose_a else 0)
        return k, _static(self.b, 0 if self.transpose_b else 1)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Products:
    """A sum that was not emitted yet: of products of one static shape, and of other values."""

    terms: tuple[Product, ...]
    rest: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A tensor that was not emitted yet: ``dy`` at ``start`` ... of inner axis 0, zeros around."""

    dy: Value
    start: int
    count: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the body in the vectorized graph.

    Attributes:
      layout: how it is stored.
      inner_shape: the static shape that the user's function sees, None if the rank is unknown.
      dtype: the dtype.
      folded: the folded form of a stacked value, when it was computed in that form.
      constant: the value itself, when it is a known constant.
      row_shapes: RAGGED only: int32 [n, inner rank], the true shape of each row.
      elements: a tensor with the same elements in the same order and another shape, when this
        value is a reshape that nobody has read yet.
      rows: STACKED_LIST and BY_ROW: which rows its elements have.
      source: where a stacked value's rows lie that were not gathered yet.
      products: what this value is the sum of, when only a sum is going to read it.
      repeated: REPEATED: what it holds.
      parts: the x[k], [n, ...] each, of a stacked value that nobody has read as a whole yet.
      piece: what this value is but for zeros, when only a sum is going to read it.
    """

    layout: Layout
    cell: Cell
    inner_shape: Shape
    dtype: tf.DType
    folded: Folded | None = None
    constant: np.ndarray | None = None
    row_shapes: tf.Tensor | None = None
    elements: tf.Tensor | None = None
    rows: ListRows | None = None
    source: RowSource | None = None
    products: Products | None = None
    repeated: Repeated | None = None
    parts: tuple[tf.Tensor, ...] | None = None
    piece: Piece | None = None

    @classmethod
    def unstacked(cls, tensor: tf.Tensor, constant: np.ndarray | None = None) -> Value:
        """A loop-invariant tensor, stored once."""
        return cls(Layout.UNSTACKED, Cell(tensor), dims(tensor), tensor.dtype, constant=constant)

    @classmethod
    def stacked(cls, tensor: tf.Tensor) -> Value:
        """A tensor whose axis 0 is the loop."""
        shape = dims(tensor)
        return cls(Layout.STACKED, Cell(tensor), None if shape is None else shape[1:], tensor.dtype)

    @classmethod
    def stacked_list(cls, tensor: tf.Tensor, rows: ListRows | None = None) -> Value:
        """A TensorList (or Optional) handle whose contents are stacked."""
        return cls(Layout.STACKED_LIST, Cell(tensor), dims(tensor), tensor.dtype, rows=rows)

    @classmethod
    def repeating(cls, item: Value, count: Value) -> Value:
        """A TensorList of ``count`` times the invariant ``item``; it has no tensor."""
        cell, content = Cell(None), Repeated(item, count)
        return cls(Layout.REPEATED, cell, (), tf.variant, repeated=content)

    @classmethod
    def deferred(
        cls,
        layout: Layout,
        make: Callable[[], tf.Tensor],
        inner_shape: Shape,
        dtype: tf.DType,
        *,
        folded: Folded | None = None,
        constant: np.ndarray | None = None,
        elements: tf.Tensor | None = None,
        products: Products | None = None,
        parts: tuple[tf.Tensor, ...] | None = None,
        piece: Piece | None = None,
    ) -> Value:
        """A value whose tensor is emitted when it is first read."""
        cell = Cell(None, make)
        return cls(
            layout, cell, inner_shape, dtype, folded, constant,
            elements=elements, products=products, parts=parts, piece=piece,
        )  # fmt: skip

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor; for a stacked value its shape is [n] + inner_shape."""
        return self.cell.get()

    @property
    def is_stacked(self) -> bool:
        """True when the iterations may hold different values."""
        return self.layout is not Layout.UNSTACKED

    @property
    def inner_rank(self) -> int | None:
        """The rank that the user's function sees, None if unknown."""
        return None if self.inner_shape is None else len(self.inner_shape)

    @property
    def any_form(self) -> tf.Tensor:
        """A tensor that holds this value's elements in row-major order, whatever its shape."""
        if self.cell.is_made:
            return self.tensor
        if self.folded is not None and (self.folded.is_made or self.elements is None):
            return self.folded.tensor
        return self.tensor if self.elements is None else self.elements

    def seen_from(self, graph: Any, home: Any = None) -> Value:
        """This value for ops of another graph, which captures the tensors when they are read.

        Args:
          graph: the other graph.
          home: the graph of the ops that used it so far.
        """

        def see(tensor: Any) -> Any:
            if not isinstance(tensor, tf.Tensor):
                return tensor
            return _tf.captured(_tf.as_captured_by(tensor, home), graph)

        if self.constant is not None:
            return dataclasses.replace(self, cell=Cell(None, lambda: _constant(self, graph)))
        if self.repeated is not None:
            item, count = self.repeated.item, self.repeated.count
            return Value.repeating(item.seen_from(graph), count.seen_from(graph))
        folded, rows = self.folded, self.rows
        if folded is not None:
            form = folded
            folded = Folded(Cell(None, lambda: see(form.tensor)), form.axes)
        if rows is not None:
            terms = tuple(t.seen_from(graph, home) for t in rows.terms)
            opened = tuple([v.seen_from(graph, home) for v in each] for each in rows.opened)
            ends = tuple(see(t) for t in rows.ends)
            rows = dataclasses.replace(rows, made_for=(), ends=ends, terms=terms, opened=opened)
            fields = {f.name: see(getattr(rows, f.name)) for f in dataclasses.fields(rows)}
            rows = ListRows(**fields)
            if rows.items is not None:
                items = dataclasses.replace(rows.items, count=see(rows.items.count))
                rows = dataclasses.replace(rows, items=items)
        return dataclasses.replace(
            self,
            cell=self.cell.seen_from(graph, see),
            folded=folded,
            rows=rows,
            row_shapes=see(self.row_shapes),
            elements=None,
            source=None,
            products=None,
            parts=None,
            piece=None,
        )

    def with_inner_shape(self, shape: Shape) -> Value:
        """The same value with another static inner shape."""
        return dataclasses.replace(self, inner_shape=shape)


Results = Sequence[Value | None]
"""What the outputs of an op became; None for one that nobody can read."""


def _static(value: Value, axis: int) -> int:
    assert value.inner_shape is not None
    return value.inner_shape[axis]  # type: ignore[return-value]


def _constant(value: Value, graph: Any) -> tf.Tensor:
    known: Any = value.constant
    with graph.as_default(), tf.control_dependencies(None):
        return tf.constant(known, value.dtype)


def dims(tensor: tf.Tensor) -> Shape:
    """The static shape of ``tensor`` as a tuple, None if its rank is unknown."""
    return as_shape(tensor.shape)


def as_shape(shape: tf.TensorShape) -> Shape:
    """A static shape as a tuple, None if its rank is unknown."""
    return None if shape.rank is None else tuple(shape.as_list())


def as_tensor_shape(shape: Shape) -> tf.TensorShape:
    """A static shape as TensorFlow's own."""
    return tf.TensorShape(shape)  # pyright: ignore[reportArgumentType]: it may be None


def merge(a: Shape, b: Shape) -> Shape:
    """What is known when a tensor has both static shapes.

    Raises:
      ValueError: if they contradict each other.
    """
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise ValueError(f"ranks {len(a)} and {len(b)} differ")
    out: list[int | None] = []
    for x, y in zip(a, b):
        if x is not None and y is not None and x != y:
            raise ValueError(f"{x} and {y} differ")
        out.append(y if x is None else x)
    return tuple(out)


def is_static(shape: Shape) -> TypeGuard[tuple[int, ...]]:
    """Whether rank and all dimensions are known."""
    return shape is not None and None not in shape


def size_of(shape: Any) -> int:
    """The number of elements of a fully known shape."""
    return int(np.prod(shape, dtype=np.int64))
