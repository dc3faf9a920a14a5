"""Ops of one row, with all slices in place of those that a mask selects (``selections``)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import Region, key
from tf_pfor.layouts.masked_ops import (
    CUMULATIVE,
    REDUCTIONS,
    SUMS_OF_PRODUCTS,
    Slices,
    are_one,
    copied,
    count,
    cumulated,
    different,
    elementwise,
    emitted,
    evaluated,
    is_elementwise,
    is_of_each,
    is_within_each,
    is_zero,
    one,
    product,
    reduced,
    softmax,
    takes_one,
)
from tf_pfor.layouts.padded_lists import marked_stack
from tf_pfor.layouts.ragged_slices import Fronts, cut, is_cut
from tf_pfor.layouts.windows import window, window_gradient

_SEGMENTS = frozenset(f"UnsortedSegment{how}" for how in ("Max", "Min", "Prod", "Sum"))
# Of shapes, and sizes, that say how many are selected.
_OF_SHAPES = frozenset(["Cast", "ConcatV2", "ExpandDims", "Identity", "Pack", "StridedSlice"])
# Which input is a shape or a size; all others are read as numbers.
_SIZES = {
    "BroadcastTo": 1, "Fill": 0, "Range": 1, "Reshape": 1, "Slice": 2, "StridedSliceGrad": 0,
    "Tile": 1,
    **dict.fromkeys(_SEGMENTS, 2),
}  # fmt: skip


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
    made = {key(t): Slices(_known(t, x)) for t, x in zip(region.inputs, inputs)}
    joined, fronts = dict[Any, Any](), Fronts()
    for op in region.ops:
        given = [made[key(t)] for t in op.inputs]
        if op.type == "BroadcastGradientArgs" and different(x.mask for x in given):
            found = _broadcast_axes(op, given)
        elif any(key(t) in uneven for t in (*op.inputs, *op.outputs)):
            found = _selected(op, given, joined, fronts)
        else:
            found = _of_shape(op, given)
        made.update((key(t), x) for t, x in zip(op.outputs, found, strict=True))
    results = [made[key(t)] for t in region.outputs]
    if any(x.mask is not None and x.counted is None for x in results):
        raise CannotVectorize("what it selects is read where shapes do not differ")
    return [x.numbers for x in results]


def _known(tensor: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
    """What is given for a tensor; if it is an axis or a shape that is known, a constant."""
    known = evaluated(tensor) if tensor.dtype in (tf.int32, tf.int64) else None
    return given if known is None else tf.constant(known, tensor.dtype)


# ---------------------------------------------------------------------------
# How many are selected
# ---------------------------------------------------------------------------


def _of_shape(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """An op that reads nothing of unequal shape, but maybe a shape that says how many."""
    masks = different(x.mask for x in given)
    if any(x.mask is not None and x.counted is None for x in given):
        raise CannotVectorize("what it selects is read where shapes do not differ")
    if not masks:
        return copied(op, given)
    places = _places_in_shape(op)
    if (places is not None and 0 not in places) or _is_along_others(op):
        return copied(op, given)
    if _replaces_axis_0(op, given):
        return [Slices(_stitched(op, given))]
    if _is_own_shape(op):
        return [_with_count(op, given, masks[0])]
    is_of_shape = op.type in _OF_SHAPES and (op.type != "StridedSlice" or places is not None)
    if len(masks) > 1 or not is_of_shape:
        return [Slices(x) for x in emitted(op, [x.numbers for x in given])]
    return [_with_count(op, given, masks[0])]


def _with_count(op: tf.Operation, given: Sequence[Slices], mask: tf.Tensor) -> Slices:
    """A shape or a size: of all slices, and how many are selected."""
    (made,) = copied(op, given, mask)
    (counted,) = emitted(op, [x.numbers for x in given])
    return made._replace(counted=counted)


def _is_own_shape(op: tf.Operation) -> bool:
    """Whether an op makes a shape whose first number is how many are selected."""
    if op.type in ("Shape", "ShapeN"):
        return True
    stitch = _stitched_axes(op)
    return stitch is not None and 0 not in stitch and op.inputs[2].op.type == "Shape"


def _stitched_axes(op: tf.Operation) -> Any:
    """The axes of which a DynamicStitch replaces the numbers in a shape; None if unknown."""
    if op.type != "DynamicStitch" or len(op.inputs) != 4:
        return None
    everywhere, axes = (evaluated(t) for t in op.inputs[:2])
    if everywhere is None or not np.array_equal(everywhere, np.arange(np.size(everywhere))):
        return None
    return axes if axes is None else np.ravel(axes)


def _broadcast_axes(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """The axes over which the gradients of two broadcast operands are added up."""
    shapes, masks = [t.op for t in op.inputs], different(x.mask for x in given)
    of = [o.inputs[0].shape for o in shapes if o.type == "Shape"]
    if len(of) < 2 or len(masks) > 1 or any(s.rank is None for s in of):
        raise CannotVectorize("what it selects is broadcast to another shape")
    rank = max(s.rank for s in of)
    if any(x.mask is not None and s.rank != rank for s, x in zip(of, given)):
        raise CannotVectorize("what it selects is broadcast to slices of a higher rank")
    dims = [[1] * (rank - s.rank) + s.as_list() for s in of]
    for own, x in zip(dims, given):
        if x.mask is not None:
            own[0] = -1
    axes = list[Slices]()
    for own, other in (dims, dims[::-1]):
        if any(a is None or b is None for a, b in zip(own, other)):
            raise CannotVectorize("what it selects is broadcast to a shape that is not known")
        added = [i for i, (a, b) in enumerate(zip(own, other)) if a == 1 != b]
        axes.append(Slices(tf.constant(added, op.outputs[0].dtype, [len(added)])))
    return axes


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


def _replaces_axis_0(op: tf.Operation, given: Sequence[Slices]) -> bool:
    """Whether an op replaces the first number of ``tf.shape(x)``: gradients of reductions do."""
    axes = _stitched_axes(op)
    if axes is None or op.inputs[2].op.type != "Shape" or given[3].mask is not None:
        return False
    return 0 in axes


def _stitched(op: tf.Operation, given: Sequence[Slices]) -> tf.Tensor:
    """The shape that ``_replaces_axis_0``: a constant if the slices' own shape is known."""
    shape, new = op.inputs[2].op.inputs[0].shape, evaluated(op.inputs[3])
    if new is None or not _is_static_behind_axis_0(shape):
        return copied(op, given)[0].tensor
    made = np.asarray([0, *shape[1:]])
    made[np.ravel(evaluated(op.inputs[1]))] = new
    return tf.constant(made, op.outputs[0].dtype)


