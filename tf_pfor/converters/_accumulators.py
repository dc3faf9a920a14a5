"""Loop variables to which each trip adds matrix products: sums of products over the trips.

The factors are collected in TensorLists, and one product after the loop adds up all trips
(DESIGN 8). This is what the gradient of a loop does with the weights that its body uses. A loop
that reads no list keeps its running sum: its memory should not grow with the number of trips.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.call import Call
from tf_pfor.converters._loop_graphs import READS_OF_LISTS, source
from tf_pfor.converters._products import SUMS, is_smaller, product_of
from tf_pfor.shapes import product, transpose
from tf_pfor.values import Layout, Value, dims, is_static

_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"),
    "BatchMatMulV2": ("adj_x", "adj_y"),
    "BatchMatMulV3": ("adj_x", "adj_y"),
}


@dataclasses.dataclass(slots=True)
class _Factor:
    """One of the two matrices: ``tensor`` of the body is [r, c], or [c, r] if not upright."""

    tensor: tf.Tensor
    is_upright: bool
    layout: Layout = Layout.STACKED

    @property
    def shape(self) -> tuple[int, int]:
        return dims(self.tensor)  # type: ignore[return-value]


class Accumulator:
    """A loop variable that is a sum of products a_t^T b_t.

    Attributes:
      pairs: the factors of the products of one trip.
      lists: the TensorLists of the factors, in the graph inside the loop.
    """

    def __init__(self, pairs: list[tuple[_Factor, _Factor]]):
        self.pairs = pairs
        self.lists: list[tf.Tensor] = []
        self._factors = [f for pair in pairs for f in pair]

    @property
    def count(self) -> int:
        """How many factors there are."""
        return len(self._factors)

    @property
    def tensors(self) -> list[tf.Tensor]:
        """The factors in the body."""
        return [f.tensor for f in self._factors]

    def settle(self, layouts: Sequence[Layout], may_differ: bool) -> None:
        """Sets how factors are stored; where rows may leave each row has its own."""
        for factor, layout in zip(self._factors, layouts):
            factor.layout = Layout.STACKED if may_differ else layout

    def start(self, call: Call, most: int | None) -> list[tf.Tensor]:
        """Empty lists, for ``most`` trips if that is known."""
        size = np.int32(-1 if most is None else most)
        return [
            call.emit(
                "EmptyTensorList",
                np.asarray([-1 if d is None else d for d in self._stored(call, f)], np.int32),
                size,
                element_dtype=f.tensor.dtype,
            )
            for f in self._factors
        ]

    def _stored(self, call: Call, factor: _Factor) -> list[int | None]:
        lead = [call.loop.static_length] if factor.layout is Layout.STACKED else []
        return [*lead, *factor.shape]

    def collected(
        self, made: Sequence[Any], spread: Callable[[tf.Tensor], tf.Tensor] | None
    ) -> list[tf.Tensor]:
        """The lists after a trip."""
        out: list[tf.Tensor] = []
        for handle, factor, converted in zip(self.lists, self._factors, made):
            tensor = converted.as_layout(factor.layout)
            tensor = tensor if spread is None else spread(tensor)
            out.append(converted.call.emit("TensorListPushBack", handle, tensor))
        return out

    def total(self, call: Call, lists: Sequence[tf.Tensor], start: Value) -> Value:
        """The variable after the loop: what it was before, and the products of all trips."""
        emit, supply = call.emit, iter(lists)
        shape = dims(call.op.outputs[0])
        made: list[tf.Tensor] = []
        for pair in self.pairs:
            a, b = (self._all_trips(call, next(supply), f) for f in pair)
            made.append(product_of(call, a, b))
            shape = (a.inner_shape[1], b.inner_shape[1])  # type: ignore[index]
        if start.is_stacked:
            made.append(start.tensor)
        tensor = made[0] if len(made) == 1 else emit("AddN", made)
        if not (start.is_stacked or _is_zero(start.tensor)):
            tensor = emit("AddV2", tensor, emit.reshape(start.tensor, [1, *shape]))  # type: ignore[misc]
        return Value.stacked(tensor).with_inner_shape(shape)

    def _all_trips(self, call: Call, handle: tf.Tensor, factor: _Factor) -> Value:
        """The rows of all trips above each other: [n, T * r, c], or [T * r, c]."""
        emit = call.emit
        is_stacked = factor.layout is Layout.STACKED
        lead = [call.loop.length] if is_stacked else []
        whole = emit(
            "TensorListStack", handle, emit.shape_vector([*lead, *factor.shape]),
            element_dtype=factor.tensor.dtype,
        )  # fmt: skip
        whole.set_shape([None, *self._stored(call, factor)])
        r, c = factor.shape
        if not factor.is_upright:
            r, c = c, r
            whole = transpose(call, whole, [0, 2, 1] if not is_stacked else [0, 1, 3, 2])
        rows = product(call, [emit.dim(whole, 0), r])
        if is_stacked:
            whole = transpose(call, whole, [1, 0, 2, 3])
        tensor = emit.reshape(whole, [*lead, rows, c])
        made = Value.stacked(tensor) if is_stacked else Value.unstacked(tensor)
        return made.with_inner_shape((rows if isinstance(rows, int) else None, c))


def find_accumulator(graph: Any, i: int) -> Accumulator | None:
    """The products that a trip adds to variable ``i``, if that is all that happens to it."""
    given = graph.inputs[i]
    if len(given.consumers()) != 1:
        return None
    if not any(op.type in READS_OF_LISTS for op in graph.get_operations()):
        return None
    terms = _terms(graph.outputs[i], given)
    if terms is None or terms.count(None) != 1 or len(terms) < 2:
        return None
    return Accumulator([pair for pair in terms if pair is not None])


def _terms(tensor: tf.Tensor, given: tf.Tensor) -> list[Any] | None:
    """The terms of a sum: pairs of factors, None for ``given``; None if it is no such sum."""
    tensor = source(tensor)
    if tensor is given:
        return [None]
    op = tensor.op
    if op.control_inputs or len(tensor.consumers()) != 1:
        return None
    if op.type in SUMS:
        if any(t.shape.rank != 2 or t.shape != tensor.shape for t in op.inputs):
            return None
        parts = [_terms(t, given) for t in op.inputs]
        return None if None in parts else [term for part in parts for term in part or ()]
    pair = _factors(op)
    return None if pair is None else [pair]


def _factors(op: tf.Operation) -> tuple[_Factor, _Factor] | None:
    flags = _PRODUCTS.get(op.type)
    if flags is None:
        return None
    a, b = op.inputs
    if not all(is_static(dims(t)) and t.shape.rank == 2 for t in (a, b)):
        return None
    if a.dtype.is_complex or not a.dtype == b.dtype == op.outputs[0].dtype:
        return None
    left, right = _Factor(a, op.get_attr(flags[0])), _Factor(b, not op.get_attr(flags[1]))
    r, k = left.shape if left.is_upright else left.shape[::-1]
    m = right.shape[1 if right.is_upright else 0]
    return (left, right) if is_smaller(r, k, m) else None


def _is_zero(tensor: tf.Tensor) -> bool:
    op = source(tensor).op
    if op.type == "ZerosLike":
        return True
    known = tf.get_static_value(op.inputs[1] if op.type == "Fill" else op.outputs[0])
    return known is not None and not np.any(known)
