"""Elementwise ops: unary, broadcasting, and gradient kernels that do not broadcast."""

from __future__ import annotations

from typing import Any

from tf_pfor.call import Call
from tf_pfor.converters._families import elementwise, same_shape, table
from tf_pfor.registry import ANY, RegisterPFor
from tf_pfor.values import Value

elementwise(table("Abs Neg Exp Log Relu Sigmoid Tanh Sqrt Rsqrt Square"))
elementwise(table("AddV2 Add Sub Mul RealDiv Maximum Minimum"))
elementwise({"Cast": ("Truncate",)})
elementwise({"SelectV2": ()})
same_shape(table("ReluGrad TanhGrad SigmoidGrad AddN"))


@RegisterPFor("Identity", ANY)
def identity(call: Call, input: Value) -> Any:
    """Passes its input through: no op."""
    return input
