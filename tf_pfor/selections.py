"""What a mask selects, where all that is done with it is to add it up by segments.

TensorFlow's gradient of a lookup in joined matrices, ``tf.gather(tf.concat(...), ids)``, selects
for each matrix the slices that belong to it (``Where``): as many in each row as its ids say. Nobody
sees how many. So all slices are kept, beside a mask of those that count, and the others get the
segment -1, which ``UnsortedSegmentSum`` drops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tf_pfor import _graphs, _tf, jagged, regions
from tf_pfor.elementwise import ELEMENTWISE
from tf_pfor.errors import CannotVectorize
from tf_pfor.regions import Region, key
from tf_pfor.registry import Outcome
from tf_pfor.report import Recorder
from tf_pfor.values import Results, dims

if TYPE_CHECKING:
    from tf_pfor.convert import Walker

_SEGMENTS = frozenset(f"UnsortedSegment{how}" for how in ("Max", "Min", "Prod", "Sum"))
_LIKE = frozenset(["OnesLike", "ZerosLike"])  # that do not read the numbers
# Of shapes that say how many are selected.
_OF_SHAPES = frozenset(["ConcatV2", "ExpandDims", "Identity", "Pack", "StridedSlice"])


def convert_where(first: tf.Operation, walker: Walker) -> Results:
    """What a ``Where`` and all that depends on its size become, without a loop.

    Args:
      first: the ``Where``, all that it reads being converted.
      walker: what converts it.

    Raises:
      CannotVectorize: if something else is done with what it selects.
    """
    members, uneven, _ = jagged.spread(first, walker)
    region = Region.read(regions.in_order(members), walker, uneven)
    handles = any(t.dtype in (tf.resource, tf.variant) for t in region.inputs)
    if region.uneven or handles or region.is_stateful:
        raise CannotVectorize("what it selects is a result, or is read with a list or a variable")
    if region.own_gradient is not None:
        raise CannotVectorize("what it selects, or how much, goes through a tf.custom_gradient")
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in region.inputs]
    graph = _graphs.trace("all_slices", lambda *x: _all_slices(region, uneven, x), specs)
    needs = [*(t.op for t in region.inputs), *region.waits_for]
    walker.visit(needs)
    if walker.failed(needs):
        raise walker.Failed
    mark = len(walker.emit.operations)
    child = walker.enter(walker.loop, walker.emit, Recorder())
    child.settings = dataclasses.replace(walker.settings, fallback="error")
    for placeholder, tensor in zip(graph.inputs, region.inputs, strict=True):
        value = walker.value_of(tensor)
        assert value is not None
        child.bind(placeholder, value)
    try:
        with walker.emit.graph.control_dependencies(walker.done(region.waits_for)):
            made = child.convert(graph.outputs)
    except walker.Failed:
        raise CannotVectorize("what is done with what it selects cannot be vectorized") from None
    for tensor, value in zip(region.outputs, made):
        walker.bind(tensor, value)
    new = [op for op in region.ops if not walker.is_done(op)]
    for op in new:
        walker.recorder.add(op, Outcome.VECTORIZED, "with a mask in place of what it selects")
    walker.became(new, walker.emit.operations[mark:])
    walker.hide(new, region)
    return [walker.value_of(t) for t in first.outputs]


# ---------------------------------------------------------------------------
# One row with all slices
# ---------------------------------------------------------------------------


class _Slices(NamedTuple):
    """A tensor of one row, with all slices in place of those that are selected.

    Attributes:
      tensor: the tensor.
      mask: which slices on axis 0 are selected, of a shape: how many its number counts. None if
        it is as it was.
      places: the mask of what its numbers are places in; None if they are the numbers that they
        were. A place is another number among all slices than among those that are selected.
    """

    tensor: tf.Tensor
    mask: tf.Tensor | None = None
    places: tf.Tensor | None = None


def _all_slices(
    region: Region, uneven: Collection[Any], inputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Emits the ops of one row with all slices in place of those that are selected."""
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
    if any(x.mask is not None for x in results):
        raise CannotVectorize("how much it selects is read where shapes do not differ")
    return [x.tensor for x in results]


def _copied(op: tf.Operation, given: Sequence[_Slices], mask: Any, places: Any) -> list[_Slices]:
    return [_Slices(x, mask, places) for x in regions.copied(op, [x.tensor for x in given])]


