"""Bounds of integers before running: the least and the greatest value of each.

Where both are the same the number is a constant. Bounds come from constants, static shapes, ranges
(such as the iteration numbers), remainders, random integers and places of largest elements. They
pass through arithmetic, comparisons and ops that move elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf._strided_slices import items
from tf_pfor.core.values import all_known

_MOST = 4096  # elements whose bounds are kept apart
_EXACT = 2.0**53  # integers up to here are float64
_DEPTH = 100  # ops that are followed


class Range(NamedTuple):
    """The bounds of the elements of a tensor, float64; its dtype's bounds if nothing is known.

    A bound has the shape of the tensor; or its rank, with sizes of 1, for all elements at once.
    """

    low: np.ndarray
    high: np.ndarray

    @property
    def is_exact(self) -> bool:
        """Whether all elements are known."""
        return bool((self.low == self.high).all() and np.isfinite(self.low).all())


Leaf = Callable[[tf.Tensor], "Range | None"]


class Bounds:
    """The bounds of the tensors of one graph.

    Args:
      leaf: says what is known of a tensor that comes from elsewhere, such as a placeholder.
    """

    def __init__(self, leaf: Leaf | None = None):
        self._leaf = leaf
        self._known: dict[Any, Range | None] = {}
        self._depth = 0

    def of(self, tensor: tf.Tensor) -> Range | None:
        """The bounds of a tensor; None if it has none: no integers, or of unknown rank."""
        if not (tensor.dtype.is_integer or tensor.dtype.is_bool) or tensor.shape.rank is None:
            return None
        if not tf.is_symbolic_tensor(tensor):
            return None
        name = (tensor.op, tensor.value_index)
        if name not in self._known:
            self._known[name] = self._found(tensor)
        return self._known[name]

    def constant(self, tensor: tf.Tensor) -> np.ndarray | None:
        """The value of a tensor if it is known, else None."""
        known = self.of(tensor)
        if known is None or not known.is_exact or not _is_full(tensor, known):
            return None
        return known.low.astype(tensor.dtype.as_numpy_dtype)

    def _found(self, tensor: tf.Tensor) -> Range | None:
        op = tensor.op
        rule = _RULES.get(op.type)
        if rule is None or self._depth > _DEPTH:
            known = None if self._leaf is None else self._leaf(tensor)
            return known or _unbounded(tensor)
        self._depth += 1
        try:
            with np.errstate(all="ignore"):
                made = rule(op, tensor, self)
        finally:
            self._depth -= 1
        if made is None:
            return _unbounded(tensor)
        return _fitted(tensor, *made, may_overflow=op.type in _OVERFLOWING)


def _unbounded(tensor: tf.Tensor) -> Range:
    return _anything(tensor.dtype, tensor.shape.rank)


@functools.cache
def _anything(dtype: tf.DType, rank: int) -> Range:
    low, high = (np.full([1] * rank, x, np.float64) for x in _limits(dtype))
    return Range(low, high)


@functools.cache
def _limits(dtype: tf.DType) -> tuple[float, float]:
    """The least and the greatest value of a dtype."""
    return (0, 1) if dtype.is_bool else (float(dtype.min), float(dtype.max))


def _fitted(tensor: tf.Tensor, low: Any, high: Any, may_overflow: bool = False) -> Range:
    """Bounds in the shape of the tensor, or of its rank.

    Args:
      tensor: the tensor of the bounds.
      low: the least, as if integers had no limits.
      high: the greatest.
      may_overflow: whether numbers beyond the limits come back from the other end.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    (least, most), shape, count = _limits(tensor.dtype), tensor.shape, tensor.shape.num_elements()
    if count is not None and count <= _MOST:
        full: Any = tuple(shape.as_list())
        low, high = (x if x.shape == full else np.broadcast_to(x, full) for x in (low, high))
    elif low.size and high.size:
        low, high = (x.reshape([1] * shape.rank) for x in (low.min(), high.max()))
    else:
        return _unbounded(tensor)
    is_low, is_high = low >= max(least, -_EXACT), high <= min(most, _EXACT)
    is_ordered = (is_low & is_high if may_overflow else True) & (low <= high)
    if (is_low & is_high & is_ordered).all():
        return Range(low, high)
    return Range(
        np.where(is_low & is_ordered, low, least), np.where(is_high & is_ordered, high, most)
    )


def _is_full(tensor: tf.Tensor, known: Range) -> bool:
    return tensor.shape.is_fully_defined() and list(known.low.shape) == tensor.shape.as_list()


