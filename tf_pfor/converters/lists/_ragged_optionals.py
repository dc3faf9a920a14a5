"""Optionals that hold rows of different shapes, or lists of such rows, for branches' gradients.

The rows are padded, [n, largest, ...]. Their sizes are known beside the optional, one ``Part`` for
each component (``Holds.parts``). Sizes that the gradient has as well are named, so that
operations on both need no check. All sizes are stored, too, behind the components. A reader that
misses a part gets an error; sizes that a branch has made are read from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._variant_types import branch_of, calls_around
from tf_pfor.converters.lists._optional_values import as_kept, as_read, kept_types
from tf_pfor.converters.lists._row_packs import pack, unpack
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop
from tf_pfor.core.stacked_lists import ListRows, known_rows, list_with_rows, rows_of
from tf_pfor.core.values import Cell, Shape, Value
from tf_pfor.layouts.ragged import Ragged, RowShape, RowSize, same_sizes, shape_value, size_value
from tf_pfor.layouts.row_sizes import RowSizes, Size

ROWS, SHAPE, NUMBER, LIST, NESTED, MIXED = ["rows", "shape", "number", "list", "nested", "several"]
_OF_PARTS = (MIXED, NESTED)


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """Sizes that a branch has made: who reads the optional takes the stored numbers.

    Attributes:
      made: the sizes in the branch.
    """

    made: RowSizes


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A component of an optional that is not just [n, ...].

    Attributes:
      form: rows, a shape or a size of such, or a list of such items or their shapes.
      sizes: an int, ``RowSizes`` or ``Stored`` for each leading axis.
      rest: for rows the static sizes of the axes behind; for a list whether it holds shapes. An
        optional has its parts alone. Several branches have the parts of each, None for nothing.
    """

    form: str
    sizes: tuple[Any, ...]
    rest: Any = ()

    def select(self, loop: Loop) -> Part:
        """The same for the rows of ``loop``."""
        return self.mapped(lambda s: s.select(loop) if isinstance(s, RowSizes) else s)

    def seen_from(self, graph: tf.Graph, see: Callable[..., Any]) -> Part:
        """The same for ops of another graph."""
        return self.mapped(lambda s: s.seen_from(graph, see) if isinstance(s, RowSizes) else s)

    def mapped(self, change: Callable[..., Any]) -> Part:
        """The same with other sizes."""
        if self.form in _OF_PARTS:
            each = tuple(
                parts and tuple(p and p.mapped(change) for p in parts) for parts in self.rest
            )
            return dataclasses.replace(self, rest=each)
        return dataclasses.replace(self, sizes=tuple(map(change, self.sizes)))

    @property
    def differing(self) -> list[Any]:
        """The sizes that differ between rows."""
        return [s for s in self.sizes if isinstance(s, (RowSizes, Stored))]

    @property
    def is_stored(self) -> bool:
        """Whether sizes, or what is kept, are only known where it was made."""
        return any(isinstance(s, Stored) for s in _sizes_in((self,)))

    def is_like(self, other: Part | None) -> bool:
        """Whether another part is the same."""
        if other is None or self.form != other.form:
            return False
        if self.form in _OF_PARTS:
            return len(self.rest) == len(other.rest) and all(map(are_alike, self.rest, other.rest))
        return (
            self.rest == other.rest
            and len(self.sizes) == len(other.sizes)
            and all(same_sizes([a], [b]) or a == b for a, b in zip(self.sizes, other.sizes))
        )


Parts = tuple[Part | None, ...]


def are_alike(a: Parts | None, b: Parts | None) -> bool:
    """Whether two optionals have the same parts."""
    if a is None or b is None or len(a) != len(b):
        return a is b
    return all(p is q or (p is not None and p.is_like(q)) for p, q in zip(a, b))


def of_branch(call: Call, parts: Parts) -> Parts:
    """The parts in the branch that reads an optional: it was made in the same branch.

    Raises:
      CannotVectorize: if it is not known which branch has made it.
    """
    if not any(p and p.form == MIXED for p in parts):
        return parts
    (mixed,) = parts
    assert mixed is not None
    branch = branch_of(call.op.graph, calls_around(call, call.op.graph))
    if branch is None or branch.total != len(mixed.rest):
        raise CannotVectorize(_UNDER_ONE_NAME)
    found = mixed.rest[branch.number]
    if found is None or any(p and p.form == MIXED for p in found):
        raise CannotVectorize(_UNDER_ONE_NAME)
    return found


