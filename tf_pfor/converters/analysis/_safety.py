"""Ops that may run for rows that do not take a branch, or have left a loop.

Such results are thrown away by a select. That is right only if the ops cannot fail and if their
gradients are finite. The gradient of a select is zero for results that it throws away, and zero
times an infinite derivative is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core import regions
from tf_pfor.core.accesses import QUERIES, READS, SUMS
from tf_pfor.core.facts import (
    AT_INFINITY,
    AT_LARGE,
    AT_NAN,
    CHEAP,
    NOWHERE,
    PRODUCT,
    SLOW_OPERATIONS,
    facts_of,
    may_fail,
    operations,
)

# What may stand in a branch or a loop that runs for more rows than those that take it.
_HARMLESS = (READS | QUERIES).union(
    [
        "Assert",
        "CheckNumerics",
        "CheckNumericsV2",
        *[f"CudnnRNN{kind}{v}" for kind in ("", "Backprop") for v in ("", "V2", "V3")],
        "Placeholder",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    ]
)

_SMALL = 12

_HANDLES = (tf.resource, tf.variant)


def is_linear(graph: tf.Graph) -> bool:
    """Whether a few cheap ops cannot fail, and have gradients that a select may throw away.

    A gradient of zero stays zero on its way back through them, whatever the operands are.
    """
    ops = graph.get_operations()
    return (
        sum(o.type not in _UNCOUNTED for o in ops) <= _SMALL
        and all(map(_is_linear, ops))
        and not any(
            t.dtype in (tf.variant, tf.resource, tf.string) for t in (*graph.inputs, *graph.outputs)
        )
    )


_UNCOUNTED = ("Const", "Placeholder", "Identity")


def _is_linear(op: tf.Operation) -> bool:
    facts = facts_of(op.type)
    is_flat = facts.slope is NOWHERE or not _has_slope(op)
    return is_flat and facts.cost in CHEAP and not (may_fail(op) or _tf.has_own_gradient(op))


def _has_slope(op: tf.Operation) -> bool:
    return any(o.dtype.is_floating or o.dtype.is_complex for o in op.outputs)


def reads_a_step(op: tf.Operation) -> bool:
    """Whether an op reads one place, which may be outside for a row that has left."""
    return op.type in _STEPS and (op.type != "StridedSlice" or may_fail(op))


_STEPS = (
    "GatherNd",
    "GatherV2",
    "ResourceGather",
    "ResourceGatherNd",
    "StridedSlice",
    "TensorListGetItem",
)


def is_smooth(graph: tf.Graph) -> bool:
    """Whether ops cannot fail and have finite derivatives, if inputs are finite and read whole.

    Products are allowed of values that cannot overflow: inputs, what only moves them, and results
    of bounded functions.
    """
    finite: set[Any] = set()
    needed = regions.reached([*(t.op for t in graph.outputs), *_tf.must_run(graph)])
    for op in regions.in_order(needed):
        facts = facts_of(op.type)
        is_finite = all(regions.key(t) in finite for t in op.inputs)
        if may_fail(op) or _tf.has_own_gradient(op):
            return False
        if _has_slope(op) and facts.slope > (AT_LARGE if is_finite else AT_NAN):
            return False
        stays_finite = is_finite and facts.value <= AT_INFINITY and not makes_infinite(op)
        if stays_finite or facts.value <= AT_NAN or not _has_slope(op):
            finite.update(regions.key(t) for t in op.outputs)
    return True


def makes_infinite(op: tf.Operation) -> bool:
    """Whether a constant is infinite, or a finite operand may be in the dtype of a result."""
    if op.type == "Const":
        known = _tf.static_value(op.outputs[0]) if _has_slope(op) else 0
        return known is None or not np.isfinite(known).all()
    return max(map(_limit, op.inputs), default=0) > min(map(_limit, op.outputs), default=0)


def _limit(tensor: tf.Tensor) -> float:
    dtype = tensor.dtype.real_dtype
    return float(dtype.max) if dtype.is_floating or dtype.is_integer else 0


def work_of(graph: tf.Graph) -> int | None:
    """Elementary operations of a function on one row; None where shapes or trips are unknown."""
    total = 0
    for op in graph.get_operations():
        sizes = [o.shape.num_elements() for o in op.outputs if o.dtype not in _HANDLES]
        if None in sizes:
            return None
        if op.type in _UNCOUNTED:
            continue
        work = sum(sizes)
        if operations(op) == SLOW_OPERATIONS:
            work *= SLOW_OPERATIONS
        if facts_of(op.type).cost is PRODUCT:
            rows = op.inputs[0].shape.num_elements()
            last = op.outputs[0].shape[-1]
            work = 2 * (rows or 1 << 20) * (last or 1)
        elif "branch" in "".join(op.node_def.attr) or "body" in op.node_def.attr:
            return None
        total += work
    return total


def writes_op(op: tf.Operation) -> bool:
    """Whether the op has an effect that only the rows that are meant may have."""
    schema = _tf.schema(op.type)
    if schema is None:
        return True
    if not schema.is_stateful or op.type in _HARMLESS:
        return False
    inner = _tf.functions_of(op)
    return not inner or any(writes_state(g) for g in inner)


def only_adds(graph: tf.Graph) -> bool:
    """Whether all that the function changes are sums of variables, of which it reads none."""
    changes = [op for op in graph.get_operations() if writes_op(op)]
    adds = [op for op in changes if op.type in SUMS]
    sums = {op.inputs[0].ref() for op in adds}
    others = [op for op in changes if op not in adds]
    if not all(op.type in (*_tf.CALLS, "Case", "If") for op in others):
        return False
    reads = (t for op in graph.get_operations() if op not in adds for t in op.inputs)
    return sums.isdisjoint(t.ref() for t in reads) and all(
        only_adds(g) for op in others for g in _tf.functions_of(op)
    )


def writes_state(graph: tf.Graph) -> bool:
    """Whether the function changes state, so that no row may run it that does not take it."""
    return any(writes_op(op) for op in graph.get_operations())
