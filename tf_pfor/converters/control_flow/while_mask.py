"""While loops with a trip count for each row: all rows run, and done rows keep their values.

Shapes are static, so that the loop compiles under XLA. There are few ops, so that it is faster for
cheap bodies.

Results of the body for a done row are thrown away. That is harmless only if the body cannot fail
and has finite derivatives (``_safety``). Then it gets zeros in place of the values of the row,
which may be infinite. Otherwise the loop is *padded*: an active row stands in the place of done
rows, and is computed several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.analysis._loop_graphs import pushes
from tf_pfor.converters.control_flow._aligned_pops import cut_at, due_rows
from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._loop_variables import Carry, of_one_shape
from tf_pfor.converters.control_flow._ragged_carries import CHANGES
from tf_pfor.converters.control_flow._subgraphs import Converted, blanked, padded_rows, while_loop
from tf_pfor.converters.lists._list_lengths import list_length
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.values import Layout, Stacked, Value, dims, full_shape, is_static

State = list[list[tf.Tensor]]


def convert(plan: Plan, *, padded: bool) -> list[Value]:
    """Vectorizes a loop whose predicate differs between rows."""
    return _Mask(plan, padded).run()


def check_sizes(plan: Plan, *, padded: bool) -> None:
    """Refuses rows that would change their shape, or stand in for rows of another shape."""
    ragged = [c.ragged for c in plan.carries if c.ragged is not None]
    if any(not r.is_fixed or (padded and not r.is_padded) for r in ragged):
        raise CannotVectorize(CHANGES)


class _Mask:
    def __init__(self, plan: Plan, padded: bool):
        self.plan = plan
        self.call = plan.call
        self.carries = plan.carries
        self.padded = padded
        self.last = plan.last()
        # Of these a row's own last value must be kept: all others are kept in place.
        self.leaving = [
            c
            for c in plan.carries
            if c.is_read
            and not c.is_clock
            and (c.is_uniform or (c.is_list and c.is_resized and not c.has_lengths))
        ]

    def run(self) -> list[Value]:
        plan, call = self.plan, self.call
        emit, loop = call.emit, call.loop
        n = loop.static_length
        start = plan.start()
        seen = plan.inside(loop.inside(emit), emit, start)
        (first,) = plan.cond.convert(seen, loop, emit, is_trial=True)
        active = first.as_layout_of_rows()
        if not self.padded:
            plan.blank(active)
        kept = [
            self._repeated(c, tensors[0], emit)
            for c, tensors in zip(self.carries, start)
            if c in self.leaving
        ]
        own: list[tf.Tensor] = []
        if plan.is_late:  # the trip, where the lists of rows end, in which trip they began
            never = emit("Fill", emit.shape_of(active), np.int32(-1))
            own = [emit.constant(np.int32(0)), plan.ends(), never]
        numbers = [tf.TensorShape([]), tf.TensorShape([n]), tf.TensorShape([n])]
        shapes = [
            tf.TensorShape([n]),
            numbers[: len(own)],
            [c.shapes(n) for c in self.carries],
            [full_shape(Layout.STACKED, () if c.is_list else c.inner, n) for c in self.leaving],
        ]
        _, *final = while_loop(
            call,
            lambda active, *_: Emitter()("Any", active, np.int32(0)),
            self._trip,
            [active, own, start, kept],
            shapes,
            plan.options(),
        )
        return self._results(*final)

    def _trip(
        self, goes_on: tf.Tensor, own: list[tf.Tensor], old: State, kept: list[tf.Tensor]
    ) -> list[Any]:
        plan, emit = self.plan, Emitter()
        outer = self.call.loop
        active = goes_on
        if plan.is_late:
            number, ends, began = own
            left = None if self.last is None else emit("Sub", self.last, number)
            active, end = due_rows(emit, goes_on, ends, left)
            if left is None:
                cut_at(self.carries, old, end, emit)
            is_first = emit("LogicalAnd", active, emit("Less", began, np.int32(0)))
            began = emit("SelectV2", is_first, number, began)
            ends = emit("Sub", ends, emit("Cast", active, DstT=tf.int32))
            own = [emit("AddV2", number, np.int32(1)), ends, began]
        writable, loop = active, outer.inside(emit)
        if self.padded:
            everyone = outer.places
            loop = outer.padded(padded_rows(active, everyone, emit), emit)
            state = [
                [loop.rows_of(t[0], c.inner)]
                if c.ragged is not None or (c.repeats is not None and c.layout is Layout.STACKED)
                else t
                for c, t in zip(self.carries, old)
            ]
            writable = None  # those that stand in for others write what these write
        else:
            state = [
                [blanked(emit, active, t[0])]
                if c.layout is Layout.STACKED
                else [c.ragged.chosen(emit, active, t[0], None, loop)]
                if c.ragged is not None
                else t
                for c, t in zip(self.carries, old)
            ]
        seen = plan.inside(loop, emit, state, writable)
        made = plan.convert_body(seen, loop, emit)
        (again,) = plan.cond.convert(plan.after_trip(seen, made), loop, emit)
        again = again.as_layout_of_rows()
        if plan.is_late:
            again = emit("LogicalOr", again, emit("LogicalNot", active))
        goes_on = emit("LogicalAnd", goes_on, again)
        new = [self._next(c, m, t, active, emit) for c, m, t in zip(self.carries, made, old)]
        late = {c.index: tensors for c, tensors in zip(self.carries, new)}
        kept = [
            emit("Select", active, self._grown(c, late[c.index][0], k, own[:1], emit), k)
            for c, k in zip(self.leaving, kept)
        ]
        return [goes_on, own, new, kept]

    def _next(
        self,
        carry: Carry,
        made: list[Converted],
        old: list[tf.Tensor],
        active: tf.Tensor,
        emit: Emitter,
    ) -> list[tf.Tensor]:
        def spread(tensor: tf.Tensor) -> tf.Tensor:
            """Rows that are done add nothing to a sum."""
            return emit("Select", active, tensor, emit("ZerosLike", tensor))

        if (updated := _updated_in_place(carry, made, old)) is not None:
            return [carry.known(updated, emit)]
        tensors = self.plan.tensors_of(carry, made, spread)
        if carry.ragged is not None:
            loop = self.call.loop.inside(emit)
            return [carry.ragged.chosen(emit, active, tensors[0], old[0], loop)]
        if carry.layout is Layout.STACKED:
            if carry.may_grow:
                tensors[0] = of_one_shape(self.call, emit, tensors[0], old[0])
            return [emit("Select", active, tensors[0], old[0])]
        return tensors

    def _grown(
        self,
        carry: Carry,
        tensor: tf.Tensor,
        kept: tf.Tensor,
        trips: Sequence[tf.Tensor],
        emit: Emitter,
    ) -> tf.Tensor:
        """The tensor that is kept of a variable after a trip of the active rows."""
        if not carry.is_list:
            made = self._repeated(carry, tensor, emit)
            return of_one_shape(self.call, emit, made, kept) if carry.may_grow else made
        each = np.int32(pushes(self.plan.body.graph, carry.index))
        if not trips:
            return emit("AddV2", kept, each)
        end = emit("Mul", trips[0], each)  # nothing was in it before
        return emit("BroadcastTo", end, emit.shape_of(kept))

    def _repeated(self, carry: Carry, tensor: tf.Tensor, emit: Emitter) -> tf.Tensor:
        """The tensor that is kept of a variable for each row, [n] + inner; a list's length."""
        if carry.is_list:
            tensor = list_length(self.call, tensor)
        n = self.call.loop.length
        shape = dims(tensor)
        if is_static(shape):
            return emit("BroadcastTo", tensor, emit.shape_vector([n, *shape]))
        target = emit("ConcatV2", [emit.shape_vector([n]), emit.shape_of(tensor)], np.int32(0))
        return emit("BroadcastTo", tensor, target)

    def _results(self, own: list[tf.Tensor], state: State, kept: list[tf.Tensor]) -> list[Value]:
        plan = self.plan
        last = dict(zip((c.index for c in self.leaving), kept))
        _, ends, began = own or (None, None, None)
        if began is not None:
            began = self.call.emit("Maximum", began, np.int32(0))
        found: dict[int, Value] = {}
        for c, tensors in zip(self.carries, state):
            if not c.is_read:
                continue
            if c.ragged is not None:
                found[c.index] = plan.after(c, tensors)
            elif c.is_list:
                value = ends if c.is_clock else last.get(c.index)
                found[c.index] = plan.after(c, tensors, value, began)
            else:
                found[c.index] = plan.after_by_row(c, last.get(c.index, tensors[0]), tensors)
        return plan.results(found)


def _updated_in_place(
    carry: Carry, made: Sequence[Converted], old: Sequence[tf.Tensor]
) -> tf.Tensor | None:
    """A variable of which the rows at work have updated items; None if it is another tensor."""
    if carry.layout is not Layout.STACKED or carry.repeats is not None:
        return None
    value = made[0].value
    source = value.source if isinstance(value, Stacked) else None
    if source is None or source.variable is not old[0]:
        return None
    return made[0].ready([source.whole.get()])[0]
