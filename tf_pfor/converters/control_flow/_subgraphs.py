"""Functions of the body that keep a separate graph: branches and loops.

A *region* is such a function with the Values of its inputs. It is converted inside the graph that
TensorFlow makes for a branch or a loop. A *trial* converts it in a graph that is thrown away, to
see the layouts of its outputs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.converters.analysis._loop_graphs import source
from tf_pfor.converters.lists._list_rows import carried_on, dense
from tf_pfor.converters.lists._lists import stack_list, swap
from tf_pfor.converters.lists._ragged_optionals import Parts, leaving, outline, sizes_of
from tf_pfor.converters.lists._row_packs import holds_packs
from tf_pfor.converters.lists._unpacked_lists import keeps
from tf_pfor.converters.lists._unpacked_optionals import kept_in
from tf_pfor.core import regions
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion, Cut
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop, PaddedRows
from tf_pfor.core.stacked_lists import (
    Kept,
    ListRows,
    StackedList,
    known_rows,
    list_with_rows,
    rows_of,
)
from tf_pfor.core.values import (
    Cell,
    Layout,
    Shape,
    Stacked,
    Unstacked,
    Value,
    as_shape,
    as_tensor_shape,
    dims,
    known_dims,
)
from tf_pfor.layouts import row_major
from tf_pfor.layouts.known_ranges import hand_on, known_ranges
from tf_pfor.layouts.ragged import (
    Ragged,
    RowShape,
    RowSizes,
    is_ragged,
    same_sizes,
    shape_value,
)
from tf_pfor.layouts.repeated import RepeatedList

OWN = "own"
"""In place of the size of an axis that differs between rows."""
SOME_SIZES = (6, 7)
"""In place of sizes that are unknown, but the same in all rows."""


class Region:
    """One function of the body's graph."""

    def __init__(self, call: Call, name: str):
        self.call = call
        self.name = name
        self.graph = _tf.function_graph(call.op.graph, name)
        self.unread: frozenset[int] = frozenset()  # lists that it returns and nobody reads
        self.may_hold = False  # whether lists that it returns may hold items of different shapes
        self.may_differ = False  # whether rows of what it returns may differ in shape
        self.rows: tf.Tensor | None = None  # which take it, where that is known before it runs
        self.early: dict[Cut, tuple[int, Value]] = {}  # made before: argument, value outside

    @property
    def controls(self) -> list[tf.Operation]:
        """The ops that must run for their side effects."""
        return _tf.must_run(self.graph)

    @property
    def is_stateful(self) -> bool:
        return any(is_stateful(o) for o in self.graph.get_operations())

    def convert(
        self,
        args: Sequence[Value],
        loop: Loop,
        emit: Emitter,
        *,
        outputs: Iterable[int] | None = None,
        tensors: Sequence[tf.Tensor] | None = None,
        is_trial: bool = False,
    ) -> list[Converted]:
        """Converts the region in the graph of ``emit``.

        Args:
          args: its inputs, and the cuts made before a loop, as the iterations of ``loop`` see them.
          loop: its iterations.
          emit: the emitter of the graph it goes into.
          outputs: the positions of the outputs that are wanted, all when None.
          tensors: the tensors that are wanted in place of outputs.
          is_trial: the result is thrown away, nothing is recorded.
        """
        if tensors is None:
            wanted = range(len(self.graph.outputs)) if outputs is None else outputs
            tensors = [self.graph.outputs[i] for i in wanted]
        walker = self._entered(args, loop, emit, is_trial=is_trial)
        return self._continued(walker, args, tensors, is_trial=is_trial)

    def _entered(
        self, args: Sequence[Value], loop: Loop, emit: Emitter, *, is_trial: bool
    ) -> Conversion:
        walker = self.call.enter(loop, emit, is_trial=is_trial)
        walker.entered_by = self.call.op
        for placeholder, value in zip(self.graph.inputs, args):
            walker.bind(placeholder, value)
        for cut, (place, _) in self.early.items():
            walker.take_over(cut, args[place])
        if self.early:
            self._hand_on_ranges(args, loop, emit)
        return walker

    def _hand_on_ranges(self, args: Sequence[Value], loop: Loop, emit: Emitter) -> None:
        """Tells the names of the ranges that were cut before: what is cut alike is as long."""
        memo, stand_ins = self.call.memo, emit.memo.get("sizes of stand-ins")
        lengths = {
            outer: inner
            for place, value in self.early.values()
            for outer, inner in zip(sizes_in(value), sizes_in(args[place]), strict=True)
            if isinstance(outer, RowSizes) and isinstance(inner, RowSizes)
        }

        def size(outer: RowSizes) -> RowSizes | None:
            if stand_ins is None:
                return outer.select(loop)
            return stand_ins[id(outer)][1] if id(outer) in stand_ins else None

        def begin(outer: tf.Tensor) -> tf.Tensor:
            if stand_ins is not None:
                return emit.stand_in(tf.int32, [loop.static_length])
            return loop.take(Value.stacked(outer)).tensor

        outside, inside = (known_ranges(memo, x) for x in (self.call.loop, loop))
        hand_on(outside, inside, lengths, size, begin)

    def _continued(
        self,
        walker: Conversion,
        args: Sequence[Value],
        tensors: Sequence[tf.Tensor],
        *,
        is_trial: bool,
    ) -> list[Converted]:
        """Converts some of its tensors by a walker that has entered it."""
        # A function may return one tensor at several positions, of which some are read.
        read = [t for i, t in enumerate(self.graph.outputs) if i not in self.unread]
        left_out = {id(self.graph.outputs[i]) for i in self.unread} - {id(t) for t in read}
        is_wanted = [id(t) not in left_out for t in tensors]
        try:
            chosen = [t for t, is_read in zip(tensors, is_wanted) if is_read]
            made = iter(walker.convert(chosen, self.controls))
        except Exception:
            if is_trial:
                self.call.fail(walker)
            raise
        after = walker.done(self.controls)
        call = Call(self.call.op, self.call.inputs, walker)
        values = [next(made) if is_read else nothing(walker.emit) for is_read in is_wanted]
        values = [_plain(v, walker.emit, may_differ=self.may_differ) for v in values]
        if not self.may_hold:
            _require_known_items(values, args)
        return [Converted(v, call, after, t) for v, t in zip(values, tensors)]

    def layouts(
        self, tensors: Sequence[tf.Tensor], args: Sequence[Value], length: int | None
    ) -> list[Layout]:
        """The layouts that some of its tensors get, for these inputs."""
        return [m.value.layout for m in self._tried(args, length, tensors)[0]]

    def shapes(
        self, args: Sequence[Value], length: int | None, outputs: Sequence[int]
    ) -> list[Shape]:
        """The static shapes of some outputs, for these inputs."""
        if not outputs:
            return []
        made, _ = self._tried(args, length, [self.graph.outputs[i] for i in outputs])
        found = [(dims(m.value.tensor), isinstance(m.value, Stacked)) for m in made]
        return [shape if shape is None else shape[int(lead) :] for shape, lead in found]

    def shape_for(self, args: Sequence[Value], k: int, size: int) -> Shape:
        """The static shape of output ``k`` where unknown sizes of the arguments are ``size``."""
        key = ("shapes for a size", self.graph, size, tuple(a.inner_shape for a in args))
        if key not in self.call.memo:
            shapes = [
                p.shape
                if a.inner_shape is None or p.dtype in (tf.resource, tf.variant)
                else tf.TensorShape([size if d is None else d for d in a.inner_shape])
                for p, a in zip(self.graph.inputs, args)
            ]
            self.call.memo[key] = regions.shapes_for(self.graph, shapes)
        return self.call.memo[key][k]

    def _tried(
        self, args: Sequence[Value], length: int | None, tensors: Sequence[tf.Tensor]
    ) -> tuple[list[Converted], list[Value]]:
        """A conversion in a graph that is thrown away, and the arguments in it.

        What is asked for later, of inputs of the same layouts, is converted there as well.
        """
        key = ("trial", *self._layouts_of(args, length))
        found = self.call.memo.pop(key, None) or self._begin_trial(args, length)
        walker, stand_ins = found
        with walker.emit.graph.as_default():
            made = self._continued(walker, stand_ins, tensors, is_trial=True)
        self.call.memo[key] = found
        return made, stand_ins

    def _begin_trial(
        self, args: Sequence[Value], length: int | None
    ) -> tuple[Conversion, list[Value]]:
        with tf.Graph().as_default():  # no tape and no function sees what happens here
            scratch = _graphs.QuickGraph(_tf.TRIAL)
        with scratch.as_default():
            emit = Emitter(scratch)
            size = emit.stand_in(tf.int32, []) if length is None else length
            loop = Loop(size, emit, axes=self.call.loop.axes)
            emit.memo["sizes of stand-ins"] = {}
            stand_ins = [_stand_in(a, length, emit) for a in args]
            return self._entered(stand_ins, loop, emit, is_trial=True), stand_ins

    def _layouts_of(self, args: Sequence[Value], length: int | None) -> tuple[Any, ...]:
        """The key of a trial, made of all that it depends on."""
        known = tuple((a.layout, a.inner_shape, _known(a), _lists(a), _held(a)) for a in args)
        return (self.graph, length, known, _pattern(args), tuple(self.early))

    def trial(
        self, args: Sequence[Value], length: int | None, outputs: Sequence[int] | None = None
    ) -> list[Trial]:
        """The layouts of the outputs; found once for these layouts of the inputs."""
        wanted = tuple(range(len(self.graph.outputs)) if outputs is None else outputs)
        args = [_for_rows(a, self.rows) for a in args]
        key = ("layouts", wanted, *self._layouts_of(args, length))
        found = self.call.memo.get(key)
        if found is None:
            made, given = self._tried(args, length, [self.graph.outputs[i] for i in wanted])
            values = [m.value for m in made]
            found = [
                Trial(
                    v.layout,
                    _has_lengths(v),
                    _has_rows(v),
                    holds_packs(v),
                    keeps(v),
                    _axes(v),
                    _kept_sizes(v, given),
                    _items(v, given),
                    known_rows(v).are_shapes,
                    _parts_of_items(v, given),
                )
                for v in values
            ]
            self.call.memo[key] = found
        return found


