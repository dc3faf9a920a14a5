"""The few shape moves that converters are made of.

Words: the *inner shape* is what the user's function sees; a stacked tensor has shape
[n] + inner shape. *Fold* merges the loop with the first inner axes, *unfold* splits it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.pending import Reshaped
from tf_pfor.core.values import (
    Cell,
    Folded,
    Shape,
    Stacked,
    Value,
    all_known,
    dims,
    folded_form,
    is_static,
    merge,
    size_of,
)


def inner_dims(call: Call, value: Value) -> list[Dim]:
    """The inner dimensions of a value; a scalar tensor for each one not known statically."""
    if value.inner_shape is None:
        raise CannotVectorize("the rank of an input is unknown")
    lead = 1 if value.is_stacked else 0
    return [
        call.emit.dim(value.tensor, i + lead) if d is None else d
        for i, d in enumerate(value.inner_shape)
    ]


def stacked_dims(call: Call, value: Value) -> list[Dim]:
    """[n] + the inner dimensions."""
    return [call.loop.length, *inner_dims(call, value)]


def product(call: Call, parts: Sequence[Dim]) -> Dim:
    """The product of dimensions."""
    out: Dim = 1
    for p in parts:
        if isinstance(out, int) and isinstance(p, int):
            out = out * p
        elif isinstance(out, int) and out == 1:
            out = p
        elif not (isinstance(p, int) and p == 1):
            out = call.emit("Mul", call.emit.as_tensor(out), call.emit.as_tensor(p))
    return out


def fold(call: Call, value: Value, axes: int = 1) -> tf.Tensor:
    """Merges the loop with the first ``axes`` inner axes.

    [n, d1 ... dk, rest] -> [n*d1...dk, rest].

    An invariant value is repeated first.
    """
    if axes == 0:
        return call.stacked(value)
    if not value.is_stacked:
        value = Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)
    form = folded_form(value)
    if form is not None and form.axes == axes:
        return form.tensor
    shape = value.inner_shape
    if shape is None:
        raise CannotVectorize("the rank of an input is unknown")
    source = value.any_form
    rest = shape[axes:]
    if None not in rest:  # one unknown at most: Reshape infers the rest
        if None in shape[:axes] and 0 not in rest:
            return call.emit.reshape_to(source, [None, *rest])
        if call.loop.static_length is None and 0 not in rest:
            return call.emit.reshape_to(source, [None, *rest])
        if is_static(shape[:axes]):
            lead = product(call, [call.loop.length, size_of(shape[:axes])])
            return call.emit.reshape(source, [lead, *rest])  # pyright: ignore[reportArgumentType]
    parts = inner_dims(call, value)
    lead = product(call, [call.loop.length, *parts[:axes]])
    return call.emit.reshape(source, [lead, *parts[axes:]])


def unfold(
    call: Call,
    held: tf.Tensor | Cell | tuple[tf.Tensor, ...],
    like: Value,
    axes: int = 1,
    inner_shape: Shape = None,
) -> Value:
    """The stacked value whose folded form is ``held``; the Reshape is made when needed.

    Args:
      call: the call.
      held: [n * d1 * ... * dk, ...rest], or the recipe for it, or blocks of its last axis.
      like: a stacked value whose first ``axes`` inner dimensions are d1 ... dk.
      axes: k.
      inner_shape: the result's static inner shape; output 0's of the call when None.
    """
    shape = call.output_shape() if inner_shape is None else inner_shape
    made = dims(held) if isinstance(held, tf.Tensor) else None
    if made is not None and like.inner_shape is not None:  # may know more than the body
        shape = merge(shape, (*like.inner_shape[:axes], *made[1:]))
    if isinstance(held, tuple):
        folded = Folded(Cell(None, lambda: _side_by_side(call, held)), axes, held)
    else:
        folded = Folded(held, axes)
    if axes == 0:
        return Value.stacked(folded.tensor).with_inner_shape(shape)

    def make() -> tf.Tensor:
        tensor = folded.tensor
        rest = dims(tensor)
        if rest is None:
            raise CannotVectorize("the rank of a folded result is unknown")
        head = like.inner_shape[:axes] if like.inner_shape is not None else (None,) * axes
        if shape is not None:
            head = tuple(h if s is None else s for h, s in zip(head, shape))
        lead = [call.emit.dim(like.tensor, i + 1) if d is None else d for i, d in enumerate(head)]
        tail: list[Dim] = []
        for i, d in enumerate(rest[1:]):
            known = d if shape is None or d is not None else shape[axes + i]
            tail.append(call.emit.dim(tensor, i + 1) if known is None else known)
        return call.emit.reshape(tensor, [call.loop.length, *lead, *tail])

    dtype = held.dtype if isinstance(held, tf.Tensor) else call.output_dtype()
    return Stacked.deferred(make, shape, dtype, folded=folded)


def _side_by_side(call: Call, columns: Sequence[tf.Tensor]) -> tf.Tensor:
    rank = len(dims(columns[0]) or ())
    return call.emit("ConcatV2", list(columns), np.int32(rank - 1))


@dataclasses.dataclass(frozen=True, slots=True)
class Lead:
    """Values with the loop in front, in the cheapest form that an op can take.

    Attributes:
      tensors: the stacked tensors, or the folded ones.
      skip: the number of inner axes that are merged with the loop in axis 0 of ``tensors``.
    """

    call: Call
    like: Value
    tensors: list[tf.Tensor]
    skip: int

    def axis(self, inner: int) -> int:
        """The axis of ``tensors`` that is the inner axis ``inner`` (not negative)."""
        return inner + 1 - self.skip

    def result(self, tensor: tf.Tensor, inner_shape: Shape = None) -> Value:
        """The value whose form is ``tensor``, folded like ``tensors``."""
        return unfold(self.call, tensor, self.like, self.skip, inner_shape)


def leading(call: Call, values: Sequence[Value], free: int) -> Lead:
    """The folded forms of ``values`` if all have the same one, else the stacked tensors.

    Args:
      call: the call.
      values: inputs of the op; invariant ones are repeated.
      free: the number of first inner axes that are the same in all values and in the result. The op
        works on each entry of these axes alone. A fold over more axes is not used.
    """
    first = values[0]
    form = folded_form(first)
    if form is not None and form.axes <= free and first.inner_shape is not None:
        head = first.inner_shape[: form.axes]
        if all(
            (own := folded_form(v)) is not None
            and own.axes == form.axes
            and v.inner_shape is not None
            and v.inner_shape[: form.axes] == head
            and None not in head
            for v in values
        ):
            return Lead(call, first, [v.folded.tensor for v in values], form.axes)  # type: ignore[attr-defined]
    return Lead(call, first, [call.stacked(v) for v in values], 0)


def expand_to_rank(call: Call, value: Value, rank: Dim) -> tf.Tensor:
    """A stacked tensor of inner rank ``rank``: ones stand between the loop and the inner axes.

    [n, ...inner] -> [n, 1, ..., 1, ...inner], which broadcasts as the inner tensors would.
    """
    if value.inner_rank is None or isinstance(rank, tf.Tensor):
        return _expanded(call, value.tensor, rank)
    missing = rank - value.inner_rank
    if missing <= 0:
        return value.tensor
    if value.inner_shape is not None and None not in value.inner_shape:
        parts: list[Any] = [call.loop.length, *[1] * missing, *value.inner_shape]
        return call.emit.reshape(value.any_form, parts)
    tensor = value.tensor
    for _ in range(missing):
        tensor = call.emit("ExpandDims", tensor, np.int32(1))
    return tensor


def _expanded(call: Call, tensor: tf.Tensor, rank: Dim) -> tf.Tensor:
    """``expand_to_rank`` of a stacked tensor, where a rank is known only when it runs."""
    emit = call.emit
    shape = emit("Shape", tensor)
    missing = emit("Sub", emit.as_tensor(emit.dim_math("AddV2", rank, 1)), emit("Size", shape))
    ones = emit("Fill", emit("Pack", [missing], axis=0), np.int32(1))
    parts = [emit.shape_vector([call.loop.length]), ones]
    parts.append(emit("StridedSlice", shape, [1], [0], [1], end_mask=1))
    made = emit("Reshape", tensor, emit("ConcatV2", parts, np.int32(0)))
    if isinstance(rank, int):
        made.set_shape([call.loop.static_length, *[None] * rank])
    return made


def rank_of(call: Call, value: Value) -> Dim:
    """The inner rank of a value, as a tensor where it is not known before running."""
    if value.inner_rank is not None:
        return value.inner_rank
    rank = call.emit("Rank", value.tensor)
    return call.emit("Sub", rank, np.int32(1)) if value.is_stacked else rank


def move_axis(call: Call, tensor: tf.Tensor, source: int, target: int) -> tf.Tensor:
    """Moves one axis of ``tensor``; a Reshape where all that is passed over has size one."""
    shape = dims(tensor)
    if shape is None:
        raise CannotVectorize("the rank of an input is unknown")
    rank = len(shape)
    source, target = source % rank, target % rank
    if source == target:
        return tensor
    perm = [i for i in range(rank) if i != source]
    perm.insert(target, source)
    return transpose(call, tensor, perm)


def transpose(call: Call, tensor: tf.Tensor, perm: Sequence[int]) -> tf.Tensor:
    """Transposes; a Reshape where only axes of size one change places."""
    shape = dims(tensor)
    perm = list(perm)
    if perm == sorted(perm):
        return tensor
    if shape is not None:
        big = [p for p in perm if shape[p] != 1]
        unknown = sum(shape[p] is None for p in perm)
        if big == sorted(big) and unknown <= 1:
            return call.emit.reshape_to(tensor, [shape[p] for p in perm])
    return call.emit("Transpose", tensor, np.asarray(perm, np.int32))


def reshaped(call: Call, value: Value, parts: Sequence[Dim]) -> Value:
    """``value`` with the inner shape ``parts``; no op where that only folds or unfolds.

    Args:
      call: the call.
      value: a stacked value.
      parts: the inner dimensions, as many elements in all as ``value`` has.
    """
    source, emit, n = value.any_form, call.emit, call.loop.length
    folded = None
    axes = _refold_axes(value, parts)
    if axes:
        head, rest = parts[:axes], parts[axes:]

        def refold() -> tf.Tensor:
            if all(isinstance(d, int) and d > 0 for d in rest):
                known: list[Any] = [product_static(call, head), *rest]
                return emit.reshape_to(source, known)
            return emit.reshape(source, [product(call, [n, *head]), *rest])

        folded = Folded(Cell(None, refold), axes)
    return Reshaped.deferred(
        lambda: emit.reshape(source, [n, *parts]),
        tuple(_static(p) for p in parts),
        value.dtype,
        folded=folded,
        elements=source,
    )


def product_static(call: Call, parts: Sequence[Dim]) -> int | None:
    """The product of n and ``parts``, None if that is not known before running."""
    known = [call.loop.static_length, *map(_static, parts)]
    return size_of(known) if all_known(known) else None


def _static(part: Dim | None) -> int | None:
    return None if isinstance(part, tf.Tensor) else part


def _refold_axes(value: Value, parts: Sequence[Dim]) -> int:
    """The number of ``parts`` that ``value`` is folded over, so that the fold can stay."""
    form = folded_form(value)
    if form is not None and value.inner_shape is not None:
        head = value.inner_shape[: form.axes]
        if None not in head:
            size = size_of(head)
            total = 1
            for i, p in enumerate(parts):
                if not isinstance(p, int):
                    break
                total *= p
                if total == size:
                    return i + 1
    return 1 if len(parts) > 0 and isinstance(parts[0], int) and parts[0] == 1 else 0