_UNDER_ONE_NAME = "branches keep rows of different shapes under one name"


def parts_of(call: Call, components: Sequence[Value]) -> Parts:
    """The parts of the components of an optional; empty if all components are [n, ...]."""
    found = tuple(map(_part, components))
    if not _tf.in_body(call.emit.graph):
        return found if any(found) else ()
    if any(p and p.form in (ROWS, LIST, NESTED) for p in found):
        raise CannotVectorize("a branch keeps rows of different shapes, in a map of a map")
    return ()


def _part(value: Value) -> Part | None:
    if isinstance(value, Ragged):
        part = Part(ROWS, value.sizes, tuple(value.tensor.shape[1:]))
    elif isinstance(value, RowShape):
        part = Part(SHAPE, value.sizes)
    elif isinstance(value, RowSize):
        part = Part(NUMBER, (value.size,))
    elif known_rows(value).holds.items:
        part = Part(LIST, known_rows(value).holds.items, known_rows(value).holds.numbers)
    elif known_rows(value).holds.parts:
        part = Part(NESTED, (), (known_rows(value).holds.parts,))
    else:
        return None
    if any(isinstance(s, tf.Tensor) for s in part.sizes):
        raise CannotVectorize("a branch keeps rows of which a size is not known")
    return part


def _stored_forms(call: Call, components: Sequence[Value]) -> list[tf.Tensor]:
    """The tensors that stand for the components."""
    tensors = [
        value.in_rows
        if isinstance(value, Ragged)
        else pack(call, value, made, parts_known=True)
        if value.dtype == tf.variant
        else call.stacked(value)
        for value, made in zip(components, call.op.inputs)
    ]
    with call.emit.graph.as_default():
        return [*map(as_kept, tensors)]


def kept(call: Call, components: Sequence[Value], parts: Parts) -> tf.Tensor:
    """An optional of rows of different shapes."""
    with call.emit.graph.as_default():
        tensors = _stored_forms(call, components)
        stored = [tf.cast(s.tensor, tf.float64) for p in parts if p for s in p.differing]
        return tf.raw_ops.OptionalFromValue(components=[*tensors, *stored])


def read(call: Call, made: tf.Tensor, ids: tf.Tensor | None, parts: Parts) -> list[Value]:
    """The values in an optional that ``kept`` has made.

    Its rows ``ids`` (int32 [n]) are rows of the loop; None if all are.
    """
    dtypes, emit = call.attr("output_types"), call.emit
    is_sure, parts = not any(p and p.form == MIXED for p in parts), of_branch(call, parts)
    if not any(parts):
        parts = (None,) * len(dtypes)
    if len(parts) != len(dtypes):
        raise CannotVectorize(_UNDER_ONE_NAME)
    lead = call.loop.static_length if ids is None else None
    shapes: list[Any] = [
        s if d == tf.variant else _stored_shape(p, lead, s)
        for p, s, d in zip(parts, call.attr("output_shapes"), dtypes)
    ]
    count = sum(len(p.differing) for p in parts if p)
    with emit.graph.as_default():
        found = tf.raw_ops.OptionalGetValue(
            optional=made,
            output_types=[*kept_types(dtypes), *[tf.float64] * count],
            output_shapes=[*shapes, *[[lead]] * count],
        )
        found = [*map(as_read, found, dtypes), *found[len(dtypes) :]]
    rows = None if ids is None else ListRows(call.loop.length_tensor, ids=ids)
    if ids is not None:
        found = [
            t if t.dtype == tf.variant else emit("GatherV2", t, ids, np.int32(0)) for t in found
        ]
    if not is_sure:
        found = _checked(call, found, parts)
    supply = iter(found[len(parts) :])
    values: list[Value] = []
    for k, (part, tensor) in enumerate(zip(parts, found)):
        output = call.op.outputs[k]
        value = unpack(call, tensor, output, rows) if tensor.dtype == tf.variant else None
        if part is None:
            values.append(value or Value.stacked(tensor))
            continue
        sizes = [_size(call, s, supply) for s in part.sizes]
        values.append(_value(call, part, value or Value.stacked(tensor), sizes, output))
    return values


