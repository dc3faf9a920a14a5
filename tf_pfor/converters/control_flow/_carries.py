"""The carries of a while loop, from trip to trip: the variables and their layouts.

* *pass-through*: the body returns what it got. Captured, never carried.
* *dead*: nobody reads the result, and neither the condition nor a live variable depends on it.
* *uniform*: starts loop-invariant and is updated from invariant values only, like a step counter.
  It stays unstacked inside the loop, also where rows leave at different times.
* *row-varying*: stacked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor.converters.analysis._loop_graphs import pushes
from tf_pfor.converters.control_flow._aligned_pops import ends_of, for_all, last_of
from tf_pfor.converters.control_flow._loop_variables import Carry, describe, outputs_of
from tf_pfor.converters.control_flow._subgraphs import Converted, Region, as_layout, blanked_value
from tf_pfor.converters.lists._carried_lists import lengths_before, most_trips, on_top
from tf_pfor.converters.lists._list_rows import written
from tf_pfor.converters.lists._row_packs import popped_elements
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop
from tf_pfor.core.stacked_lists import ListRows, StackedList, known_rows, received, rows_of
from tf_pfor.core.values import Cell, Layout, RowSource, Stacked, Unstacked, Value
from tf_pfor.layouts.ragged import Ragged
from tf_pfor.layouts.row_reads import steps_of


class Plan:
    """The plan to vectorize a While op (``_carry_layouts.planned`` makes it).

    Attributes:
      call: the op.
      cond: the condition.
      body: the body.
      args: the inputs of both, in the layouts of the carries.
      passed: the positions of variables that are the same in all trips.
      aside: by position, the lists in whose places empty ones are carried.
      maximum_iterations: the largest number of trips; None if it is not known.
      carries: the variables that are carried.
      by_row: the arrays and lists that are stored by row.
      is_late: whether rows begin in different trips.
      is_variant: whether rows make different numbers of trips.
    """

    def __init__(
        self,
        call: Call,
        cond: Region,
        body: Region,
        args: list[Value],
        passed: set[int],
        aside: Mapping[int, Value],
        maximum_iterations: int | None,
    ):
        self.call, self.cond, self.body = call, cond, body
        self.args, self.passed, self.aside = args, passed, aside
        self.maximum_iterations = maximum_iterations
        self.carries: list[Carry] = []
        self.by_row: dict[int, Value] = {}
        self.is_late = self.is_variant = False
        self._held: dict[Cell, RowSource] = {}
        self._inside: dict[int, Value] = {}
        self._lengths: dict[int, tf.Tensor] = {}
        self._wholes: dict[int, Cell | list[Cell] | None] = {}
        self._blank: dict[int, Value] = {}

    def ends(self) -> tf.Tensor:
        """int32 [n]: where the lists of the rows end that trips of a late loop pop."""
        made = [self.body.graph.inputs[c.index] for c in self.carries if c.is_clock]
        return ends_of(self.call, self._clocks(), made)

    def last(self) -> tf.Tensor | None:
        """int32 []: how long these lists are, where they are not cut."""
        return last_of(self.call, self._clocks())

    def _clocks(self) -> list[ListRows]:
        return [self._own_rows(c) for c in self.carries if c.is_clock]

    def as_seen(self) -> list[Value]:
        """The inputs of the regions in the settled layouts, for trials."""
        seen = [
            dataclasses.replace(a, known=None)
            if isinstance(a, Unstacked) and i not in self.passed
            else a
            for i, a in enumerate(self.args)
        ]
        for c in self.carries:
            arg = self.args[c.index]
            if c.repeats is not None:
                seen[c.index] = arg
                continue
            rows = self._own_rows(c) if c.has_lengths else rows_of(arg)
            if rows is not None and c.is_clock:
                rows = dataclasses.replace(rows, lengths=None, is_even=True)
            layout = c.layout if c.factors is None else Layout.STACKED
            if c.ragged is not None:
                seen[c.index] = c.ragged.seen()
            elif layout is Layout.STACKED_LIST:
                cell = as_layout(self.call, arg, layout).cell
                seen[c.index] = StackedList(cell, c.inner, arg.dtype, rows)
            elif layout is Layout.STACKED:
                seen[c.index] = Stacked(arg.cell, c.inner, arg.dtype)
            else:
                inner = () if layout is Layout.BY_ROW else c.inner
                seen[c.index] = Unstacked(arg.cell, inner, arg.dtype)
        return seen

    def blank(self, active: tf.Tensor) -> None:
        """Lets the regions see zeros in what rows outside of ``active`` (bool [n]) capture."""
        for i in self.passed:
            arg = self.args[i]
            if isinstance(arg, (Ragged, Stacked)) and arg.dtype.is_floating | arg.dtype.is_complex:
                self._blank[i] = blanked_value(self.call.emit, active, arg)

    # Tensors of carries ---------------------------------------------------

    def start(self) -> list[list[tf.Tensor]]:
        """The tensors of each carry before the first trip."""
        out: list[list[tf.Tensor]] = []
        for c in self.carries:
            if c.factors is not None:
                out.append(c.factors.start(self.call, self.maximum_iterations))
                continue
            arg = self.args[c.index]
            if c.repeats is not None:
                out.append(c.repeats.start(self.call, arg))
                continue
            if c.ragged is not None:
                out.append(c.ragged.begin())
                continue
            stored = self.by_row.get(c.index) or as_layout(self.call, arg, c.layout)
            tensors = [stored.tensor]
            if c.has_lengths and not c.is_clock:
                tensors.append(self._own_rows(c).lengths)  # type: ignore[arg-type]
            rows = rows_of(arg)
            beside = () if rows is None else rows.holds.beside
            c.beside = len(beside)
            out.append([*tensors, *beside])
        return out

    def inside(
        self,
        loop: Loop,
        emit: Emitter,
        state: Sequence[Sequence[tf.Tensor]],
        active: tf.Tensor | None = None,
    ) -> list[Value]:
        """The inputs of the regions inside the loop.

        Lists may be written in the rows ``active`` (bool [n]); None is for all rows of ``loop``.
        """
        seen = [
            loop.take(self._blank.get(i, a), self._hold) if i in self.passed else a
            for i, a in enumerate(self.args)
        ]
        for c, tensors in zip(self.carries, state):
            if c.factors is not None:
                c.factors.lists = list(tensors)
                continue
            if c.repeats is not None:
                count = received(tensors[0], c.layout, c.inner)
                seen[c.index] = c.repeats.inside(self.args[c.index], count, emit)
                continue
            if c.ragged is not None:
                seen[c.index] = self._inside[c.index] = c.ragged.value(tensors, loop)
                continue
            if c.layout is Layout.BY_ROW:
                whole = dataclasses.replace(self.by_row[c.index], cell=Cell(tensors[0]))
                seen[c.index] = self._inside[c.index] = loop.take(whole)
                continue
            if loop.mask is not None and c.layout is Layout.STACKED:
                seen[c.index] = self._inside[c.index] = loop.updatable(
                    tensors[0], c.inner, tensors[0]
                )
                continue
            rows = self._list_rows(c, loop, tensors, active) if c.is_list else None
            if c.is_clock or (c.is_list and c.is_resized and not c.has_lengths):
                rows = dataclasses.replace(rows or ListRows(loop.length), is_even=True)
            elif c.has_lengths and rows is not None:
                rows = dataclasses.replace(rows, whole=self._whole(c))
            if rows is not None:
                rows = dataclasses.replace(rows, base=tensors[0])
            seen[c.index] = self._inside[c.index] = received(tensors[0], c.layout, c.inner, rows)
        return seen

    def _list_rows(
        self, carry: Carry, loop: Loop, tensors: Sequence[tf.Tensor], active: tf.Tensor | None
    ) -> ListRows | None:
        known = rows_of(self.args[carry.index])
        if carry.is_clock:
            known = dataclasses.replace(self._own_rows(carry), lengths=None)
        elif carry.has_lengths:
            known = self._own_rows(carry)
            known = dataclasses.replace(known, lengths=tensors[1])
        found = loop.rows_of_list(known)
        if carry.beside and found is not None:
            found = found.holding(beside=tuple(tensors[-carry.beside :]))
        if active is None:
            return found
        return written(loop, found or ListRows(self.call.loop.length), active)

    def _own_rows(self, carry: Carry) -> ListRows:
        """The rows of a list before the loop, with the length of each of them."""
        arg, call = self.args[carry.index], self.call
        rows = rows_of(arg) or ListRows(call.loop.length)
        if rows.lengths is not None:
            return rows
        i = carry.index
        if i not in self._lengths:
            self._lengths[i] = lengths_before(call, arg, rows)
        return dataclasses.replace(rows, lengths=self._lengths[i])

    def _whole(self, carry: Carry) -> Cell | list[Cell] | None:
        """[T, size, ...]: a list that the loop only pops, as one tensor made before it."""
        i, graph = carry.index, self.body.graph
        if i not in self._wholes:
            handle = as_layout(self.call, self.args[i], Layout.STACKED_LIST)
            self._wholes[i] = popped_elements(self.call, graph, i, handle)
        return self._wholes[i]

    def _hold(self, value: Value) -> RowSource:
        found = self._held.get(value.cell)
        if found is None:
            found = RowSource(value.cell, steps=steps_of(value, self.call.emit))
            self._held[value.cell] = found
        return found

    def convert_body(
        self, args: Sequence[Value], loop: Loop, emit: Emitter
    ) -> list[list[Converted]]:
        """The results of the body for each carry: its new value, or the factors to collect."""
        outputs = self.body.graph.outputs
        wanted = [
            special.tensors if (special := c.factors or c.repeats) else [outputs[c.index]]
            for c in self.carries
        ]
        flat = [t for tensors in wanted for t in tensors]
        self.call.memo["body", emit.graph] = self.body.graph
        supply = iter(self.body.convert(args, loop, emit, tensors=flat))
        return [[next(supply) for _ in tensors] for tensors in wanted]

    def tensors_of(
        self,
        carry: Carry,
        converted: Sequence[Converted],
        spread: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> list[tf.Tensor]:
        """The tensors of a carry after a trip.

        ``spread`` puts a tensor of the active rows in its place among all rows, zeros elsewhere.
        """
        if carry.factors is not None:
            return carry.factors.collected(converted, spread)
        if carry.repeats is not None:
            assert carry.repeats.count is not None
            return [carry.repeats.count, *(m.as_layout(Layout.UNSTACKED) for m in converted)]
        if carry.ragged is not None:
            before = self._inside[carry.index]
            assert isinstance(before, Ragged)
            return carry.ragged.after_trip(converted[0], before)
        made = converted[0].carrying_on(self._inside[carry.index])
        tensors = [carry.known(made.as_layout(carry.layout), made.call.emit)]
        if carry.has_lengths and not carry.is_clock:
            rows = rows_of(made.value)
            if rows is None or rows.lengths is None:
                raise CannotVectorize("a list whose rows differ in length is replaced in a loop")
            tensors.append(rows.lengths)
        return [*tensors, *(known_rows(made.value).holds.beside if carry.beside else ())]

    def list_after(
        self,
        carry: Carry,
        tensors: Sequence[tf.Tensor],
        lengths: tf.Tensor | None = None,
        began: tf.Tensor | None = None,
    ) -> Value:
        """A list after the loop.

        Args:
          carry: the variable.
          tensors: its tensors after the last trip.
          lengths: int32 [n], where it ended when each row left, if that may differ.
          began: int32 [n], the trip in which each row began, if not all did in the first.
        """
        rows = rows_of(self.args[carry.index])
        if carry.is_clock:
            assert lengths is not None
            rows = self._own_rows(carry)
            rows = dataclasses.replace(rows, lengths=for_all(self.call, rows, lengths))
        elif carry.has_lengths:
            rows = self._own_rows(carry)
            if not carry.keeps_length:
                rows = dataclasses.replace(rows, lengths=tensors[1])
        elif lengths is not None:
            rows = ListRows(self.call.loop.length) if rows is None else self._own_rows(carry)
            each = pushes(self.body.graph, carry.index)
            starts = None if began is None else for_all(self.call, rows, began * each)
            lengths = for_all(self.call, rows, lengths)
            rows = dataclasses.replace(rows, lengths=lengths, starts=starts)
        if carry.beside and rows is not None:
            rows = rows.holding(beside=tuple(tensors[-carry.beside :]))
        made = StackedList.of(tensors[0], rows)
        below = self.aside.get(carry.index)
        return made if below is None else on_top(self.call, below, made)

    def after(
        self,
        carry: Carry,
        tensors: Sequence[tf.Tensor],
        lengths: tf.Tensor | None = None,
        began: tf.Tensor | None = None,
    ) -> Value:
        """A variable after the loop, which has all rows then (see list_after)."""
        if carry.factors is not None:
            return carry.factors.total(self.call, tensors, self.args[carry.index])
        if carry.repeats is not None:
            return carry.repeats.after(received(tensors[0], carry.layout, carry.inner), tensors)
        if carry.ragged is not None:
            return carry.ragged.after(tensors)
        if carry.layout is Layout.BY_ROW:
            return dataclasses.replace(self.by_row[carry.index], cell=Cell(tensors[0]))
        if carry.is_list:
            return self.list_after(carry, tensors, lengths, began)
        return received(tensors[0], carry.layout, carry.inner)

    def after_by_row(self, carry: Carry, own: tf.Tensor, tensors: Sequence[tf.Tensor]) -> Value:
        """A variable that is no list, after a loop in which each row kept its own: [n, ...]."""
        made = Value.stacked(own).with_inner_shape(carry.inner)
        return made if carry.repeats is None else carry.repeats.after(made, tensors)

    def after_trip(self, seen: Sequence[Value], made: Sequence[Sequence[Converted]]) -> list[Value]:
        """The values that the condition sees after a trip; it reads no sums and no repeats."""
        after = list(seen)
        for c, m in zip(self.carries, made):
            if c.repeats is None:
                after[c.index] = m[0].value
        return after

    def dtype(self, carry: Carry) -> tf.DType:
        """The dtype of its first tensor."""
        return tf.int32 if carry.repeats is not None else self.args[carry.index].dtype

    def results(self, found: dict[int, Value]) -> list[Value]:
        """The op's outputs: those carried, those passed through, and those nobody reads."""
        return outputs_of(self.call, {**{i: self.args[i] for i in self.passed}, **found})

    def describe(self) -> str:
        return describe(self.carries, len(self.by_row))

    def options(self) -> dict[str, Any]:
        """The options of tf.while_loop."""
        most: int | tf.Tensor | None = None if self.is_late else self.maximum_iterations
        if most is None:
            graphs, is_counted = (self.body.graph, self.cond.graph), 1 in self.passed
            is_counted = is_counted and not self.is_late
            most = most_trips(self.call, self.args, *graphs, is_counted=is_counted)
        parallel = self.call.attr("parallel_iterations")
        return {"parallel_iterations": parallel, "maximum_iterations": most}
