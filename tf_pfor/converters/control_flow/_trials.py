"""Trials: the forms of the outputs of a region, found without keeping what is emitted.

A *trial* converts a region in a graph that is thrown away, with stand-ins for its inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.lists._ragged_items import DIFFER, of_any_numbers, to_hold, to_hold_parts
from tf_pfor.converters.lists._ragged_optionals import Parts, outline, sizes_of
from tf_pfor.converters.lists._row_packs import holds_packs, with_packs
from tf_pfor.converters.lists._unpacked_lists import keeps, to_keep
from tf_pfor.converters.lists._unpacked_optionals import kept_in
from tf_pfor.core import regions
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import (
    OF_SIZES,
    Kept,
    OpenOptional,
    PendingSum,
    known_rows,
    received,
    rows_of,
)
from tf_pfor.core.values import Cell, Layout, Shape, Stacked, Unstacked, Value, as_shape, full_shape
from tf_pfor.layouts.ragged import (
    Ragged,
    RowShape,
    RowSize,
    RowSizes,
    same_sizes,
    shape_value,
    size_value,
)
from tf_pfor.layouts.repeated import RepeatedList

SOME_SIZES = (6, 7)
"""In place of sizes that are unknown, but the same in all rows."""

CHANGES_SIZE = "changes from trip to trip, and a gradient, or a TensorArray, keeps each"
"""The reason why rows do not make trips at once; the name of a tensor stands in front."""

_Place: TypeAlias = "int | tuple[int, int] | _Followed"
"""A size of an item, as in ``Trial.items``."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Followed:
    """The sizes that follow from others: the places of these, the rule, and the upper bound."""

    places: tuple[_Place, ...]
    rule: Any
    most: int | None


