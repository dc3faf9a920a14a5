"""Elementwise ops: aligned ranks, a common folded form, and kernels that end at some rank."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.lists._list_sums import sum_of_lists
from tf_pfor.converters.math._in_channels import on_channels
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.shapes import expand_to_rank, fold, inner_dims, product, rank_of, unfold
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Value, dims, folded_form, is_static, known_dims

MAX_GROUPS = 5
"""Broadcasting CPU kernels take this many groups of adjacent axes that broadcast alike."""

MAX_RANK = 254
"""Most kernels merge axes that broadcast alike, so that the rank is limited by TensorFlow's own."""


def broadcast(
    call: Call, max_groups: int = MAX_GROUPS, max_rank: int = MAX_RANK, **attrs: object
) -> Any:
    """One op on inputs whose ranks are aligned, in folded form where all inputs allow it.

    Args:
      call: the call.
      max_groups: the most groups of axes that the kernel takes.
      max_rank: the most axes that the kernel takes.
      **attrs: attributes to change.
    """
    if (found := on_channels(call, **attrs)) is not None:
        return found
    values = call.flat_inputs()
    folded = _common_fold(call, values)
    if folded is not None:
        tensor = call.rebuild(**dict(zip(call.inputs, folded.operands)), **attrs)
        return unfold(call, tensor, folded.like, folded.axes)
    if _needs_no_alignment(values):
        return call.rebuild(**attrs)
    if any(v.inner_rank is None for v in values):
        return _of_unknown_rank(call, values, attrs)
    rank = max(v.inner_rank or 0 for v in values)
    groups = _groups(call, values, rank)
    if groups is None and rank >= max_rank:
        raise CannotVectorize(f"the kernel takes rank {max_rank} at most")
    if groups is not None and (len(groups) > max_groups or rank >= max_rank):
        return _collapsed(call, values, groups, max_groups, attrs)
    operands = [
        expand_to_rank(call, v, rank) if v.is_stacked else _unfused(call, v) for v in values
    ]
    return call.rebuild(**dict(zip(call.inputs, operands)), **attrs)


def _of_unknown_rank(call: Call, values: Sequence[Value], attrs: dict[str, Any]) -> Any:
    """Ranks are aligned when it runs."""
    ranks = [rank_of(call, v) for v in values]
    rank = functools.reduce(functools.partial(call.emit.dim_math, "Maximum"), ranks)
    operands = [expand_to_rank(call, v, rank) if v.is_stacked else v.tensor for v in values]
    return call.rebuild(**dict(zip(call.inputs, operands)), **attrs)


_FUSED_WITH_ADD = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul")


def _unfused(call: Call, value: Value) -> tf.Tensor:
    """An invariant operand; of a product with a one in front.

    Grappler takes ``product + x`` for a bias when x is [1, ..., c], and returns the product's
    shape: with one iteration the loop axis would be lost.
    """
    tensor = value.tensor
    may_be_one = call.loop.static_length in (None, 1)
    if may_be_one and "Add" in call.op_type and tensor.op.type in _FUSED_WITH_ADD:
        return call.emit("ExpandDims", tensor, np.int32(0))
    return tensor


def same_shape(call: Call) -> Any:
    """One op on inputs of one shape: all stacked, in folded form where one of them has it."""
    values = call.flat_inputs()
    lists = [isinstance(v, StackedList) for v in values]
    if any(lists):
        return sum_of_lists(call, values)
    folded = _common_fold(call, values, broadcasts=False)
    if folded is not None:
        tensor = call.rebuild(**regroup(call, folded.operands))
        return unfold(call, tensor, folded.like, folded.axes)
    return call.rebuild(**regroup(call, [call.stacked(v) for v in values]))


def of_one_shape(
    call: Call, values: Sequence[Value], *, with_scalars: bool = True
) -> list[tf.Tensor]:
    """Each as [n, ...] of the shape of those with most axes; scalars of all rows may stay."""
    ranks = [call.require_rank(v) for v in values]
    most = max(ranks)
    parts = [call.loop.length, *inner_dims(call, values[ranks.index(most)])]
    made: list[tf.Tensor] = []
    for value, rank in zip(values, ranks):
        if with_scalars and not value.is_stacked and rank == 0:
            made.append(value.tensor)
        elif rank == most:
            made.append(call.stacked(value))
        else:  # [n] -> [n, ...]
            column = call.emit.reshape(call.stacked(value), [call.loop.length, *[1] * most])
            made.append(call.emit("BroadcastTo", column, call.emit.shape_vector(parts)))
    return made