def _for_rows(value: Value, rows: tf.Tensor | None) -> Value:
    """An optional that branches have made, as the rows of one of them see it."""
    known = rows_of(value)
    if known is None or not known.made_for:
        return value
    return list_with_rows(value, dataclasses.replace(known, parts=known.parts_for(rows)))


def nothing(emit: Emitter) -> Value:
    """In place of a list that nobody reads: ``NOTHING``."""
    shape, room = emit.constant(np.zeros([1], np.int32)), np.int32(0)
    return Value.unstacked(emit("EmptyTensorList", shape, room, element_dtype=tf.float32))


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
        int, or the size of an input as a pair (its number, the axis).
      are_shapes: whether the items are shapes of such rows.
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
    are_shapes: bool = False
    parts: Parts = ()


class Converted:
    """One output of a converted region, which the body calls ``made``."""

    def __init__(self, value: Value, call: Call, after: list[tf.Operation], made: tf.Tensor):
        self.value = value
        self.call = call
        self._after = after
        self._made = made

    def carrying_on(self, old: Value) -> Converted:
        """The loop variable ``old`` after a trip: another list goes into it, in active rows."""
        if not isinstance(old, StackedList):
            return self
        return self.being(carried_on(self.call, old, self.value, self._made))

    def being(self, value: Value) -> Converted:
        """The same output, but with this value."""
        return Converted(value, self.call, self._after, self._made)

    def as_layout(self, layout: Layout) -> tf.Tensor:
        """Its tensor in this layout, ready only after the region's side effects."""
        return self.ready([as_layout(self.call, self.value, layout).tensor])[0]

    def ready(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Tensors that are made of it, ready only after the region's side effects."""
        if not self._after:
            return [*tensors]
        with tf.control_dependencies(self._after):
            return [tf.identity(t) for t in tensors]

    @property
    def rows(self) -> Ragged | tf.Tensor:
        """Its rows, of different shapes, or a tensor [n, ...]."""
        return self.value if isinstance(self.value, Ragged) else self.call.stacked(self.value)

    def as_layout_of_rows(self) -> tf.Tensor:
        """A scalar bool as [n]."""
        tensor = self.as_layout(Layout.STACKED)
        if self.value.inner_shape != ():
            tensor = tf.reshape(tensor, [-1])
        return tensor if tensor.dtype == tf.bool else tf.cast(tensor, tf.bool)


def while_loop(
    call: Call,
    cond: Any,
    body: Any,
    state: Sequence[tf.Tensor],
    shapes: Sequence[Any],
    options: Any,
) -> list[tf.Tensor]:
    """``tf.while_loop``; in a trial only what it would return, nothing is converted for it.

    Args:
      call: the loop that is being converted.
      cond: as ``tf.while_loop`` takes it, like the arguments that follow.
      body: the region of a trip.
      state: the variables before the first trip.
      shapes: the static shapes of all variables, before and after each trip.
      options: other arguments of ``tf.while_loop``.
    """
    if not call.emit.is_trial:
        with _graphs.unordered(call.op):
            return list(tf.while_loop(cond, body, state, shape_invariants=shapes, **options))
    return [call.emit.stand_in(t.dtype, shape, t) for t, shape in zip(state, shapes)]


def one_of(
    call: Call,
    branches: Sequence[Any],
    choose: Callable[..., Any],
    like: Sequence[tf.TensorShape] = (),
) -> list[tf.Tensor]:
    """The results of one of some branches; a trial has stand-ins and builds no conditional.

    Args:
      call: the conditional that is being converted.
      branches: functions that make lists of tensors.
      choose: makes the conditional of them.
      like: the shapes that the branch which makes nothing but zeros has besides, if there is one.
    """
    if not call.emit.is_trial:
        with _graphs.unordered(call.op):
            return list(choose())
    sides = [branch() for branch in branches]
    shapes = [functools.reduce(_both, (t.shape for t in each)) for each in zip(*sides)]
    shapes = [*map(_both, shapes, like)] if like else shapes
    return [call.emit.stand_in(t.dtype, shape, t) for t, shape in zip(sides[0], shapes)]


def _both(a: tf.TensorShape, b: tf.TensorShape) -> tf.TensorShape:
    return a.most_specific_compatible_shape(b)


def as_layout(call: Call, value: Value, layout: Layout) -> Value:
    """``value``, stacked if it must be."""
    if isinstance(value, Ragged) and value.layout is not layout and not value.is_full:
        raise CannotVectorize("a tensor whose shape differs between iterations")
    if layout is Layout.STACKED:
        return Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)
    if layout is Layout.STACKED_LIST:
        return stack_list(call, value)
    if value.layout is layout:
        return value
    if value.is_stacked:
        raise CannotVectorize("a value became loop-variant that was invariant in a trial")
    return value


