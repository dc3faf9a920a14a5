"""Loop variables whose rows differ in shape.

Inside the loop such a variable is one tensor: the packed rows, or padded rows where shapes must be
static. Sizes that no trip changes are captured, and no trip carries them. So the variable has the
same sizes in all trips, and operations on it need no check. Sizes that trips change are carried
beside the rows, int32 [n] for each axis.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.control_flow._subgraphs import Converted, stitched
from tf_pfor.converters.control_flow._trials import OWN, Trial
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.loop import Loop
from tf_pfor.core.values import Value
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_parts import Form, in_order, sizes_of
from tf_pfor.layouts.row_sizes import Size, row_counts

CHANGES = "a loop variable whose shape differs between iterations"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RaggedCarry:
    """One such variable.

    Attributes:
      call: the loop.
      index: its position among the loop's variables.
      start: its rows before the first trip, or a tensor [n, ...] where these have one shape.
      fixed: for each leading axis the sizes that all trips have; None where trips change them.
      rest: the static shape of a row behind these axes.
      is_padded: whether the loop carries the padded form.
    """

    call: Call
    index: int
    start: Ragged | tf.Tensor
    fixed: tuple[Size | None, ...]
    rest: tuple[int | None, ...]
    is_padded: bool

    @classmethod
    def of(cls, call: Call, index: int, start: Value) -> RaggedCarry | None:
        """A variable of which no trip is known to change the sizes; None if it is dense."""
        if not isinstance(start, Ragged):
            return None
        if call.walker.inner_map is not None:  # one map over pairs does better
            raise CannotVectorize(CHANGES)
        is_padded = _tf.in_xla_context(call.emit.graph)
        rest = tuple(start.tensor.shape[1:])
        return cls(call, index, start, tuple(start.sizes), rest, is_padded)

    @classmethod
    def becoming(cls, call: Call, index: int, start: tf.Tensor, trial: Trial) -> RaggedCarry:
        """A variable that begins with rows of one shape (a tensor [n, ...]), but does not end so.

        Raises:
          CannotVectorize: if a trip changes the rank, or it is not known.
        """
        rank = start.shape.rank
        if rank is None or trial.axes is None or len(trial.axes) != rank - 1:
            raise CannotVectorize(CHANGES)
        count = 1 + max(i for i, a in enumerate(trial.axes) if not isinstance(a, int))
        begins = start.shape[1:].as_list()
        fixed = [b if a == b else None for a, b in zip(trial.axes, begins)]
        rest = [b if a == b else None for a, b in zip(trial.axes, begins)]
        is_padded = _tf.in_xla_context(call.emit.graph)
        return cls(call, index, start, tuple(fixed[:count]), tuple(rest[count:]), is_padded)

    def settled(self, trial: Trial) -> RaggedCarry:
        """The variable, with those sizes carried that a trial trip changes.

        Raises:
          CannotVectorize: if it changes more than that.
        """
        axes, kept = trial.axes, trial.kept.get(self.index)
        if axes is None or len(axes) != len(self.fixed) + len(self.rest):
            raise CannotVectorize(CHANGES)
        if any(a is OWN for a in axes[len(self.fixed) :]):
            raise CannotVectorize(CHANGES)
        kept = kept or (False,) * len(self.fixed)
        fixed = [f if k or f == a else None for f, k, a in zip(self.fixed, kept, axes)]
        if self.is_padded and None in fixed:
            raise CannotVectorize(CHANGES)
        rest = [r if r == a else None for r, a in zip(self.rest, axes[len(fixed) :])]
        return dataclasses.replace(self, fixed=tuple(fixed), rest=tuple(rest))

    @property
    def is_fixed(self) -> bool:
        """Whether no trip changes the sizes."""
        return None not in self.fixed

    @property
    def n_sizes(self) -> int:
        """The number of tensors of sizes that are carried beside the rows."""
        return self.fixed.count(None)

    @property
    def _form(self) -> Form:
        return Form(tuple(f if isinstance(f, int) else None for f in self.fixed), self.rest)

    @property
    def origin(self) -> tf.Tensor:
        """The variable after the loop in the body."""
        return self.call.op.outputs[self.index]

    def seen(self) -> Ragged:
        """The variable as trials see it, before any trip."""
        with self.call.emit.graph.as_default():
            return self._of(self.begin(), self.fixed)

    def begin(self) -> list[tf.Tensor]:
        """The tensors that the loop carries, before the first trip."""
        with self.call.emit.graph.as_default():
            return self._tensors(self.start)

    def _tensors(self, value: Ragged | tf.Tensor) -> list[tf.Tensor]:
        if self.is_padded:
            assert isinstance(value, Ragged)
            return [value.in_rows]
        packed, *own = self._form.tensors(value)
        known = [f for f in self.fixed if not isinstance(f, int)]
        return [packed, *(o for o, f in zip(own, known, strict=True) if f is None)]

    def shapes(self, length: int | None) -> list[tf.TensorShape]:
        """The static shapes of these tensors, of so many rows."""
        if self.is_padded:
            assert isinstance(self.start, Ragged)
            return [self.start.in_rows.shape]
        rows = tf.TensorShape([None, *self.rest])
        return [rows, *[tf.TensorShape([length])] * self.n_sizes]

    def value(self, tensors: Sequence[tf.Tensor], loop: Loop) -> Ragged:
        """The variable as the rows of ``loop`` see it."""
        sizes = [f.select(loop) if isinstance(f, RowSizes) else f for f in self.fixed]
        return self._of(tensors, sizes)

    def after(self, tensors: Sequence[tf.Tensor]) -> Ragged:
        """The variable after a loop that all rows left at once."""
        return self._of(tensors, self.fixed)

    def _of(self, tensors: Sequence[tf.Tensor], fixed: Sequence[Size | None]) -> Ragged:
        rows, *own = tensors
        supply = iter(own)
        sizes = [RowSizes.of(next(supply)) if f is None else f for f in fixed]
        make = Ragged.from_padded if self.is_padded else Ragged.packed
        return make(rows, sizes, self.origin)

    def after_trip(self, made: Converted, before: Ragged) -> list[tf.Tensor]:
        """The tensors to carry on.

        Raises:
          CannotVectorize: if sizes after the trip are not known to be those before, and fixed.
        """
        emit, count = made.call.emit, len(self.fixed)
        value = made.rows
        with emit.graph.as_default():
            sizes = sizes_of(value, count)
            for size, known, old in zip(sizes, self.fixed, before.sizes, strict=True):
                is_same = size is old or (isinstance(size, int) and size == old)
                if known is not None and not is_same:
                    raise CannotVectorize(CHANGES)
            tensors = made.ready(self._tensors(value))
        if not tensors[0].shape.is_subtype_of(self.shapes(None)[0]):
            tensors[0] = emit("EnsureShape", tensors[0], shape=self.shapes(None)[0])
        return tensors

    # Rows that leave -------------------------------------------------------

    def parted(
        self, emit: Emitter, side: tf.Tensor, tensors: Sequence[tf.Tensor], loop: Loop, count: int
    ) -> list[list[tf.Tensor]]:
        """The tensors of the rows of each of ``count`` sides; ``side`` is int32 [k]."""
        each = self._spread(emit, side, tensors, loop)
        sides = [each, *[side] * (len(tensors) - 1)]
        parts = [
            emit("DynamicPartition", t, s, num_partitions=count) for t, s in zip(tensors, sides)
        ]
        return [list(part) for part in zip(*parts)]

    def chosen(
        self, emit: Emitter, active: tf.Tensor, new: tf.Tensor, old: tf.Tensor | None, loop: Loop
    ) -> tf.Tensor:
        """``new`` in the active rows (bool [n]) of ``loop``, elsewhere ``old``, or zeros."""
        mask = active if self.is_padded else self._spread(emit, active, [new], loop)
        return emit("Select", mask, new, emit("ZerosLike", new) if old is None else old)

    def _spread(
        self, emit: Emitter, by_row: tf.Tensor, tensors: Sequence[tf.Tensor], loop: Loop
    ) -> tf.Tensor:
        """A number of each row at each of its elements in the packed form."""
        with emit.graph.as_default():
            return tf.repeat(by_row, row_counts(self.value(tensors, loop).sizes))

    def in_order(self, order: tf.Tensor, flat: tf.Tensor, own: Sequence[tf.Tensor]) -> Ragged:
        """The variable after a loop that rows left at different times.

        Args:
          order: int32 [n], the rows in the order in which they left.
          flat: [elements of all rows], what they left with.
          own: int32 [n] for each axis whose sizes trips change, in the same order.
        """
        form, emit, like = self._form, self.call.emit, self.begin()[0]
        with emit.graph.as_default():
            sizes: list[Any] = []
            supply = iter(own)
            for f in self.fixed:
                known = f.tensor if isinstance(f, RowSizes) else f
                if f is None:
                    sizes.append(next(supply))
                elif isinstance(f, RowSizes):
                    sizes.append(tf.gather(known, order))
                elif not isinstance(f, int):
                    sizes.append(tf.fill([tf.size(order)], f))
            rest = [tf.shape(like)[k + 1] if d is None else d for k, d in enumerate(self.rest)]
            packed = tf.reshape(flat, [-1, *rest])
            same = [f if isinstance(f, RowSizes) else None for f in self.fixed]
            put = functools.partial(stitched, emit)
            n = self.call.loop.static_length
            made = in_order(form, [order], [[packed, *sizes]], same, put, n, self.origin)
        found = [m if f is None else f for m, f in zip(made.sizes, self.fixed)]
        return Ragged.packed(made.tensor, found, self.origin)
