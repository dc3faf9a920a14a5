"""Ops of one row, with all slices in place of those that a mask selects (``selections``).

What is not selected must not matter. It is dropped where slices are added up, so that its gradient
is zero; and where zero times an infinite derivative could be NaN, a select stops what flows back
(``_guarded``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_pfor import _tf, regions
from tf_pfor.elementwise import ELEMENTWISE
from tf_pfor.errors import CannotVectorize
from tf_pfor.regions import Region, key

# Elementwise with derivatives that may be infinite; of floats, these cannot fail.
_SMOOTH = frozenset(
    [
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Ceil", "Cos", "Cosh",
        "Digamma", "DivNoNan", "Elu", "EluGrad", "Erf", "Erfc", "Exp", "Expm1", "LeakyRelu",
        "LeakyReluGrad", "Lgamma", "Log", "Log1p", "Mul", "MulNoNan", "Pow", "RealDiv",
        "Reciprocal", "ReciprocalGrad", "Relu6Grad", "ReluGrad", "Rsqrt", "RsqrtGrad", "Selu",
        "SeluGrad", "Sigmoid", "SigmoidGrad", "Sin", "Sinh", "Softplus", "SoftplusGrad",
        "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference", "Tan",
        "Tanh", "TanhGrad", "Xdivy", "Xlog1py", "Xlogy",
    ]
)  # fmt: skip
_SEGMENTS = frozenset(f"UnsortedSegment{how}" for how in ("Max", "Min", "Prod", "Sum"))
_LIKE = frozenset(["OnesLike", "ZerosLike"])  # that do not read the numbers
# Of shapes, and sizes, that say how many are selected.
_OF_SHAPES = frozenset(["Cast", "ConcatV2", "ExpandDims", "Identity", "Pack", "StridedSlice"])
_REDUCTIONS = frozenset(["All", "Any", "Max", "Mean", "Min", "Prod", "Sum"])
# Which input is a shape or a size; all others are read as numbers.
_SIZES = {"BroadcastTo": 1, "Fill": 0, "Reshape": 1, "Tile": 1} | dict.fromkeys(_SEGMENTS, 2)


class _Slices(NamedTuple):
    """A tensor of one row, with all slices in place of those that are selected.

    Attributes:
      tensor: the tensor.
      mask: which slices on axis 0 are selected; of a shape: how many its number counts. None if
        it is as it was.
      places: the mask of what its numbers are places in; None if they are the numbers that they
        were. A place is another number among all slices than among those that are selected.
      counted: of a shape or a size, the numbers that they were.
    """

    tensor: tf.Tensor
    mask: tf.Tensor | None = None
    places: tf.Tensor | None = None
    counted: tf.Tensor | None = None

    @property
    def numbers(self) -> tf.Tensor:
        return self.tensor if self.counted is None else self.counted

    @property
    def rank(self) -> int | None:
        return self.tensor.shape.rank


def all_slices(
    region: Region, uneven: Collection[Any], inputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Emits the ops of one row with all slices in place of those that are selected.

    Args:
      region: the ops.
      uneven: the keys of tensors whose shape depends on how many are selected.
      inputs: what the region reads.

    Returns:
      Its outputs, none of which is uneven.

    Raises:
      CannotVectorize: if an op would see what is not selected.
    """
    made = {key(t): _Slices(x) for t, x in zip(region.inputs, inputs)}
    joined: dict[Any, tf.Tensor] = {}
    for op in region.ops:
        given = [made[key(t)] for t in op.inputs]
        if any(key(t) in uneven for t in (*op.inputs, *op.outputs)):
            found = _selected(op, given, joined)
        else:
            found = _of_shape(op, given)
        made.update((key(t), x) for t, x in zip(op.outputs, found, strict=True))
    results = [made[key(t)] for t in region.outputs]
    if any(x.mask is not None and x.counted is None for x in results):
        raise CannotVectorize("what it selects is read where shapes do not differ")
    return [x.numbers for x in results]


def _copied(
    op: tf.Operation, given: Sequence[_Slices], mask: Any = None, places: Any = None
) -> list[_Slices]:
    return [_Slices(x, mask, places) for x in regions.copied(op, [x.tensor for x in given])]


# ---------------------------------------------------------------------------
# How many are selected
# ---------------------------------------------------------------------------