def items_by_row(call: Call, value: Value, item: Shape = None) -> Value:
    """A stacked array, or a list whose items have the static shape ``item``, with items by row."""
    if value.dtype != tf.variant:
        whole = Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)
        return row_major.of_array(whole, call.loop, call.emit)
    value = stack_list(call, value)
    shape = call.emit.shape_vector([call.loop.length, *known_dims(item)])
    whole = swap(call, dense(call, value, shape, may_pad=False))  # [n, T, ...]
    count = call.emit("TensorListLength", value.tensor)
    return row_major.of_items(value, whole, count, call.loop, call.emit)


def join(a: Layout, b: Layout) -> Layout:
    """The layout that can hold both."""
    return b if a is Layout.UNSTACKED else a


def is_stateful(op: tf.Operation) -> bool:
    schema = _tf.schema(op.type)
    return op.type != "Placeholder" and (schema is None or schema.is_stateful)


def full_shape(layout: Layout, inner: Shape, length: int | None) -> tf.TensorShape:
    """The static shape of a tensor of this layout."""
    if layout is Layout.BY_ROW:
        return tf.TensorShape([])
    if layout is not Layout.STACKED:
        return as_tensor_shape(inner)
    return as_tensor_shape(None if inner is None else (length, *inner))


def received(
    tensor: tf.Tensor, layout: Layout, inner: Shape, rows: ListRows | None = None
) -> Value:
    """A tensor that a branch or a loop got as an argument, as a Value."""
    if layout is Layout.STACKED:
        return Value.stacked(tensor).with_inner_shape(inner)
    if layout is Layout.STACKED_LIST:
        return StackedList.of(tensor, rows)
    return Value.unstacked(tensor)


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


