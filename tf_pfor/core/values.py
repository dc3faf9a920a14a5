"""The values of the body's tensors in the vectorized graph: one class for each layout.

All layouts share the small protocol of ``Value``. It has the inner shape and the dtype that the
user's function sees, and ``tensor``. ``standard`` is the plain form that every converter knows.
``select`` gives the rows of a branch or a loop; ``seen_from`` is the same value for ops of another
graph. A field stands on the class of the layout that it belongs to. Layouts of lists that are not
stored as stacked elements are in other files (``row_major``, ``repeated``).

Stacked tensors that nobody has read yet, and forms that a reader may take instead, are in
``pending``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar, cast

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.core.errors import CannotVectorize

Shape = tuple[int | None, ...] | None
"""A static shape; None for an unknown dimension, and for an unknown rank."""


class Layout(enum.Enum):
    """The name of a layout, for what is settled before there is a value (carries of a loop)."""

    UNSTACKED = "unstacked"  # one tensor for all iterations: loop-invariant
    STACKED = "stacked"  # axis 0 is the loop
    STACKED_LIST = "stacked_list"  # a scalar TensorList whose elements are stacked
    BY_ROW = "by_row"  # a TensorList of the items of row 0, then of row 1 ... (row_major.py)
    RAGGED = "ragged"  # rows whose shape differs (ragged.py)
    CSR = "csr"  # a sparse matrix of each row, as the handle of a batch (csr_rows.py)
    REPEATED = (
        "repeated"  # a TensorList that holds one invariant tensor in all places (repeated.py)
    )


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

    def seen_from(self, graph: tf.Graph, see: Callable[[tf.Tensor], tf.Tensor]) -> Cell:
        """The cell for ops of another graph, in which ``see`` captures what was made."""
        make = self._elsewhere
        return Cell(None, lambda: see(self.get()) if make is None or self.is_made else make(graph))

    def pass_on(self, tensor: tf.Tensor) -> None:
        """Whoever asks from now on gets ``tensor``, which is the same."""
        self._tensor = tensor


class Rows(Protocol):
    """The part of a loop that ``Value.select`` needs, of a branch or a while (``loop.Loop``)."""

    rows: tf.Tensor | None
    emit: Any

    def gathered(self, value: Stacked, hold: Hold | None, gather: Gather | None) -> Value:
        """The rows of a stacked tensor, gathered when somebody reads all of them."""
        ...

    def rows_of_list(self, known: Any) -> Any:
        """The rows of this loop in a list that stays whole."""
        ...


# ---------------------------------------------------------------------------
# The protocol
# ---------------------------------------------------------------------------

_V = TypeVar("_V", bound="Value")
_X = TypeVar("_X")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the body in the vectorized graph.

    Attributes:
      cell: its tensor, or the recipe for it.
      inner_shape: the static shape that the user's function sees, None if the rank is unknown.
      dtype: the dtype.
      layout: the name of its class.
      is_stacked: whether the iterations may hold different values.
      is_tensor: whether ``tensor`` holds the values themselves, and is not the handle of a list
        that has its own way of storing rows.
      is_standard: whether all converters know the layout; ``standard`` makes such a value.
      readers: the op types whose rules take the layout, if it is not standard.
    """

    layout: ClassVar[Layout]
    is_stacked: ClassVar[bool] = True
    is_tensor: ClassVar[bool] = False
    is_standard: ClassVar[bool] = True
    readers: ClassVar[Collection[str]] = ()

    cell: Cell
    inner_shape: Shape
    dtype: tf.DType

    @staticmethod
    def unstacked(tensor: tf.Tensor, constant: np.ndarray | None = None) -> Unstacked:
        """A loop-invariant tensor, stored once."""
        return Unstacked(Cell(tensor), dims(tensor), tensor.dtype, constant)

    @staticmethod
    def stacked(tensor: tf.Tensor) -> Stacked:
        """A tensor whose axis 0 is the loop."""
        shape = dims(tensor)
        return Stacked(Cell(tensor), None if shape is None else shape[1:], tensor.dtype)

    @classmethod
    def deferred(
        cls: type[_V],
        make: Callable[[], tf.Tensor],
        inner_shape: Shape,
        dtype: tf.DType,
        **fields: object,
    ) -> _V:
        """A value of this layout whose tensor is emitted when it is first read."""
        return cls(Cell(None, make), inner_shape, dtype, **fields)

    @property
    def tensor(self) -> tf.Tensor:
        """The tensor; for a stacked value its shape is [n] + inner_shape."""
        return self.cell.get()

    @property
    def inner_rank(self) -> int | None:
        """The rank that the user's function sees, None if unknown."""
        return None if self.inner_shape is None else len(self.inner_shape)

    @property
    def rank(self) -> int:
        """The inner rank, which must be known."""
        if self.inner_shape is None:
            raise CannotVectorize("the rank of an input is unknown")
        return len(self.inner_shape)

    def size_at(self, axis: int) -> Any:
        """The size along an inner axis: 1 in front of all axes, None if it is unknown."""
        if axis < 0:
            return 1
        return None if self.inner_shape is None else self.inner_shape[axis]

    @property
    def constant(self) -> np.ndarray | None:
        """The value itself where it is the same in all iterations and known before running."""
        return None

    @property
    def any_form(self) -> tf.Tensor:
        """A tensor that holds this value's elements in row-major order, whatever its shape."""
        return self.tensor

    def standard(self, emit: Any) -> Value:
        """The plain form, which all converters know: a tensor, or a list of stacked elements.

        Args:
          emit: adds ops to the vectorized graph.
        """
        del emit
        return self

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """This value of the outer loop as a value of ``loop``, whose rows may be fewer.

        Nothing is emitted before it is read.

        Args:
          loop: the loop of a branch or a while.
          hold: makes the source of a stacked tensor that has none.
          gather: gathers the rows of a tensor in another way than by a gather in this graph.
        """
        del loop, hold, gather
        return self

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """This value for ops of another graph, which captures the tensors when they are read.

        Args:
          graph: the other graph.
          home: the graph of the ops that used it so far.
        """
        return dataclasses.replace(self, cell=self.cell.seen_from(graph, capturing(graph, home)))

    def with_inner_shape(self: _V, shape: Shape) -> _V:
        """The same value with another static inner shape."""
        return dataclasses.replace(self, inner_shape=shape)


