"""Slices of one row whose begin or end differs between rows, beside a mask of what they hold.

``x[k : k + 3]`` is three slices, or less where it reaches past the edge: Python clamps both ends.
All that it may hold is read, from its begin on; the mask says how much of that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.layouts.linear import Form, forms
from tf_pfor.layouts.masked_ops import Slices, shown, slice_masks
from tf_pfor.layouts.ragged_slices import Fronts


class _Window:
    """Which entry of a slice says where it begins and ends, and what is known of that."""

    def __init__(self, op: tf.Operation, given: Sequence[Slices]):
        strides, bits = _tf.static_value(op.inputs[3]), slice_masks(op)
        begins, ends = (forms(t) for t in op.inputs[1:3])
        if strides is None or begins is None or ends is None:
            raise CannotVectorize("the strides, or how many there are, are not known")
        if any(x.mask is not None for x in given[:4]):
            raise CannotVectorize("what it selects is sliced")
        self.place = next(
            (p for p in range(len(strides)) if not bits["shrink_axis_mask"] >> p & 1), 0
        )
        bit = 1 << self.place
        others = bits["shrink_axis_mask"] | bits["new_axis_mask"] | bits["ellipsis_mask"]
        self.stride = int(strides[self.place])
        if others & bit or self.stride < 1:
            raise CannotVectorize("the length of the slice may differ along another axis")
        no_begin, no_end = (bool(bits[f"{k}_mask"] & bit) for k in ("begin", "end"))
        self.first: Form | None = None if no_begin else begins[self.place]
        self.last: Form | None = None if no_end else ends[self.place]
        if all(x is None or x.known is not None for x in (self.first, self.last)):
            raise CannotVectorize("the length of the slice may differ along another axis")
        self.bits = {
            **bits,
            "begin_mask": bits["begin_mask"] | bit,
            "end_mask": bits["end_mask"] | bit,
        }
        self._begin, self._end = (x.tensor for x in given[1:3])
        self.strides = [1 if p == self.place else int(s) for p, s in enumerate(strides)]

    def vectors(self) -> dict[str, tf.Tensor]:
        """Begin, end and strides of all of the axis."""
        strides = tf.constant(self.strides, self._begin.dtype)
        return {"begin": self._begin, "end": self._end, "strides": strides}

    def most(self, size: Any) -> Any:
        """How many slices it has at most, of an axis of this size."""
        if self.first is not None and self.last is not None:
            span = self.last.plus(self.first, -1).known
            if span is not None and span > 0:  # else an end may count from the end
                return -(-span // self.stride)
        return -(-size // self.stride)

    def bounds(self, size: Any) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Where it begins, and how many slices it has; None for a begin at 0."""
        size = tf.cast(size, self._begin.dtype)

        def clamped(at: tf.Tensor) -> tf.Tensor:
            return tf.clip_by_value(tf.where(at < 0, at + size, at), 0, size)

        begin = None if self.first is None else clamped(self._begin[self.place])
        end = size if self.last is None else clamped(self._end[self.place])
        many = end if begin is None else end - begin
        return begin, tf.maximum((many + self.stride - 1) // self.stride, 0)

    def mask(self, size: Any, known: dict[Any, Any], fronts: Fronts) -> tuple[Any, tf.Tensor]:
        """Where it begins, and the mask: one for all windows with these ends in axes of a size."""
        name = ("window", self.first, self.last, self.stride, size)
        if not isinstance(size, int) or name not in known:
            begin, length = self.bounds(size)
            mask = tf.range(tf.cast(self.most(size), length.dtype)) < length
            found = begin, fronts.add(mask, length)
            if not isinstance(size, int):
                return found
            known[name] = found
        return known[name]

    def positions(self, begin: tf.Tensor | None, count: Any) -> tf.Tensor:
        """The places of all slices, which may be outside."""
        steps = tf.range(tf.cast(count, self._begin.dtype)) * self.stride
        return steps if begin is None else begin + steps


def window(
    op: tf.Operation, given: Sequence[Slices], known: dict[Any, Any], fronts: Fronts
) -> Slices:
    """``x[a:b:c, ...]`` with ends that differ between rows.

    Args:
      op: the StridedSlice.
      given: its inputs.
      known: what windows with the same ends share.
      fronts: the masks of what stands in front.
    """
    own = _Window(op, given)
    whole = tf.raw_ops.StridedSlice(input=given[0].tensor, **own.vectors(), **own.bits)
    size, rank = whole.shape[0], whole.shape.rank
    if size == 0 or rank is None:
        raise CannotVectorize("it slices a tensor of size 0, or of unknown rank")
    if size is None:
        size = tf.shape(whole)[0]
    begin, mask = own.mask(size, known, fronts)
    if begin is None and own.stride == 1:
        return Slices(whole, mask)
    if not isinstance(size, int):  # maybe 0
        whole = tf.pad(whole, [[0, 1], *[[0, 0]] * (rank - 1)])
    at = own.positions(begin, own.most(size))
    last = tf.cast(size, at.dtype) - (1 if isinstance(size, int) else 0)
    return Slices(tf.gather(whole, tf.minimum(at, last)), mask)


def window_gradient(
    op: tf.Operation, given: Sequence[Slices], known: dict[Any, Any], fronts: Fronts
) -> Slices:
    """The gradient of ``window``: zeros, and what flows back where the window was."""
    own, flowing, shape = _Window(op, given), given[4], _tf.static_value(op.inputs[0])
    if shape is None or not flowing.rank:
        raise CannotVectorize("the shape of what is sliced is not known before running")
    size = int(shape[own.place])
    begin, mask = own.mask(size, known, fronts)
    if flowing.mask is not mask:
        raise CannotVectorize("the gradient of a slice is of something else")
    at = own.positions(begin, own.most(size))
    at = tf.where(mask, at, -1)
    wide = tf.math.unsorted_segment_sum(shown(flowing, 0), at, size)
    made = tf.raw_ops.StridedSliceGrad(shape=given[0].tensor, dy=wide, **own.vectors(), **own.bits)
    return Slices(made)
