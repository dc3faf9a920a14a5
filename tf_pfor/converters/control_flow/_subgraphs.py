"""Functions of the body that keep a separate graph: branches and loops.

A *region* is such a function with the Values of its inputs. It is converted inside the graph that
TensorFlow makes for a branch or a loop. A *trial* converts it in a graph that is thrown away, to
see the layouts of its outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.converters.analysis._early_cuts import inherited, of_loop
from tf_pfor.converters.control_flow._trials import (
    Trial,
    form_of,
    seen,
    sizes_in,
    stand_in,
    with_known_items,
)
from tf_pfor.converters.lists._list_rows import carried_on
from tf_pfor.converters.lists._lists import stack_list
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion, Cut
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop, PaddedRows
from tf_pfor.core.stacked_lists import StackedList, list_with_rows, rows_of
from tf_pfor.core.values import Cell, Layout, Shape, Stacked, Value, dims
from tf_pfor.layouts.known_ranges import hand_on, known_ranges
from tf_pfor.layouts.ragged import Ragged, RowSizes, is_ragged


class Region:
    """One function of the body's graph."""

    def __init__(self, call: Call, name: str):
        self.call = call
        self.graph = _tf.function_graph(call.op.graph, name)
        self.unread: frozenset[int] = frozenset()  # outputs that nobody reads
        self.may_hold = False  # whether lists that it returns may hold items of different shapes
        self.may_differ = False  # whether rows of what it returns may differ in shape
        self.rows: tf.Tensor | None = None  # which take it, where that is known before it runs
        self.early: dict[Cut, tuple[int, Value]] = {}  # made before: argument, value outside

    @property
    def controls(self) -> list[tf.Operation]:
        """The ops that must run for their side effects."""
        return _tf.must_run(self.graph)

    @property
    def _read(self) -> list[tf.Tensor]:
        return [t for i, t in enumerate(self.graph.outputs) if i not in self.unread]

    def convert(
        self,
        args: Sequence[Value],
        loop: Loop,
        emit: Emitter,
        *,
        tensors: Sequence[tf.Tensor] | None = None,
        is_trial: bool = False,
    ) -> list[Converted]:
        """Converts the region in the graph of ``emit``.

        Args:
          args: its inputs, and the cuts made before a loop, as the iterations of ``loop`` see them.
          loop: its iterations.
          emit: the emitter of the graph it goes into.
          tensors: the tensors that are wanted in place of all outputs.
          is_trial: the result is thrown away, nothing is recorded.
        """
        wanted: Sequence[tf.Tensor] = self.graph.outputs if tensors is None else tensors
        walker = self._entered(args, loop, emit, is_trial=is_trial)
        return self._continued(walker, args, wanted, is_trial=is_trial)

    def _entered(
        self, args: Sequence[Value], loop: Loop, emit: Emitter, *, is_trial: bool
    ) -> Conversion:
        walker = self.call.enter(loop, emit, is_trial=is_trial)
        walker.entered_by, walker.graph = self.call.op, self.graph
        given = self.graph.inputs
        for placeholder, value in zip(given, args[: len(given)], strict=True):
            walker.bind(placeholder, value)
        for cut, (place, _) in self.early.items():
            walker.take_over(cut, args[place])
        if self.early:
            self._hand_on_ranges(args, loop, emit)
        return walker

    def with_early(self, args: Sequence[Value], *, is_loop: bool = False) -> list[Value]:
        """The inputs of its op; behind them what is cut in it, and was cut before a loop.

        The trips of a loop (``is_loop``) would cut them again and again.
        """
        call, graph, found = self.call, self.graph, [*args]
        for cut, value in of_loop(call, graph, args) if is_loop else inherited(call, graph):
            self.early[cut] = len(found), value
            found.append(value)
        return found

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
        left_out = {id(self.graph.outputs[i]) for i in self.unread} - {id(t) for t in self._read}
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
            values = with_known_items(values, args)
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
            stand_ins = [stand_in(a, length, emit) for a in args]
            walker = self._entered(stand_ins, loop, emit, is_trial=True)
            walker.expect(self._read)  # of which each question is about some
            return walker, stand_ins

    def _layouts_of(self, args: Sequence[Value], length: int | None) -> tuple[Any, ...]:
        """The key of a trial, made of all that it depends on."""
        return (self.graph, length, self.unread, *form_of(args), tuple(self.early))

    def trial(
        self, args: Sequence[Value], length: int | None, outputs: Sequence[int] | None = None
    ) -> list[Trial]:
        """The layouts of the outputs; found once for these layouts of the inputs."""
        wanted = tuple(range(len(self.graph.outputs)) if outputs is None else outputs)
        args = [_for_rows(a, self.rows) for a in args]
        key = ("layouts", wanted, *self._layouts_of(args, length))
        found = self.call.memo.get(key)
        if found is None:
            tensors = [self.graph.outputs[i] for i in wanted]
            made, given = self._tried(args, length, tensors)
            is_trip = self.may_hold
            found = [seen(m.value, given, t, is_trip=is_trip) for m, t in zip(made, tensors)]
            self.call.memo[key] = found
        return found


def _for_rows(value: Value, rows: tf.Tensor | None) -> Value:
    """An optional that branches have made, as the rows of one of them see it."""
    known = rows_of(value)
    if known is None or not known.holds.by_branch:
        return value
    return list_with_rows(value, known.holding(parts=known.holds.parts_for(rows)))


def nothing(emit: Emitter) -> Value:
    """In place of a list that nobody reads."""
    shape, room = emit.constant(np.zeros([1], np.int32)), np.int32(0)
    return Value.unstacked(emit("EmptyTensorList", shape, room, element_dtype=tf.float32))


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
    state: Sequence[Any],
    shapes: Sequence[Any],
    options: Any,
) -> list[Any]:
    """``tf.while_loop``; in a trial only what it would return, nothing is converted for it."""
    if not call.emit.is_trial:
        with _graphs.unordered(call.op):
            return list(tf.while_loop(cond, body, state, shape_invariants=shapes, **options))
    result = lambda t, shape: call.emit.stand_in(t.dtype, shape, t)  # noqa: E731
    return tf.nest.map_structure(result, state, shapes)


def one_of(
    call: Call,
    branches: Sequence[Any],
    choose: Callable[..., Any],
    like: Iterable[tf.TensorShape] = (),
) -> list[tf.Tensor]:
    """The results of one of some branches; a trial has stand-ins and builds no conditional.

    ``choose`` makes the conditional. ``like`` has the shapes of a branch that makes only zeros.
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


def join(a: Layout, b: Layout) -> Layout:
    """The layout that can hold both."""
    return b if a is Layout.UNSTACKED else a


def _plain(value: Value, emit: Emitter, *, may_differ: bool) -> Value:
    """The value that a region returns; a list of one invariant tensor is made there."""
    if is_ragged(value) and not may_differ:
        raise CannotVectorize("a branch returns a tensor whose shape differs between iterations")
    return value.standard(emit) if value.layout is Layout.REPEATED else value


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
