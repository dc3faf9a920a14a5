"""Sums: elementwise, but for those of matrix products and of gradients of slices."""

from __future__ import annotations

from typing import Any

from tf_pfor.call import Call
from tf_pfor.converters._broadcast import broadcast, same_shape
from tf_pfor.converters._pieces import sum_of_pieces
from tf_pfor.converters._products import sum_of_products
from tf_pfor.registry import ANY, RegisterPFor
from tf_pfor.values import Value


@RegisterPFor("Add", ANY)
@RegisterPFor("AddV2", ANY)
def add(call: Call, x: Value, y: Value) -> Any:
    """x_i + y_i."""
    found = sum_of_products(call) or sum_of_pieces(call)
    return broadcast(call) if found is None else found


@RegisterPFor("AddN", ANY)
def add_n(call: Call, inputs: list[Value]) -> Any:
    """The sum of tensors of one shape."""
    found = sum_of_products(call) or sum_of_pieces(call)
    return same_shape(call) if found is None else found


@RegisterPFor("AccumulateNV2", ANY, attrs=("shape",))
def accumulate_n(call: Call, inputs: list[Value]) -> Any:
    """A sum like AddN, which needs no shape to be told."""
    return call.emit("AddN", [call.stacked(v) for v in inputs])