def _shape(op: tf.Operation, given: Slices) -> Slices:
    """``Shape``, one of ``ShapeN``, or ``Size`` of a vector."""
    dtype = op.outputs[0].dtype
    whole = tf.shape(given.tensor, dtype)
    if given.mask is None:
        return Slices(whole)
    counted = count(given.mask, dtype)
    if op.type == "Size":
        return Slices(whole[0], given.mask, counted=counted)
    return Slices(whole, given.mask, counted=tf.concat([counted[None], whole[1:]], 0))


def _is_count(tensor: tf.Tensor) -> bool:
    """Whether a tensor is ``tf.shape(x)[0]``."""
    while tensor.op.type in ("Cast", "Identity"):
        tensor = tensor.op.inputs[0]
    return tensor.shape.rank == 0 and list(_places_in_shape(tensor.op) or ()) == [0]


def _counts_up(op: tf.Operation) -> bool:
    return [_tf.static_value(op.inputs[i]) for i in (0, 2)] == [0, 1]


def _numbered(op: tf.Operation, size: Slices) -> list[Slices]:
    """``tf.range(tf.shape(x)[0])``: the numbers of the slices that are selected, among these."""
    if size.mask is None:
        raise CannotVectorize("how much it selects is counted in another way")
    return [Slices(tf.cumsum(tf.cast(size.mask, op.outputs[0].dtype)) - 1, size.mask)]


# ---------------------------------------------------------------------------
# What is selected
# ---------------------------------------------------------------------------


