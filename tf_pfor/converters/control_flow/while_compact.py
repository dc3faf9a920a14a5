"""While loops with a trip count for each row: only the rows that are still active are computed.

The loop carries the numbers of the active rows, the uniform variables as they are, the row-varying
ones for the active rows only. A trip begins by partitioning them: rows that are done leave, their
values are pushed to lists; the others stay. After the loop the lists are put together and brought
into the order of the rows. Nothing of full size is copied in a trip. What the body only reads is
captured, and read through the numbers of the active rows. A TensorList stays full size and
is written in place, in the active rows. Where there is much to compute, there are two such loops
with half of the rows each: decision 0004 has the times.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import effects
from tf_pfor.converters.analysis._safety import work_of
from tf_pfor.converters.control_flow._aligned_pops import cut_at, due_rows
from tf_pfor.converters.control_flow._carries import Plan
from tf_pfor.converters.control_flow._loop_variables import Carry, of_one_shape
from tf_pfor.converters.control_flow._subgraphs import stitched, while_loop
from tf_pfor.core.emit import Emitter
from tf_pfor.core.loop import Loop
from tf_pfor.core.values import Layout, Shape, Value, dims, full_shape, is_static
from tf_pfor.layouts import row_major
from tf_pfor.layouts.ragged_parts import Form, in_order

State = list[list[tf.Tensor]]

# From so many elementary operations in a trip of all rows on, two loops are faster than one. The
# number is lower where a trip reads and writes items by row, which takes long beside the ops.
_LARGE, _LARGE_BY_ROW = 64_000_000, 4_000_000


def convert(plan: Plan, *, halved: bool) -> list[Value]:
    """Vectorizes a loop whose predicate differs between rows; in two loops if ``halved``."""
    return _Compact(plan, halved).run()


class _Compact:
    """The loop, or two of half of the rows.

    Besides the variables it carries the number of each active row (``own``). If rows begin late it
    also carries the ends of its lists, and the trip in which it began (-1: not yet).
    """

    def __init__(self, plan: Plan, halved: bool):
        self.plan = plan
        self.halved = halved
        self.call = plan.call
        self.carries = plan.carries
        self.leaving = [c for c in plan.carries if c.is_read and not (c.stays or c.is_clock)]
        self.growing = [c for c in self.leaving if c.grows and not plan.is_late]
        self.own = 3 if plan.is_late else 1

    def run(self) -> list[Value]:
        plan, call = self.plan, self.call
        emit, loop = call.emit, call.loop
        start = plan.start()
        seen = plan.inside(loop.inside(emit), emit, start)
        (first,) = plan.cond.convert(seen, loop, emit, is_trial=True)
        goes_on, own = first.as_layout_of_rows(), [loop.places]
        if plan.is_late:
            own += [plan.ends(), emit("Fill", emit.shape_of(goes_on), np.int32(-1))]
        whole = (goes_on, own, start)
        parts = self._halves(*whole) if self.halved else [whole]
        return self._results([self._loop(*part) for part in parts])

    def _loop(self, goes_on: tf.Tensor, own: list[tf.Tensor], start: State) -> list[Any]:
        """The loop of these rows: what it carries after its last trip."""
        emit, plan = self.call.emit, self.plan
        lists = [_new_list(emit, *e) for e in self._kept]
        rows = emit("Range", np.int32(0), emit.dim(own[0], 0), np.int32(1))
        rows = emit("PlaceholderWithDefault", rows, shape=tf.TensorShape([None]))
        state = [
            [_apart(emit, t, rows) for t in tensors] if c.layout is Layout.STACKED else tensors
            for c, tensors in zip(self.carries, start)
        ]
        number = [emit.constant(np.int32(0))] if plan.is_late else []
        scalar, rows = tf.TensorShape([]), tf.TensorShape([None])
        shapes = [
            rows,
            [rows] * self.own,
            [scalar] * len(lists),
            [c.shapes(None) for c in self.carries],
            [scalar] * len(number),
        ]
        return while_loop(
            self.call,
            lambda goes_on, *_: Emitter()("Any", goes_on, np.int32(0)),
            self._trip,
            [goes_on, own, lists, state, number],
            shapes,
            plan.options(),
        )

    def _halves(
        self, goes_on: tf.Tensor, own: list[tf.Tensor], start: State
    ) -> list[tuple[tf.Tensor, list[tf.Tensor], State]]:
        """Two halves of the rows, whose loops run at the same time."""
        emit, n = self.call.emit, self.call.loop.static_length
        assert n is not None
        sizes = np.asarray([n // 2, n - n // 2], np.int32)

        def halve(tensor: tf.Tensor) -> list[tf.Tensor]:
            return emit("SplitV", tensor, sizes, np.int32(0), num_split=2)

        states: tuple[State, State] = ([], [])
        for c, tensors in zip(self.carries, start):
            both = halve(tensors[0]) if c.layout is Layout.STACKED else tensors * 2
            if c.layout is Layout.BY_ROW:
                whole = self.plan.by_row[c.index]
                assert isinstance(whole, row_major.RowMajorList)
                both = row_major.in_halves(whole, int(sizes[0]), emit)
            for state, half in zip(states, both):
                state.append([half])
        owns = [list(half) for half in zip(*map(halve, own))]
        return list(zip(halve(goes_on), owns, states))

    # One trip -------------------------------------------------------------

    def _trip(
        self,
        goes_on: tf.Tensor,
        own: list[tf.Tensor],
        lists: list[tf.Tensor],
        state: State,
        number: list[tf.Tensor],
    ) -> list[Any]:
        """A trip.

        Args:
          goes_on: bool [k], the active rows that make it.
          own: the numbers of the active rows, and what is known of each if rows begin late.
          lists: the values of rows that left before.
          state: the tensors of the variables.
          number: the number of the trip, if rows begin late.
        """
        plan, emit = self.plan, Emitter()
        side = emit("Cast", goes_on, DstT=tf.int32)
        if plan.is_late:  # 0: done, 1: not due, 2: due
            due, end = due_rows(emit, goes_on, own[1])
            cut_at(self.carries, state, end, emit)
            side = emit("AddV2", side, emit("Cast", due, DstT=tf.int32))
        before: Loop | None = None
        if any(c.ragged is not None for c in self.carries):
            before = Loop(emit.dim(own[0], 0), emit, rows=own[0], parent=self.call.loop)
        done, waiting, own = self._parted(emit, side, own)
        if plan.is_late:
            own[1] = emit("Sub", own[1], np.int32(1))
            own[2] = emit("SelectV2", emit("Less", own[2], np.int32(0)), number[0], own[2])
            number = [emit("AddV2", number[0], np.int32(1))]
        left: dict[int, list[tf.Tensor]] = {}
        late: dict[int, list[tf.Tensor]] = {}
        for c, tensors in zip(self.carries, state):
            i = c.index
            if c.ragged is not None and before is not None:
                sides = 3 if plan.is_late else 2
                left[i], *rest, tensors[:] = c.ragged.parted(emit, side, tensors, before, sides)
                late[i] = [t for waits in rest for t in waits]
            elif c.layout is Layout.STACKED:
                left[i], late[i], tensors[:1] = self._parted(emit, side, tensors[:1])
            elif c in self.leaving:
                left[i] = [_repeat(emit, _kept_of(c, tensors[0], emit), done[0])]
        lists = self._pushed(emit, lists, left, done)
        loop = Loop(emit.dim(own[0], 0), emit, rows=own[0], parent=self.call.loop)
        seen = plan.inside(loop, emit, state)
        made = plan.convert_body(seen, loop, emit)
        (again,) = plan.cond.convert(plan.after_trip(seen, made), loop, emit)
        goes_on = again.as_layout_of_rows()
        spread = functools.partial(self._spread, emit, own[0])
        old_state = state
        state = [plan.tensors_of(c, m, spread) for c, m in zip(self.carries, made)]
        for c, tensors, old in zip(self.carries, state, old_state):
            is_kept = c in self.leaving and c not in self.growing
            if c.may_grow and (is_kept or plan.is_late):
                tensors[0] = self._of_one_shape(emit, own[0], c, tensors[0], old[0])
        if plan.is_late:
            still = emit("Fill", emit.shape_of(waiting[0]), np.bool_(True))
            goes_on, *own = _joined(emit, [still, *waiting], [goes_on, *own])
            for c, tensors in zip(self.carries, state):
                rest = late.get(c.index, [])
                if c.may_grow:  # not at all, if somebody waits
                    rest = [_shaped(emit, t, t, tensors[0]) for t in rest]
                tensors[: len(rest)] = _joined(emit, rest, tensors[: len(rest)])
        return [goes_on, own, lists, state, number]

    def _parted(
        self, emit: Emitter, side: tf.Tensor, tensors: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """The tensors of done rows, of rows not due (empty if all are due), and of the trip."""
        count = 3 if self.plan.is_late else 2
        parts = [emit("DynamicPartition", t, side, num_partitions=count) for t in tensors]
        return [p[0] for p in parts], [p[1] for p in parts if count > 2], [p[-1] for p in parts]

    def _spread(self, emit: Emitter, rows: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
        """[k, ...] of the active rows as [n, ...]: rows that left add nothing to a sum."""
        inner = [emit.dim(tensor, i) for i in range(1, len(dims(tensor) or ()))]
        whole = emit.shape_vector([self.call.loop.length, *inner])
        return emit("ScatterNd", emit("ExpandDims", rows, np.int32(1)), tensor, whole)

    def _of_one_shape(
        self, emit: Emitter, rows: tf.Tensor, carry: Carry, new: tf.Tensor, old: tf.Tensor
    ) -> tf.Tensor:
        """A variable after a trip of ``rows``, checked where other rows keep its old shape."""
        is_alone = emit("Equal", emit("Size", rows), emit.as_tensor(self.call.loop.length))
        lead = int(carry.layout is Layout.STACKED)
        return of_one_shape(self.call, emit, new, old, lead, is_alone)

    def _elements(self, carry: Carry) -> Sequence[tuple[Shape, tf.DType]]:
        """Shapes and dtypes of what a row leaves with, flat where its shape may change."""
        if carry.is_list:
            return [((), tf.int32)]
        if carry.ragged is not None:
            return [((), self.plan.dtype(carry))] + [((), tf.int32)] * carry.ragged.n_sizes
        rows = () if carry.may_grow else carry.inner
        shapes = [((len(carry.inner or ()),), tf.int32)] * (carry in self.growing)
        return [(rows, self.plan.dtype(carry)), *shapes]

    @property
    def _kept(self) -> list[tuple[Shape, tf.DType]]:
        """``_elements`` of all that rows leave with, their numbers first."""
        numbers: list[tuple[Shape, tf.DType]] = [((), tf.int32)] * self.own
        return numbers + [e for c in self.leaving for e in self._elements(c)]

    def _pieces(self, carry: Carry, left: list[tf.Tensor], emit: Emitter) -> list[tf.Tensor]:
        """The tensors that rows leave with, from their tensors of a variable."""
        if not (carry.may_grow or carry.ragged is not None) or carry.is_list:
            return left[:1]
        shapes = [_shapes_of_rows(emit, left[0])] * (carry in self.growing)
        return [emit.reshape(left[0], [-1]), *left[1:], *shapes]

    def _pushed(
        self,
        emit: Emitter,
        lists: list[tf.Tensor],
        left: dict[int, list[tf.Tensor]],
        own: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        pieces = [p for c in self.leaving for p in self._pieces(c, left[c.index], emit)]
        return [emit("TensorListPushBack", x, p) for x, p in zip(lists, [*own, *pieces])]

    # After the loop -------------------------------------------------------

    def _results(self, finals: list[list[Any]]) -> list[Value]:
        plan, emit = self.plan, self.call.emit
        state = [
            [row_major.of_halves(tensors[0][0], tensors[1][0], emit)]
            if self.halved and c.layout is Layout.BY_ROW
            else tensors[0]
            for c, *tensors in zip(self.carries, *(state for _, _, _, state, _ in finals))
        ]
        parts = [self._all_left(own, lists, last) for _, own, lists, last, _ in finals]
        orders, *pieces = [list(p) for p in zip(*parts)]

        def put(pieces: list[tf.Tensor], inner: Shape = ()) -> tf.Tensor:
            """[n, ...] of what rows left with."""
            shape = full_shape(Layout.STACKED, inner, self.call.loop.static_length)
            return stitched(emit, orders, pieces, shape)

        ends = began = None
        if plan.is_late:
            ends, began = (put(p) for p in pieces[: self.own - 1])
            began = emit("Maximum", began, np.int32(0))
        supply = iter(pieces[self.own - 1 :])
        left = {c.index: [next(supply) for _ in self._elements(c)] for c in self.leaving}
        found: dict[int, Value] = {}
        for c, tensors in zip(self.carries, state):
            if not c.is_read:
                continue
            if c.ragged is not None or c in self.growing:
                found[c.index] = self._ragged(c, orders[0], [made for (made,) in left[c.index]])
                continue
            value = ends if c.is_clock else None
            if c.index in left:
                value = put(left[c.index][0], () if c.is_list else c.inner)
            if c.is_list or c.stays:
                found[c.index] = plan.after(c, tensors, value, began)
            else:
                assert value is not None
                found[c.index] = plan.after_by_row(c, value, tensors)
        return plan.results(found)

    def _all_left(
        self, own: list[tf.Tensor], lists: list[tf.Tensor], state: State
    ) -> list[tf.Tensor]:
        """The tensors that rows left with, [n, ...] in the order of leaving: numbers first."""
        emit = self.call.emit
        last = {
            c.index: tensors
            if c.layout in (Layout.STACKED, Layout.RAGGED)
            else [_repeat(emit, _kept_of(c, tensors[0], emit), own[0])]
            for c, tensors in zip(self.carries, state)
            if c in self.leaving
        }
        lists = self._pushed(emit, lists, last, own)
        made = [_concat(emit, x, *element) for x, element in zip(lists, self._kept)]
        at = self.own
        for c in self.leaving:
            if c.may_grow and not c.is_list and c not in self.growing:
                made[at] = _shaped(emit, made[at], made[0], last[c.index][0])
            at += len(self._elements(c))
        return made

    def _ragged(self, carry: Carry, order: tf.Tensor, pieces: list[tf.Tensor]) -> Value:
        """A variable with which rows left in different shapes.

        Args:
          carry: the variable.
          order: int32 [n], the rows in the order in which they left.
          pieces: all that they had, flat; and their sizes, or int32 [n, rank] their shapes.
        """
        flat, *own = pieces
        if carry.ragged is not None:
            return carry.ragged.in_order(order, flat, own)
        inner, n = carry.inner, self.call.loop.static_length
        assert inner is not None
        form, (shapes,) = Form.of(inner), own
        count, origin = len(form.sizes), self.call.op.outputs[carry.index]
        put = functools.partial(stitched, self.call.emit)
        with self.call.emit.graph.as_default():
            total = tf.reduce_sum(tf.reduce_prod(shapes[:, :count], 1))
            packed = tf.reshape(flat, tf.stack([total, *form.rest]))
            sizes = [shapes[:, i] for i, size in enumerate(form.sizes) if size is None]
            same: list[Any] = [None] * count
            return in_order(form, [order], [[packed, *sizes]], same, put, n, origin)


def _kept_of(carry: Carry, tensor: tf.Tensor, emit: Emitter) -> tf.Tensor:
    """The tensor that is kept of a variable when a row leaves: for a list its length."""
    return emit("TensorListLength", tensor) if carry.is_list else tensor


def _joined(
    emit: Emitter, before: Sequence[tf.Tensor], after: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    return [emit("ConcatV2", [a, b], np.int32(0)) for a, b in zip(before, after)]


def _shaped(emit: Emitter, tensor: tf.Tensor, rows: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """``tensor`` with as many rows as ``rows``, each of the shape of one of ``like``."""
    one = np.asarray([1], np.int32)
    count = emit("Slice", emit("Shape", rows), np.asarray([0], np.int32), one)
    inner = emit("Slice", emit("Shape", like), one, np.asarray([-1], np.int32))
    return emit("Reshape", tensor, emit("ConcatV2", [count, inner], np.int32(0)))


def may_halve(plan: Plan) -> bool:
    """Whether two loops of half of the rows pay: one's products run beside the other's small ops.

    Not where gradients are recorded, since each loop would add up its own of the weights.
    """
    call = plan.call
    n, work = call.loop.static_length, work_of(plan.body.graph)
    by_row_too = any(c.layout is Layout.BY_ROW for c in plan.carries)
    return (
        call.loop.parent is None
        and n is not None
        and n > 1
        and work is not None
        and n * work >= (_LARGE_BY_ROW if by_row_too else _LARGE)
        and not any(effects(g) for g in (plan.cond.graph, plan.body.graph))
        and all(c.is_plain or c.layout is Layout.BY_ROW for c in plan.carries)
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


def _apart(emit: Emitter, tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """[n, ...] as [k, ...], the same ``rows`` of a number that is not known before it runs.

    The gradient of the loop has another number of rows in each trip. Grappler and TensorFlow's
    gradients of gradients take a static number for that in all trips.
    """
    shape = dims(tensor)
    if not is_static(shape) or not (tensor.dtype.is_floating or tensor.dtype.is_complex):
        return tensor
    whole = emit("Reshape", tensor, np.asarray(shape, np.int32))  # its gradient is dense
    return emit("GatherV2", whole, rows, np.int32(0))


def _element_shape(inner: Shape) -> np.ndarray:
    if inner is None:
        return np.asarray(-1, np.int32)
    return np.asarray([-1, *(-1 if d is None else d for d in inner)], np.int32)


def _shapes_of_rows(emit: Emitter, tensor: tf.Tensor) -> tf.Tensor:
    """[k, ...] -> int32 [k, rank]: the shape of each row."""
    with emit.graph.as_default():
        shape = tf.shape(tensor)
        return tf.tile(shape[None, 1:], tf.stack([shape[0], 1]))


def _repeat(emit: Emitter, tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """[...] -> [k, ...], for each of k rows, whose numbers are ``rows``."""
    shape, count = dims(tensor), emit("Size", rows, out_type=tf.int32)
    if shape == ():
        return emit("Fill", emit.shape_vector([count]), tensor)
    target = emit("ConcatV2", [emit.shape_vector([count]), emit.shape_of(tensor)], np.int32(0))
    return emit("BroadcastTo", tensor, target)