def scaled(call: Call, value: Value, factor: tf.Tensor) -> Any:
    """The stacked ``value`` times an invariant slope of the same inner shape, of 1 at most.

    A value may be a product itself, of a large v and a small a. Then the small factors are
    multiplied first, (v a) f = v (a f), with one pass over v. Since f is not above 1, a f cannot
    overflow; numbers that underflow are below 1e-38 v. In float16 they would be below 1e-8 v, so
    float16 is left out.
    """
    folded = _common_fold(call, [value, Value.unstacked(factor)])
    if folded is None:
        return _times_slope(call, value.tensor, factor)
    return unfold(call, _times_slope(call, *folded.operands), folded.like, folded.axes)


def _times_slope(call: Call, product: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    op, shape = product.op, dims(product)
    is_wide = product.dtype in (tf.float32, tf.float64)
    if is_wide and op.type == "Mul" and op.graph is call.emit.graph and shape and shape[0] != 1:
        for large, small in (op.inputs, reversed(op.inputs)):
            if dims(large) == shape and all(_has_one_row(t, len(shape)) for t in (small, factor)):
                return call.emit("Mul", large, call.emit("Mul", small, factor))
    return call.emit("Mul", product, factor)


def _has_one_row(tensor: tf.Tensor, rank: int) -> bool:
    """Whether axis 0 is 1 once it has ``rank`` axes; no if that is not known."""
    shape = dims(tensor)
    return shape is not None and (len(shape) < rank or shape[0] == 1)


def regroup(call: Call, flat: list[tf.Tensor]) -> dict[str, Any]:
    """Flat tensors by OpDef input name, lists again where the op has lists."""
    supply = iter(flat)
    return {
        name: [next(supply) for _ in v] if isinstance(v, list) else next(supply)
        for name, v in call.inputs.items()
    }


def _needs_no_alignment(values: Sequence[Value]) -> bool:
    """True when all inputs but one are invariant scalars: then the rank may be unknown."""
    return sum(v.is_stacked or v.inner_shape != () for v in values) <= 1


# ---------------------------------------------------------------------------
# The folded form
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _CommonFold:
    """Operands with the loop merged into the first ``axes`` inner axes of ``like``."""

    like: Value
    axes: int
    operands: list[tf.Tensor]


def _common_fold(
    call: Call, values: Sequence[Value], *, broadcasts: bool = True
) -> _CommonFold | None:
    """The inputs in the folded form of one of them, or None if that would not be the same op.

    With inner shapes aligned to the right: stacked inputs must agree in the folded axes, and
    invariant ones must not reach them, but for ones. Stacked inputs that are not folded yet are
    folded: their Reshape replaces the one of the others.
    """
    like = next((v for v in values if folded_form(v) is not None), None)
    if like is None or any(v.inner_shape is None for v in values):
        return None
    form = folded_form(like)
    assert form is not None
    assert like.inner_shape is not None
    axes, rank = form.axes, len(like.inner_shape)
    head = like.inner_shape[:axes]
    if not broadcasts:
        if any(v.inner_rank != rank for v in values):
            return None
    elif not all(v is like or _fits(v, head, rank) for v in values):
        return None
    return _CommonFold(like, axes, [_folded(call, v, axes, rank, broadcasts) for v in values])


def _fits(value: Value, head: tuple[int | None, ...], rank: int) -> bool:
    """Whether a broadcasting operand keeps its meaning when ``head`` is merged with the loop."""
    assert value.inner_shape is not None
    missing = rank - len(value.inner_shape)
    if missing < 0:
        return False
    mine = ((1,) * missing + value.inner_shape)[: len(head)]
    if value.is_stacked:
        return None not in mine and mine == head and (missing == 0 or is_static(value.inner_shape))
    reaches = missing < len(head)
    return mine == (1,) * len(head) and (not reaches or is_static(value.inner_shape))


def _folded(call: Call, value: Value, axes: int, rank: int, broadcasts: bool) -> tf.Tensor:
    """``value`` with the loop merged into its first ``axes`` axes, once it has rank ``rank``."""
    shape = value.inner_shape
    assert shape is not None
    missing = rank - len(shape)
    if value.is_stacked and missing > axes:  # [n, ...] -> [n, 1, ..., 1, ...]
        return expand_to_rank(call, value, rank - axes)
    if value.is_stacked or not broadcasts:  # what is invariant is repeated for these kernels
        return fold(call, value, axes - missing)  # what it lacks are ones
    extra = max(0, axes - missing)  # leading ones
    return call.emit.reshape(value.tensor, known_dims(shape)[extra:]) if extra else value.tensor


# ---------------------------------------------------------------------------
# Too many groups of axes
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Adjacent axes along which each operand has either all elements or ones.

    Attributes:
      factor: the number of elements, without the loop.
      has_loop: whether the loop is one of the axes.
      present: for each operand, whether it has the elements.
    """

    factor: int
    has_loop: bool
    present: tuple[bool, ...]

    def join(self, other: _Group) -> _Group:
        """Both, one after the other."""
        present = tuple(a or b for a, b in zip(self.present, other.present))
        return _Group(self.factor * other.factor, self.has_loop or other.has_loop, present)


def _groups(call: Call, values: Sequence[Value], rank: int) -> list[_Group] | None:
    """The groups of the aligned operands, the loop first; None if dimensions are unknown."""
    if not all(is_static(v.inner_shape) for v in values):
        return None
    shapes = [known_dims(v.inner_shape) for v in values]
    aligned = [(1,) * (rank - len(s)) + s for s in shapes]
    axes = [_Group(1, True, tuple(v.is_stacked for v in values))]
    for sizes in zip(*aligned):
        size = next((s for s in sizes if s != 1), 1)
        axes.append(_Group(size, False, tuple(s != 1 for s in sizes)))
    out: list[_Group] = []
    for axis in axes:
        if axis.factor == 1 and not (axis.has_loop and call.loop.static_length != 1):
            continue  # an axis of size one
        if out and out[-1].present == axis.present:
            axis = out.pop().join(axis)
        out.append(axis)
    return out


def _collapsed(
    call: Call,
    values: Sequence[Value],
    groups: list[_Group],
    max_groups: int,
    attrs: dict[str, Any],
) -> Value:
    """The op on one axis for each group, the groups reduced to ``max_groups``.

    Two neighbours become one when the operands that have only one of them are repeated along
    the other; it is done where that costs least.
    """
    if call.loop.static_length == 0 or any(g.factor == 0 for g in groups):
        # Grappler divides by zero on the gradient's static shapes (2.21), and the process ends.
        raise CannotVectorize(f"more than {max_groups} groups of axes, and one axis is empty")
    operands = [
        call.emit.reshape(v.any_form, _sizes(call, groups, i)) for i, v in enumerate(values)
    ]
    while len(groups) > max_groups:
        costs = [_cost(call, groups, k) for k in range(len(groups) - 1)]
        at = costs.index(min(costs))
        joined = [*groups[:at], groups[at].join(groups[at + 1]), *groups[at + 2 :]]
        for i, tensor in enumerate(operands):
            lacks = [k for k in (at, at + 1) if not groups[k].present[i]]
            if len(lacks) == 1:
                full = _sizes(call, groups, i)
                full[lacks[0]] = _size(call, groups[lacks[0]])
                tensor = call.emit("BroadcastTo", tensor, call.emit.shape_vector(full))
            operands[i] = call.emit.reshape(tensor, _sizes(call, joined, i))
        groups = joined
    tensor = call.rebuild(**dict(zip(call.inputs, operands)), **attrs)
    shape = known_dims(call.output_shape())  # since all inputs are static
    return call.like(call.emit.reshape(tensor, [call.loop.length, *shape]))


def _size(call: Call, group: _Group) -> Dim:
    return product(call, [call.loop.length, group.factor]) if group.has_loop else group.factor


def _sizes(call: Call, groups: Sequence[_Group], operand: int) -> list[Dim]:
    return [_size(call, g) if g.present[operand] else 1 for g in groups]


def _cost(call: Call, groups: Sequence[_Group], k: int) -> int:
    """The number of elements that are written when groups k and k + 1 become one."""
    n = call.loop.static_length or 1024  # a guess
    sizes = [g.factor * (n if g.has_loop else 1) for g in groups]
    pair = (k, k + 1)
    return sum(
        math.prod(s for j, s in enumerate(sizes) if j in pair or groups[j].present[i])
        for i in range(len(groups[k].present))
        if groups[k].present[i] != groups[k + 1].present[i]
    )


def absorbed(call: Call, x: Value, y: Value) -> Value | None:
    """The x of min(x, max(x, z)), integers; None for another minimum."""
    if not x.dtype.is_integer or x.inner_rank != 0 or y.inner_rank != 0:
        return None
    first, second = call.op.inputs
    for value, own, other in ((x, first, second), (y, second, first)):
        if other.op.type == "Maximum" and any(t is own for t in other.op.inputs):
            return value
    return None
