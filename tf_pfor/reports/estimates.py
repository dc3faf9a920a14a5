"""Rough numbers for ops: arithmetic, bytes of results, time. They are estimates, nothing is run."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.facts import (
    ALIAS,
    CONVOLUTION,
    CUBIC,
    EINSUM,
    MOVE,
    PRODUCT,
    TRANSFORM,
    Cost,
    facts_of,
    operations,
)
from tf_pfor.core.registry import Outcome

# The machine of the estimates. Reports show only shares of the time, which depend less on it.
FLOPS = 2e10  # arithmetic in a second
BYTES = 1e10  # bytes in a second, read or written
CALL = 2e-6  # seconds to start an op
ROW = 1e-5  # seconds to start an op in a sequential loop, for each row
ROWS = 256  # rows, where it is not known how many there are


def elements(tensor: tf.Tensor) -> int | None:
    """The number of elements of a tensor; None if its static shape does not tell."""
    found = tensor.shape.num_elements() if tensor.shape.rank is not None else None
    return None if found is None else int(found)


def _sizes(tensor: tf.Tensor) -> list[int] | None:
    """The static shape; None if it is not fully known."""
    shape = tensor.shape
    return [int(k) for k in shape if k is not None] if shape.is_fully_defined() else None


def of_row(op: tf.Operation) -> tuple[float, float] | None:
    """Arithmetic operations and bytes of the results of an op in one iteration.

    Returns:
      None where static shapes do not tell, or an op calls functions, whose ops count themselves.
    """
    if op.type in _tf.CONTAINERS:
        return None
    sizes = [elements(t) for t in op.outputs]
    given = [elements(t) for t in op.inputs if t.dtype not in (tf.resource, tf.variant)]
    cost = facts_of(op.type).cost
    if cost is ALIAS:
        return 0.0, 0.0
    if any(s is None for s in sizes):
        return None
    size = sum(s for s in sizes if s is not None)
    made = sum((elements(t) or 0) * max(t.dtype.size or 0, 1) for t in op.outputs)
    if cost is MOVE:
        return 0.0, float(made)
    if cost in _PRODUCTS:
        flops = _PRODUCTS[cost](op)
        return None if flops is None else (flops, float(made))
    if any(g is None for g in given):
        return None
    most = max([size, *(g for g in given if g is not None)])  # a reduction reads more than it makes
    return float(most * (operations(op) or 1)), float(made)


def seconds(flops: float, made: float, count: int, n: int, outcome: Outcome) -> float:
    """A time for ops, on the machine that the constants above describe.

    Args:
      flops: the arithmetic of all these ops in one iteration.
      made: bytes of one iteration.
      count: the number of ops.
      n: the number of iterations.
      outcome: the outcome of the ops.
    """
    rows = 1 if outcome is Outcome.KEPT else n
    work = max(flops / FLOPS, 2 * made / BYTES) * rows
    return work + count * (ROW * n if outcome is Outcome.LOOPED else CALL)


# Products ---------------------------------------------------------------------


def _matmul(op: tf.Operation) -> float | None:
    a, out = op.inputs[0].shape, elements(op.outputs[0])
    flag = next((k for k in ("transpose_a", "adj_x") if k in _tf.attr_map(op)), "")
    if a.rank is None or out is None:
        return None
    inner = a[-2] if flag and op.get_attr(flag) else a[-1]
    return None if inner is None else 2.0 * out * inner


def _convolution(op: tf.Operation) -> float | None:
    """Each result is a product of a filter, all of it but the channels that it makes."""
    filters, out = _sizes(op.inputs[1]), elements(op.outputs[0])
    if out is None or filters is None:
        return None
    is_depthwise = op.type.startswith("Depthwise")
    return 2.0 * out * math.prod(filters[:-2]) * (1 if is_depthwise else filters[-2])


def _cubic(op: tf.Operation) -> float | None:
    shape = _sizes(op.inputs[0])
    if shape is None or len(shape) < 2:
        return None
    return 2.0 * math.prod(shape) * shape[-1]


def _transform(op: tf.Operation) -> float | None:
    size = elements(op.inputs[0])
    return None if size is None else 5.0 * size * math.log2(max(size, 2))


def _einsum(op: tf.Operation) -> float | None:
    """Two for each combination of the labels."""
    terms = op.get_attr("equation").decode().split("->")[0].split(",")
    known: dict[str, int] = {}
    for term, tensor in zip(terms, op.inputs):
        sizes = _sizes(tensor)
        if "..." in term or sizes is None:
            return None
        known.update(zip(term.strip(), sizes))
    return 2.0 * math.prod(known.values())


_PRODUCTS: dict[Cost, Callable[[tf.Operation], float | None]] = {
    PRODUCT: _matmul,
    EINSUM: _einsum,
    CONVOLUTION: _convolution,
    CUBIC: _cubic,
    TRANSFORM: _transform,
}


def text_of_bytes(size: float) -> str:
    """Bytes for a reader."""
    return _with_unit(size, ("B", "kB", "MB", "GB", "TB"))


def text_of_flops(count: float) -> str:
    """Arithmetic operations for a reader."""
    return _with_unit(count, ("", "thousand", "million", "billion", "trillion"))


def _with_unit(x: float, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if x < 999.5:
            return f"{x:.3g} {unit}".strip()
        x /= 1000
    return f"{x:.3g} {units[-1]}"
