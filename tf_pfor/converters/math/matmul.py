"""Matrix products (docs/decisions/0002-matmul-forms.md has the measurements behind the forms)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._column_blocks import biased_columns
from tf_pfor.converters.math._in_channels import in_channels, is_read_once, vector_of_channels
from tf_pfor.converters.math._matmul import HALVES, columns_by, matrix_product, swapped
from tf_pfor.converters.math._products import product_or_factors
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.pending import InChannels, Product
from tf_pfor.core.registry import ANY, RegisterPFor
from tf_pfor.core.shapes import expand_to_rank, fold, inner_dims, stacked_dims, unfold
from tf_pfor.core.values import Value, dims, folded_form, is_static

MATMUL = ("transpose_a", "transpose_b", "grad_a", "grad_b")
BATCH_MATMUL = ("adj_x", "adj_y", "grad_x", "grad_y")


# ---------------------------------------------------------------------------
# MatMul
# ---------------------------------------------------------------------------


@RegisterPFor("MatMul", ("a",), attrs=MATMUL)
@RegisterPFor("MatMul", ("b",), attrs=MATMUL)
@RegisterPFor("MatMul", ("a", "b"), attrs=MATMUL)
def matmul(call: Call, a: Value, b: Value) -> Any:
    """a_i @ b_i: one product if either is shared; a term of a sum of products."""
    flags = call.attr("transpose_a"), call.attr("transpose_b")
    return product_or_factors(
        call, Product(a, b, *flags), lambda: matrix_product(call, a, b, *flags)
    )


@RegisterPFor(
    "SparseMatMul", ANY, attrs=("transpose_a", "transpose_b", "a_is_sparse", "b_is_sparse")
)
def sparse_matmul(call: Call, a: Value, b: Value) -> Any:
    """MatMul in float32, which is what its kernel computes; *_is_sparse are hints."""
    for value in (a, b):
        call.require_rank(value)
    a, b = _float32(call, a), _float32(call, b)
    flags = call.attr("transpose_a"), call.attr("transpose_b")
    return matrix_product(call, a, b, *flags)


def _float32(call: Call, value: Value) -> Value:
    if value.dtype == tf.float32:
        return value
    tensor = call.emit("Cast", value.tensor, DstT=tf.float32)
    return Value.stacked(tensor) if value.is_stacked else Value.unstacked(tensor)


# ---------------------------------------------------------------------------
# BatchMatMul
# ---------------------------------------------------------------------------


@RegisterPFor("BatchMatMul BatchMatMulV2 BatchMatMulV3", ANY, attrs=BATCH_MATMUL)
def batch_matmul(call: Call, x: Value, y: Value) -> Any:
    """x_i @ y_i with batch dimensions that broadcast; the kernel's own broadcasting is not used.

    An invariant matrix: one product. Equal batch dimensions: the kernel takes the loop as one
    more. Else Einsum, which contracts without repeating anything.
    """
    for value in (x, y):
        call.require_rank(value)
    if x.dtype != y.dtype or call.output_dtype() != x.dtype or x.dtype == tf.int16:
        return _broadcast_first(call, x, y)  # types that Einsum and MatMul do not have
    adj_x, adj_y = call.attr("adj_x"), call.attr("adj_y")
    if x.dtype.is_complex:
        return _batch_matmul(call, x, y)
    return product_or_factors(call, Product(x, y, adj_x, adj_y), lambda: _batch_matmul(call, x, y))


def _batch_matmul(call: Call, x: Value, y: Value) -> Any:
    adj_x, adj_y = call.attr("adj_x"), call.attr("adj_y")
    assert x.inner_shape is not None
    assert y.inner_shape is not None
    inner = {x.inner_shape[-2 if adj_x else -1], y.inner_shape[-1 if adj_y else -2]}
    if 1 in inner and max(len(x.inner_shape), len(y.inner_shape)) <= 4:
        return _batched_outer(call, x, y)
    if x.is_stacked and y.is_stacked and _same_batch(call, x, y):
        return call.rebuild()
    if not y.is_stacked and _is_matrix(y) and len(y.inner_shape) <= len(x.inner_shape):
        return _batch_by_matrix(call, x, y)
    if not x.is_stacked and _is_matrix(x) and len(x.inner_shape) <= len(y.inner_shape):
        return _matrix_by_batch(call, x, y)
    return _by_einsum(call, x, y)


def _is_matrix(value: Value) -> bool:
    """One matrix: all batch dimensions are one."""
    assert value.inner_shape is not None
    return all(d == 1 for d in value.inner_shape[:-2])


def _same_batch(call: Call, x: Value, y: Value) -> bool:
    assert x.inner_shape is not None
    assert y.inner_shape is not None
    if call.op_type == "BatchMatMul":
        return True  # it never broadcasts
    return x.inner_shape[:-2] == y.inner_shape[:-2] and is_static(x.inner_shape[:-2])


def _batched_outer(call: Call, x: Value, y: Value) -> Any:
    """[..., r, 1] * [..., 1, m]."""
    x = swapped(call, x, conjugate=True) if call.attr("adj_x") else x
    y = swapped(call, y, conjugate=True) if call.attr("adj_y") else y
    rank = max(call.require_rank(x), call.require_rank(y))
    return call.emit(
        "Mul", *[expand_to_rank(call, v, rank) if v.is_stacked else v.tensor for v in (x, y)]
    )


def _batch_by_matrix(call: Call, x: Value, y: Value) -> Value:
    """[n, b..., r, k] by one [k, m]: [n*b*r, k] by [k, m]."""
    if call.attr("adj_x"):
        x = swapped(call, x, conjugate=True)
    matrix = _one_matrix(call, y, call.attr("adj_y"))
    axes = call.require_rank(x) - 1
    made = call.emit("MatMul", fold(call, x, axes), matrix, transpose_b=call.attr("adj_y"))
    return unfold(call, made, x, axes)


def _matrix_by_batch(call: Call, x: Value, y: Value) -> Value:
    """One [m, k] by [n, b..., k, p], the batch merged with the loop."""
    adj_x, adj_y = call.attr("adj_x"), call.attr("adj_y")
    inner = inner_dims(call, y)
    matrix = _one_matrix(call, x, adj_x)
    elements = y.any_form
    if adj_y and y.dtype.is_complex:
        elements = call.emit("Conj", elements)
    return columns_by(call, matrix, elements, inner, adj_x, adj_y)


def _one_matrix(call: Call, value: Value, adjoint: bool) -> tf.Tensor:
    """The invariant matrix without its batch dimensions of one, conjugated for an adjoint."""
    tensor = value.tensor
    if adjoint and tensor.dtype.is_complex:
        tensor = call.emit("Conj", tensor)
    return call.emit.reshape(tensor, inner_dims(call, value)[-2:])


def _by_einsum(call: Call, x: Value, y: Value) -> tf.Tensor:
    """Batch labels that only one operand has become rows or columns of one product."""
    labels = _batch_labels(x, y)
    terms: list[str] = []
    operands: list[tf.Tensor] = []
    for value, matrix, adjoint in ((x, "RK", call.attr("adj_x")), (y, "KM", call.attr("adj_y"))):
        loop = "Z" if value.is_stacked else ""
        tensor = value.tensor
        if adjoint and tensor.dtype.is_complex:
            tensor = call.emit("Conj", tensor)
        matrix = matrix[::-1] if adjoint else matrix
        if labels is None:  # which dimensions broadcast is known when it runs
            terms.append(f"{loop}...{matrix}")
        else:
            mine = labels[0 if value is x else 1]
            inner = inner_dims(call, value)
            kept = [d for d, label in zip(inner, mine) if label] + inner[-2:]
            tensor = call.emit.reshape(
                tensor, [call.loop.length, *kept] if value.is_stacked else kept
            )
            terms.append(loop + "".join(mine) + matrix)
        operands.append(tensor)
    result = "Z..." if labels is None else "Z" + "".join(labels[2])
    return call.emit("Einsum", operands, equation=f"{terms[0]},{terms[1]}->{result}RM")


def _batch_labels(x: Value, y: Value) -> tuple[list[str], list[str], list[str]] | None:
    """A label for each batch dimension of x, y and the result; "" for one that is dropped.

    None when it is not known which dimensions broadcast, or a dimension of one would be lost.
    """
    assert x.inner_shape is not None
    assert y.inner_shape is not None
    mine, yours = x.inner_shape[:-2], y.inner_shape[:-2]
    rank = max(len(mine), len(yours))
    if rank > 20 or not (is_static(mine) and is_static(yours)):
        return None
    names = [chr(ord("a") + i) for i in range(rank)]
    out: tuple[list[str], list[str]] = ([], [])
    for own, other, labels in ((mine, yours, out[0]), (yours, mine, out[1])):
        for i, d in enumerate(own):
            j = i - len(own) + len(other)
            drop = d == 1 and j >= 0 and other[j] != 1
            labels.append("" if drop else names[i - len(own) + rank])
    return (*out, names)


def _broadcast_first(call: Call, x: Value, y: Value) -> Any:
    """Both operands repeated to equal batch dimensions, for types that few kernels have."""
    assert x.inner_shape is not None
    assert y.inner_shape is not None
    if not (is_static(x.inner_shape) and is_static(y.inner_shape)):
        raise CannotVectorize(f"a product of {x.dtype.name} needs static shapes")
    batch = np.broadcast_shapes(x.inner_shape[:-2], y.inner_shape[:-2])
    both: list[tf.Tensor] = []
    for value in (x, y):
        shape = [*batch, *inner_dims(call, value)[-2:]]
        tensor = expand_to_rank(call, value, len(shape)) if value.is_stacked else value.tensor
        full = [call.loop.length, *shape]
        if dims(tensor) != tuple(d if isinstance(d, int) else None for d in full):
            tensor = call.emit("BroadcastTo", tensor, call.emit.shape_vector(full))
        both.append(tensor)
    return call.rebuild(x=both[0], y=both[1])


# ---------------------------------------------------------------------------
# Einsum
# ---------------------------------------------------------------------------


@RegisterPFor("Einsum", ANY, attrs=("equation", "N"))
def einsum(call: Call, inputs: list[Value]) -> Any:
    """A fresh label for the loop, in the terms of the stacked inputs and the result."""
    equation = call.attr("equation")
    equation = equation.decode() if isinstance(equation, bytes) else equation
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(inputs):
        raise CannotVectorize(f"its equation '{equation}' is not understood")
    alphabet = "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba"
    fresh = next((c for c in alphabet if c not in equation), None)
    if fresh is None:
        raise CannotVectorize("its equation uses every letter")
    terms = [fresh + t if v.is_stacked else t for t, v in zip(terms, inputs)]
    return call.rebuild(
        inputs=[v.tensor for v in inputs], equation=f"{','.join(terms)}->{fresh}{right}"
    )


# ---------------------------------------------------------------------------
# Bias
# ---------------------------------------------------------------------------


@RegisterPFor("BiasAdd", ("value",), attrs=("data_format",))
@RegisterPFor("BiasAddV1", ("value",))
def bias_add(call: Call, value: Value, bias: Value) -> Any:
    """On the folded form, beside the MatMul or Conv2D that made it."""
    axes, form = 1, folded_form(value)
    if form is not None and _channel_axis(call, value) == call.require_rank(value) - 1:
        if (found := biased_columns(call, value, bias)) is not None:
            return found
        axes = min(form.axes, call.require_rank(value) - 1)
    return unfold(call, call.rebuild(value=fold(call, value, axes), bias=bias.tensor), value, axes)


@RegisterPFor("BiasAdd", ("bias",), attrs=("data_format",))
@RegisterPFor("BiasAdd", ("value", "bias"), attrs=("data_format",))
@RegisterPFor("BiasAddV1", ("bias",))
@RegisterPFor("BiasAddV1", ("value", "bias"))
def bias_add_stacked(call: Call, value: Value, bias: Value) -> Any:
    """A bias for each iteration: a broadcasting addition of [n, 1, ..., c, ..., 1]."""
    if isinstance(value, InChannels) and is_read_once(call, value):
        # The gradient of BiasAdd behind a convolution takes 1.5 times as long on CPUs.
        made = call.emit("AddV2", value.wide, vector_of_channels(call, bias))
        return in_channels(call, made, call.output_shape())
    rank = call.require_rank(value)
    n, channels = stacked_dims(call, bias)
    shape: list[Dim] = [n, *[1] * rank]
    shape[1 + _channel_axis(call, value)] = channels
    tensor = value.tensor
    if not value.is_stacked:  # of equal rank: Grappler takes [b, c] + [1, 1, c] for a BiasAdd
        tensor = call.emit.reshape(tensor, [1, *inner_dims(call, value)])
    return call.emit("AddV2", tensor, call.emit.reshape(bias.any_form, shape))


def _channel_axis(call: Call, value: Value) -> int:
    """The channel axis of the inner shape."""
    rank = call.require_rank(value)
    has_format = "data_format" in call.schema.attr_types
    return 1 if has_format and call.attr("data_format") in ("NCHW", b"NCHW") else rank - 1


@RegisterPFor("BiasAddGrad", ANY, attrs=("data_format",))
def bias_add_grad(call: Call, out_backprop: Value) -> Any:
    """Each iteration's sum over all axes but the channels'."""
    rank = call.require_rank(out_backprop)
    channel = _channel_axis(call, out_backprop)
    shape = out_backprop.inner_shape
    assert shape is not None
    others = [i for i in range(rank) if i != channel]
    if all(shape[i] == 1 for i in others):
        n, *inner = stacked_dims(call, out_backprop)
        return call.emit.reshape(out_backprop.any_form, [n, inner[channel]])
    tensor, dtype = out_backprop.tensor, out_backprop.dtype
    if dtype in HALVES:  # as the kernel does: sums in float32
        tensor = call.emit("Cast", tensor, DstT=tf.float32)
    total = call.emit("Sum", tensor, np.asarray([i + 1 for i in others], np.int32))
    return call.emit("Cast", total, DstT=dtype) if dtype in HALVES else total
