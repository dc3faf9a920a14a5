"""The first or the last slices, or all in reverse, of those that stand in front of others.

The items of a list that is shorter than that of another row are the first of all slices
(``masked_selections``). So ``s[1:]`` is all slices but the first, ``s[:-1]`` all but the last; in
both one less is selected than of s, and these are the first ones again. What is cut to as many has
the same mask, so that ``s[1:] - s[:-1]`` subtracts slices that belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.layouts.masked_ops import Slices, count, shown, slice_masks

_SLICING = ("StridedSlice", "StridedSliceGrad")
_REVERSE = ("reverse", 0)
_Step = tuple[str, int]  # "drop" or "keep" so many of the first, "drop last" so many; "reverse"


class Fronts:
    """Masks of which it is known that what they select stands in front, and how much that is."""

    def __init__(self) -> None:
        self._known = dict[int, tuple[tf.Tensor, int, tf.Tensor]]()
        self._made = dict[Any, tf.Tensor]()

    def add(self, mask: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Remembers a mask, which is true for the first ``length`` slices, and returns it."""
        self._known[id(mask)] = (mask, 0, length)
        return mask

    def length(self, mask: tf.Tensor | None) -> tf.Tensor | None:
        """How many slices a mask selects, if these stand in front; else None."""
        known = self._known.get(id(mask))
        return None if known is None else known[2]

    def behind(self, mask: tf.Tensor, less: int) -> tf.Tensor:
        """The mask of so many slices less: one tensor, whichever way it comes about."""
        whole, already, _ = self._known[id(mask)]
        less += already
        if not less:
            return whole
        if (id(whole), less) not in self._made:
            made = self._made[id(whole), less] = whole[less:]
            (*_, length) = self._known[id(whole)]
            self._known[id(made)] = (whole, less, tf.maximum(length - less, 0))
        return self._made[id(whole), less]

    def before(self, mask: tf.Tensor, end: int) -> tf.Tensor:
        """The mask of the first slices, ``end`` at most."""
        if (id(mask), "before", end) not in self._made:
            length = self.length(mask)
            assert length is not None
            made = mask[:end]
            self._made[id(mask), "before", end] = self.add(made, tf.minimum(length, end))
        return self._made[id(mask), "before", end]


def is_cut(op: tf.Operation, given: Sequence[Slices], fronts: Fronts) -> bool:
    """Whether an op cuts, or reverses, slices that stand in front, or is the gradient of that."""
    is_front = fronts.length(given[0].mask) is not None and given[0].places is None
    return is_front and _steps(op) is not None


def cut(op: tf.Operation, given: Sequence[Slices], fronts: Fronts) -> list[Slices]:
    """``x[a:b, ...]``, ``x[::-1, ...]``, ``tf.reverse(x, axes)``, or a gradient of these."""
    steps, masks = _steps(op), [given[0].mask]
    assert steps is not None
    for step in steps:
        masks.append(_mask(step, masks[-1], fronts))
    if op.type == "StridedSliceGrad":
        flowing = given[4]
        if flowing.mask is not masks[-1] or not flowing.rank:
            raise CannotVectorize("the gradient of a slice of what it selects is of something else")
        values = shown(flowing, 0)
        for step, mask in reversed(list(zip(steps, masks))):
            values = _put_back(step, values, mask)
        return [Slices(_along_others(op, [*given[:4], Slices(values)]), masks[0])]
    values = _along_others(op, given)
    for step, mask in zip(steps, masks):
        values = _taken(step, values, mask)
    return [Slices(values, masks[-1])]


def _steps(op: tf.Operation) -> list[_Step] | None:
    """What an op does along the first axis; None if it is no cut, or it is not known where."""
    if op.type == "ReverseV2":
        axes = _reversed_axes(op)
        return None if axes is None else [_REVERSE for axis in axes if axis == 0]
    known = [_tf.static_value(t) for t in op.inputs[1:4]] if op.type in _SLICING else [None]
    if any(x is None or not x.size for x in known):
        return None
    bits = {name: mask & 1 for name, mask in slice_masks(op).items()}
    if bits["ellipsis_mask"] or bits["new_axis_mask"] or bits["shrink_axis_mask"]:
        return None
    begin, end, step = (int(x[0]) for x in known if x is not None)
    if step == -1 and bits["begin_mask"] and bits["end_mask"]:
        return [_REVERSE]
    if step != 1:
        return None
    begin = 0 if bits["begin_mask"] else begin
    if begin < 0:
        return [_REVERSE, ("keep", -begin), _REVERSE] if bits["end_mask"] else None
    steps = [("drop", begin)] if begin else []
    if bits["end_mask"]:
        return steps
    return [*steps, ("drop last", -end) if end < 0 else ("keep", max(end - begin, 0))]


def _reversed_axes(op: tf.Operation) -> list[int] | None:
    axes, rank = _tf.static_value(op.inputs[1]), op.inputs[0].shape.rank
    return None if axes is None or not rank else [int(axis) % rank for axis in np.ravel(axes)]


def _mask(step: _Step, mask: tf.Tensor | None, fronts: Fronts) -> tf.Tensor:
    """What is selected of what remains."""
    assert mask is not None
    if step == _REVERSE:
        return mask
    how, number = step
    return fronts.before(mask, number) if how == "keep" else fronts.behind(mask, number)


def _taken(step: _Step, values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Of all slices those that remain."""
    how, number = step
    if step == _REVERSE:
        return _reversed(values, mask)
    if how == "drop":
        return values[number:]
    return values[:number] if how == "keep" else values[:-number]


def _put_back(step: _Step, values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The gradient of ``_taken``: zeros where slices were left out."""
    if step == _REVERSE:
        return _reversed(values, mask)
    left_out = tf.size(mask) - tf.shape(values)[0]
    ends = [left_out, 0] if step[0] == "drop" else [0, left_out]
    others = np.zeros([len(values.shape) - 1, 2], np.int32)
    return tf.pad(values, tf.concat([[ends], others], 0))


def _along_others(op: tf.Operation, given: Sequence[Slices]) -> tf.Tensor:
    """What an op does along the other axes, with all of the first."""
    if op.type == "ReverseV2":
        return tf.reverse(given[0].tensor, [axis for axis in _reversed_axes(op) or () if axis])
    bits = slice_masks(op)
    bits["begin_mask"] |= 1
    bits["end_mask"] |= 1
    begin, end, steps = (x.tensor for x in given[1:4])
    steps = tf.concat([tf.ones_like(steps[:1]), steps[1:]], 0)
    arguments = {"begin": begin, "end": end, "strides": steps, **bits}
    if op.type == "StridedSlice":
        return tf.raw_ops.StridedSlice(input=given[0].tensor, **arguments)
    return tf.raw_ops.StridedSliceGrad(shape=given[0].tensor, dy=given[4].tensor, **arguments)


def _reversed(values: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The slices that stand in front in reverse, all others where they were."""
    assert mask is not None
    return tf.reverse_sequence(values[None], count(mask, tf.int32)[None], seq_axis=1)[0]
