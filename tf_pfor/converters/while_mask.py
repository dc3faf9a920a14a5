"""While loops with a trip count for each row: all rows are computed, those that are done keep
what they have. Static shapes, so that it compiles under XLA; and few ops, so that it is faster for
cheap bodies.

What the body computes for a row that is done is thrown away. That is harmless only if it cannot
fail and has finite derivatives (``_safety``), where it is given zeros in place of what the row
has, which may be infinite. Where that is not known the loop is *padded*: in
place of rows that are done stands an active row, which is computed several times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters._carries import Plan
from tf_pfor.converters._list_lengths import list_length
from tf_pfor.converters._loop_graphs import pushes
from tf_pfor.converters._loop_variables import Carry
from tf_pfor.converters._regions import Converted, blanked, full_shape, padded_rows, positions
from tf_pfor.emit import Emitter
from tf_pfor.values import Layout, Value

State = list[list[tf.Tensor]]


def convert(plan: Plan, *, padded: bool) -> list[Value]:
    """Vectorizes a loop whose predicate differs between rows."""
    return _Mask(plan, padded).run()


class _Mask:
    def __init__(self, plan: Plan, padded: bool):
        self.plan = plan
        self.call = plan.call
        self.carries = plan.carries
        self.padded = padded
        # Of these a row's own last value must be kept: all others are kept in place.
        self.leaving = [
            c for c in plan.carries if c.is_read and (c.is_uniform or (c.is_list and c.is_resized))
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
        kept = [self._repeated(c, tensors[0], emit) for c, tensors in zip(self.carries, start)
                if c in self.leaving]  # fmt: skip
        flat: list[Any] = [active, *(t for tensors in start for t in tensors), *kept]
        shapes: list[Any] = [tf.TensorShape([n])]
        shapes += [s for c in self.carries for s in c.shapes(n)]
        shapes += [
            full_shape(Layout.STACKED, () if c.is_list else c.inner, n) for c in self.leaving
        ]
        final = tf.while_loop(
            lambda active, *_: Emitter()("Any", active, np.int32(0)), self._trip, flat,
            shape_invariants=shapes, **plan.options(),
        )  # fmt: skip
        return self._results(list(final[1:]))

    def _unpack(self, flat: list[tf.Tensor]) -> tuple[State, list[tf.Tensor]]:
        supply = iter(flat)
        state = [[next(supply) for _ in c.shapes(None)] for c in self.carries]
        return state, list(supply)

    def _trip(self, active: tf.Tensor, *flat: Any) -> list[Any]:
        plan, emit = self.plan, Emitter()
        outer = self.call.loop
        old, kept = self._unpack(list(flat))
        writable, loop = active, outer.inside(emit)
        if self.padded:
            everyone = positions(self.call, outer)
            rows = padded_rows(active, everyone, emit)
            rows.set_shape([outer.static_length])
            loop = outer.padded(rows, active, emit)
            state = [
                [emit("GatherV2", t[0], rows, np.int32(0))] if c.layout is Layout.STACKED else t
                for c, t in zip(self.carries, old)
            ]
            writable = None  # those that stand in for others write what these write
        else:
            state = [
                [blanked(emit, active, t[0])] if c.layout is Layout.STACKED else t
                for c, t in zip(self.carries, old)
            ]
        seen = plan.inside(loop, emit, state, writable)
        made = plan.convert_body(seen, loop, emit)
        (again,) = plan.cond.convert(plan.after_trip(seen, made), loop, emit)
        goes_on = emit("LogicalAnd", active, again.as_layout_of_rows())
        new = [self._next(c, m, t, active, emit) for c, m, t in zip(self.carries, made, old)]
        late = {c.index: tensors for c, tensors in zip(self.carries, new)}
        kept = [
            emit("Select", active, self._grown(c, late[c.index][0], k, emit), k)
            for c, k in zip(self.leaving, kept)
        ]
        return [goes_on, *(t for tensors in new for t in tensors), *kept]

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

        tensors = self.plan.tensors_of(carry, made, spread)
        if carry.layout is Layout.STACKED:
            return [emit("Select", active, tensors[0], old[0])]
        return tensors

    def _grown(self, carry: Carry, tensor: tf.Tensor, kept: tf.Tensor, emit: Emitter) -> tf.Tensor:
        """What is kept of a variable after a trip that no row left before."""
        if carry.is_list:
            return emit("AddV2", kept, np.int32(pushes(self.plan.body.graph, carry.index)))
        return self._repeated(carry, tensor, emit)

    def _repeated(self, carry: Carry, tensor: tf.Tensor, emit: Emitter) -> tf.Tensor:
        """What is kept of a variable for each row: [n] + inner; of a list its length."""
        if carry.is_list:
            tensor = list_length(self.call, tensor)
        n = self.call.loop.length
        shape = tensor.shape
        if shape.is_fully_defined():
            return emit("BroadcastTo", tensor, emit.shape_vector([n, *shape.as_list()]))
        target = emit("ConcatV2", [emit.shape_vector([n]), emit.shape_of(tensor)], np.int32(0))
        return emit("BroadcastTo", tensor, target)

    def _results(self, flat: list[tf.Tensor]) -> list[Value]:
        plan = self.plan
        state, kept = self._unpack(flat)
        own = dict(zip((c.index for c in self.leaving), kept))
        found: dict[int, Value] = {}
        for c, tensors in zip(self.carries, state):
            if not c.is_read:
                continue
            if c.is_list:
                found[c.index] = plan.after(c, tensors, own.get(c.index))
            else:
                found[c.index] = plan.after_by_row(c, own.get(c.index, tensors[0]), tensors)
        return plan.results(found)
