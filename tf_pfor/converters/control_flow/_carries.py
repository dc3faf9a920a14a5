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

from tf_pfor import _tf
from tf_pfor.converters.analysis import _loop_graphs
from tf_pfor.converters.control_flow._aligned_pops import (
    begin_late,
    emptied,
    ends_of,
    for_all,
    gets_lists,
    last_of,
    pops_lists,
)
from tf_pfor.converters.control_flow._branch_optionals import refuse_carried
from tf_pfor.converters.control_flow._loop_variables import (
    Carry,
    describe,
    keep_shapes,
    known_integers,
    outputs_of,
)
from tf_pfor.converters.control_flow._ragged_carries import CHANGES, RaggedCarry
from tf_pfor.converters.control_flow._repeated_pushes import Repeats, of_pushed, popped_lists
from tf_pfor.converters.control_flow._subgraphs import (
    Converted,
    Region,
    Trial,
    as_layout,
    blanked_value,
    join,
    sizes_in,
)
from tf_pfor.converters.lists._append_under_xla import most_pops, on_top, set_aside
from tf_pfor.converters.lists._capacity import most_trips_given, with_room
from tf_pfor.converters.lists._list_lengths import list_length
from tf_pfor.converters.lists._list_rows import written
from tf_pfor.converters.lists._ragged_items import DIFFER, to_hold, to_hold_parts
from tf_pfor.converters.lists._row_packs import holds_packs, popped_elements, with_packs
from tf_pfor.converters.lists._unpacked_lists import keeps, to_keep
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop
from tf_pfor.core.stacked_lists import ListRows, StackedList, known_rows, received, rows_of
from tf_pfor.core.values import Cell, Layout, RowSource, Stacked, Unstacked, Value, dims, is_static
from tf_pfor.layouts.ragged import Ragged, is_ragged
from tf_pfor.layouts.row_reads import steps_of