def _selected(
    op: tf.Operation, given: Sequence[Slices], joined: dict[Any, Any], fronts: Fronts
) -> list[Slices]:
    """An op that reads or makes what is selected, on all slices."""
    if op.type == "TensorListStack":
        return [_stacked(op, given, fronts)]
    size = _SIZES.get(op.type)
    given = [
        Slices(x.numbers) if x.counted is not None and i != size else x for i, x in enumerate(given)
    ]
    first = given[0]
    if op.type == "Where" and first.tensor.dtype == tf.bool and first.rank == 1:
        mask = joined.setdefault(_source(op.inputs[0]), first.tensor)
        mask = mask if first.mask is None else tf.logical_and(mask, first.mask)
        places = tf.range(tf.size(mask, tf.int64))[:, None]
        return [Slices(places, mask, first.mask)]
    if op.type == "StridedSlice" and all(x.mask is None for x in given):
        return [window(op, given, joined, fronts)]
    if op.type == "Where" or all(x.mask is None for x in given):
        return _as_it_is(op, given)
    if op.type == "GatherV2" and given[1].mask is not None and _is_along_axis_0(op):
        return _looked_up(op, given)
    if op.type in ("ConcatV2", "Pack", "Unpack") and is_within_each(op, given):
        return copied(op, given, first.mask)
    if op.type == "ConcatV2" and _is_along_axis_0(op) and are_one(x.places for x in given[:-1]):
        return copied(op, given, _joined(given[:-1], joined), first.places)
    if op.type in _SEGMENTS and op.inputs[1].shape.rank == 1:
        return _segments(op, given)
    if op.type in ("Shape", "ShapeN") or (op.type == "Size" and first.rank == 1):
        return [_shape(op, x) for x in given]
    if op.type == "Range" and _is_count(op.inputs[1]) and _counts_up(op):
        return _numbered(op, given[1])
    if op.type in REDUCTIONS:
        return reduced(op, given)
    if op.type in CUMULATIVE:
        return cumulated(op, given)
    if takes_one(op):
        return one(op, given)
    if is_elementwise(op, given):
        return elementwise(op, given)
    if is_of_each(op, given) or _keeps_axis_0(op, given):
        return copied(op, given, first.mask, first.places)
    if is_cut(op, given, fronts):
        return cut(op, given, fronts)
    if op.type in SUMS_OF_PRODUCTS:
        return product(op, given)
    if op.type in ("LogSoftmax", "Softmax"):
        return softmax(op, first)
    if _repeats(op, given):
        return copied(op, given, given[1].mask)
    if op.type == "TensorListFromTensor":
        return [_listed(op, given, fronts)]
    if op.type == "Maximum" and are_one(x.mask for x in given) and is_zero(op.inputs[1]):
        return copied(op, given, first.mask, first.places)  # a place is not negative
    if op.type == "StridedSliceGrad":
        return [window_gradient(op, given, joined, fronts)]
    raise CannotVectorize(f"what it selects is read by {op.type}")


def _stacked(op: tf.Operation, given: Sequence[Slices], fronts: Fronts) -> Slices:
    """All items of a list that is as long as that of another row: the first ones are its own."""
    handle, shape = (x.tensor for x in given)
    dtype, known = op.outputs[0].dtype, op.outputs[0].shape
    if dtype == tf.variant or known.rank is None:
        raise CannotVectorize("items of lists of different lengths are lists, or of unknown rank")
    whole = marked_stack(handle, shape, dtype)
    whole.set_shape(known)
    length = tf.raw_ops.TensorListLength(input_handle=handle)
    return Slices(whole, fronts.add(tf.range(tf.shape(whole)[0]) < length, length))


def _listed(op: tf.Operation, given: Sequence[Slices], fronts: Fronts) -> Slices:
    """A list of slices that stand in front, as long as they are many."""
    values = given[0]
    length = fronts.length(values.mask)
    if length is None or values.places is not None:
        raise CannotVectorize("what it selects is put into a list")
    (made,) = copied(op, given)
    size = tf.cast(length, tf.int32)
    return Slices(tf.raw_ops.TensorListResize(input_handle=made.tensor, size=size))


