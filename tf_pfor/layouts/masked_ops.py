"""Ops on slices of which a mask tells which count: elementwise, reductions, sums of products.

What is not selected must not matter. It is dropped where slices are added up, so that its gradient
is zero; and where zero times an infinite derivative could be NaN, a select stops what flows back
(``_guarded``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core import regions
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.layouts.elementwise_ops import ELEMENTWISE

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
_LIKE = frozenset(["OnesLike", "ZerosLike"])  # that do not read the numbers
REDUCTIONS = frozenset(["All", "Any", "Max", "Mean", "Min", "Prod", "Sum"])
CUMULATIVE = {"Cumprod": 1, "Cumsum": 0, "CumulativeLogsumexp": -np.inf}  # and what is neutral
SUMS_OF_PRODUCTS = frozenset(["BiasAddGrad", "Einsum", "MatMul"])


class Slices(NamedTuple):
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
        """The tensor; of a shape or a size what it was."""
        return self.tensor if self.counted is None else self.counted

    @property
    def rank(self) -> int | None:
        """The rank of the tensor, None if unknown."""
        return self.tensor.shape.rank


def copied(
    op: tf.Operation, given: Sequence[Slices], mask: Any = None, places: Any = None
) -> list[Slices]:
    """A copy of ``op`` on all slices; what it makes has this mask, and counts these places."""
    return [Slices(x, mask, places) for x in emitted(op, [x.tensor for x in given])]


def emitted(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """What a copy of ``op`` makes, of the ranks that the body knows."""
    made = regions.copied(op, inputs)
    for old, new in zip(op.outputs, made, strict=True):
        if new.shape.rank is None:
            new.set_shape(old.shape)
    return made


def evaluated(tensor: tf.Tensor) -> Any:
    """The value of a constant, also of an axis that is counted from the end; None if unknown."""
    known = _tf.static_value(tensor)
    if known is None and tensor.op.type in ("AddV2", "FloorMod"):
        x, y = (evaluated(t) for t in tensor.op.inputs)
        if x is not None and y is not None:
            return x + y if tensor.op.type == "AddV2" else x % y
    return known


def count(mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """How many slices are selected: a scalar."""
    return tf.reduce_sum(tf.cast(mask, dtype))


def is_zero(tensor: tf.Tensor) -> bool:
    """Whether a tensor of the body is known to be all zeros."""
    known = _tf.static_value(tensor)
    return tensor.op.type == "ZerosLike" or (known is not None and not known.any())


def different(masks: Iterable[tf.Tensor | None]) -> list[tf.Tensor]:
    """The masks that there are, each once."""
    return list({id(m): m for m in masks if m is not None}.values())


def are_one(masks: Iterable[tf.Tensor | None]) -> bool:
    """Whether all are the same mask, or none is one."""
    return len({id(m) for m in masks}) == 1


def _column(mask: tf.Tensor, rank: int) -> tf.Tensor:
    """A mask [k] as [k, 1, ...], for tensors of this rank."""
    return tf.reshape(mask, [-1] + [1] * (rank - 1))


def _guarded(x: Slices, mask: tf.Tensor, rank: int) -> Slices:
    """``x`` without what flows back from slices that are not selected, where it may be NaN."""
    if not (x.tensor.dtype.is_floating or x.tensor.dtype.is_complex):
        return x
    return x._replace(tensor=tf.where(_column(mask, rank), x.tensor, tf.stop_gradient(x.tensor)))


def shown(values: Slices, other: Any) -> tf.Tensor:
    """The slices, with ``other`` in place of those that are not selected."""
    assert values.mask is not None
    assert values.rank is not None
    neutral = tf.constant(other, values.tensor.dtype)
    return tf.where(_column(values.mask, values.rank), values.tensor, neutral)


def is_elementwise(op: tf.Operation, given: Sequence[Slices]) -> bool:
    """Whether an op is done to each slice by itself, with numbers that all share."""
    ranks = {x.rank for x in given if x.mask is not None}
    rank = ranks.pop()
    if rank is None or ranks or len(different(x.mask for x in given)) != 1:
        return False
    for x in given:
        is_shared = x.rank is not None and (
            x.rank < rank or (x.rank == rank and x.tensor.shape[:1] == [1])
        )
        if x.mask is None and not is_shared:
            return False
    is_sign = op.type == "GreaterEqual" and is_zero(op.inputs[1])
    of_numbers = is_sign or op.type in _LIKE or not different(x.places for x in given)
    is_float = all(x.tensor.dtype.is_floating for x in given)
    return of_numbers and (op.type in (*ELEMENTWISE, "AddN") or (op.type in _SMOOTH and is_float))


def elementwise(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """All slices, each by itself."""
    (mask,) = different(x.mask for x in given)
    if op.type in _SMOOTH:
        rank = max(x.rank or 0 for x in given)
        given = [_guarded(x, mask, rank) for x in given]
    return copied(op, given, mask)


def reduced(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """Slices reduced: to one that does not depend on what is not selected, or each by itself."""
    values, known = given[0], evaluated(given[1].tensor)
    rank, dtype = values.rank, values.tensor.dtype
    if values.mask is None or values.places is not None or known is None or not rank:
        raise CannotVectorize(f"what it selects, or how much, is reduced by {op.type}")
    axes = sorted({int(axis) % rank for axis in np.ravel(known)})
    if 0 not in axes:
        return copied(op, [_guarded(values, values.mask, rank), *given[1:]], values.mask)
    neutral = shown(values, _neutral(op.type, dtype))
    if op.type != "Mean":
        return copied(op, [Slices(neutral), *given[1:]])
    if not dtype.is_floating:  # of none: an error, or of complex numbers zero
        raise CannotVectorize("the mean of what it selects, which is not floating point")
    total = tf.reduce_sum(neutral, axes, keepdims=op.get_attr("keep_dims"))
    number = count(values.mask, dtype)
    for axis in axes[1:]:
        number *= tf.cast(tf.shape(values.tensor)[axis], dtype)
    return [Slices(total / number)]


def _neutral(reduction: str, dtype: tf.DType) -> Any:
    """What changes nothing where it is reduced."""
    if reduction == "Max":
        return -np.inf if dtype.is_floating else dtype.min
    if reduction == "Min":
        return np.inf if dtype.is_floating else dtype.max
    return {"All": True, "Any": False, "Prod": 1}.get(reduction, 0)


def cumulated(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """Slices added up, or multiplied, one after the other, or each by itself."""
    values, axis = given[0], evaluated(op.inputs[1])
    rank, mask = values.rank, values.mask
    if mask is None or values.places is not None or axis is None or not rank:
        raise CannotVectorize(f"what it selects is read by {op.type}")
    guarded = _guarded(values, mask, rank)
    if int(axis) % rank == 0:
        guarded = Slices(shown(values, CUMULATIVE[op.type]))
    return copied(op, [guarded, *given[1:]], mask)


def takes_one(op: tf.Operation) -> bool:
    """Whether an op is ``x[i]`` or ``x[i, ...]``, or its gradient."""
    if op.type not in ("StridedSlice", "StridedSliceGrad"):
        return False
    first = {name: bits & 1 for name, bits in slice_masks(op).items()}
    return bool(first.pop("shrink_axis_mask")) and not any(first.values())


def one(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """``x[i]`` or its gradient: slice i of those that are selected is another one of all."""
    values, mask = given[0], given[0].mask
    rest = [_tf.static_value(t) for t in op.inputs[1:4]]
    has_places = any(x.places is not None for x in given)
    is_known = op.inputs[1].shape == [1] or not any(x is None for x in rest)
    if mask is None or any(x.mask is not None for x in given[1:]) or has_places or not is_known:
        raise CannotVectorize(f"what it selects is read by {op.type}")
    index = given[1].tensor[0]
    size = tf.size(mask, index.dtype)
    index = tf.where(index < 0, index + count(mask, index.dtype), index)
    before = tf.cumsum(tf.cast(mask, index.dtype)) <= index
    place = tf.reduce_sum(tf.cast(before, index.dtype))
    place = tf.where(index < 0, size, place)  # beyond the end: an error
    of_rest: dict[str, Any] = {name: bits >> 1 for name, bits in slice_masks(op).items()}
    of_rest |= zip(("begin", "end", "strides"), [() if x is None else x[1:] for x in rest])
    if op.type == "StridedSlice":
        return [Slices(_rest_of(tf.raw_ops.StridedSlice, of_rest, input=values.tensor[place]))]
    shape = op.outputs[0].shape[1:]
    if not shape.is_fully_defined():
        raise CannotVectorize("what it selects is sliced, and its shape is not known")
    flowing = given[4].tensor
    slope = _rest_of(tf.raw_ops.StridedSliceGrad, of_rest, shape=shape.as_list(), dy=flowing)
    is_it = tf.logical_and(tf.equal(tf.range(size), place), mask[place])  # fails as well
    made = tf.where(_column(is_it, len(shape) + 1), slope, tf.zeros([], slope.dtype))
    return [Slices(made, mask)]


def slice_masks(op: tf.Operation) -> dict[str, int]:
    """The bits of a StridedSlice, or of its gradient, that tell what each index means."""
    names = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")
    return {name: op.get_attr(name) for name in names}


def _rest_of(slicing: Any, arguments: dict[str, Any], **of: Any) -> tf.Tensor:
    """What slicing makes along the axes after the first, of which there may be none."""
    (*_, values) = of.values()
    return slicing(**of, **arguments) if len(arguments["begin"]) else values


def product(op: tf.Operation, given: Sequence[Slices]) -> list[Slices]:
    """A sum of products: over the slices that are selected, or for each of them.

    Others are zeros, also where they are not added up: they could be infinite, and the gradient of
    what they are multiplied by adds them up.
    """
    labels = _labels(op)
    (mask, *others) = different(x.mask for x in given)
    named = {names[0] for names, x in zip(labels, given) if x.mask is not None}
    (label, *more) = named
    ends = labels[-1]
    known = [names.count(label) == int(x.mask is not None) for names, x in zip(labels, given)]
    has_places = any(x.places is not None for x in given)
    if others or more or has_places or not all(known) or label in ends[1:]:
        raise CannotVectorize(f"what it selects is multiplied by {op.type}")
    zeroed = [x if x.mask is None else Slices(shown(x, 0)) for x in given]
    return copied(op, zeroed, mask if ends[:1] == label else None)


def _labels(op: tf.Operation) -> list[str]:
    """The axes of what is multiplied, and of the result, as ``tf.einsum`` names them."""
    if op.type == "Einsum":
        ins, out = op.get_attr("equation").decode().replace(" ", "").split("->")
        labels = [*ins.split(","), out]
        if "." in "".join(labels):
            raise CannotVectorize("what it selects is multiplied by Einsum with an ellipsis")
        return labels
    if op.type == "BiasAddGrad":
        rank = op.inputs[0].shape.rank
        if rank is None or op.get_attr("data_format") != b"NHWC":
            raise CannotVectorize("what it selects is added up by BiasAddGrad of another format")
        return ["abcdefg"[:rank], "abcdefg"[rank - 1 : rank]]
    first = "ba" if op.get_attr("transpose_a") else "ab"
    return [first, "cb" if op.get_attr("transpose_b") else "bc", "ac"]


def softmax(op: tf.Operation, values: Slices) -> list[Slices]:
    """Over the slices that are selected, if they are numbers; else each by itself."""
    assert values.mask is not None
    if values.rank == 1:
        return copied(op, [Slices(shown(values, -np.inf))], values.mask)
    return copied(op, [_guarded(values, values.mask, values.rank or 0)], values.mask)


def is_of_each(op: tf.Operation, given: Sequence[Slices]) -> bool:
    """Whether an op changes, or cuts, each slice in the same way, and no numbers in it."""
    rank, others = given[0].rank, different(x.mask for x in given[1:])
    if not rank or given[0].mask is None or any(x is not given[0].mask for x in others):
        return False
    if op.type == "BiasAdd":
        return rank > 1 and not others and op.get_attr("data_format") == b"NHWC"
    if op.type == "Squeeze":
        dims = op.get_attr("squeeze_dims")
        return bool(dims) and all(d % rank for d in dims)
    if op.type == "Transpose":
        order = _tf.static_value(op.inputs[1])
        return order is not None and order[0] == 0
    if op.type == "ExpandDims":
        axis = _tf.static_value(op.inputs[1])
        return axis is not None and int(axis) not in (0, -rank - 1)
    if op.type in ("StridedSlice", "StridedSliceGrad"):
        is_gradient = op.type == "StridedSliceGrad"
        values = op.outputs[0] if is_gradient else op.inputs[0]
        is_new = is_gradient and given[4].mask is None
        return not is_new and _takes_all_of_axis_0(op, values.shape.rank, op.inputs[3])
    return False


def is_within_each(op: tf.Operation, given: Sequence[Slices]) -> bool:
    """Whether an op joins slices, or takes them apart, along another axis than the first."""
    parts = given[:-1] if op.type == "ConcatV2" else given
    rank, made = parts[0].rank, op.outputs[0].shape.rank
    if parts[0].mask is None or not are_one(x.mask for x in parts) or not rank or made is None:
        return False
    if op.type == "ConcatV2":
        axis = _tf.static_value(op.inputs[-1])
        return axis is not None and int(axis) % rank != 0
    return op.get_attr("axis") % max(rank, made) != 0


def _takes_all_of_axis_0(op: tf.Operation, rank: int | None, strides: tf.Tensor) -> bool:
    """Whether a StridedSlice, or its gradient, takes ``x[:, ...]`` of a tensor of this rank."""
    bits = slice_masks(op)
    steps = _tf.static_value(strides)
    if steps is None or rank is None or bits["new_axis_mask"] & 1 or not steps.size:
        return False
    if bits["ellipsis_mask"] & 1:
        taken = sum(not bits["new_axis_mask"] >> i & 1 for i in range(1, steps.size))
        return taken < rank
    is_all = bits["begin_mask"] & bits["end_mask"] & 1 and not bits["shrink_axis_mask"] & 1
    return bool(is_all) and steps[0] == 1
