"""Sums of matrix products: sum_t a_t^T b_t is one product over all rows.

The gradient of a weight that a recurrent network uses in each step is such a sum. A product that
only a sum reads is not emitted; its factors are kept beside it. The sum joins their rows,
[n, r_1 + ... + r_T, k]^T [n, r_1 + ... + r_T, m].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.math._matmul import matrix_product, swapped
from tf_pfor.core.call import Call
from tf_pfor.core.pending import Product, Products, SumOfProducts
from tf_pfor.core.values import Value, is_static, known_dims

SUMS = ("Add", "AddN", "AddV2")


def product_or_factors(call: Call, product: Product, plain: Callable[[], Any]) -> Any:
    """``plain()``, put off where only a sum reads it and its factors are smaller than itself."""
    if not (is_worth_it(product) and call.is_only_read_by(SUMS)):
        return plain()
    return _deferred(call, lambda: _tensor(plain()), Products((product,), ()))


def is_worth_it(product: Product) -> bool:
    """Whether moving the factors is cheaper than to write the product."""
    shapes = (product.a.inner_shape, product.b.inner_shape)
    if not all(is_static(s) and len(s) == 2 for s in shapes):
        return False
    return is_smaller(product.rows, *product.shape)


def is_smaller(r: int, k: int, m: int) -> bool:
    """Whether [r, k] and [r, m] have half as many elements as their product (decisions/0009)."""
    return 2 * r * (k + m) <= k * m


def sum_of_products(call: Call) -> Value | None:
    """The sum of the inputs if two products or more are among them, or will be; else None."""
    values = call.flat_inputs()
    if (
        not any(isinstance(v, SumOfProducts) for v in values)
        or len({v.inner_shape for v in values}) > 1
    ):
        return None
    if not all(v.is_tensor for v in values):
        return None
    terms = tuple(t for v in values if isinstance(v, SumOfProducts) for t in v.products.terms)
    rest = tuple(
        r for v in values for r in (v.products.rest if isinstance(v, SumOfProducts) else (v,))
    )
    total = Products(terms, rest)
    if call.is_only_read_by(SUMS):
        return _deferred(call, lambda: _sum(call, total), total)
    if len(terms) < 2:
        return None
    call.note(f"a sum of {len(terms)} matrix products as one product")
    return Value.stacked(_sum(call, total)).with_inner_shape(terms[0].shape)


def _deferred(call: Call, make: Callable[[], tf.Tensor], products: Products) -> Value:
    return SumOfProducts.deferred(
        make, products.terms[0].shape, call.output_dtype(), products=products
    )


def _sum(call: Call, total: Products) -> tf.Tensor:
    emit = call.emit
    a = joined(call, [(t.a, t.transpose_a, t.rows, t.shape[0]) for t in total.terms])
    b = joined(call, [(t.b, not t.transpose_b, t.rows, t.shape[1]) for t in total.terms])
    made = [product_of(call, a, b)]
    made += [v.tensor for v in total.rest if v.is_stacked]
    tensor = made[0] if len(made) == 1 else emit("AddN", made)
    for v in total.rest:
        if not v.is_stacked:
            tensor = emit("AddV2", tensor, emit.reshape(v.tensor, [1, *total.terms[0].shape]))
    return tensor


def joined(call: Call, parts: Sequence[tuple[Value, bool, int, int]]) -> Value:
    """Factors above each other: [n, r_1 + ... + r_T, c], or [r_1 + ... + r_T, c] if all are shared.

    Args:
      call: the call.
      parts: for each factor its value, whether it is [r, c] and not [c, r], r, c.
    """
    emit, width = call.emit, parts[0][3]
    rows = sum(r for _, _, r, _ in parts)
    if len(parts) == 1 and parts[0][1]:
        return parts[0][0]
    is_stacked = any(v.is_stacked for v, *_ in parts)
    lead = [call.loop.length] if is_stacked else []
    flat: list[tf.Tensor] = []
    for value, is_upright, r, c in parts:
        if is_stacked and not value.is_stacked:
            value = Value.stacked(call.stacked(value)).with_inner_shape(value.inner_shape)
        if not is_upright and 1 not in (r, c):
            value = swapped(call, value)
        flat.append(emit.reshape(value.any_form, [*lead, r * c]))
    tensor = flat[0] if len(flat) == 1 else emit("ConcatV2", flat, np.int32(len(lead)))
    tensor = emit.reshape(tensor, [*lead, rows, width])
    made = Value.stacked(tensor) if is_stacked else Value.unstacked(tensor)
    return made.with_inner_shape((rows, width))


def product_of(call: Call, a: Value, b: Value) -> tf.Tensor:
    """a_i^T b_i of joined factors, [n, k, m]."""
    (rows, k), m = known_dims(a.inner_shape), known_dims(b.inner_shape)[1]
    if not a.is_stacked and (rows is None or rows <= m):
        a = Value.stacked(call.stacked(a)).with_inner_shape(a.inner_shape)  # or m * k transposed
    return _tensor(matrix_product(call, a, b, True, False, (k, m)))


def _tensor(made: Any) -> tf.Tensor:
    return made.tensor if isinstance(made, Value) else made
