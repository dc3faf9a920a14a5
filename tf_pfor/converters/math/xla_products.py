"""XLA's own ops that multiply: dots, convolutions, ``einsum``, decompositions of matrices.

They exist only under ``tf.function(jit_compile=True)``: TensorFlow has no other kernels for them.
"""

from __future__ import annotations

import string
from typing import Any

import tensorflow as tf

from tf_pfor.converters.math._families import native_batch
from tf_pfor.converters.math._xla import numbers_of, of_shape, renumber, require_invariant, windows
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import inner_dims, product, transpose
from tf_pfor.core.values import Shape, Value, is_static

native_batch({"XlaReducePrecision": ("exponent_bits", "mantissa_bits")})


@RegisterPFor("XlaSelfAdjointEig", ANY, attrs=("lower", "max_iter", "epsilon"))
def xla_self_adjoint_eig(call: Call, a: Value) -> Any:
    """Native batch: [..., m, m] -> [..., m], [..., m, m]."""
    numbers, vectors = call.rebuild()
    shape = a.inner_shape
    last = None if shape is None else shape[:-1]
    return [of_shape(call, numbers, last), of_shape(call, vectors, shape)]


@RegisterPFor("XlaSvd", ANY, attrs=("max_iter", "epsilon", "precision_config"))
def xla_svd(call: Call, a: Value) -> Any:
    """Native batch: [..., m, k] -> [..., min(m, k)], [..., m, m], [..., k, k]."""
    made: list[tf.Tensor] = call.rebuild()
    if a.inner_shape is None:
        return made
    *batch, m, k = a.inner_shape
    least = None if m is None or k is None else min(m, k)
    shapes = ((*batch, least), (*batch, m, m), (*batch, k, k))
    return [of_shape(call, t, shape) for t, shape in zip(made, shapes, strict=True)]


@RegisterPFor("XlaEinsum", ANY, attrs=("equation",))
def xla_einsum(call: Call, a: Value, b: Value) -> Any:
    """The loop is a letter of its own, in front of each stacked input and of the product."""
    equation: str = call.attr("equation")
    sides, arrow, result = equation.partition("->")
    terms = sides.split(",")
    free = next((c for c in string.ascii_letters if c not in equation), None)
    if not arrow or len(terms) != 2 or free is None:
        raise CannotVectorize(f"the equation '{equation}' has no letter for the loop")
    left, right = (
        free + term.strip() if value.is_stacked else term for term, value in zip(terms, (a, b))
    )
    return call.rebuild(equation=f"{left},{right}->{free}{result.strip()}")


@RegisterPFor("XlaDot XlaDotV2", ANY, attrs=("dimension_numbers", "precision_config"))
def xla_dot(call: Call, lhs: Value, rhs: Value) -> Any:
    """The loop is a batch axis if both sides are stacked, else a free axis of one side.

    Results are [batch axes, free axes of the left side, free axes of the right side].
    """
    numbers = numbers_of(call, "DotDimensionNumbers")
    batch, summed = len(numbers.lhs_batch_dimensions), len(numbers.lhs_contracting_dimensions)
    left = call.require_rank(lhs, "the left side") - batch - summed
    right = call.require_rank(rhs, "the right side") - batch - summed
    before = [0] if lhs.is_stacked and rhs.is_stacked else []
    if lhs.is_stacked:
        renumber(numbers.lhs_contracting_dimensions)
        renumber(numbers.lhs_batch_dimensions, before=before)
    if rhs.is_stacked:
        renumber(numbers.rhs_contracting_dimensions)
        renumber(numbers.rhs_batch_dimensions, before=before)
    made = call.rebuild(dimension_numbers=numbers.SerializeToString())
    place = 0 if before else batch if lhs.is_stacked else batch + left
    others = [axis for axis in range(1 + batch + left + right) if axis != place]
    return transpose(call, made, [place, *others])


# ---------------------------------------------------------------------------
# Convolutions
# ---------------------------------------------------------------------------