class Plan:
    """The plan to vectorize a While op: its regions, and its carries with their layouts."""

    def __init__(self, call: Call, args: Sequence[Value]):
        self.call = call
        self.cond = Region(call, call.attr("cond").name)
        self.body = Region(call, call.attr("body").name)
        self.body.may_differ = call.walker.inner_map is None
        self.body.may_hold = True
        self.passed = _loop_graphs.pass_through(self.body.graph)
        count, args = len(args), self.body.with_early(args, is_loop=True)
        self.passed |= {*range(count, len(args))}
        self.args, popped = popped_lists(call, args, self.body.graph, self.cond.graph, self.passed)
        graphs = (self.body.graph, self.cond.graph)
        self.args, self._empty = emptied(call, self.args, *graphs, self.passed)
        most = most_pops(call, self.args, self.body.graph)
        most = self.maximum_iterations if most is None else most
        self.args, self._aside = set_aside(call, self.args, *graphs, self.passed, most)
        self.args = with_room(call, self.args, self.body.graph, most)
        self._empty |= set(self._aside)
        self.carries = self._live(popped)
        self._held: dict[Cell, RowSource] = {}
        self._inside: dict[int, Value] = {}
        self._rows: dict[int, ListRows] = {}
        self._wholes: dict[int, Cell | list[Cell] | None] = {}
        self.by_row: dict[int, Value] = {}
        self._blank: dict[int, Value] = {}
        self.is_late = self.is_variant = False
        keep_shapes(self.carries, args, self.body, self.as_seen, call.loop.static_length)
        if call.walker.inner_map is None:  # else a trial may find that one map over pairs is better
            self._stack_what_trips_stack()
        self._settle()

    def _live(self, popped: Mapping[int, Repeats]) -> list[Carry]:
        """The carries: neither pass-through nor dead."""
        graph, op, passed = self.body.graph, self.call.op, self.passed
        reach, in_cond = _loop_graphs.Reach(graph), _loop_graphs.Reach(self.cond.graph)
        live = set(in_cond.inputs_of(self.cond.graph.outputs[0].op))
        for o in (*self.body.controls, *_loop_graphs.effects(graph)):
            live |= reach.inputs_of(o)
        for o in (*self.cond.controls, *_loop_graphs.effects(self.cond.graph)):
            live |= in_cond.inputs_of(o)
        read = {
            i
            for i, t in enumerate(op.outputs)
            if _loop_graphs.is_read(t, self.call.walker.is_asked)
        }
        live |= read
        todo = list(live)
        while todo:
            i = todo.pop()
            if i not in passed:
                more = reach.inputs_of(graph.outputs[i].op) - live
                live |= more
                todo += more
        kept = self._keep_lengths = _loop_graphs.keep_lengths(graph, op.inputs)
        return [
            Carry(
                i,
                self.args[i].layout if i not in popped else popped[i].layout,
                dims(graph.inputs[i]),
                i in read,
                self.args[i].dtype == tf.variant and i not in kept,
                known_rows(self.args[i]).lengths is not None,
                repeats=popped.get(i),
                may_grow=not is_static(dims(graph.inputs[i])) and not is_ragged(self.args[i]),
                ragged=self._ragged(i),
            )
            for i in sorted(live - passed)
        ]

    def _ragged(self, i: int) -> RaggedCarry | None:
        """The carry of variable ``i`` if it begins with ragged rows, else None."""
        arg = self.args[i]
        if not isinstance(arg, Ragged):
            return None
        if not self.body.may_differ:  # one map over pairs does better
            raise CannotVectorize(CHANGES)
        return RaggedCarry.of(self.call, i, arg)

    def _settle_ragged(self, carry: Carry, trial: Trial) -> None:
        """Finds the sizes that trips keep, of a variable whose rows differ in shape."""
        if carry.ragged is not None:
            carry.ragged = carry.ragged.settled(trial)
        elif trial.layout is Layout.RAGGED:
            start = self.call.stacked(self.args[carry.index])
            carry.ragged = RaggedCarry.becoming(self.call, carry.index, start, trial)
            carry.may_grow = carry.grows = False
            carry.layout = Layout.RAGGED

    def _find_pushed(self) -> bool:
        """Whether there are lists to which trips push what no trip changes; they settle again."""
        fixed = self.passed | {c.index for c in self.carries if c.repeats}
        found: dict[int, Repeats] = {}
        for c in self.carries:
            arg = self.args[c.index]
            if c.is_uniform and arg.dtype == tf.variant and c.repeats is None:
                made = of_pushed(self.call, arg, self.body.graph, self.cond.graph, c.index, fixed)
                found.update({} if made is None else {c.index: made})
        length = self.call.loop.static_length
        pushed = [r.pushed for r in found.values() if r.pushed is not None]
        layouts = self.body.layouts(pushed, self.as_seen(), length) if pushed else []
        for c in self.carries:
            if c.index in found and layouts[list(found).index(c.index)] is Layout.UNSTACKED:
                c.repeats = found[c.index]
        return any(c.index in found and c.repeats for c in self.carries)

    def _stack_what_trips_stack(self) -> None:
        """Stacks variables of which the body's graph tells it, which takes fewer trials."""
        special = {c.index for c in self.carries if c.repeats is not None}
        plain = (Layout.STACKED, Layout.STACKED_LIST)
        own = [a.layout in plain and i not in special for i, a in enumerate(self.args)]
        open_ = [c for c in self.carries if c.is_uniform and c.repeats is None]
        open_ = [c for c in open_ if is_static(c.inner)]
        while True:
            made = _loop_graphs.surely_stacked(self.body.graph, own)
            found = [c for c in open_ if made[c.index] and not own[c.index]]
            if not found:
                return
            for c in found:
                is_list = self.args[c.index].dtype == tf.variant
                own[c.index], c.layout = True, Layout.STACKED_LIST if is_list else Layout.STACKED

    def _settle(self) -> None:
        """The layouts: a fixpoint over trial conversions, reached in 1 + len(carries) rounds."""
        length = self.call.loop.static_length
        settled = [c for c in self.carries if c.repeats is None]
        positions = [c.index for c in settled]
        for _ in range(2 * len(self.carries) + 1):
            before = self._settled()
            found = self.body.trial(self.as_seen(), length, positions)
            for carry, trial in zip(settled, found):
                self._settle_ragged(carry, trial)
                carry.layout = join(carry.layout, trial.layout)
                if trial.keeps:
                    arg = self.args[carry.index]
                    self.args[carry.index] = to_keep(self.call, arg, trial.keeps)
                if trial.items or trial.parts:
                    self._hold_items(carry, trial)
                if trial.holds_packs:
                    self._with_packs(carry)
                self._hold_packs(carry)
                if trial.has_lengths:
                    carry.has_lengths, carry.is_resized = True, False
            if self._settled() == before:
                break
        refuse_carried(self.call, [self.body.graph.outputs[i] for i in positions])
        goes_on = self.cond.trial(self.as_seen(), length)[0].layout
        self.is_variant = self.is_late or goes_on is not Layout.UNSTACKED
        lists = [c for c in settled if not keeps(self.args[c.index])]
        clocks = [c for c in lists if pops_lists(self.call, self.body.graph, c.index)]
        if not self.is_late and clocks and (self.is_variant or any(c.has_lengths for c in clocks)):
            self.is_late = True
            begin_late(self.call, self.carries, self.args, clocks)
            self._settle()
            return
        if not self.is_variant:
            return
        changed = not self.is_late and self._find_pushed()
        for carry in self.carries:
            if carry.repeats is not None:
                continue
            if carry.is_uniform and self.args[carry.index].dtype == tf.variant:
                carry.layout, changed = Layout.STACKED_LIST, True
            changed |= self._hold_packs(carry)
            is_kept = not self.is_late or carry.index in self._empty
            is_kept = is_kept and _loop_graphs.is_pushed(self.body.graph, carry.index)
            if carry.is_resized and not is_kept:
                carry.has_lengths, carry.is_resized, changed = True, False, True
        if changed:  # a list that rows leave at different times differs between them
            self._settle()

    def _settled(self) -> list[Any]:
        args = [self.args[c.index] for c in self.carries]
        return [
            (
                c.layout,
                c.has_lengths,
                holds_packs(a),
                keeps(a),
                c.ragged and c.ragged.fixed,
                known_rows(a).items,
                known_rows(a).parts,
            )
            for c, a in zip(self.carries, args)
        ]

    def _hold_items(self, carry: Carry, trial: Trial) -> None:
        """Tells a list the sizes of items whose shape differs between rows."""
        changing = {c.index: c.ragged for c in self.carries if c.ragged is not None}

        def before(size: int | tuple[int, int]) -> Any:
            if isinstance(size, int):
                return size
            i, axis = size
            known = changing[i].fixed if i in changing else sizes_in(self.args[i])
            if known[axis] is None:
                raise CannotVectorize(DIFFER)
            return known[axis]

        arg = self.args[carry.index]
        if trial.parts:
            parts = [p and p.mapped(before) for p in trial.parts]
            self.args[carry.index] = to_hold_parts(self.call, arg, parts)
            return
        sizes = [before(size) for size in trial.items]
        self.args[carry.index] = to_hold(self.call, arg, sizes, are_shapes=trial.are_shapes)

    def _hold_packs(self, carry: Carry) -> bool:
        """Lets a list hold packs if trips of some rows only push lists to it."""
        arg, is_some = self.args[carry.index], self.is_variant or self.call.loop.rows is not None
        is_some = is_some and carry.is_resized and not (carry.is_uniform or keeps(arg))
        if not (is_some and gets_lists(self.call, self.body.graph, carry.index)):
            return False
        self._with_packs(carry)
        return not holds_packs(arg)

    def _with_packs(self, carry: Carry) -> None:
        i = carry.index
        self.args[i] = with_packs(self.call, self.args[i], self.body.graph.inputs[i])

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
            ends = () if rows is None else rows.ends
            c.ends = len(ends)
            out.append([*tensors, *ends])
        return out

    def inside(
        self,
        loop: Loop,
        emit: Emitter,
        state: Sequence[Sequence[tf.Tensor]],
        active: tf.Tensor | None = None,
    ) -> list[Value]:
        """The inputs of the regions inside the loop.

        Args:
          loop: the iterations of this trip.
          emit: the emitter of the graph inside.
          state: the tensors of each carry.
          active: bool [n], the rows whose lists may be written; None for all of ``loop``.
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
        if carry.ends and found is not None:
            found = dataclasses.replace(found, ends=tuple(tensors[-carry.ends :]))
        if active is None:
            return found
        return written(loop, found or ListRows(self.call.loop.length), active)

    def _own_rows(self, carry: Carry) -> ListRows:
        """The rows of a list before the loop, with the length of each of them."""
        arg, call = self.args[carry.index], self.call
        rows = rows_of(arg) or ListRows(call.loop.length)
        if rows.lengths is not None:
            return rows
        found = self._rows.get(carry.index)
        if found is None:
            emit = call.emit
            length = list_length(call, arg.tensor)
            lengths = emit("Fill", emit.shape_vector([rows.size]), length)
            found = self._rows[carry.index] = dataclasses.replace(rows, lengths=lengths)
        return found

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

        Args:
          carry: the variable.
          converted: the body's results for it.
          spread: puts a tensor of the active rows in its place among all rows, zeros elsewhere.
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
        return [*tensors, *(known_rows(made.value).ends if carry.ends else ())]

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
            if carry.index not in self._keep_lengths:
                rows = dataclasses.replace(rows, lengths=tensors[1])
        elif lengths is not None:
            rows = ListRows(self.call.loop.length) if rows is None else self._own_rows(carry)
            each = _loop_graphs.pushes(self.body.graph, carry.index)
            starts = None if began is None else for_all(self.call, rows, began * each)
            lengths = for_all(self.call, rows, lengths)
            rows = dataclasses.replace(rows, lengths=lengths, starts=starts)
        if carry.ends and rows is not None:
            rows = dataclasses.replace(rows, ends=tuple(tensors[-carry.ends :]))
        made = StackedList.of(tensors[0], rows)
        below = self._aside.get(carry.index)
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

    @property
    def maximum_iterations(self) -> int | None:
        """The bound that tf.while_loop was given; for XLA, also what the predicate tells."""
        start = known_integers(self.args)
        is_named = len(self.args) > 1 and "maximum_iterations" in self.call.op.inputs[1].op.name
        if is_named and 1 in self.passed and start.get(1, -1) >= 0:
            return start[1]
        if not _tf.in_xla_context(self.call.emit.graph):
            return None
        return _loop_graphs.most_trips(self.cond.graph, self.body.graph, self.call.op.inputs, start)

    def options(self) -> dict[str, Any]:
        """The options of tf.while_loop."""
        most = None if self.is_late else self.maximum_iterations
        if most is None:
            most = most_pops(self.call, self.args, self.body.graph)
        if most is None and not self.is_late and 1 in self.passed:
            most = most_trips_given(self.call, self.args[1], self.cond.graph)
        return {
            "parallel_iterations": self.call.attr("parallel_iterations"),
            "maximum_iterations": most,
        }