OWN = "own"
"""In place of the size of an axis that differs between rows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """The form of an output of a region.

    Attributes:
      layout: the layout.
      has_lengths: for a list whether its rows differ in length.
      has_rows: for a list whether it has ``ListRows``: it may hold others than the loop's rows.
      holds_packs: for a list of lists whether it holds packs.
      keeps: for a list of optionals that are not made: the content of an optional.
      axes: the sizes of a row, None if the rank is unknown. A size is an int, None if it is unknown
        and the same in all rows, ``OWN``, or (int,) for windows of one length.
      kept: for ragged rows: for each ragged input, and each leading axis, whether both are known to
        have the same sizes.
      items: for a list of items whose shape differs between rows: the sizes of items. A size is an
        int, the size of an input as a pair (its number, the axis), or what follows from such.
      numbers: as for ``Holds``.
      parts: for a list of optionals that hold such rows: their parts, with sizes like these.
    """

    layout: Layout
    has_lengths: bool
    has_rows: bool
    holds_packs: bool
    keeps: tuple[Kept, ...]
    axes: tuple[Any, ...] | None
    kept: dict[int, tuple[bool, ...]]
    items: tuple[Any, ...] = ()
    numbers: str = ""
    parts: Parts = ()


def _axes(value: Value) -> tuple[Any, ...] | None:
    """The sizes of a row, for ``Trial``."""
    if not isinstance(value, Ragged) or value.inner_shape is None:
        return value.inner_shape
    own = [
        ((s.full,) if value.is_full else OWN) if isinstance(s, RowSizes) else d
        for s, d in zip(value.sizes, value.inner_shape)
    ]
    return (*own, *value.inner_shape[value.n_leading :])


def _kept_sizes(value: Value, args: Sequence[Value]) -> dict[int, tuple[bool, ...]]:
    if not isinstance(value, Ragged):
        return {}
    given = {i: a.sizes for i, a in enumerate(args) if isinstance(a, Ragged)}
    return {
        i: tuple(same_sizes([x], [y]) for x, y in zip(sizes, value.sizes))
        for i, sizes in given.items()
        if len(sizes) == len(value.sizes)
    }


def _items(value: Value, args: Sequence[Value], made: tf.Tensor) -> tuple[Any, ...]:
    """The sizes of the items of a list, for ``Trial``."""
    place, holds = _places(args, made), known_rows(value).holds
    try:
        return tuple(map(place, holds.items))
    except CannotVectorize:
        if holds.numbers == OF_SIZES:
            return ()
        raise


def _parts_of_items(value: Value, args: Sequence[Value], made: tf.Tensor) -> Parts:
    """The parts of the optionals in a list, for ``Trial``."""
    parts = known_rows(value).holds.parts
    if not parts:
        return ()
    place = _places(args, made)
    return tuple(p and p.mapped(place) for p in parts)


def _places(args: Sequence[Value], made: tf.Tensor) -> Callable[[Any], Any]:
    """A function that tells of which input, and of which axis, sizes of a list are."""
    every = {id(s): (s, (i, k)) for i, a in enumerate(args) for k, s in enumerate(sizes_in(a))}
    known = [s for s, _ in every.values() if isinstance(s, RowSizes)]

    def place(size: object) -> Any:
        if isinstance(size, int):
            return size
        if id(size) in every:
            return every[id(size)][1]
        if isinstance(size, RowSizes):
            parts, rule = size.follows_from(known)
            if parts:
                return _Followed(tuple(map(place, parts)), rule, size.most)
        raise CannotVectorize(f"the size of {_put_into(made)} {CHANGES_SIZE}")

    return place


def _put_into(made: tf.Tensor) -> str:
    """The words for what a trip puts into a list of the body."""
    at = {"TensorListPushBack": 1, "TensorListSetItem": 2}.get(made.op.type)
    op = None if at is None else made.op.inputs[at].op
    if op is None or op.type == "Placeholder":
        return "a loop variable"
    return f"'{op.type}' ({_tf.user_line(op) or 'line unknown'})"


def as_left(
    call: Call,
    arg: Value,
    trial: Trial,
    like: tf.Tensor,
    sizes: Callable[[int], Sequence[Any]],
) -> Value:
    """A list before a loop, in the form in which a trial trip leaves it; the body calls it
    ``like``.

    ``sizes(i)`` are the sizes of input i, None where trips change them.
    """

    def now(size: _Place) -> Any:
        if isinstance(size, _Followed):
            return None if None in map(now, size.places) else size
        if not isinstance(size, tuple):
            return size
        i, axis = size
        return sizes(i)[axis]

    def before(size: _Place) -> Any:
        if isinstance(size, int):
            return size
        if isinstance(size, _Followed):
            parts = [*map(before, size.places)]
            if size.rule is None:
                return RowSizes.joint(parts)
            return RowSizes.following(parts, size.rule, size.most)
        known = now(size)
        if known is None:
            raise CannotVectorize(
                f"{DIFFER}. A trip may change the sizes of a loop variable h, as in h + y. Where y "
                "has the sizes of h, tf.reshape(y, tf.shape(h)) says so"
            )
        return known

    if trial.keeps:
        arg = to_keep(call, arg, trial.keeps)
    if trial.parts:
        arg = to_hold_parts(call, arg, [p and p.mapped(before) for p in trial.parts])
    elif trial.items and trial.numbers == OF_SIZES and None in map(now, trial.items):
        arg = of_any_numbers(arg)
    elif trial.items:
        arg = to_hold(call, arg, [*map(before, trial.items)], trial.numbers)
    else:
        arg = of_any_numbers(arg)
    return with_packs(call, arg, like) if trial.holds_packs else arg


def with_known_items(values: Sequence[Value], args: Sequence[Value]) -> list[Value]:
    """The values; refuses lists that a branch fills with items of different shapes.

    It may if they held such items.
    """
    known, found = [known_rows(a).holds.items for a in args], list[Value]()
    for v in values:
        items = known_rows(v).holds.items
        is_known = not items or any(k and same_sizes(k, items) for k in known)
        found.append(v if is_known else of_any_numbers(v))
        if not is_known and known_rows(found[-1]).holds.items:
            raise CannotVectorize("a branch fills a list with items of different shapes")
    return found


def contents(value: Value) -> tuple[Any, ...]:
    """The facts of a list that ``as_left`` may change."""
    holds = known_rows(value).holds
    return holds.packs, holds.keeps, holds.items, holds.parts


def sizes_in(value: Value) -> Sequence[Any]:
    """The sizes of a row, or of the items of a list, by axis; of all that an optional holds."""
    if isinstance(value, (Ragged, RowShape)):
        return value.sizes
    if isinstance(value, RowSize):
        return [value.size]
    holds = known_rows(value).holds
    return [*holds.items, *sizes_of(holds.parts)]


def _own_sizes(value: Value) -> list[Any]:
    sizes = known_rows(value).known_sizes
    return [] if sizes is None else [sizes]


def _has_lengths(value: Value) -> bool:
    return known_rows(value).lengths is not None


def _lists(value: Value) -> Any:
    holds = known_rows(value).holds
    opened = tuple(map(kept_in, value.alternatives)) if isinstance(value, OpenOptional) else ()
    kinds = (holds.packs, opened, holds.keeps, outline(holds.parts))
    return (_has_lengths(value), _is_empty(value), *kinds)


def _has_rows(value: Value) -> bool:
    rows = rows_of(value)
    return rows is not None and (rows.ids is not None or rows.holds.packs or _has_lengths(value))


def _held(value: Value) -> Any:
    if not isinstance(value, RepeatedList):
        return None
    return value.item.inner_shape, value.item.dtype, value.count.layout


def _known(value: Value) -> Any:
    constant = value.constant
    if constant is None or constant.dtype == object:
        return constant if constant is None else tuple(constant.ravel().tolist())
    return (constant.dtype.str, constant.shape, constant.tobytes())


def _is_empty(value: Value) -> bool:
    """Whether this is an empty list of lists, of all rows, which is stacked without packs."""
    if value.is_stacked or value.dtype != tf.variant:
        return False
    op = source(value.tensor).op
    return op.type == "EmptyTensorList" and op.get_attr("element_dtype") == tf.variant


def stand_in(value: Value, length: int | None, emit: Emitter) -> Value:
    """A placeholder of the same layout, for a trial."""
    if isinstance(value, RepeatedList):
        item, count = value.item, value.count
        return RepeatedList.of(stand_in(item, length, emit), stand_in(count, length, emit))
    if isinstance(value, Ragged):
        return _ragged_stand_in(value, length, emit)
    constant, dtype, rows = value.constant, value.dtype, rows_of(value)
    if constant is not None:
        cell = Cell(None, lambda: emit.constant(constant, dtype))
        return Unstacked(cell, value.inner_shape, dtype, constant)
    if isinstance(value, PendingSum):
        terms = tuple(stand_in(t, length, emit) for t in value.terms)
        return dataclasses.replace(value, terms=terms)
    if isinstance(value, OpenOptional):
        return value.mapped(lambda v: stand_in(v, length, emit), rows)
    if _is_empty(value):
        made = emit("EmptyTensorList", np.int32(-1), np.int32(-1), element_dtype=tf.variant)
        return received(made, value.layout, value.inner_shape)
    if isinstance(value, RowShape):
        return shape_value(emit, _stand_in_sizes(value.sizes, length, emit), dtype)
    if isinstance(value, RowSize):
        return size_value(emit, _stand_in_sizes([value.size], length, emit)[0], dtype)
    if rows is not None and rows.holds.items:
        items = _stand_in_sizes(rows.holds.items, length, emit)
        rows = rows.holding(items=tuple(items))
    if rows is not None and rows.holds.parts:
        put = lambda s: _stand_in_sizes([s], length, emit)[0] if isinstance(s, RowSizes) else s  # noqa: E731
        rows = rows.holding(parts=tuple(p and p.mapped(put) for p in rows.holds.parts))
    if rows is not None and rows.known_sizes is not None:
        (own,) = _stand_in_sizes([rows.sizes], length, emit)
        rows = dataclasses.replace(rows, lengths=own.tensor, sizes=own)
    shape = full_shape(value.layout, value.inner_shape, length)
    if dtype in (tf.resource, tf.variant):
        made = emit.stand_in(dtype, shape, value.tensor)
        return received(made, value.layout, value.inner_shape, rows)
    cell = Cell(None, lambda: emit.stand_in(dtype, shape))  # most are never read
    if value.layout is Layout.STACKED:
        return Stacked(cell, value.inner_shape, dtype)
    return Unstacked(cell, as_shape(shape), dtype)


def _ragged_stand_in(value: Ragged, length: int | None, emit: Emitter) -> Value:
    """Ragged rows of which nothing is known but which sizes are the same."""
    sizes, inner = _stand_in_sizes(value.sizes, length, emit), value.inner_shape
    rest = value.tensor.shape[1:] if inner is None else inner[value.n_leading :]
    packed = emit.stand_in(value.dtype, [None, *rest])
    return Ragged.packed(packed, sizes, value.origin)


def _stand_in_sizes(given: Sequence[Any], length: int | None, emit: Emitter) -> list[Any]:
    known, sizes = emit.memo["sizes of stand-ins"], list[Any]()
    for size in given:
        if isinstance(size, int):
            sizes.append(size)
            continue
        if id(size) not in known:
            if isinstance(size, RowSizes) and size.parts:
                parts = _stand_in_sizes(size.parts, length, emit)
                made = RowSizes.following(parts, size.rule, size.most)
            elif isinstance(size, RowSizes):
                own = emit.stand_in(tf.int32, [length])
                made = RowSizes(Cell(own), size.most, size.full, is_number=size.is_number)
            else:
                made = emit.stand_in(tf.int32, [])
            known[id(size)] = (size, made)
        sizes.append(known[id(size)][1])
    return sizes


def _pattern(args: Sequence[Value]) -> Any:
    """A pattern that tells which sizes of ragged arguments, and of lists' items, are the same."""
    every = [s for a in args for s in (*sizes_in(a), *_own_sizes(a))]
    numbers: dict[int, int] = {}

    def name(size: Any) -> Any:
        if isinstance(size, RowSizes) and size.parts:
            names = map(name, size.parts)
            return (size.rule, *names) if size.rule else frozenset(names)
        if isinstance(size, int):
            return size
        return "own", numbers.setdefault(id(size), len(numbers))

    return tuple(map(name, every))