def _as_it_is(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """An op that reads nothing selected, such as the gradient of a reduced shape."""
    if op.type == "Where":
        raise CannotVectorize("it selects by a matrix, or by numbers")
    return copied(op, given)


def _source(mask: tf.Tensor) -> Any:
    """What names a mask: ``tf.boolean_mask`` reshapes it each time."""
    while mask.op.type in ("Identity", "Reshape") and mask.op.inputs[0].shape.rank == 1:
        mask = mask.op.inputs[0]
    return key(mask)


def _is_along_axis_0(op: tf.Operation) -> bool:
    axis = _tf.static_value(op.inputs[-1])
    batched = op.type == "GatherV2" and op.get_attr("batch_dims")
    return axis is not None and axis == 0 and not batched


def _repeats(op: tf.Operation, given: Sequence[Slices]) -> bool:
    """Whether an op repeats one slice as often as slices are selected (gradients of sums do)."""
    made = op.outputs[0].shape
    if op.type not in ("BroadcastTo", "Tile") or given[0].mask is not None:
        return False
    if given[1].mask is None or not _is_static_behind_axis_0(made):
        return False
    one = given[0].tensor.shape
    is_one = one.rank == made.rank and one[0] == 1
    return is_one or (op.type == "BroadcastTo" and one.rank is not None and one.rank < made.rank)


def _keeps_axis_0(op: tf.Operation, given: Sequence[Slices]) -> bool:
    """Whether an op makes slices of slices, or as many new ones (Fill)."""
    made, read = op.outputs[0].shape, op.inputs[0].shape
    if given[0].mask is None:
        return False
    size = _SIZES.get(op.type, 0)
    if size and given[size].mask is given[0].mask and _is_own_shape(op.inputs[size].op):
        is_part = op.type == "Slice" and _is_along_others(op.inputs[1].op)
        return op.type in ("BroadcastTo", "Reshape") or is_part
    if not _is_static_behind_axis_0(made):
        return False
    if op.type == "Fill":
        return True
    if op.type != "Reshape" or not _is_static_behind_axis_0(read):
        return False
    if given[1].mask is not None and given[1].mask is not given[0].mask:
        return False
    return read[1:].num_elements() == made[1:].num_elements()


def _is_along_others(op: tf.Operation) -> bool:
    """Whether an op tells where what ConcatV2 joins begins, along another axis than the first."""
    return op.type == "ConcatOffset" and bool(evaluated(op.inputs[0]))


def _is_static_behind_axis_0(shape: tf.TensorShape) -> bool:
    return bool(shape.rank) and shape[0] is None and shape[1:].is_fully_defined()


def _joined(parts: Sequence[Slices], joined: dict[Any, Any]) -> tf.Tensor:
    """Which of joined slices are selected: one tensor for values and for their ids."""

    def of(part: Slices) -> Any:
        if part.mask is not None:
            return id(part.mask)
        known = part.tensor.shape[0]
        return (known,) if known is not None else id(part.tensor)  # all of as many are alike

    name = tuple(map(of, parts))
    if name not in joined:
        masks = [tf.fill(tf.shape(x.tensor)[:1], True) if x.mask is None else x.mask for x in parts]
        joined[name] = tf.concat(masks, 0)
    return joined[name]


def _looked_up(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """``GatherV2`` by indices of which some are not selected: those look up slice 0."""
    table, indices, axis = given
    if indices.places is not table.mask:
        raise CannotVectorize("what it selects is looked up by numbers, or looks up another thing")
    if indices.mask is None or indices.tensor.shape.rank != 1:
        raise CannotVectorize("what it selects looks up by a matrix of indices")
    rows, source = table.tensor.shape[0], op.inputs[1].op
    is_place = source.type == "Squeeze" and source.inputs[0].op.type == "Where"
    if is_place and rows is not None and rows == indices.mask.shape[0]:
        return [Slices(table.tensor, indices.mask, table.places)]
    if rows == 0 or (rows is None and not is_place):
        raise CannotVectorize("what it selects looks up in a matrix of no rows, or maybe none")
    found = tf.where(indices.mask, indices.tensor, tf.zeros_like(indices.tensor))
    return copied(op, [table, Slices(found), axis], indices.mask, table.places)


def _segments(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """Slices added up by ids: what is not selected has none."""
    values, ids, count = given
    mask = ids.mask
    if mask is None or values.mask is not mask or values.places is not None:
        raise CannotVectorize("values and segments that it selects are of two selections")
    if ids.places is not count.mask:
        raise CannotVectorize("what it selects is added up by places in something else")
    segments = tf.where(mask, ids.tensor, -tf.ones_like(ids.tensor))
    return copied(op, [values, Slices(segments), count], count.mask, None)