# ---------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------

_Pair = tuple[Any, Any]


def _elementwise(
    combine: Callable[..., _Pair | None],
) -> Callable[[tf.Operation, tf.Tensor, Bounds], _Pair | None]:
    def rule(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
        found = [bounds.of(t) for t in op.inputs]
        if tensor.shape.rank == 0 and any(t.shape.rank for t in op.inputs):
            return None  # == of shapes that do not fit
        return None if None in [x and 0 for x in found] else combine(*found)

    return rule


def _times(a: Range, b: Range) -> _Pair:
    found = [np.nan_to_num(x * y, nan=0, posinf=np.inf, neginf=-np.inf) for x in a for y in b]
    return np.minimum.reduce(found), np.maximum.reduce(found)


def _divided(a: Range, b: Range) -> _Pair | None:
    if not b.is_exact or not (b.low > 0).all():
        return None
    return np.floor(a.low / b.low), np.floor(a.high / b.low)


def _remainder(a: Range, b: Range) -> _Pair | None:
    if not b.is_exact or not (b.low > 0).all():
        return None
    is_same = (a.low >= 0) & (a.high < b.low)
    is_known = is_same | (a.low == a.high)
    low, high = (np.where(is_same, x, np.mod(x, b.low)) for x in a)
    return np.where(is_known, low, 0), np.where(is_known, high, b.low - 1)


def _truncated_remainder(a: Range, b: Range) -> _Pair | None:
    return _remainder(a, b) if (a.low >= 0).all() else None


def _equal(a: Range, b: Range) -> _Pair:
    surely = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    return surely, (a.low <= b.high) & (b.low <= a.high)


def _less(a: Range, b: Range) -> _Pair:
    return a.high < b.low, a.low < b.high


def _less_equal(a: Range, b: Range) -> _Pair:
    return a.high <= b.low, a.low <= b.high


def _not(pair: _Pair) -> _Pair:
    low, high = pair
    return 1.0 - high, 1.0 - low


def _chosen(which: Range, a: Range, b: Range) -> _Pair | None:
    if which.low.ndim not in (0, a.low.ndim):
        return None
    low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
    is_a, is_b = which.low == 1, which.high == 0
    return (
        np.where(is_a, a.low, np.where(is_b, b.low, low)),
        np.where(is_a, a.high, np.where(is_b, b.high, high)),
    )


_ELEMENTWISE: dict[str, Callable[..., _Pair | None]] = {
    "Abs": lambda a: (
        np.maximum(np.maximum(a.low, -a.high), 0),
        np.maximum(np.abs(a.low), np.abs(a.high)),
    ),
    "Add": lambda a, b: (a.low + b.low, a.high + b.high),
    "AddV2": lambda a, b: (a.low + b.low, a.high + b.high),
    "Cast": lambda a: (a.low, a.high),
    "Equal": _equal,
    "FloorDiv": _divided,
    "FloorMod": _remainder,
    "Greater": lambda a, b: _less(b, a),
    "GreaterEqual": lambda a, b: _less_equal(b, a),
    "Identity": lambda a: (a.low, a.high),
    "Less": _less,
    "LessEqual": _less_equal,
    "LogicalAnd": lambda a, b: (np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "LogicalNot": _not,
    "LogicalOr": lambda a, b: (np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "Maximum": lambda a, b: (np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "Minimum": lambda a, b: (np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "Mod": _truncated_remainder,
    "Mul": _times,
    "Neg": lambda a: (-a.high, -a.low),
    "NotEqual": lambda a, b: _not(_equal(a, b)),
    "OnesLike": lambda a: (np.ones_like(a.low), np.ones_like(a.low)),
    "Select": _chosen,
    "SelectV2": _chosen,
    "Sub": lambda a, b: (a.low - b.high, a.high - b.low),
    "ZerosLike": lambda a: (np.zeros_like(a.low), np.zeros_like(a.low)),
}

_OVERFLOWING = {"Abs", "Add", "AddV2", "Cast", "FloorDiv", "Mul", "Neg", "Prod", "Sub", "Sum"}

# ---------------------------------------------------------------------------
# Ops that move elements
# ---------------------------------------------------------------------------

_Move = Callable[[tf.Operation, Sequence[np.ndarray], Sequence[np.ndarray], int], np.ndarray]


def _moves(
    move: _Move, where: Sequence[int] = ()
) -> Callable[[tf.Operation, tf.Tensor, Bounds], _Pair | None]:
    """The rule of an op that makes a tensor of elements of others.

    Args:
      move: the same with arrays: of the op, the arrays, what ``where`` says, and which output.
      where: the inputs that say places, from the front or the end; other inputs hold elements.
    """

    def rule(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
        count = len(op.inputs)
        places = [w % count for w in where]
        held = [t for i, t in enumerate(op.inputs) if i not in places]
        found = [bounds.of(t) for t in held]
        says = [bounds.constant(op.inputs[p]) for p in places]
        if not all_known(found):
            return None
        full = all(_is_full(t, x) for t, x in zip(held, found))
        if full and all_known(says):
            low, high = (move(op, [x[i] for x in found], says, tensor.value_index) for i in (0, 1))
            if tensor.shape.is_compatible_with(low.shape):
                return low, high
        parts = [x for x in found if x is not None and x.low.size]
        if not parts:
            return None
        return min(x.low.min() for x in parts), max(x.high.max() for x in parts)

    return rule


def _sliced(
    op: tf.Operation, x: Sequence[np.ndarray], says: Sequence[np.ndarray], _: int
) -> np.ndarray:
    begin, end = (vector.tolist().__getitem__ for vector in says[:2])
    index = [item.python for item in items(op.get_attr, begin, end, says[2], x[0].ndim)]
    try:
        return x[0][tuple(index)]
    except IndexError:  # an error when it runs
        return np.zeros([0])


def _cut(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
    """A slice; the first column of the indices of pieces says of which text each is."""
    source, says = op.inputs[0], [bounds.constant(t) for t in op.inputs[1:]]
    if source.op.type in _SPLITS and source.value_index == 0 and tensor.shape.rank == 1:
        texts = source.op.inputs[0].shape
        count = texts[0] if texts.rank == 1 else None
        most = np.inf if count is None else max(count - 1, 0)
        column = op.get_attr("shrink_axis_mask") == 2 and op.get_attr("new_axis_mask") == 0
        if column and says[0] is not None and says[0][1] == 0:
            return 0, most
    return _moves(_sliced, [1, 2, 3])(op, tensor, bounds)


_SPLITS = ("StringSplit", "StringSplitV2")


def _taken(
    op: tf.Operation, x: Sequence[np.ndarray], says: Sequence[np.ndarray], _: int
) -> np.ndarray:
    places, axis = says
    if op.get_attr("batch_dims") or not ((places >= 0) & (places < x[0].shape[int(axis)])).all():
        return np.zeros([0])
    return np.take(x[0], places, int(axis))


def _as_shape(op: tf.Operation, x: Sequence[np.ndarray], _: object, i: int) -> np.ndarray:
    shape = op.outputs[i].shape
    return x[0].reshape(shape.as_list()) if shape.is_fully_defined() else np.zeros([0])


def _filled(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
    value = bounds.of(op.inputs[0 if op.type == "BroadcastTo" else 1])
    return None if value is None else (value.low, value.high)


_MOVES: dict[str, Any] = {
    "BroadcastTo": _filled,
    "ConcatV2": _moves(lambda op, x, says, i: np.concatenate(x, int(says[0])), [-1]),
    "ExpandDims": _moves(_as_shape, [1]),
    "Fill": _filled,
    "GatherV2": _moves(_taken, [1, 2]),
    "Pack": _moves(lambda op, x, says, i: np.stack(x, op.get_attr("axis"))),
    "Reshape": _moves(_as_shape, [1]),
    "Squeeze": _moves(_as_shape),
    "StridedSlice": _cut,
    "Unpack": _moves(lambda op, x, says, i: np.take(x[0], i, op.get_attr("axis"))),
}

# ---------------------------------------------------------------------------
# Reductions
# ---------------------------------------------------------------------------


def _reduced(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
    """The bounds of a reduction of elements with separate bounds; of All, Any, Max, Min always."""
    x, axes = bounds.of(op.inputs[0]), bounds.constant(op.inputs[1])
    shape = op.inputs[0].shape
    if x is None or axes is None or not shape.rank:
        return None
    over = tuple(int(a) % shape.rank for a in axes.reshape([-1]))
    is_full = _is_full(op.inputs[0], x)
    if not is_full and op.type not in ("All", "Any", "Max", "Min"):
        return None
    if any(not shape[a] for a in over):  # maybe empty
        return None
    how = _REDUCTIONS[op.type]
    keep = bool(op.get_attr("keep_dims"))
    if op.type == "Prod" and not (x.low >= 0).all():
        return None if not x.is_exact else tuple(how(v, axis=over, keepdims=keep) for v in x)  # type: ignore[return-value]
    low, high = (how(v, axis=over, keepdims=keep) for v in x)
    return low, high


_REDUCTIONS: dict[str, Any] = {
    "All": np.min,
    "Any": np.max,
    "Max": np.max,
    "Min": np.min,
    "Prod": np.prod,
    "Sum": np.sum,
}

# ---------------------------------------------------------------------------
# Where bounds come from
# ---------------------------------------------------------------------------


def _constant(op: tf.Operation, tensor: tf.Tensor, _: Bounds) -> _Pair | None:
    if (tensor.shape.num_elements() or 0) > _MOST:
        return None
    known = _tf.static_value(tensor)
    if known is None:
        return None
    exact = known.astype(np.float64)
    return exact, exact


def _shape(op: tf.Operation, tensor: tf.Tensor, _: Bounds) -> _Pair | None:
    shape = op.inputs[tensor.value_index].shape
    if shape.rank is None:
        return None
    low = [0 if d is None else d for d in shape]
    return np.asarray(low), np.asarray([np.inf if d is None else d for d in shape])


def _size(op: tf.Operation, tensor: tf.Tensor, _: Bounds) -> _Pair:
    count = op.inputs[0].shape.num_elements()
    return (0, np.inf) if count is None else (count, count)


def _rank(op: tf.Operation, tensor: tf.Tensor, _: Bounds) -> _Pair:
    rank = op.inputs[0].shape.rank
    return (0, np.inf) if rank is None else (rank, rank)


def _numbers(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
    """``tf.range``."""
    first, limit, step = (bounds.of(t) for t in op.inputs)
    if first is None or limit is None or step is None or not step.is_exact or step.low <= 0:
        return None
    if first.is_exact and limit.is_exact and limit.low - first.low <= _MOST * step.low:
        made = np.arange(*(float(x.low.item()) for x in (first, limit, step)))
        if tensor.shape.is_compatible_with(made.shape):
            return made, made
    return first.low, limit.high - 1


def _place(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair:
    """A place along an axis."""
    axis, shape = bounds.constant(op.inputs[1]), op.inputs[0].shape
    size = None if axis is None or shape.rank is None else shape[int(axis)]
    return 0, np.inf if size is None else size - 1


def _pieces(op: tf.Operation, tensor: tf.Tensor, _: Bounds) -> _Pair | None:
    """The bounds of a split text's shape: its first size is the number of texts."""
    count = op.inputs[0].shape[0] if op.inputs[0].shape.rank == 1 else None
    if tensor.value_index != 2 or count is None:
        return None
    return np.asarray([count, 0]), np.asarray([count, np.inf])


def _drawn(op: tf.Operation, tensor: tf.Tensor, bounds: Bounds) -> _Pair | None:
    """Random integers from the last but one input on and below the last."""
    low, high = (bounds.of(t) for t in op.inputs[-2:])
    if low is None or high is None or low.low.size != 1 or high.high.size != 1:
        return None
    return low.low.reshape([]), high.high.reshape([]) - 1


_RULES: dict[str, Callable[[tf.Operation, tf.Tensor, Bounds], _Pair | None]] = {
    **{name: _elementwise(combine) for name, combine in _ELEMENTWISE.items()},
    **_MOVES,
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "ArgMax": _place,
    "ArgMin": _place,
    "Const": _constant,
    "RandomUniformInt": _drawn,
    "Range": _numbers,
    "Rank": _rank,
    "Shape": _shape,
    "ShapeN": _shape,
    "Size": _size,
    "StatelessRandomUniformInt": _drawn,
    "StatelessRandomUniformIntV2": _drawn,
    **dict.fromkeys(_SPLITS, _pieces),
}


def of_rows(value_of: Callable[[tf.Tensor], Any]) -> Bounds:
    """The bounds of the tensors of a body in all rows.

    Args:
      value_of: gives the Value of a tensor of the body, or None.
    """
    stored = Bounds()

    def leaf(tensor: tf.Tensor) -> Range | None:
        value = value_of(tensor)
        if value is None or not value.cell.is_made:
            return None
        known = stored.of(value.tensor)
        if known is None or not value.is_stacked:
            return known
        if not known.low.shape or not known.low.shape[0]:
            return None
        made = _fitted(tensor, known.low.min(0), known.high.max(0))
        return made if value.tensor.shape[1:].is_compatible_with(tensor.shape) else None

    return Bounds(leaf)