def _items(value: Value, args: Sequence[Value]) -> tuple[Any, ...]:
    """The sizes of the items of a list, for ``Trial``."""
    place = _places(args)
    return tuple(map(place, known_rows(value).items))


def _parts_of_items(value: Value, args: Sequence[Value]) -> Parts:
    """The parts of the optionals in a list, for ``Trial``."""
    parts = known_rows(value).parts
    if not parts or _tf.list_element(value.tensor) is None:
        return ()
    place = _places(args)
    return tuple(p and p.mapped(place) for p in parts)


def _places(args: Sequence[Value]) -> Callable[[Any], Any]:
    """A function that tells of which input, and of which axis, sizes are."""
    places = {id(s): (i, k) for i, a in enumerate(args) for k, s in enumerate(sizes_in(a))}

    def place(size: Any) -> Any:
        found = size if isinstance(size, int) else places.get(id(size))
        if found is None:
            raise CannotVectorize("the items of a list get other shapes from trip to trip")
        return found

    return place


def sizes_in(value: Value) -> Sequence[Any]:
    """The sizes of a row, or of the items of a list, by axis; of all that an optional holds."""
    if isinstance(value, (Ragged, RowShape)):
        return value.sizes
    rows = known_rows(value)
    return [*rows.items, *sizes_of(rows.parts)]