def form_of(args: Sequence[Value]) -> tuple[Any, ...]:
    """The key of a trial: all of its inputs that it depends on."""
    known = tuple((a.layout, a.inner_shape, _known(a), _lists(a), _held(a)) for a in args)
    return known, _pattern(args)


def seen(value: Value, args: Sequence[Value], made: tf.Tensor, *, is_trip: bool) -> Trial:
    """The form of an output, ``made`` in the body; lists of trips know what they keep."""
    return Trial(
        value.layout,
        _has_lengths(value),
        _has_rows(value),
        holds_packs(value),
        keeps(value),
        _axes(value),
        _kept_sizes(value, args),
        _items(value, args, made),
        known_rows(value).holds.numbers,
        _parts_of_items(value, args, made) if is_trip else (),
    )


def shape_for(
    graph: tf.Graph, args: Sequence[Value], k: int, size: int, memo: dict[Any, Any]
) -> Shape:
    """The static shape of output ``k``, where unknown sizes of the arguments are ``size``."""
    key = ("shapes for a size", graph, size, tuple(a.inner_shape for a in args))
    if key not in memo:
        shapes = [
            p.shape
            if a.inner_shape is None or p.dtype in (tf.resource, tf.variant)
            else tf.TensorShape([size if d is None else d for d in a.inner_shape])
            for p, a in zip(graph.inputs, args)
        ]
        memo[key] = regions.shapes_for(graph, shapes)
    return memo[key][k]