Results = Sequence[Value | None]
"""What the outputs of an op became; None for one that nobody can read."""

Gather = Callable[[tf.Tensor], tf.Tensor]


def capturing(graph: tf.Graph, home: tf.Graph | None) -> Callable[[Any], Any]:
    """Captures tensors in ``graph``; what is no tensor stays as it is."""

    def see(tensor: object) -> Any:
        if not isinstance(tensor, tf.Tensor):
            return tensor
        return _tf.captured(_tf.as_captured_by(tensor, home), graph)

    return see


# ---------------------------------------------------------------------------
# Tensors
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Unstacked(Value):
    """A loop-invariant tensor, stored once.

    Attributes:
      known: the value itself, when it is known before running.
    """

    layout = Layout.UNSTACKED
    is_stacked = False
    is_tensor = True

    known: np.ndarray | None = None

    @property
    def constant(self) -> np.ndarray | None:
        """The value itself, when it is known before running."""
        return self.known

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """The same tensor; a constant becomes one of the graph of ``loop``."""
        del hold, gather
        known, dtype, emit = self.known, self.dtype, loop.emit
        if known is None:
            return self
        return dataclasses.replace(self, cell=Cell(None, lambda: emit.constant(known, dtype)))

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """Captured; a constant becomes one of that graph."""
        known, dtype = self.known, self.dtype
        if known is None:
            return Value.seen_from(self, graph, home)

        def make() -> tf.Tensor:
            with graph.as_default(), _graphs.depending_on_nothing(graph):
                return tf.constant(known, dtype)  # pyright: ignore[reportArgumentType]

        return dataclasses.replace(self, cell=Cell(None, make))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A stacked value in its other form: the loop merged with the first inner axes.

    ``tensor`` has shape [n * d1 * ... * d_axes, ...rest] where the inner shape is
    [d1, ..., d_axes, ...rest]. Kernels with a batch dimension leave this form, and the next kernel
    takes it. So no Reshape stands between a MatMul and its BiasAdd.

    ``columns`` are the blocks side by side on its last axis, where it was made in such blocks.
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
class RowSource:
    """The source of a value whose rows are gathered only when all of them are read.

    Attributes:
      whole: the tensor [N, ...] around the branch or the loop.
      rows: int32 [n], the rows of it that this value is; None for all, in order.
      steps: a TensorList whose element t is ``whole[:, t]``; None where there is no loop. A read of
        ``x[t]`` in a loop takes it: then no read has a full-size gradient.
      variable: for a variable of a loop in which one row stands in for others, its tensor at the
        begin of the trip. ``whole`` is this tensor after updates of the rows that make the trip.
    """

    whole: Cell
    rows: Cell | None = None
    steps: Cell | None = None
    variable: tf.Tensor | None = None

    def through(self, rows: Cell, compose: Callable[[tf.Tensor], tf.Tensor]) -> RowSource:
        """The source of a subset: ``rows`` of this one's rows."""
        outer = self.rows
        inner = rows if outer is None else Cell(None, lambda: compose(outer.get()))
        return dataclasses.replace(self, rows=inner, variable=None)