def left_in(value: Value, made: tf.Tensor, args: Sequence[Value], *, by_row: bool) -> Parts | None:
    """The parts of an optional outside of the branch that returns it; None if it has no value.

    Args:
      value: the optional in the branch.
      made: the same in the body.
      args: the inputs of the branch.
      by_row: whether rows choose the branch.
    """
    if source(made).op.type == "OptionalNone":
        return None
    known = [s for a in args for s in sizes_in(a) if isinstance(s, RowSizes)]
    return leaving(known_rows(value).parts, known, by_row=by_row)


def _own_sizes(value: Value) -> list[Any]:
    sizes = known_rows(value).known_sizes
    return [] if sizes is None else [sizes]


def _require_known_items(values: Sequence[Value], args: Sequence[Value]) -> None:
    """Refuses lists that a branch fills with items of different shapes, if they held none."""
    known = [known_rows(a).items for a in args]
    for v in values:
        items = known_rows(v).items
        if items and not any(k and same_sizes(k, items) for k in known):
            raise CannotVectorize("a branch fills a list with items of different shapes")


def _has_lengths(value: Value) -> bool:
    return known_rows(value).lengths is not None


def _lists(value: Value) -> Any:
    opened = () if rows_of(value) is None else tuple(map(kept_in, known_rows(value).opened))
    parts = outline(known_rows(value).parts)
    return (_has_lengths(value), holds_packs(value), opened, keeps(value), _is_empty(value), parts)


def _has_rows(value: Value) -> bool:
    rows = rows_of(value)
    return rows is not None and (rows.ids is not None or rows.holds_packs or _has_lengths(value))


def _plain(value: Value, emit: Emitter, *, may_differ: bool) -> Value:
    """The value that a region returns; a list of one invariant tensor is made there."""
    if is_ragged(value) and not may_differ:
        raise CannotVectorize("a branch returns a tensor whose shape differs between iterations")
    return value.standard(emit) if isinstance(value, RepeatedList) else value


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


