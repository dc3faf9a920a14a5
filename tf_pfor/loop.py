"""Loop: how many iterations there are, and which of them are active."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_pfor.emit import Dim, Emitter
from tf_pfor.values import Cell, Layout, Value


class Loop:
    """The loop that is being removed, in one graph.

    Attributes:
      static_length: the number of iterations when it is known before running, else None.
      rows: int32 [length], the ids of the active iterations inside a branch or a while loop;
        None when all are active.
    """

    def __init__(
        self,
        length: int | tf.Tensor,
        emit: Emitter,
        *,
        rows: tf.Tensor | None = None,
        parent: Loop | None = None,
    ):
        static = length if isinstance(length, int) else tf.get_static_value(length)
        self.static_length: int | None = None if static is None else int(static)
        self.rows = rows
        self.parent = parent
        self.emit = emit
        if isinstance(length, tf.Tensor):
            self._length = Cell(length)
        else:
            self._length = Cell(None, lambda: emit.constant(np.int32(length)))
        self._index = Cell(rows, self._make_index if rows is None else None)

    def _make_index(self) -> tf.Tensor:
        if self.static_length is not None:
            return self.emit.constant(np.arange(self.static_length, dtype=np.int32))
        return self.emit("Range", np.int32(0), self.length_tensor, np.int32(1))

    @property
    def length(self) -> Dim:
        """n: an int when static, else a scalar int32 tensor."""
        return self.length_tensor if self.static_length is None else self.static_length

    @property
    def length_tensor(self) -> tf.Tensor:
        return self._length.get()

    @property
    def index(self) -> tf.Tensor:
        """int32 [n]: the iteration numbers of the active iterations."""
        return self._index.get()

    def index_value(self) -> Value:
        return Value(Layout.STACKED, self._index, (), tf.int32)

    def is_index(self, value: Value) -> bool:
        """True when ``value`` is the number of the iteration, 0 ... n - 1, all active."""
        return self.rows is None and value.cell is self._index

    def subset(self, rows: tf.Tensor, emit: Emitter) -> Loop:
        """The child loop whose iterations are ``rows`` (int32 [k]) of this one's."""
        return Loop(emit.dim(rows, 0), emit, rows=rows, parent=self)
