"""Loop variables to which each trip adds matrix products, or slices: sums over the trips.

TensorLists collect the parts of the sums. They collect the factors of products; one product after
the loop makes the sum. They collect slices and their places; one sum by segments makes the sum. The
gradient of a loop adds so to the weights that its body uses, and to an array of which it reads
x[t]. A loop that reads no list keeps its running sum: its memory should not grow with the number of
trips.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.analysis._loop_graphs import READS_OF_LISTS, is_read_once, source
from tf_pfor.converters.math._products import SUMS, is_smaller, product_of
from tf_pfor.core.call import Call
from tf_pfor.core.shapes import product, transpose
from tf_pfor.core.values import Layout, Value, dims, is_static, known_dims
from tf_pfor.layouts.padded_lists import padded_stack

_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"),
    "BatchMatMulV2": ("adj_x", "adj_y"),
    "BatchMatMulV3": ("adj_x", "adj_y"),
}


@dataclasses.dataclass(slots=True)
class _Part:
    """A tensor of the body that is collected, and how."""

    tensor: tf.Tensor
    layout: Layout = Layout.STACKED

    @property
    def shape(self) -> tuple[int, ...]:
        return known_dims(dims(self.tensor))

    def stored(self, call: Call) -> list[int | None]:
        """The static shape of what a trip collects."""
        lead = [call.loop.static_length] if self.layout is Layout.STACKED else []
        return [*lead, *self.shape]

    def all_trips(self, call: Call, handle: tf.Tensor) -> tf.Tensor:
        """[T, n, ...], or [T, ...] if it is unstacked."""
        lead = [call.loop.length] if self.layout is Layout.STACKED else []
        shape = call.emit.shape_vector([*lead, *self.shape])
        whole = padded_stack(call.emit, handle, shape, self.tensor.dtype)
        whole.set_shape([None, *self.stored(call)])
        return whole


@dataclasses.dataclass(slots=True)
class _Product:
    """a^T b. A factor that is not upright is [c, r] in the body, and [r, c] is meant."""

    factors: tuple[_Part, _Part]
    upright: tuple[bool, bool]

    @property
    def parts(self) -> Sequence[_Part]:
        return self.factors

    def settle(self, layouts: Sequence[Layout]) -> None:
        for factor, layout in zip(self.factors, layouts):
            factor.layout = layout

    def total(self, call: Call, lists: Sequence[tf.Tensor]) -> tf.Tensor:
        """[n, k, m]: one product of the rows of all trips."""
        a, b = map(functools.partial(self._above, call), self.factors, self.upright, lists)
        return product_of(call, a, b)

    def _above(self, call: Call, factor: _Part, is_upright: bool, handle: tf.Tensor) -> Value:
        """The rows of all trips above each other: [n, T * r, c], or [T * r, c]."""
        emit = call.emit
        is_stacked = factor.layout is Layout.STACKED
        whole = factor.all_trips(call, handle)
        r, c = factor.shape
        if not is_upright:
            r, c = c, r
            whole = transpose(call, whole, [0, 2, 1] if not is_stacked else [0, 1, 3, 2])
        rows = product(call, [emit.dim(whole, 0), r])
        if is_stacked:
            whole = transpose(call, whole, [1, 0, 2, 3])
        lead = [call.loop.length] if is_stacked else []
        tensor = emit.reshape(whole, [*lead, rows, c])
        made = Value.stacked(tensor) if is_stacked else Value.unstacked(tensor)
        return made.with_inner_shape((rows if isinstance(rows, int) else None, c))


@dataclasses.dataclass(slots=True)
class _Slice:
    """Zeros [size, ...] but for ``dy`` at the place ``at`` (int [1]) of the first axis."""

    dy: _Part
    at: _Part
    size: int

    @property
    def parts(self) -> Sequence[_Part]:
        return (self.dy, self.at)

    def settle(self, layouts: Sequence[Layout]) -> None:
        self.at.layout = layouts[1]

    def total(self, call: Call, lists: Sequence[tf.Tensor]) -> tf.Tensor:
        """[n, size, ...]: the slices of all trips, added up by place."""
        emit = call.emit
        dy, at = (part.all_trips(call, x) for part, x in zip(self.parts, lists))
        length, trips, inner = call.loop.length, emit.dim(dy, 0), self.dy.shape
        at = at if at.dtype == tf.int32 else emit("Cast", at, DstT=tf.int32)
        size = np.int32(self.size)
        from_end = emit("AddV2", at, size)
        at = emit("SelectV2", emit("Less", at, np.int32(0)), from_end, at)
        if self.at.layout is not Layout.STACKED:
            at = emit.reshape(at, [trips])
            made = emit("UnsortedSegmentSum", dy, at, size)  # [size, n, ...]
            return transpose(call, made, [1, 0, *range(2, 2 + len(inner))])
        first = emit("Mul", call.loop.places, size)
        at = emit("AddV2", emit.reshape(at, [trips, length]), first)
        many = emit.as_tensor(product(call, [length, self.size]))
        made = emit("UnsortedSegmentSum", dy, at, many)  # [n * size, ...]
        return emit.reshape(made, [length, self.size, *inner])


class Accumulator:
    """A loop variable that is a sum of products a_t^T b_t, or of slices.

    Attributes:
      terms: the terms that one trip adds.
      shape: the shape of the variable.
      lists: the TensorLists of their parts, in the graph inside the loop.
    """

    def __init__(self, terms: list[_Product | _Slice], shape: tuple[int, ...]):
        self.terms = terms
        self.shape = shape
        self.lists: list[tf.Tensor] = []
        self._parts = [part for term in terms for part in term.parts]

    @property
    def count(self) -> int:
        """The number of tensors that are collected."""
        return len(self._parts)

    @property
    def tensors(self) -> list[tf.Tensor]:
        """The collected tensors, in the body."""
        return [part.tensor for part in self._parts]

    def settle(self, layouts: Sequence[Layout], may_differ: bool) -> None:
        """Sets how parts are stored; where rows may leave each row has its own."""
        supply = iter(layouts)
        for term in self.terms:
            found = [next(supply) for _ in term.parts]
            term.settle([Layout.STACKED] * len(found) if may_differ else found)

    def start(self, call: Call, most: int | None) -> list[tf.Tensor]:
        """Empty lists, for ``most`` trips if that is known."""
        size = np.int32(-1 if most is None else most)
        return [
            call.emit(
                "EmptyTensorList",
                np.asarray([-1 if d is None else d for d in part.stored(call)], np.int32),
                size,
                element_dtype=part.tensor.dtype,
            )
            for part in self._parts
        ]

    def collected(
        self, made: Sequence[Any], spread: Callable[[tf.Tensor], tf.Tensor] | None
    ) -> list[tf.Tensor]:
        """The lists after a trip."""
        out: list[tf.Tensor] = []
        for handle, part, converted in zip(self.lists, self._parts, made):
            tensor = converted.as_layout(part.layout)
            tensor = tensor if spread is None else spread(tensor)
            out.append(converted.call.emit("TensorListPushBack", handle, tensor))
        return out

    def total(self, call: Call, lists: Sequence[tf.Tensor], start: Value) -> Value:
        """The variable after the loop: what it was before, and the sums over all trips."""
        emit, supply = call.emit, iter(lists)
        made = [term.total(call, [next(supply) for _ in term.parts]) for term in self.terms]
        if start.is_stacked:
            made.append(start.tensor)
        tensor = made[0] if len(made) == 1 else emit("AddN", made)
        if not (start.is_stacked or _tf.is_zero(source(start.tensor))):
            tensor = emit("AddV2", tensor, emit.reshape(start.tensor, [1, *self.shape]))
        return Value.stacked(tensor).with_inner_shape(self.shape)


def find_accumulator(graph: tf.Graph, i: int) -> Accumulator | None:
    """The accumulator of variable ``i``, if trips only add to the variable."""
    given = graph.inputs[i]
    shape = dims(given)
    if shape is None or not is_static(shape):
        return None
    if not any(op.type in READS_OF_LISTS for op in graph.get_operations()):
        return None
    terms = _terms(graph.outputs[i], given)
    if terms is None or terms.count(None) != 1 or len(terms) < 2:
        return None
    return Accumulator([term for term in terms if term is not None], shape)


def _terms(tensor: tf.Tensor, given: tf.Tensor) -> list[Any] | None:
    """The terms of a sum, None for ``given``; None if it is no such sum, or read elsewhere."""
    if not is_read_once(tensor):
        return None
    if tensor is given:
        return [None]
    op = tensor.op
    if op.control_inputs:
        return None
    if op.type == "Identity":
        return _terms(op.inputs[0], given)
    if op.type in SUMS:
        if any(t.shape.rank is None or t.shape != tensor.shape for t in op.inputs):
            return None
        parts = [_terms(t, given) for t in op.inputs]
        return None if None in parts else [term for part in parts for term in part or ()]
    term = _slice(op) if op.type == "StridedSliceGrad" else _product(op)
    return None if term is None else [term]


def _product(op: tf.Operation) -> _Product | None:
    flags = _PRODUCTS.get(op.type)
    if flags is None:
        return None
    a, b = op.inputs
    if not all(is_static(dims(t)) and t.shape.rank == 2 for t in (a, b)):
        return None
    if a.dtype.is_complex or not a.dtype == b.dtype == op.outputs[0].dtype:
        return None
    parts, upright = (_Part(a), _Part(b)), (op.get_attr(flags[0]), not op.get_attr(flags[1]))
    (r, k), (_, m) = (p.shape[:: 1 if up else -1] for p, up in zip(parts, upright))
    return _Product(parts, upright) if is_smaller(r, k, m) else None


def _slice(op: tf.Operation) -> _Slice | None:
    """The gradient of x[t]."""
    shape, (_, begin, _, _, dy) = dims(op.outputs[0]), op.inputs
    masks = [op.get_attr(f"{name}_mask") for name in ("begin", "ellipsis", "new_axis")]
    if any(masks) or op.get_attr("shrink_axis_mask") != 1 or dims(begin) != (1,):
        return None
    if not is_static(shape) or dims(dy) != shape[1:]:
        return None
    return _Slice(_Part(dy), _Part(begin), shape[0])
