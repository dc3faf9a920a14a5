"""Products of one matrix by another for each iteration, whichever of them is loop-invariant."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._joint_products import product_beside_others
from tf_pfor.converters.math._weights import product_in_trip, transposed_once
from tf_pfor.core.call import Call
from tf_pfor.core.emit import Dim
from tf_pfor.core.pending import Reshaped
from tf_pfor.core.shapes import fold, inner_dims, product, transpose, unfold
from tf_pfor.core.values import Shape, Value, dims

HALVES = (tf.float16, tf.bfloat16)


def matrix_product(
    call: Call, a: Value, b: Value, transpose_a: bool, transpose_b: bool, shape: Shape = None
) -> tf.Tensor | Value:
    """a_i @ b_i, of which one may be the same for all iterations.

    ``shape`` is the static inner shape of the product where that is not output 0 of the call.
    """
    if not b.is_stacked:
        return rows_by_matrix(call, a, b, transpose_a, transpose_b, shape)
    if not a.is_stacked:
        return matrix_by_columns(call, a, b, transpose_a, transpose_b)
    return matrix_by_matrix(call, a, b, transpose_a, transpose_b)


def rows_by_matrix(
    call: Call, a: Value, b: Value, transpose_a: bool, transpose_b: bool, shape: Shape = None
) -> Value:
    """a_i @ B: [n, r, k] by [k, m] as [n*r, k] by [k, m]."""
    call.require_rank(a)
    if transpose_a:
        a = swapped(call, a)  # [n, k, r] -> [n, r, k]
    if transpose_b:
        matrix = transposed_once(call, b, _row_count(call, a))
        if matrix is not None:
            return unfold(call, product_beside_others(call, a, matrix), a, inner_shape=shape)
    rows = fold(call, a)
    made = None if transpose_b else product_in_trip(call, rows, b)
    if made is None:
        made = call.emit("MatMul", rows, b.tensor, transpose_b=transpose_b)  # [n*r, m]
    return unfold(call, made, a, inner_shape=shape)


def _row_count(call: Call, a: Value) -> int | None:
    n, shape = call.loop.static_length, a.inner_shape
    return n * shape[0] if n is not None and shape and shape[0] is not None else None


def matrix_by_columns(
    call: Call, a: Value, b: Value, transpose_a: bool, transpose_b: bool
) -> Value:
    """A @ b_i for b of shape [n, k, p], or [n, p, k]: [n, m, p]."""
    inner = inner_dims(call, b)
    return columns_by(call, a.tensor, b.any_form, inner, transpose_a, transpose_b)


def columns_by(
    call: Call,
    a: tf.Tensor,
    b: tf.Tensor,
    inner: list[Dim],
    transpose_a: bool,
    transpose_b: bool,
) -> Value:
    """A @ b_i; ``b`` holds the elements of [n] + ``inner``, all but two of them batch."""
    emit = call.emit
    batch, last = [call.loop.length, *inner[:-2]], inner[-2:]
    n = product(call, batch)
    k, p = reversed(last) if transpose_b else last
    m = emit.dim(a, 1 if transpose_a else 0)
    if transpose_b or _is_one(p):  # the rows of b are its columns: (b_i' @ A')'
        flat = emit.reshape(b, [product(call, [n, p]), k])
        made = emit("MatMul", flat, a, transpose_b=not transpose_a)  # [n*p, m]
        if not (_is_one(p) or _is_one(m)):
            made = transpose(call, emit.reshape(made, [n, p, m]), [0, 2, 1])
    elif _is_one(m):  # repeating one row is cheaper than to transpose b
        rows = emit("BroadcastTo", emit.reshape(a, [1, 1, k]), emit.shape_vector([n, 1, k]))
        made = emit("BatchMatMulV2", rows, emit.reshape(b, [n, k, p]))  # [n, 1, p]
    else:
        side = transpose(call, emit.reshape(b, [n, k, p]), [1, 0, 2])  # [k, n, p]
        side = emit.reshape(side, [k, product(call, [n, p])])
        made = emit("MatMul", a, side, transpose_a=transpose_a)  # [m, n*p]
        made = transpose(call, emit.reshape(made, [m, n, p]), [1, 0, 2])
    return _viewed(call, made, [*batch, m, p])


def _viewed(call: Call, tensor: tf.Tensor, parts: list[Dim]) -> Value:
    """The stacked value of dimensions ``parts`` with the elements of ``tensor``."""
    if len(dims(tensor) or ()) == len(parts):
        return Value.stacked(call.emit.reshape(tensor, parts))
    static = tuple(d if isinstance(d, int) else None for d in parts[1:])
    return Reshaped.deferred(
        lambda: call.emit.reshape(tensor, parts),
        static,
        tensor.dtype,
        elements=tensor,
    )


def matrix_by_matrix(
    call: Call, a: Value, b: Value, transpose_a: bool, transpose_b: bool
) -> tf.Tensor | Value:
    """a_i @ b_i: [n, r, k] by [n, k, m]."""
    n = call.loop.length
    r, k = _ordered(inner_dims(call, a), transpose_a)
    k2, m = _ordered(inner_dims(call, b), transpose_b)
    emit = call.emit
    if _is_one(k) or _is_one(k2):  # outer products
        return emit("Mul", emit.reshape(a.any_form, [n, r, 1]), emit.reshape(b.any_form, [n, 1, m]))
    if _is_one(r) and _is_one(m) and a.dtype not in HALVES:  # dot products
        terms = emit("Mul", emit.reshape(a.any_form, [n, k]), emit.reshape(b.any_form, [n, k]))
        return _viewed(call, emit("Sum", terms, np.asarray([1], np.int32)), [n, 1, 1])
    if a.dtype.is_complex:  # adj_x would conjugate
        a = swapped(call, a) if transpose_a else a
        b = swapped(call, b) if transpose_b else b
        transpose_a = transpose_b = False
    return emit("BatchMatMulV2", a.tensor, b.tensor, adj_x=transpose_a, adj_y=transpose_b)


def swapped(call: Call, value: Value, conjugate: bool = False) -> Value:
    """The last two axes exchanged; a Reshape when one of them is one."""
    tensor = value.tensor
    rank = len(dims(tensor) or ())
    tensor = transpose(call, tensor, [*range(rank - 2), rank - 1, rank - 2])
    if conjugate and tensor.dtype.is_complex:
        tensor = call.emit("Conj", tensor)
    return Value.stacked(tensor) if value.is_stacked else Value.unstacked(tensor)


def _ordered(pair: list[Dim], reverse: bool) -> tuple[Dim, Dim]:
    first, second = pair
    return (second, first) if reverse else (first, second)


def _is_one(dim: Dim | None) -> bool:
    return isinstance(dim, int) and dim == 1