def _stand_in(value: Value, length: int | None, emit: Emitter) -> Value:
    """A placeholder of the same layout, for a trial."""
    if isinstance(value, RepeatedList):
        item, count = value.item, value.count
        return RepeatedList.of(_stand_in(item, length, emit), _stand_in(count, length, emit))
    if isinstance(value, Ragged):
        return _ragged_stand_in(value, length, emit)
    constant, dtype, rows = value.constant, value.dtype, rows_of(value)
    if constant is not None:
        cell = Cell(None, lambda: emit.constant(constant, dtype))
        return Unstacked(cell, value.inner_shape, dtype, constant)
    if rows is not None and rows.terms:
        terms = tuple(_stand_in(t, length, emit) for t in rows.terms)
        return list_with_rows(value, dataclasses.replace(rows, terms=terms))
    if rows is not None and rows.opened:
        opened = tuple([_stand_in(v, length, emit) for v in each] for each in rows.opened)
        return list_with_rows(value, dataclasses.replace(rows, opened=opened))
    if _is_empty(value):
        made = emit("EmptyTensorList", np.int32(-1), np.int32(-1), element_dtype=tf.variant)
        return received(made, value.layout, value.inner_shape)
    if isinstance(value, RowShape):
        return shape_value(emit, _stand_in_sizes(value.sizes, length, emit), dtype)
    if rows is not None and rows.items:
        items = _stand_in_sizes(rows.items, length, emit)
        rows = dataclasses.replace(rows, items=tuple(items))
    if rows is not None and rows.parts:
        put = lambda s: _stand_in_sizes([s], length, emit)[0] if isinstance(s, RowSizes) else s  # noqa: E731
        rows = dataclasses.replace(rows, parts=tuple(p and p.mapped(put) for p in rows.parts))
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
            if isinstance(size, RowSizes):
                own = emit.stand_in(tf.int32, [length])
                made = RowSizes.of(own, size.most, size.full)
            else:
                made = emit.stand_in(tf.int32, [])
            known[id(size)] = (size, made)
        sizes.append(known[id(size)][1])
    return sizes


def _pattern(args: Sequence[Value]) -> Any:
    """A pattern that tells which sizes of ragged arguments, and of lists' items, are the same."""
    every = [s for a in args for s in (*sizes_in(a), *_own_sizes(a))]
    places = {id(s): i for i, s in reversed(list(enumerate(every)))}
    return tuple(s if isinstance(s, int) else ("own", places[id(s)]) for s in every)


def positions(call: Call, loop: Loop) -> tf.Tensor:
    """int32 [n]: 0 ... n - 1, places among the active rows (not numbers of iterations)."""
    if loop.is_whole:
        return loop.index
    if loop.static_length is not None:
        return call.emit.constant(np.arange(loop.static_length, dtype=np.int32))
    return call.emit("Range", np.int32(0), loop.length_tensor, np.int32(1))


def stitched(
    emit: Emitter, rows: Sequence[tf.Tensor], pieces: Sequence[tf.Tensor], shape: tf.TensorShape
) -> tf.Tensor:
    """[n, ...]: the pieces, each of some of the rows, in the order of the rows.

    TensorFlow's forward mode takes dense tangents only, and the gradient of a stitch gathers:
    behind a Reshape the gradient of that is dense.
    """
    whole = emit("DynamicStitch", list(rows), list(pieces))
    whole.set_shape(shape)
    return emit("Reshape", whole, emit.shape_of(whole))


def blanked_value(emit: Emitter, active: tf.Tensor, value: Stacked | Ragged) -> Value:
    """``value`` with zeros in the rows outside of ``active`` (bool [n])."""
    if isinstance(value, Ragged):
        with emit.graph.as_default():
            return value.blanked(active)
    cell = Cell(None, lambda: blanked(emit, active, value.tensor))
    return Stacked(cell, value.inner_shape, value.dtype)


def blanked(emit: Emitter, mask: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """[n, ...] with zeros in the rows outside of the mask."""
    if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return tensor
    return emit("Select", mask, tensor, emit("ZerosLike", tensor))


def padded_rows(mask: tf.Tensor, everyone: tf.Tensor, emit: Emitter) -> PaddedRows:
    """Each row of the mask (bool [n]) itself, and one of them for all others."""
    one = emit("Max", emit("Select", mask, everyone, emit("ZerosLike", everyone)), np.int32(0))
    others = emit("BroadcastTo", one, emit.shape_of(everyone))
    rows = emit("Select", mask, everyone, others)
    rows.set_shape(mask.shape)
    return PaddedRows(mask, one, rows)