def _checked(call: Call, found: list[tf.Tensor], parts: Parts) -> list[tf.Tensor]:
    """The tensors of an optional, after a check that it was made with sizes of these parts."""
    stored = found[len(parts) :]
    known = [s for p in parts if p for s in p.differing]
    pairs = [(s.tensor, t) for s, t in zip(known, stored, strict=True) if isinstance(s, RowSizes)]
    with call.emit.graph.as_default():
        same = [tf.reduce_all(tf.cast(a, t.dtype) == t) for a, t in pairs]
        text = f"{call.op.name} reads what another branch has kept. This is a bug of tf_pfor."
        with tf.control_dependencies([tf.debugging.Assert(s, [text]) for s in same]):
            return [t if t.dtype == tf.variant else tf.identity(t) for t in found]


def _stored_shape(part: Part | None, lead: int | None, shape: Shape) -> Any:
    if part is None:
        return tf.TensorShape([lead]).concatenate(shape)
    if part.form == ROWS:
        return [lead, *[None] * len(part.sizes), *part.rest]
    return [lead, len(part.sizes)] if part.form == SHAPE else [lead]


def _size(call: Call, size: Size, supply: Any) -> Any:
    """A size that was kept; the same object for all that have the same."""
    if isinstance(size, int):
        return size
    number = next(supply)
    if isinstance(size, RowSizes):
        return size
    key, memo = ("stored sizes", size.made, call.loop), call.emit.memo
    if key not in memo:
        with call.emit.graph.as_default():
            own = tf.cast(number, tf.int32)
        own.set_shape([call.loop.static_length])
        made = size.made
        memo[key] = RowSizes(Cell(own), made.most, made.full, is_number=made.is_number)
    return memo[key]


def _value(call: Call, part: Part, value: Value, sizes: list[Any], output: tf.Tensor) -> Value:
    if part.form == ROWS:
        made = Ragged.from_padded(value.tensor, sizes, output)
        is_other = any(isinstance(s, Stored) for s in part.sizes)  # may have less room here
        return Ragged.packed(made.tensor, sizes, output) if is_other else made
    if part.form == SHAPE:
        return shape_value(call.emit, sizes, output.dtype)
    if part.form == NUMBER:
        return size_value(call.emit, sizes[0], output.dtype)
    rows = rows_of(value) or ListRows(call.loop.length, is_even=True)
    if part.form == NESTED:
        return list_with_rows(value, rows.holding(parts=part.rest[0]))
    return list_with_rows(value, rows.holding(items=tuple(sizes), numbers=part.rest))


def leaving(parts: Parts, known: Iterable[RowSizes], *, by_row: bool) -> Parts:
    """The parts, outside of a branch, of an optional that the branch returns.

    The branch was given the sizes ``known``. ``by_row`` says whether rows choose it.
    """
    given = set(known)

    def is_known(size: RowSizes) -> bool:
        return size in given or (bool(size.parts) and all(map(is_known, size.parts)))

    def outside(size: Size) -> Any:
        if not isinstance(size, RowSizes):
            return size
        whole = size.whole if by_row else size
        return whole if whole is not None and is_known(whole) else Stored(size)

    return tuple(p and p.mapped(outside) for p in parts)


def of_branches(given: Sequence[Parts | None]) -> Parts:
    """The parts of an optional that each branch returns; None of a branch that keeps nothing."""
    found = [parts for parts in given if parts is not None]
    if not found:
        return ()
    if all(are_alike(found[0], parts) for parts in found[1:]):
        return found[0]
    return (Part(MIXED, (), tuple(given)),)


def sizes_of(parts: Parts) -> list[Any]:
    """All sizes; sizes made in a branch are told apart by the place of their making."""
    return [s.made if isinstance(s, Stored) else s for s in _sizes_in(parts)]


def _sizes_in(parts: Parts) -> list[Any]:
    found: list[Any] = []
    for p in parts:
        if p is not None:
            found += p.sizes
            for each in p.rest if p.form in _OF_PARTS else ():
                found += _sizes_in(each or ())
    return found


def outline(parts: Parts | None) -> Any:
    """The same for parts that differ in nothing but numbers."""
    return parts and tuple(
        p
        and (
            (p.form, tuple(map(outline, p.rest)))
            if p.form in _OF_PARTS
            else (p.form, p.rest, tuple(map(type, p.sizes)))
        )
        for p in parts
    )
