"""While loops with a trip count for each row: only the rows that are still active are computed.

The loop carries the numbers of the active rows, the uniform variables as they are, the row-varying
ones for the active rows only. A trip begins by partitioning them: rows that are done leave, their
values are pushed to lists; the others stay. After the loop the lists are put together and brought
into the order of the rows. Nothing of full size is copied in a trip. What the body only reads is
captured, and read through the numbers of the active rows. A TensorList stays full size and
is written in place, in the active rows. Where there is much to compute, there are two such loops
with half of the rows each.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters._carries import Plan
from tf_pfor.converters._loop_graphs import effects
from tf_pfor.converters._loop_variables import Carry
from tf_pfor.converters._regions import full_shape, positions, stitched
from tf_pfor.converters._safety import work_of
from tf_pfor.emit import Emitter
from tf_pfor.loop import Loop
from tf_pfor.values import Layout, Shape, Value, dims

State = list[list[tf.Tensor]]

# From so many elementary operations in a trip of all rows on, two loops are faster than one.
_LARGE = 64_000_000


def convert(plan: Plan, *, halved: bool) -> list[Value]:
    """Vectorizes a loop whose predicate differs between rows; in two loops if ``halved``."""
    return _Compact(plan, halved).run()


class _Compact:
    def __init__(self, plan: Plan, halved: bool):
        self.plan = plan
        self.halved = halved
        self.call = plan.call
        self.carries = plan.carries
        self.leaving = [c for c in plan.carries if c.is_read and not c.stays]

    def run(self) -> list[Value]:
        plan, call = self.plan, self.call
        emit, loop = call.emit, call.loop
        start = plan.start()
        seen = plan.inside(loop.inside(emit), emit, start)
        (first,) = plan.cond.convert(seen, loop, emit, is_trial=True)
        whole = (first.as_layout_of_rows(), positions(call, loop), start)
        parts = self._halves(*whole) if self.halved else [whole]
        return self._results([self._loop(*part) for part in parts])

    def _loop(self, goes_on: tf.Tensor, rows: tf.Tensor, start: State) -> list[Any]:
        """The loop of these rows: what it carries after its last trip."""
        emit, plan = self.call.emit, self.plan
        flat: list[Any] = [
            goes_on,
            rows,
            *(t for tensors in start for t in tensors),
            *(_new_list(emit, *self._element(c)) for c in self.leaving),
            _new_list(emit, (), tf.int32),
        ]
        shapes: list[Any] = [tf.TensorShape([None]), tf.TensorShape([None])]
        shapes += [s for c in self.carries for s in c.shapes(None)]
        shapes += [tf.TensorShape([])] * (len(self.leaving) + 1)
        final = tf.while_loop(
            lambda goes_on, *_: Emitter()("Any", goes_on, np.int32(0)), self._trip, flat,
            shape_invariants=shapes, **plan.options(),
        )  # fmt: skip
        return list(final)

    def _halves(
        self, goes_on: tf.Tensor, rows: tf.Tensor, start: State
    ) -> list[tuple[tf.Tensor, tf.Tensor, State]]:
        """Two halves of the rows, whose loops run at the same time."""
        emit, n = self.call.emit, self.call.loop.static_length
        sizes = np.asarray([n // 2, n - n // 2], np.int32)  # type: ignore[operator]

        def halve(tensor: tf.Tensor) -> list[tf.Tensor]:
            return emit("SplitV", tensor, sizes, np.int32(0), num_split=2)

        states: tuple[State, State] = ([], [])
        for c, tensors in zip(self.carries, start):
            both = halve(tensors[0]) if c.layout is Layout.STACKED else tensors * 2
            for state, half in zip(states, both):
                state.append([half])
        return list(zip(halve(goes_on), halve(rows), states))

    # One trip -------------------------------------------------------------

    def _unpack(self, flat: list[tf.Tensor]) -> tuple[State, list[tf.Tensor]]:
        supply = iter(flat)
        state = [[next(supply) for _ in c.shapes(None)] for c in self.carries]
        return state, list(supply)

    def _trip(self, goes_on: tf.Tensor, rows: tf.Tensor, *flat: Any) -> list[Any]:
        plan, emit = self.plan, Emitter()
        state, lists = self._unpack(list(flat))
        side = emit("Cast", goes_on, DstT=tf.int32)
        done, rows = emit("DynamicPartition", rows, side, num_partitions=2)  # [d], [k]
        count = emit("Size", done, out_type=tf.int32)
        left: dict[int, tf.Tensor] = {}
        for c, tensors in zip(self.carries, state):
            if c in self.leaving and c.layout is not Layout.STACKED:
                left[c.index] = _repeat(emit, self._leaving_tensor(c, tensors[0], emit), count)
            elif c.layout is Layout.STACKED:
                gone, tensors[0] = emit("DynamicPartition", tensors[0], side, num_partitions=2)
                left[c.index] = gone
        lists = self._pushed(emit, lists, left, done)
        loop = Loop(emit.dim(rows, 0), emit, rows=rows, parent=self.call.loop)
        seen = plan.inside(loop, emit, state)
        made = plan.convert_body(seen, loop, emit)
        (again,) = plan.cond.convert(plan.after_trip(seen, made), loop, emit)
        goes_on = again.as_layout_of_rows()
        spread = functools.partial(self._spread, emit, rows)
        return [
            goes_on,
            rows,
            *(t for c, m in zip(self.carries, made) for t in plan.tensors_of(c, m, spread)),
            *lists,
        ]

    def _spread(self, emit: Emitter, rows: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
        """[k, ...] of the active rows as [n, ...]: rows that left add nothing to a sum."""
        whole = emit.shape_vector([self.call.loop.length, *(dims(tensor) or ())[1:]])
        return emit("ScatterNd", emit("ExpandDims", rows, np.int32(1)), tensor, whole)

    def _leaving_tensor(self, carry: Carry, tensor: tf.Tensor, emit: Emitter) -> tf.Tensor:
        """What is kept of a variable when a row leaves: of a list its length."""
        if carry.is_list:
            return emit("TensorListLength", tensor)
        return tensor

    def _element(self, carry: Carry) -> tuple[Shape, tf.DType]:
        if carry.is_list:
            return (), tf.int32
        return carry.inner, self.plan.dtype(carry)

    def _pushed(
        self, emit: Emitter, lists: list[tf.Tensor], left: dict[int, tf.Tensor], done: tf.Tensor
    ) -> list[tf.Tensor]:
        items = [*(left[c.index] for c in self.leaving), done]
        return [emit("TensorListPushBack", x, item) for x, item in zip(lists, items)]

    # After the loop -------------------------------------------------------

    def _results(self, finals: list[list[Any]]) -> list[Value]:
        plan, emit = self.plan, self.call.emit
        orders: list[tf.Tensor] = []
        left: dict[int, list[tf.Tensor]] = {c.index: [] for c in self.leaving}
        for final in finals:
            _, rows, *flat = final
            state, lists = self._unpack(flat)
            *pieces, order = self._all_left(rows, state, lists)
            orders.append(order)
            for c, piece in zip(self.leaving, pieces):
                left[c.index].append(piece)
        found: dict[int, Value] = {}
        for c, tensors in zip(self.carries, state):
            if not c.is_read:
                continue
            lengths = None
            if c.index in left:
                inner, _ = self._element(c)
                shape = full_shape(Layout.STACKED, inner, self.call.loop.static_length)
                value = lengths = stitched(emit, orders, left[c.index], shape)
            if c.is_list or c.stays:
                found[c.index] = plan.after(c, tensors, lengths)
            else:
                found[c.index] = plan.after_by_row(c, value, tensors)
        return plan.results(found)

    def _all_left(self, rows: tf.Tensor, state: State, lists: list[tf.Tensor]) -> list[tf.Tensor]:
        """What the rows left with, [n, ...] in the order in which they left, and which they are."""
        emit = self.call.emit
        count = emit("Size", rows, out_type=tf.int32)
        last = {
            c.index: tensors[0]
            if c.layout is Layout.STACKED
            else _repeat(emit, self._leaving_tensor(c, tensors[0], emit), count)
            for c, tensors in zip(self.carries, state)
            if c in self.leaving
        }
        lists = self._pushed(emit, lists, last, rows)
        elements = [*(self._element(c) for c in self.leaving), ((), tf.int32)]
        return [_concat(emit, x, *element) for x, element in zip(lists, elements)]


def may_halve(plan: Plan) -> bool:
    """Whether two loops of half of the rows pay: one's products run beside the other's small ops.

    Not where gradients are recorded, since each loop would add up its own of the weights.
    """
    call = plan.call
    n, work = call.loop.static_length, work_of(plan.body.graph)
    return (
        call.loop.parent is None
        and n is not None
        and n > 1
        and work is not None
        and n * work >= _LARGE
        and not any(effects(g) for g in (plan.cond.graph, plan.body.graph))
        and all(c.is_plain for c in plan.carries)
        and not _tf.may_record_gradients()
        and not tf.config.list_logical_devices("GPU")
    )


def _new_list(emit: Emitter, inner: Shape, dtype: tf.DType) -> tf.Tensor:
    """An empty list of tensors [any number of rows] + inner."""
    return emit("EmptyTensorList", _element_shape(inner), np.int32(-1), element_dtype=dtype)


def _concat(emit: Emitter, handle: tf.Tensor, inner: Shape, dtype: tf.DType) -> tf.Tensor:
    leading = emit.constant(np.zeros([0], np.int64))
    made = emit("TensorListConcatV2", handle, _element_shape(inner), leading, element_dtype=dtype)
    return made[0]


def _element_shape(inner: Shape) -> np.ndarray:
    if inner is None:
        return np.asarray(-1, np.int32)
    return np.asarray([-1, *(-1 if d is None else d for d in inner)], np.int32)


def _repeat(emit: Emitter, tensor: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """[...] -> [count, ...]."""
    shape = dims(tensor)
    if shape == ():
        return emit("Fill", emit.shape_vector([count]), tensor)
    target = emit("ConcatV2", [emit.shape_vector([count]), emit.shape_of(tensor)], np.int32(0))
    return emit("BroadcastTo", tensor, target)
