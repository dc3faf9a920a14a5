"""The promises of each layout, as one table that runs.

``CONTRACTS`` has the clauses of each class of values: on its shape, its dtype, its forms, its
lengths and the graph of its tensors. All tests check every value that a converter, a loop or a
branch returns, and every value that a body begins with. A value is checked against the clauses of
its class and of the classes above it (``TF_PFOR_CONTRACTS=1``; else nothing is checked and nothing
paid).

A clause emits nothing: a tensor that is emitted when it is read is checked only if it was read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import ConversionError
from tf_pfor.core.pending import Packed, Reshaped, SumOfProducts, ZeroExtended
from tf_pfor.core.stacked_lists import ListRows, StackedList
from tf_pfor.core.values import (
    Cell,
    Shape,
    Stacked,
    Unstacked,
    Value,
    dims,
    is_static,
    merge,
    size_of,
)
from tf_pfor.layouts.csr_rows import CsrRows
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.repeated import RepeatedList
from tf_pfor.layouts.row_major import RowMajorList
from tf_pfor.layouts.row_sizes import Size

ARE_CHECKED = os.environ.get("TF_PFOR_CONTRACTS", "") not in ("", "0")


class Place(NamedTuple):
    """The place of a value: for ops of ``graph``, in a loop of ``length`` rows.

    The length is None if it is unknown. The graph is None where tensors may be of any graph, as
    tensors that a body captures.
    """

    graph: tf.Graph | None
    length: int | None


class Clause(NamedTuple):
    """One promise of a layout: a sentence, and a function that tells whether it is kept."""

    promise: str
    holds: Callable[[Any, Place], bool]


def check(value: Value, place: Place, what: str) -> None:
    """Holds a value against the clauses of its layout.

    Args:
      value: the value.
      place: the place of the value.
      what: the owner of the value, for the error.

    Raises:
      ConversionError: if a clause is broken; it names the layout and the promise.
    """
    for layout in reversed(type(value).__mro__):
        for clause in CONTRACTS.get(layout, ()):
            if not clause.holds(value, place):
                raise ConversionError(
                    f"{what}: {type(value).__name__} of inner shape {value.inner_shape} and dtype "
                    f"{value.dtype.name} in a loop of {place.length} rows breaks the contract of "
                    f"{layout.__name__}: {clause.promise}."
                )


# ---------------------------------------------------------------------------
# What clauses ask
# ---------------------------------------------------------------------------


def _made(value: Value) -> tf.Tensor | None:
    """The tensor of a value, where it was emitted."""
    return value.cell.get() if value.cell.is_made else None


def _has_dtype(value: Value) -> bool:
    made = _made(value)
    return made is None or made.dtype.base_dtype == value.dtype.base_dtype


def _is_handle(value: Value) -> bool:
    made = _made(value)
    return made is None or (made.dtype, dims(made)) == (tf.variant, ())


def _agree(a: Shape, b: Shape) -> bool:
    """Whether a tensor could have both static shapes."""
    try:
        merge(a, b)
    except ValueError:
        return False
    return True


def _has_shape(tensor: tf.Tensor | None, shape: Shape) -> bool:
    return tensor is None or _agree(dims(tensor), shape)


def _with_rows(value: Value, place: Place) -> Shape:
    """[n, ...] of the inner shape."""
    return None if value.inner_shape is None else (place.length, *value.inner_shape)


def _is_seen(tensor: object, graph: object) -> bool:
    """Whether ops of a graph may read a tensor: it is eager, of the graph or of one around it."""
    if graph is None or not isinstance(tensor, tf.Tensor) or not tf.is_symbolic_tensor(tensor):
        return True
    while graph is not None and graph is not tensor.graph:
        graph = getattr(graph, "outer_graph", None)
    return graph is tensor.graph


def _tensors(value: Value) -> Iterator[Any]:
    """All tensors that were emitted for a value."""
    yield _made(value)
    if isinstance(value, Stacked):
        if value.folded is not None and value.folded.is_made:
            yield value.folded.tensor
        if value.source is not None:
            cells = (value.source.whole, value.source.rows, value.source.steps)
            yield from (cell.get() for cell in cells if cell is not None and cell.is_made)
    rows = getattr(value, "rows", None)
    if isinstance(rows, ListRows):
        yield from (rows.size, rows.ids, rows.mask, rows.lengths, rows.starts, *rows.holds.beside)


def _is_vector(tensor: tf.Tensor | None, dtype: tf.DType, size: object) -> bool:
    """Whether a tensor, if there is one, is a vector of a dtype; of ``size`` where both know it."""
    known = size if isinstance(size, int) else None
    return tensor is None or (tensor.dtype == dtype and _agree(dims(tensor), (known,)))


def _is_count(size: Size) -> bool:
    """Whether a size is an int, or a scalar int32 tensor."""
    if isinstance(size, tf.Tensor):
        return size.dtype == tf.int32 and _agree(dims(size), ())
    return isinstance(size, (int, np.integer)) and int(size) >= 0


def _of_rows(holds: Callable[[ListRows, Place], bool]) -> Callable[[Any, Place], bool]:
    """A clause about the rows of a list; a list without is one of the rows of the loop."""
    return lambda value, place: value.rows is None or holds(value.rows, place)


def _folds(value: Stacked, place: Place) -> bool:
    if value.folded is None:
        return True
    try:
        value.folded.check(value.inner_shape, place.length)
    except ValueError:
        return False
    if value.inner_shape is not None and not 0 < value.folded.axes <= len(value.inner_shape):
        return False
    return not value.folded.is_made or value.folded.tensor.dtype == value.dtype


def _has_its_source(value: Stacked, place: Place) -> bool:
    """The tensor that rows come from has their inner shape; which rows are int32 [n]."""
    source = value.source
    if source is None:
        return True
    whole = source.whole.get() if source.whole.is_made else None
    inner = None if value.inner_shape is None else (None, *value.inner_shape)
    rows = source.rows.get() if isinstance(source.rows, Cell) and source.rows.is_made else None
    is_vector = rows is None or (
        rows.dtype.is_integer and _agree(dims(rows), (place.length,))  # type: ignore[union-attr]
    )
    return _has_shape(whole, inner) and is_vector


def _are_products(value: SumOfProducts, place: Place) -> bool:
    del place
    shapes = [product.shape for product in value.products.terms]
    return bool(shapes) and all(_agree(s, value.inner_shape) for s in shapes)


def _are_parts(value: Packed, place: Place) -> bool:
    inner = value.inner_shape
    if inner is None:
        return True
    is_count = inner[0] is None or len(value.parts) == inner[0]
    return is_count and all(_has_shape(p, (place.length, *inner[1:])) for p in value.parts)


def _is_a_piece(value: ZeroExtended, place: Place) -> bool:
    del place
    inner, piece, of_piece = value.inner_shape, value.piece, value.piece.dy.inner_shape
    if not is_static(inner) or not is_static(of_piece):
        return True
    is_inside = piece.start >= 0 and piece.start + piece.count <= inner[0]
    return is_inside and size_of(of_piece) == piece.count * size_of(inner[1:])


def _has_as_many(value: Reshaped, place: Place) -> bool:
    """The elements before a reshape are as many as those after it."""
    before, after = dims(value.elements), _with_rows(value, place)
    if not is_static(before) or not is_static(after):
        return True
    return size_of(before) == size_of(after)


# ---------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------

_HAS_ITS_DTYPE = Clause("its tensor has its dtype", lambda v, p: _has_dtype(v))

CONTRACTS: dict[type[Value], tuple[Clause, ...]] = {
    Value: (
        Clause(
            "a static inner shape has sizes that are not negative, or None",
            lambda v, p: v.inner_shape is None or all(d is None or d >= 0 for d in v.inner_shape),
        ),
        Clause(
            "its tensors are of the graph at hand, of one around it, or eager; in a trial, that is "
            "thrown away, they may be any",
            lambda v, p: _tf.in_trial(p.graph) or all(_is_seen(t, p.graph) for t in _tensors(v)),
        ),
    ),
    Unstacked: (
        _HAS_ITS_DTYPE,
        Clause("its tensor has the inner shape", lambda v, p: _has_shape(_made(v), v.inner_shape)),
        Clause(
            "what is known of it has the inner shape and the dtype",
            lambda v, p: (
                v.known is None
                or (
                    _agree(np.shape(v.known), v.inner_shape)
                    and (v.dtype == tf.string or tf.as_dtype(v.known.dtype) == v.dtype.base_dtype)
                )
            ),
        ),
    ),
    Stacked: (
        _HAS_ITS_DTYPE,
        Clause(
            "its tensor is [n] and the inner shape",
            lambda v, p: _has_shape(_made(v), _with_rows(v, p)),
        ),
        Clause("its folded form merges n with the first of the inner axes", _folds),
        Clause("its rows come from a tensor of the same inner shape", _has_its_source),
    ),
    Reshaped: (Clause("what it is a reshape of has as many elements", _has_as_many),),
    SumOfProducts: (Clause("each product has the inner shape", _are_products),),
    Packed: (Clause("there is a part for each place of inner axis 0", _are_parts),),
    ZeroExtended: (
        Clause("the piece has as many elements as its places, inside of inner axis 0", _is_a_piece),
    ),
    StackedList: (
        _HAS_ITS_DTYPE,
        Clause(
            "it has the inner shape, of handles that hold all rows",
            lambda v, p: v.dtype == tf.variant and _has_shape(_made(v), v.inner_shape),
        ),
        Clause(
            "the size of its elements is an int or a scalar int32",
            _of_rows(lambda r, p: _is_count(r.size)),
        ),
        Clause(
            "the ids of its rows are int32 [n]",
            _of_rows(lambda r, p: _is_vector(r.ids, tf.int32, p.length)),
        ),
        Clause(
            "its mask is bool [size]",
            _of_rows(lambda r, p: _is_vector(r.mask, tf.bool, r.size)),
        ),
        Clause(
            "its lengths and its starts are int32 [size]",
            _of_rows(
                lambda r, p: (
                    _is_vector(r.lengths, tf.int32, r.size)
                    and _is_vector(r.starts, tf.int32, r.size)
                )
            ),
        ),
    ),
    Ragged: (
        Clause(
            "its sizes are of its first axes, the last of them differs between rows",
            lambda v, p: (
                isinstance(v.sizes[-1], RowSizes)
                and (v.inner_shape is None or len(v.sizes) <= len(v.inner_shape))
            ),
        ),
        Clause(
            "a size that differs is int32 [n]; one that does not is an int or an int32 scalar",
            lambda v, p: all(
                _is_vector(s.cell.get() if s.cell.is_made else None, tf.int32, p.length)
                if isinstance(s, RowSizes)
                else _is_count(s)
                for s in v.sizes
            ),
        ),
        Clause(
            "its tensor has the elements of all rows one behind the other",
            lambda v, p: _has_shape(
                _made(v),
                None if v.inner_shape is None else (None, *v.inner_shape[len(v.sizes) :]),
            ),
        ),
        _HAS_ITS_DTYPE,
        Clause(
            "its padded form is [n, largest, ...] of the same dtype",
            lambda v, p: (
                not v.padded.is_made
                or (
                    v.in_rows.dtype == v.dtype
                    and (
                        v.inner_shape is None
                        or len(dims(v.in_rows) or v.inner_shape + (0,)) == len(v.inner_shape) + 1
                    )
                )
            ),
        ),
    ),
    RowMajorList: (
        Clause("it is the handle of one list", lambda v, p: _is_handle(v)),
        Clause(
            "each row has the same number of items of one static shape",
            lambda v, p: _is_count(v.items.count) and is_static(v.items.shape),
        ),
    ),
    CsrRows: (Clause("it is the handle of one batch", lambda v, p: _is_handle(v)),),
    RepeatedList: (
        Clause(
            "the item is loop-invariant, and the count is an int32 scalar",
            lambda v, p: (
                not v.item.is_stacked
                and v.count.dtype == tf.int32
                and _agree(v.count.inner_shape, ())
            ),
        ),
    ),
}
"""The clauses of each class of values; those of a class hold for all classes below it."""
