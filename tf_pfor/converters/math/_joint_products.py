"""Products of the same rows by several invariant matrices: one product by all of them.

The gradient of a recurrent step multiplies dz by W^T and by U^T. Both are kept from step to step
(decisions/0011), so that [W^T U^T] can be: the rows are read once, by a wider product. Where dz is
joined of the gradients of gates, it is the sum of their products, and nothing joins them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _graphs
from tf_pfor.converters.math._weights import LARGE
from tf_pfor.core.call import Call
from tf_pfor.core.shapes import fold
from tf_pfor.core.values import Cell, Value, dims, folded_form, is_static, known_dims


def product_beside_others(call: Call, rows: Value, matrix: tf.Tensor) -> tf.Tensor | Cell:
    """rows @ matrix; put off where other products of the same rows may follow.

    Args:
      call: a MatMul.
      rows: [k] in each iteration, or [., k].
      matrix: [k, m] of static shape, used by other steps too.
    """
    op = call.op
    others = [c for c in _tf.consumers(op.inputs[0]) if c.type == op.type and c is not op]
    if not others:
        return _product(call, rows, matrix)
    key = ("joint", call.emit.graph, rows.cell, matrix.graph)
    group = call.memo.get(key)
    if group is None or group.is_made:
        group = call.memo[key] = _Group(call, rows)
        made = group.with_(matrix)
        _convert(call, others)
        return made
    return group.with_(matrix)


def _convert(call: Call, operations: list[tf.Operation]) -> None:
    """Converts operations that are ready and will be needed, ahead of their time.

    Operations that are at work already are left out; this call is the last of them.
    """
    walker = call.walker
    busy = call.memo.setdefault(("beginning", walker), set())
    busy.add(call.op)

    def is_ready(op: tf.Operation, depth: int = 2) -> bool:
        """Whether little is missing, such as to read a variable or to pop from a list."""
        return not (op in busy or op.control_inputs) and all(
            walker.value_of(t) is not None or (depth > 0 and is_ready(t.op, depth - 1))
            for t in op.inputs
        )

    ready = [o for o in operations if is_ready(o) and not walker.is_done(o)]
    if ready:
        key = ("wanted", walker)
        if key not in call.memo:
            call.memo[key] = walker.wanted()
        walker.visit([op for op in ready if op in call.memo[key]])


def _product(call: Call, rows: Value, matrix: tf.Tensor) -> tf.Tensor:
    """rows @ matrix, of rows in blocks of columns as the sum of products by blocks of rows."""
    shape = dims(matrix)
    assert is_static(shape)
    k, m = shape
    form = folded_form(rows)
    columns = form.columns if form is not None and form.axes == 1 else ()
    if not columns or k * m < LARGE or k < 2 * m:
        return call.emit("MatMul", fold(call, rows), matrix)
    widths: list[Any] = [c.shape[1] for c in columns]
    key = ("blocks", matrix.op, matrix.value_index, *widths)
    if key not in call.memo:
        with matrix.graph.as_default(), _graphs.depending_on_nothing(matrix.graph):
            call.memo[key] = tf.split(matrix, widths, 0)
    pairs = zip(columns, call.memo[key])
    return call.emit("AddN", [call.emit("MatMul", c, block) for c, block in pairs])


class _Group:
    """Products of the same rows, none of which has been read."""

    def __init__(self, call: Call, rows: Value):
        self._call = call
        self._rows = rows
        self._matrices: list[tf.Tensor] = []
        self._made: list[tf.Tensor] = []

    @property
    def is_made(self) -> bool:
        return bool(self._made)

    def with_(self, matrix: tf.Tensor) -> Cell:
        """The product by one more matrix."""
        i = len(self._matrices)
        self._matrices.append(matrix)
        return Cell(None, lambda: self._all()[i])

    def _all(self) -> list[tf.Tensor]:
        if not self._made:
            if len(self._matrices) == 1:
                self._made = [_product(self._call, self._rows, self._matrices[0])]
            else:
                made = _product(self._call, self._rows, self._beside_each_other())
                widths = np.asarray([known_dims(dims(m))[1] for m in self._matrices], np.int32)
                count, emit = len(widths), self._call.emit
                self._made = emit("SplitV", made, widths, np.int32(1), num_split=count)
        return self._made

    def _beside_each_other(self) -> tf.Tensor:
        """[k, m_1 + m_2 + ...], made once where the matrices are."""
        memo = self._call.memo
        key = ("beside", *((m.op, m.value_index) for m in self._matrices))
        if key not in memo:
            graph = self._matrices[0].graph
            with graph.as_default(), _graphs.depending_on_nothing(graph):
                memo[key] = tf.concat(self._matrices, 1)
        return memo[key]
