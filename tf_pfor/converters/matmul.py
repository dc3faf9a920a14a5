"""Matrix products."""

from __future__ import annotations

from typing import Any

from tf_pfor.call import Call
from tf_pfor.converters._families import table  # noqa: F401
from tf_pfor.registry import RegisterPFor
from tf_pfor.shapes import fold, transpose, unfold
from tf_pfor.values import Value


@RegisterPFor("MatMul", ("a",), attrs=("transpose_a", "transpose_b", "grad_a", "grad_b"))
def matmul_by_invariant(call: Call, a: Value, b: Value) -> Any:
    """a_i @ B: one product of [n*r, k] by [k, m]."""
    if call.attr("transpose_a"):
        a = Value.stacked(transpose(call, a.tensor, [0, 2, 1]))  # [n, k, r] -> [n, r, k]
    product = call.rebuild(a=fold(call, a), b=b.tensor, transpose_a=False)  # [n*r, m]
    return unfold(call, product, a)


@RegisterPFor("BiasAdd", ("value",), attrs=("data_format",))
def bias_add(call: Call, value: Value, bias: Value) -> Any:
    """On the folded form, beside the MatMul or Conv2D that made it."""
    return unfold(call, call.rebuild(value=fold(call, value), bias=bias.tensor), value)


@RegisterPFor("MatMul", ("a", "b"), attrs=("transpose_a", "transpose_b", "grad_a", "grad_b"))
def matmul_both(call: Call, a: Value, b: Value) -> Any:
    """a_i @ b_i: a batched product."""
    return call.emit(
        "BatchMatMulV2",
        a.tensor,
        b.tensor,
        adj_x=call.attr("transpose_a"),
        adj_y=call.attr("transpose_b"),
    )
