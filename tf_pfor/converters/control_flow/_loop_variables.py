"""One variable that a loop carries, and what is known of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.control_flow._accumulators import Accumulator
from tf_pfor.converters.control_flow._ragged_carries import RaggedCarry
from tf_pfor.converters.control_flow._repeated_pushes import Repeats
from tf_pfor.converters.control_flow._subgraphs import Region
from tf_pfor.converters.control_flow._trials import SOME_SIZES, shape_for
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import ConversionError
from tf_pfor.core.stacked_lists import rows_of
from tf_pfor.core.values import (
    Layout,
    Shape,
    Unstacked,
    Value,
    dims,
    full_shape,
    is_static,
    known_dims,
)

# Elements of an item from which on an array is stored by row.
_WIDE = 32


@dataclasses.dataclass(slots=True)
class Carry:
    """One variable that the loop carries.

    Attributes:
      index: its position among the op's inputs and outputs.
      layout: the layout inside the loop.
      inner: the static shape that the body sees.
      is_read: whether somebody reads the result.
      is_resized: a list whose length changes in the body.
      has_lengths: a list whose rows differ in length from the start.
      beside: the number of lists beside a list of lists (``Holds.beside``).
      is_clock: a list of lists that trips pop: it says which rows are due (``Plan.is_late``).
      factors: the accumulator that collects terms in place of a sum of products.
      repeats: the repeats of a list of one invariant tensor, whose count is carried.
      may_grow: a tensor of which trips may change the shape.
      grows: a tensor of which trips are known to change the shape, or the loop says that they may.
      ragged: the carry of rows whose shapes differ.
      keeps_length: a list that is as long after each trip as before.
    """

    index: int
    layout: Layout
    inner: Shape
    is_read: bool
    is_resized: bool = False
    has_lengths: bool = False
    beside: int = 0
    is_clock: bool = False
    factors: Accumulator | None = None
    repeats: Repeats | None = None
    may_grow: bool = False
    grows: bool = False
    ragged: RaggedCarry | None = None
    keeps_length: bool = False

    @property
    def is_uniform(self) -> bool:
        return self.layout is Layout.UNSTACKED

    @property
    def is_list(self) -> bool:
        return self.layout is Layout.STACKED_LIST

    @property
    def is_plain(self) -> bool:
        """Whether the variable is one tensor, stacked or the same for all rows."""
        special = self.repeats or self.may_grow
        return not special and self.layout in (Layout.STACKED, Layout.UNSTACKED)

    @property
    def stays(self) -> bool:
        """Whether the variable keeps all rows while some leave, and is written in place."""
        return self.layout is Layout.BY_ROW or (self.is_list and not self.is_resized)

    def known(self, tensor: tf.Tensor, emit: Emitter) -> tf.Tensor:
        """``tensor`` of a trip, of the static shape that the next one is made for."""
        inner, shape = self.inner, dims(tensor)
        if self.layout not in (Layout.STACKED, Layout.UNSTACKED) or not is_static(inner):
            return tensor
        lead = int(self.layout is Layout.STACKED)
        if shape is not None and is_static(shape[lead:]):
            return tensor
        return emit("EnsureShape", tensor, shape=tf.TensorShape([*[None] * lead, *inner]))

    def shapes(self, length: int | None) -> list[tf.TensorShape]:
        """The static shapes of its tensors."""
        if self.factors is not None:
            return [tf.TensorShape([])] * self.factors.count
        if self.ragged is not None:
            return self.ragged.shapes(length)
        own = [full_shape(self.layout, self.inner, length)]
        if self.repeats is not None:
            return own + self.repeats.shapes
        own += [tf.TensorShape([None])] * (self.has_lengths and not self.is_clock)
        return own + [tf.TensorShape([])] * self.beside


def has_items(carry: Carry, arg: Value, graph: tf.Graph) -> bool:
    """Whether a variable has equally many items of one static shape in all rows."""
    if not carry.is_list:
        inner = carry.inner
        return carry.layout is Layout.STACKED and is_static(inner) and _is_wide(inner)
    known = None if carry.factors else _tf.list_element(graph.inputs[carry.index])
    if known is None or known[0] == tf.variant or not known[1].is_fully_defined():
        return False
    return rows_of(arg) is None and not (carry.is_resized or carry.has_lengths)


def _is_wide(inner: Shape) -> bool:
    """Whether the items along the first axis are worth a tensor each."""
    return bool(inner) and int(np.prod(known_dims(inner)[1:])) >= _WIDE


def of_one_shape(
    call: Call,
    emit: Emitter,
    new: tf.Tensor,
    old: tf.Tensor,
    lead: int = 1,
    is_alone: tf.Tensor | None = None,
) -> tf.Tensor:
    """``new``, checked to be of the shape of ``old`` unless all rows make the trip (``is_alone``).

    ``lead`` is the number of axes in front of the shape of one row.
    """
    with emit.graph.as_default():
        same = tf.reduce_all(tf.equal(tf.shape(new)[lead:], tf.shape(old)[lead:]))
        held = same if is_alone is None else tf.logical_or(same, is_alone)
        text = (
            f"A variable of the loop '{call.op.name}' changes its shape in trips that some rows "
            "make and others do not, so that rows would end with different shapes. Give it the "
            "largest shape before the loop, or return a result of one shape from the loop."
        )
        with tf.control_dependencies([tf.debugging.Assert(held, [text])]):
            return tf.identity(new)


def keep_shapes(
    carries: Sequence[Carry],
    given: Sequence[Value],
    body: Region,
    seen: Callable[[], Sequence[Value]],
    length: int | None,
) -> None:
    """Gives the variables that no trip reshapes the static shape with which they begin.

    The bodies of TensorFlow 1 know no shapes, and invariants may be wider than need be.
    """
    before = {c.index: c.inner for c in carries}
    known = [c for c in carries if c.may_grow and is_static(given[c.index].inner_shape)]
    for c in known:
        c.inner = given[c.index].inner_shape
    while known:
        made = body.shapes(seen(), length, [c.index for c in known])
        changed = [c for c, shape in zip(known, made) if shape != c.inner]
        for c in changed:
            c.inner = before[c.index]
        if not changed:
            break
        known = [c for c in known if c not in changed]
    for c in known:
        c.may_grow = False
    for c in carries:
        if c.may_grow and c.inner is not None and given[c.index].dtype != tf.variant:
            c.grows = _is_known_to_grow(given, body, c.index)


def _is_known_to_grow(given: Sequence[Value], body: Region, i: int) -> bool:
    """Whether variable ``i`` changes its shape, or begins with one that the loop does not keep."""
    start = given[i].inner_shape
    if start is None:
        return False
    if is_static(start):
        return True
    for size in SOME_SIZES:
        made = shape_for(body.graph, given, i, size, body.call.memo)
        if is_static(made) and made != tuple(size if d is None else d for d in start):
            return True
    return False


def known_integers(args: Sequence[Value]) -> dict[int, int]:
    """The integer scalars among the inputs of a loop that are known, by position."""
    return {
        i: int(a.constant)
        for i, a in enumerate(args)
        if a.constant is not None and a.dtype.is_integer and not np.ndim(a.constant)
    }


def outputs_of(call: Call, known: Mapping[int, Value]) -> list[Value]:
    """The outputs of a loop: those that are known, and those that nobody reads."""
    return [
        known[i] if i in known else Unstacked.deferred(_unread(output), dims(output), output.dtype)
        for i, output in enumerate(call.op.outputs)
    ]


def _unread(output: tf.Tensor) -> Callable[[], tf.Tensor]:
    def make() -> tf.Tensor:
        raise ConversionError(f"'{output.name}' is read, which nobody was seen to do. A bug.")

    return make


def describe(carries: Sequence[Carry], by_row: int) -> str:
    """The text on a loop's carries for reports; ``by_row`` counts variables with items by row."""
    uniform = sum(c.is_uniform and not c.repeats for c in carries)
    repeats = sum(c.repeats is not None for c in carries)
    sums = sum(c.factors is not None for c in carries)
    lists = sum(c.is_list for c in carries) - sums
    varying = len(carries) - uniform - lists - sums - repeats - by_row
    text = f"{uniform} uniform, {varying} row-varying"
    text += f", {lists} lists" if lists else ""
    text += f", {repeats} lists of one invariant tensor" if repeats else ""
    text += f", {sums} sums over the trips" if sums else ""
    return text + (f", {by_row} with items by row" if by_row else "")