def _of_shape(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    """An op that reads nothing of unequal shape, but maybe a shape that says how many."""
    masks = _different(x.mask for x in given)
    if any(x.mask is not None and x.counted is None for x in given):
        raise CannotVectorize("what it selects is read where shapes do not differ")
    if not masks:
        return _copied(op, given)
    places = _places_in_shape(op)
    if places is not None and 0 not in places:
        return _copied(op, given)
    if _replaces_axis_0(op, given):
        return [_Slices(_stitched(op, given))]
    counted = regions.copied(op, [x.numbers for x in given])
    is_of_shape = op.type in _OF_SHAPES and (op.type != "StridedSlice" or places is not None)
    if len(masks) > 1 or not is_of_shape:
        return [_Slices(x) for x in counted]
    return [x._replace(counted=n) for x, n in zip(_copied(op, given, masks[0]), counted)]


def _places_in_shape(op: tf.Operation) -> Sequence[int] | None:
    """Which numbers of ``tf.shape(x)`` a StridedSlice takes; None if it is of something else."""
    if op.type != "StridedSlice" or op.inputs[0].op.type != "Shape":
        return None
    rank = op.inputs[0].op.inputs[0].shape.rank
    known = [_tf.static_value(t) for t in op.inputs[1:]]
    others = any(op.get_attr(f"{mask}_mask") for mask in ("ellipsis", "new_axis"))
    if rank is None or others or any(x is None or x.size != 1 for x in known):
        return None
    begin, end, step = (int(x[0]) for x in known if x is not None)
    if op.get_attr("shrink_axis_mask"):
        return [begin % rank]
    first = None if op.get_attr("begin_mask") else begin
    last = None if op.get_attr("end_mask") else end
    return range(rank)[first:last:step]


def _replaces_axis_0(op: tf.Operation, given: Sequence[_Slices]) -> bool:
    """Whether an op replaces the first number of ``tf.shape(x)``: gradients of reductions do."""
    if op.type != "DynamicStitch" or len(given) != 4 or op.inputs[2].op.type != "Shape":
        return False
    everywhere, axes = (_evaluated(t) for t in op.inputs[:2])
    if everywhere is None or axes is None or given[3].mask is not None:
        return False
    return 0 in np.ravel(axes) and np.array_equal(everywhere, np.arange(np.size(everywhere)))


def _stitched(op: tf.Operation, given: Sequence[_Slices]) -> tf.Tensor:
    """The shape that ``_replaces_axis_0``: a constant if the slices' own shape is known."""
    shape, new = op.inputs[2].op.inputs[0].shape, _evaluated(op.inputs[3])
    if new is None or not _is_static_behind_axis_0(shape):
        return _copied(op, given)[0].tensor
    made = np.asarray([0, *shape[1:]])
    made[np.ravel(_evaluated(op.inputs[1]))] = new
    return tf.constant(made, op.outputs[0].dtype)


def _evaluated(tensor: tf.Tensor) -> Any:
    """The value of a constant, also of an axis that is counted from the end; None if unknown."""
    known = _tf.static_value(tensor)
    if known is None and tensor.op.type in ("AddV2", "FloorMod"):
        x, y = (_evaluated(t) for t in tensor.op.inputs)
        if x is not None and y is not None:
            return x + y if tensor.op.type == "AddV2" else x % y
    return known


def _count(mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """How many slices are selected: a scalar."""
    return tf.reduce_sum(tf.cast(mask, dtype))


def _shape(op: tf.Operation, given: _Slices) -> list[_Slices]:
    """``Shape``, or ``Size`` of a vector."""
    (made,) = _copied(op, [given], given.mask)
    assert given.mask is not None
    counted = _count(given.mask, made.tensor.dtype)
    if op.type == "Shape":
        counted = tf.concat([counted[None], made.tensor[1:]], 0)
    return [made._replace(counted=counted)]


# ---------------------------------------------------------------------------
# What is selected
# ---------------------------------------------------------------------------


def _selected(
    op: tf.Operation, given: Sequence[_Slices], joined: dict[Any, tf.Tensor]
) -> list[_Slices]:
    """An op that reads or makes what is selected, on all slices."""
    size = _SIZES.get(op.type)
    given = [
        _Slices(x.numbers) if x.counted is not None and i != size else x
        for i, x in enumerate(given)
    ]
    first = given[0]
    if op.type == "Where" and first.tensor.dtype == tf.bool and first.rank == 1:
        mask = joined.setdefault(_source(op.inputs[0]), first.tensor)
        mask = mask if first.mask is None else tf.logical_and(mask, first.mask)
        places = tf.range(tf.size(mask, tf.int64))[:, None]
        return [_Slices(places, mask, first.mask)]
    if op.type == "Where" or all(x.mask is None for x in given):
        return _as_it_is(op, given)
    if op.type == "GatherV2" and given[1].mask is not None and _is_along_axis_0(op):
        return _looked_up(op, given)
    if op.type == "ConcatV2" and _is_along_axis_0(op) and _are_one(x.places for x in given[:-1]):
        return _copied(op, given, _joined(given[:-1], joined), first.places)
    if op.type in _SEGMENTS and op.inputs[1].shape.rank == 1:
        return _segments(op, given)
    if op.type == "Shape" or (op.type == "Size" and first.rank == 1):
        return _shape(op, first)
    if op.type in _REDUCTIONS:
        return _reduced(op, given)
    if _is_elementwise(op, given):
        return _elementwise(op, given)
    if (op.type == "Squeeze" and op.get_attr("squeeze_dims") == [1]) or _keeps_axis_0(op, given):
        return _copied(op, given, first.mask, first.places)
    if _repeats(op, given):
        return _copied(op, given, given[1].mask)
    if op.type == "Maximum" and _are_one(x.mask for x in given) and _is_zero(op.inputs[1]):
        return _copied(op, given, first.mask, first.places)  # a place is not negative
    raise CannotVectorize(f"what it selects is read by {op.type}")


def _as_it_is(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    """An op that reads nothing selected, such as the gradient of a reduced shape."""
    if op.type == "Where":
        raise CannotVectorize("it selects by a matrix, or by numbers")
    return _copied(op, given)


def _source(mask: tf.Tensor) -> Any:
    """What names a mask: ``tf.boolean_mask`` reshapes it each time."""
    while mask.op.type in ("Identity", "Reshape") and mask.op.inputs[0].shape.rank == 1:
        mask = mask.op.inputs[0]
    return key(mask)


def _different(masks: Iterable[tf.Tensor | None]) -> list[tf.Tensor]:
    """The masks that there are, each once."""
    return list({id(m): m for m in masks if m is not None}.values())


def _are_one(masks: Iterable[tf.Tensor | None]) -> bool:
    """Whether all are the same mask, or none is one."""
    return len({id(m) for m in masks}) == 1


def _is_along_axis_0(op: tf.Operation) -> bool:
    axis = _tf.static_value(op.inputs[-1])
    batched = op.type == "GatherV2" and op.get_attr("batch_dims")
    return axis is not None and axis == 0 and not batched


def _is_zero(tensor: tf.Tensor) -> bool:
    known = _tf.static_value(tensor)
    return tensor.op.type == "ZerosLike" or (known is not None and not known.any())


def _column(mask: tf.Tensor, rank: int) -> tf.Tensor:
    """A mask [k] as [k, 1, ...], for tensors of this rank."""
    return tf.reshape(mask, [-1] + [1] * (rank - 1))


def _guarded(x: _Slices, mask: tf.Tensor, rank: int) -> _Slices:
    """``x`` without what flows back from slices that are not selected, where it may be NaN."""
    if not (x.tensor.dtype.is_floating or x.tensor.dtype.is_complex):
        return x
    return x._replace(tensor=tf.where(_column(mask, rank), x.tensor, tf.stop_gradient(x.tensor)))


def _is_elementwise(op: tf.Operation, given: Sequence[_Slices]) -> bool:
    """Whether an op is done to each slice by itself, with numbers that all share."""
    ranks = {x.rank for x in given if x.mask is not None}
    rank = ranks.pop()
    if rank is None or ranks or len(_different(x.mask for x in given)) != 1:
        return False
    for x in given:
        is_shared = x.rank is not None and (
            x.rank < rank or (x.rank == rank and x.tensor.shape[0] == 1)
        )
        if x.mask is None and not is_shared:
            return False
    is_sign = op.type == "GreaterEqual" and _is_zero(op.inputs[1])
    of_numbers = is_sign or op.type in _LIKE or not _different(x.places for x in given)
    is_float = all(x.tensor.dtype.is_floating for x in given)
    return of_numbers and (op.type in (*ELEMENTWISE, "AddN") or (op.type in _SMOOTH and is_float))


def _elementwise(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    (mask,) = _different(x.mask for x in given)
    if op.type in _SMOOTH:
        rank = max(x.rank or 0 for x in given)
        given = [_guarded(x, mask, rank) for x in given]
    return _copied(op, given, mask)


def _reduced(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    """Slices reduced: to one that does not depend on what is not selected, or each by itself."""
    values, known = given[0], _evaluated(op.inputs[1])
    rank, dtype = values.rank, values.tensor.dtype
    if values.mask is None or values.places is not None or known is None or not rank:
        raise CannotVectorize(f"what it selects, or how much, is reduced by {op.type}")
    axes = sorted({int(axis) % rank for axis in np.ravel(known)})
    if 0 not in axes:
        return _copied(op, [_guarded(values, values.mask, rank), *given[1:]], values.mask)
    neutral = tf.constant(_neutral(op.type, dtype), dtype)
    shown = tf.where(_column(values.mask, rank), values.tensor, neutral)
    if op.type != "Mean":
        return _copied(op, [_Slices(shown), *given[1:]])
    if not dtype.is_floating:  # of none: an error, or of complex numbers zero
        raise CannotVectorize("the mean of what it selects, which is not floating point")
    total = tf.reduce_sum(shown, axes, keepdims=op.get_attr("keep_dims"))
    number = _count(values.mask, dtype)
    for axis in axes[1:]:
        number *= tf.cast(tf.shape(values.tensor)[axis], dtype)
    return [_Slices(total / number)]


def _neutral(reduction: str, dtype: tf.DType) -> Any:
    """What changes nothing where it is reduced."""
    if reduction == "Max":
        return -np.inf if dtype.is_floating else dtype.min
    if reduction == "Min":
        return np.inf if dtype.is_floating else dtype.max
    return {"All": True, "Any": False, "Prod": 1}.get(reduction, 0)


def _repeats(op: tf.Operation, given: Sequence[_Slices]) -> bool:
    """Whether an op repeats one slice as often as slices are selected (gradients of sums do)."""
    made = op.outputs[0].shape
    if op.type not in ("BroadcastTo", "Tile") or given[0].mask is not None:
        return False
    if given[1].mask is None or not _is_static_behind_axis_0(made):
        return False
    one = given[0].tensor.shape
    is_one = one.rank == made.rank and one[0] == 1
    return is_one or (op.type == "BroadcastTo" and one.rank is not None and one.rank < made.rank)


def _keeps_axis_0(op: tf.Operation, given: Sequence[_Slices]) -> bool:
    """Whether an op makes slices of slices (Reshape), or as many new ones (Fill)."""
    made, read = op.outputs[0].shape, op.inputs[0].shape
    if given[0].mask is None or not _is_static_behind_axis_0(made):
        return False
    if op.type == "Fill":
        return True
    if op.type != "Reshape" or not _is_static_behind_axis_0(read):
        return False
    if given[1].mask is not None and given[1].mask is not given[0].mask:
        return False
    return read[1:].num_elements() == made[1:].num_elements()


def _is_static_behind_axis_0(shape: tf.TensorShape) -> bool:
    return bool(shape.rank) and shape[0] is None and shape[1:].is_fully_defined()


def _joined(parts: Sequence[_Slices], joined: dict[Any, tf.Tensor]) -> tf.Tensor:
    """Which of joined slices are selected: one tensor for values and for their ids."""

    def of(part: _Slices) -> Any:
        if part.mask is not None:
            return id(part.mask)
        known = part.tensor.shape[0]
        return (known,) if known is not None else id(part.tensor)  # all of as many are alike

    name = tuple(map(of, parts))
    if name not in joined:
        masks = [tf.fill(tf.shape(x.tensor)[:1], True) if x.mask is None else x.mask for x in parts]
        joined[name] = tf.concat(masks, 0)
    return joined[name]


def _looked_up(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    """``GatherV2`` by indices of which some are not selected: those look up slice 0."""
    table, indices, axis = given
    if indices.places is not table.mask:
        raise CannotVectorize("what it selects is looked up by numbers, or looks up another thing")
    if indices.mask is None or indices.tensor.shape.rank != 1:
        raise CannotVectorize("what it selects looks up by a matrix of indices")
    rows, source = table.tensor.shape[0], op.inputs[1].op
    is_place = source.type == "Squeeze" and source.inputs[0].op.type == "Where"
    if is_place and rows is not None and rows == indices.mask.shape[0]:
        return [_Slices(table.tensor, indices.mask, table.places)]
    if rows == 0 or (rows is None and not is_place):
        raise CannotVectorize("what it selects looks up in a matrix of no rows, or maybe none")
    found = tf.where(indices.mask, indices.tensor, tf.zeros_like(indices.tensor))
    return _copied(op, [table, _Slices(found), axis], indices.mask, table.places)


def _segments(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    """Slices added up by ids: what is not selected has none."""
    values, ids, count = given
    mask = ids.mask
    if mask is None or values.mask is not mask or values.places is not None:
        raise CannotVectorize("values and segments that it selects are of two selections")
    if ids.places is not count.mask:
        raise CannotVectorize("what it selects is added up by places in something else")
    segments = tf.where(mask, ids.tensor, -tf.ones_like(ids.tensor))
    return _copied(op, [values, _Slices(segments), count], count.mask, None)