def _of_shape(op: tf.Operation, given: Sequence[_Slices]) -> list[_Slices]:
    """An op that reads nothing of unequal shape, but maybe a shape that says how many."""
    masks = [] if _is_behind_axis_0(op) else _different(x.mask for x in given)
    if masks and (len(masks) > 1 or op.type not in _OF_SHAPES):
        raise CannotVectorize(f"how much it selects is read by {op.type}")
    return _copied(op, given, masks[0] if masks else None, None)


def _is_behind_axis_0(op: tf.Operation) -> bool:
    """Whether an op is ``tf.shape(x)[k:]``, k > 0."""
    if op.type != "StridedSlice" or op.inputs[0].op.type != "Shape":
        return False
    begin, _, step = (_tf.static_value(t) for t in op.inputs[1:])
    is_cut = begin is not None and step is not None and begin[0] > 0 and step[0] > 0
    return is_cut and not any(op.get_attr(f"{m}_mask") for m in ("begin", "ellipsis", "new_axis"))


def _selected(
    op: tf.Operation, given: Sequence[_Slices], joined: dict[Any, tf.Tensor]
) -> list[_Slices]:
    """An op that reads or makes what is selected, on all slices."""
    first = given[0]
    if op.type == "Where" and first.tensor.dtype == tf.bool and first.tensor.shape.rank == 1:
        mask = joined.setdefault(_source(op.inputs[0]), first.tensor)
        mask = mask if first.mask is None else tf.logical_and(mask, first.mask)
        places = tf.range(tf.size(mask, tf.int64))[:, None]
        return [_Slices(places, mask, first.mask)]
    if op.type == "GatherV2" and given[1].mask is not None and _is_along_axis_0(op):
        return _looked_up(op, given)
    if op.type == "ConcatV2" and _is_along_axis_0(op) and _are_one(x.places for x in given[:-1]):
        return _copied(op, given, _joined(given[:-1], joined), first.places)
    if op.type in _SEGMENTS and op.inputs[1].shape.rank == 1:
        return _segments(op, given)
    is_shape = op.type == "Shape" or (op.type == "Size" and op.inputs[0].shape.rank == 1)
    if is_shape or _is_elementwise(op, given):
        (mask,) = _different(x.mask for x in given)
        return _copied(op, given, mask, None)
    is_squeezed = op.type == "Squeeze" and op.get_attr("squeeze_dims") == [1]
    if is_squeezed or _keeps_axis_0(op, given):
        return _copied(op, given, first.mask, first.places)
    if op.type == "Maximum" and _are_one(x.mask for x in given) and _is_zero(op.inputs[1]):
        return _copied(op, given, first.mask, first.places)  # a place is not negative
    raise CannotVectorize(f"what it selects is read by {op.type}")


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


def _is_elementwise(op: tf.Operation, given: Sequence[_Slices]) -> bool:
    """Whether an op is done to each slice by itself, with numbers that all share."""
    ranks = {len(dims(t) or ()) for t, x in zip(op.inputs, given) if x.mask is not None}
    shared = {t.shape.rank for t, x in zip(op.inputs, given) if x.mask is None}
    if op.type not in ELEMENTWISE or len(ranks) != 1 or 0 in ranks or shared - {0}:
        return False  # 0: it is not known
    is_sign = op.type == "GreaterEqual" and _is_zero(op.inputs[1])
    of_numbers = is_sign or op.type in _LIKE or not _different(x.places for x in given)
    return of_numbers and len(_different(x.mask for x in given)) == 1


def _keeps_axis_0(op: tf.Operation, given: Sequence[_Slices]) -> bool:
    """Whether an op makes slices of slices (Reshape), or as many new ones (Fill)."""
    made, read = op.outputs[0].shape, op.inputs[0].shape
    if given[0].mask is None or not made.rank or not made[1:].is_fully_defined():
        return False
    if op.type == "Fill":
        return True
    if op.type != "Reshape" or not read.rank or not read[1:].is_fully_defined():
        return False
    if given[1].mask is not None and given[1].mask is not given[0].mask:
        return False
    return read[1:].num_elements() == made[1:].num_elements()


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