Hold = Callable[["Stacked"], RowSource]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stacked(Value):
    """A tensor whose axis 0 is the loop: [n] + inner_shape.

    Attributes:
      folded: its folded form, when it was computed in that form.
      source: the source of its rows, if they were not gathered yet.
    """

    layout = Layout.STACKED
    is_tensor = True

    folded: Folded | None = None
    source: RowSource | None = None

    @property
    def any_form(self) -> tf.Tensor:
        """The folded tensor where the other was not emitted."""
        if self.folded is None or self.cell.is_made:
            return self.tensor
        return self.folded.tensor

    def select(self, loop: Rows, hold: Hold | None = None, gather: Gather | None = None) -> Value:
        """Its rows of ``loop``, gathered when somebody reads all of them."""
        return loop.gathered(self, hold, gather)

    def seen_from(self, graph: tf.Graph, home: tf.Graph | None = None) -> Value:
        """Captured, in both forms; a pending value becomes a plain one."""
        see, form = capturing(graph, home), self.folded
        if form is not None:
            made = form
            form = Folded(Cell(None, lambda: see(made.tensor)), made.axes)
        return Stacked(self.cell.seen_from(graph, see), self.inner_shape, self.dtype, form)


def folded_form(value: Value) -> Folded | None:
    """The folded form of a stacked value that was computed in that form."""
    return value.folded if isinstance(value, Stacked) else None


def dims(tensor: tf.Tensor | tf.TensorSpec) -> Shape:
    """The static shape of ``tensor`` as a tuple, None if its rank is unknown."""
    return as_shape(tensor.shape)


def as_shape(shape: tf.TensorShape) -> Shape:
    """A static shape as a tuple, None if its rank is unknown."""
    return None if shape.rank is None else tuple(shape.as_list())


def as_tensor_shape(shape: Shape) -> tf.TensorShape:
    """A static shape as TensorFlow's own."""
    return tf.TensorShape(shape)  # pyright: ignore[reportArgumentType]: it may be None


def merge(a: Shape, b: Shape) -> Shape:
    """The known shape of a tensor that has both static shapes.

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


def known_dims(shape: Shape) -> tuple[int, ...]:
    """The dimensions of a shape that is known to be static where the caller reads it.

    Other dimensions may be unknown: nothing checks them.
    """
    assert shape is not None
    return cast("tuple[int, ...]", shape)


def all_known(found: Sequence[_X | None]) -> TypeGuard[Sequence[_X]]:
    """Whether none of several facts is missing."""
    return all(x is not None for x in found)


def size_of(shape: Any) -> int:
    """The number of elements of a fully known shape."""
    return int(np.prod(shape, dtype=np.int64))


def full_shape(layout: Layout, inner: Shape, length: int | None) -> tf.TensorShape:
    """The static shape of a tensor of this layout."""
    if layout is Layout.BY_ROW:
        return tf.TensorShape([])
    if layout is not Layout.STACKED:
        return as_tensor_shape(inner)
    return as_tensor_shape(None if inner is None else (length, *inner))