@RegisterPFor("XlaConv", ANY, attrs=("dimension_numbers", "precision_config"))
@RegisterPFor(
    "XlaConvV2", ANY, attrs=("dimension_numbers", "precision_config", "batch_group_count")
)
def xla_conv(call: Call, lhs: Value, rhs: Value, *others: Value) -> Any:
    """The loop goes into the batch of images, or into the features that filters make.

    Where images and filters are stacked each iteration is a group of features; where the op has
    groups of the batch, a group of those. An axis of groups stays the outer one.
    """
    require_invariant(call, *(name for name in call.inputs if name not in ("lhs", "rhs")))
    axes = numbers_of(call, "ConvolutionDimensionNumbers")
    has_batch_groups = call.op_type == "XlaConvV2"
    of_batch = call.attr("batch_group_count") if has_batch_groups else 1
    of_features = int(call.constant("feature_group_count"))
    call.require_rank(lhs, "the images")
    call.require_rank(rhs, "the filters")
    filters = axes.kernel_output_feature_dimension
    shape = _convolved_shape(call, lhs, rhs, axes, of_batch)
    if not rhs.is_stacked:
        images = _fold_into(call, lhs, axes.input_batch_dimension, of_batch)
        return _unfold_from(call, call.rebuild(lhs=images), shape, axes.output_batch_dimension, 1)
    if not lhs.is_stacked:
        groups = of_batch * of_features  # one of them is 1
        made = call.rebuild(rhs=_fold_into(call, rhs, filters, groups))
        return _unfold_from(call, made, shape, axes.output_feature_dimension, groups)
    if call.loop.static_length == 0:  # XLA has no convolution of 0 groups
        if not is_static(shape):
            raise CannotVectorize("there are no rows, and their shape is unknown")
        zero = call.emit.constant(0, call.output_dtype())
        return call.emit("Fill", call.emit.shape_vector([0, *shape]), zero)
    changes: dict[str, Any] = {}
    if of_batch > 1:
        if call.loop.static_length is None:
            raise CannotVectorize("the number of groups of the batch is known only at run time")
        changes["batch_group_count"] = call.loop.static_length * of_batch
        changes["lhs"] = _fold_into(call, lhs, axes.input_batch_dimension, 1)
    else:
        groups = call.emit.as_tensor(product(call, [call.loop.length, of_features]))
        dtype = call.value("feature_group_count").dtype
        if groups.dtype != dtype:
            groups = call.emit("Cast", groups, DstT=dtype)
        changes["feature_group_count"] = groups
        changes["lhs"] = _fold_into(call, lhs, axes.input_feature_dimension, 1)
    made = call.rebuild(rhs=_fold_into(call, rhs, filters, 1), **changes)
    return _unfold_from(call, made, shape, axes.output_feature_dimension, 1)


def _fold_into(call: Call, value: Value, axis: int, groups: int) -> tf.Tensor:
    """[n, ..., groups*d, ...] -> [..., groups*n*d, ...]."""
    n, parts = call.loop.length, inner_dims(call, value)
    size = call.emit.dim_math("FloorDiv", parts[axis], groups)
    split = call.emit.reshape(value.tensor, [n, *parts[:axis], groups, size, *parts[axis + 1 :]])
    behind = range(axis + 2, len(parts) + 2)
    moved = transpose(call, split, [*range(1, axis + 2), 0, *behind])  # [..., groups, n, d, ...]
    return call.emit.reshape(
        moved, [*parts[:axis], product(call, [n, parts[axis]]), *parts[axis + 1 :]]
    )


def _unfold_from(call: Call, made: tf.Tensor, shape: Shape, axis: int, groups: int) -> tf.Tensor:
    """[..., groups*n*d, ...] -> [n, ..., groups*d, ...], which is [n] + shape."""
    n, emit = call.loop.length, call.emit
    if is_static(shape):
        parts: list[Dim] = list(shape)
    else:
        rank = call.require_rank(call.value("lhs"))
        parts = [emit.dim(made, i) for i in range(rank)]
        parts[axis] = emit.dim_math("FloorDiv", parts[axis], emit.dim_math("Maximum", n, 1))
    size = emit.dim_math("FloorDiv", parts[axis], groups)
    split = emit.reshape(made, [*parts[:axis], groups, n, size, *parts[axis + 1 :]])
    behind = range(axis + 2, len(parts) + 2)
    moved = transpose(call, split, [axis + 1, *range(axis + 1), *behind])
    return emit.reshape(moved, [n, *parts])


def _convolved_shape(call: Call, lhs: Value, rhs: Value, axes: Any, of_batch: int) -> Shape:
    """The shape of a result of the body, None if it is not known."""
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    found = [call.maybe_constant(name) for name in names]
    images, filters = lhs.inner_shape, rhs.inner_shape
    if not is_static(images) or not is_static(filters):
        return None
    if any(numbers is None for numbers in found):
        return None
    shape = [0] * len(images)
    shape[axes.output_batch_dimension] = images[axes.input_batch_dimension] // of_batch
    shape[axes.output_feature_dimension] = filters[axes.kernel_output_feature_dimension]
    spatial = zip(
        axes.input_spatial_dimensions,
        axes.kernel_spatial_dimensions,
        axes.output_spatial_dimensions,
        *(numbers.tolist() for numbers in found),  # type: ignore[union-attr]
        strict=True,
    )
    for image, window, output, *numbers in spatial:
        shape[output] = windows(images[image], filters[window], *numbers)
    return tuple(shape)
