"""Boxes that suppress others: the greedy choice of all rows, one box of each row at a time.

A step takes the best box that is left in each row and strikes out what overlaps it too much. There
are as many steps as the longest row chooses boxes; a row that is done waits. Ties go to the first
box, as in the kernels, and overlaps are computed in their order of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.converters.ragged._forms import (
    agreed,
    all_packed,
    of_room,
    with_room,
)
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.values import Value
from tf_pfor.layouts.packing import masked
from tf_pfor.layouts.ragged import Ragged, RowSizes
from tf_pfor.layouts.ragged_rules import ragged_rule

Overlaps = Callable[[tf.Tensor], tf.Tensor]
"""From a box of each row, int32 [n], to how much all boxes overlap it, [n, boxes]."""


class _Chosen(NamedTuple):
    """Choices of the rows: places and scores [n, most], and how many of them count, int32 [n]."""

    places: tf.Tensor
    scores: tf.Tensor
    counts: tf.Tensor


_OF_OWN_NUMBER = (
    "NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 "
    "NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps"
)


@RegisterPFor("NonMaxSuppressionV4 NonMaxSuppressionV5", ANY, attrs=("pad_to_max_output_size",))
def of_one_number(call: Call, *_: Value) -> Any:
    """Results filled up with zeros."""
    if not call.attr("pad_to_max_output_size"):
        raise CannotVectorize("how many boxes are chosen differs between iterations")
    with call.emit.as_default():
        made = _padded(call)
    return made


@ragged_rule(_OF_OWN_NUMBER, is_source=True)
def of_own_number(call: Call, *_: Value) -> Any:
    """The chosen boxes, as many as each row has."""
    if call.op_type[-2:] in ("V4", "V5") and call.attr("pad_to_max_output_size"):
        return _padded(call)
    call.require_packed("how many boxes are chosen")
    found, outputs = _chosen(call), call.op.outputs
    counted = tf.sequence_mask(found.counts, tf.shape(found.places)[1])
    parts = (found.places, found.scores)[: _parts(call)]
    kept = [tf.boolean_mask(tensor, counted) for tensor in parts]
    made = all_packed(kept, [RowSizes.of(found.counts)])
    return [*made, Value.stacked(found.counts)] if len(outputs) > 1 else made


def _parts(call: Call) -> int:
    """The number of outputs that have an entry for each box that is chosen."""
    return 2 if call.op_type.endswith("V5") else 1


def _padded(call: Call) -> list[Value]:
    size = call.value("max_output_size")
    if size.is_stacked:
        raise CannotVectorize("'max_output_size' differs between iterations")
    found = _chosen(call)
    known = call.maybe_constant("max_output_size")
    most: Any = size.tensor if known is None else int(known)
    missing = most - tf.shape(found.places)[1]
    made: list[Value] = []
    for tensor in (found.places, found.scores)[: _parts(call)]:
        wide = tf.pad(tensor, [[0, 0], [0, missing]])
        wide.set_shape([call.loop.static_length, None if known is None else most])
        made.append(Value.stacked(wide))
    return [*made, Value.stacked(found.counts)]


# ---------------------------------------------------------------------------
# The choice
# ---------------------------------------------------------------------------


def _chosen(call: Call) -> _Chosen:
    n = call.loop.length
    scores = _scores(call)
    floor = _bound(call, "score_threshold", scores.dtype)
    nothing = tf.constant(-float("inf"), scores.dtype)
    left = tf.where(scores > floor, scores, nothing)
    softness = call.maybe_constant("soft_nms_sigma") if "soft_nms_sigma" in call.inputs else 0.0
    if softness is None:
        raise CannotVectorize("how softly boxes are suppressed is not known before running")
    if softness > 0:
        if _tf.in_xla_context(call.emit.graph):
            raise CannotVectorize("boxes are suppressed softly, under jit_compile")
        text = "scores that are suppressed softly must not be negative. They are"
        left = call.after_check((left >= 0) | (left == nothing), text, [scores], left)
    limit = _bound(
        call, "overlap_threshold" if _has_overlaps(call) else "iou_threshold", scores.dtype
    )
    size = call.value("max_output_size")
    most = tf.reduce_max(tf.concat([size.tensor, [0]], 0)) if size.is_stacked else size.tensor
    caps = tf.broadcast_to(size.tensor, tf.stack([n]))
    most = tf.minimum(most, tf.shape(scores)[1])
    return _greedy(left, caps, most, _overlaps(call, scores), limit, floor, float(softness))


def _greedy(
    left: tf.Tensor,
    caps: tf.Tensor,
    most: Dim,
    overlaps: Overlaps,
    limit: tf.Tensor,
    floor: tf.Tensor,
    softness: float,
) -> _Chosen:
    """The best box, without those that overlap it, and so on.

    Args:
      left: scores [n, boxes], minus infinity where there is no box to choose.
      caps: int32 [n], how many boxes rows may choose.
      most: the largest of them, or all boxes if these are fewer.
      overlaps: the overlaps of boxes with one box of each row.
      limit: the overlap above which a box is struck out, or the score at which it is too low.
      floor: the score above which boxes are chosen.
      softness: zero to strike out; else scores sink by exp(-overlap^2 / (2 softness)).
    """
    dtype, n, boxes = left.dtype, left.shape[0], left.shape[1]
    nothing = tf.constant(-float("inf"), dtype)
    ids = tf.range(tf.shape(left)[1])
    room = tf.range(most)

    def best(left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        score, place = tf.math.top_k(left, 1)
        return score[:, 0], place[:, 0]

    def goes_on(t: tf.Tensor, *carried: tf.Tensor) -> tf.Tensor:
        return (t < most) & tf.reduce_any((carried[1] > nothing) & (t < caps))

    def step(
        t: tf.Tensor,
        left: tf.Tensor,
        score: tf.Tensor,
        place: tf.Tensor,
        places: tf.Tensor,
        kept: tf.Tensor,
        counts: tf.Tensor,
    ) -> Any:
        is_chosen = (score > nothing) & (t < caps)
        here = (room == t)[None] & is_chosen[:, None]
        places = tf.where(here, place[:, None], places)
        kept = tf.where(here, score[:, None], kept)
        overlap = tf.cast(overlaps(place), dtype)
        if softness > 0:
            factor = tf.constant(-0.5, dtype) / tf.constant(softness, dtype)
            left = left * tf.exp(factor * overlap * overlap)
            left = tf.where(left > floor, left, nothing)
        else:
            left = tf.where(overlap > limit, nothing, left)
        left = tf.where(ids[None] == place[:, None], nothing, left)
        return t + 1, left, *best(left), places, kept, counts + tf.cast(is_chosen, tf.int32)

    shape = tf.stack([tf.shape(left)[0], most])
    state = (
        0,
        left,
        *best(left),
        tf.zeros(shape, tf.int32),
        tf.zeros(shape, dtype),
        tf.zeros_like(caps),
    )
    like = (None, [n, boxes], [n], [n], [n, None], [n, None], [n])
    found = tf.while_loop(goes_on, step, state, tuple(map(tf.TensorShape, ([], *like[1:]))))
    return _Chosen(*found[4:])


# ---------------------------------------------------------------------------
# Operands
# ---------------------------------------------------------------------------


def _has_overlaps(call: Call) -> bool:
    return "overlaps" in call.inputs


def _scores(call: Call) -> tf.Tensor:
    """[n, boxes], minus infinity behind the end of a row; of one box at least."""
    value = call.value("scores")
    if value.rank != 1:
        raise CannotVectorize("scores are no vector")
    nothing = -float("inf")
    scores = call.stacked(value) if not isinstance(value, Ragged) else None
    if scores is None:
        assert isinstance(value, Ragged)
        scores = masked(value.in_rows, value.sizes, nothing)
    scores = tf.stop_gradient(scores)
    if scores.shape[1]:
        return scores
    paddings: Any = [[0, 0], [0, tf.maximum(1 - tf.shape(scores)[1], 0)]]
    return tf.pad(scores, paddings, constant_values=nothing)


def _bound(call: Call, name: str, dtype: tf.DType) -> Any:
    """A threshold, [n, 1] where rows have their own."""
    if name not in call.inputs:
        return tf.constant(call.attr(name) if name == "iou_threshold" else dtype.min, dtype)
    value = call.value(name)
    bound = tf.cast(value.tensor, dtype)
    if value.is_stacked and name == "iou_threshold":
        text = "a threshold of overlaps is not in [0, 1] in some iterations. They are"
        bound = call.after_check((bound >= 0) & (bound <= 1), text, [bound], bound)
    return bound[:, None] if value.is_stacked else bound


def _overlaps(call: Call, scores: tf.Tensor) -> Overlaps:
    """The overlaps of boxes with one box of each row; as many as there are scores."""
    value, given = (
        call.inputs["overlaps" if _has_overlaps(call) else "boxes"],
        call.inputs["scores"],
    )
    assert isinstance(value, Value)
    assert isinstance(given, Value)
    if isinstance(value, Ragged) or isinstance(given, Ragged):
        if not isinstance(value, Ragged) or not isinstance(given, Ragged) or _has_overlaps(call):
            raise CannotVectorize("boxes and scores are not as many")
        value, given = agreed(call, (value, 0), (given, 0))  # of each row as many boxes as scores
    boxes = value.in_rows if isinstance(value, Ragged) else value.tensor
    boxes = tf.stop_gradient(tf.cast(boxes, tf.float32))
    axis = 1 if value.is_stacked else 0
    room = scores.shape[1]
    if isinstance(value, Ragged) and room is not None and boxes.shape[1] is not None:
        boxes = of_room(boxes, 1, room)  # of rows that have passed the check
    if boxes.shape[axis] is None or boxes.shape[axis] == 0:
        boxes = with_room(boxes, axis, 1)
    if _has_overlaps(call):
        if value.is_stacked:
            return lambda place: tf.gather(boxes, place, axis=2, batch_dims=1)
        columns = tf.transpose(boxes)
        return lambda place: tf.gather(columns, place)
    return _intersections(boxes, batch_dims=axis)


def _intersections(boxes: tf.Tensor, batch_dims: int) -> Overlaps:
    """Intersection over union of boxes [boxes, 4], or [n, boxes, 4]."""
    a, b, c, d = tf.unstack(boxes, num=4, axis=-1)
    y1, x1, y2, x2 = tf.minimum(a, c), tf.minimum(b, d), tf.maximum(a, c), tf.maximum(b, d)
    area = (y2 - y1) * (x2 - x1)
    table = tf.stack([y1, x1, y2, x2, area], -1)

    def overlaps(place: tf.Tensor) -> tf.Tensor:
        chosen = tf.gather(table, place, axis=batch_dims, batch_dims=batch_dims)[:, None]
        top, left, bottom, right, own = tf.unstack(chosen, num=5, axis=-1)  # [n, 1]
        height = tf.maximum(tf.minimum(y2, bottom) - tf.maximum(y1, top), 0.0)
        width = tf.maximum(tf.minimum(x2, right) - tf.maximum(x1, left), 0.0)
        both = height * width
        return tf.where((area <= 0) | (own <= 0), 0.0, both / (area + own - both))

    return overlaps
