"""Ops that may run for rows that do not take a branch, or have left a loop.

Such results are thrown away by a select. That is right only if the ops cannot fail and if their
gradients are finite. The gradient of a select is zero for results that it throws away, and zero
times an infinite derivative is NaN.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.accesses import QUERIES, READS
from tf_pfor.layouts.elementwise_ops import ELEMENTWISE

# Total, and linear where they have a gradient: its derivatives do not depend on the operands.
_LINEAR = ELEMENTWISE | frozenset(
    [
        "AddN",
        "BiasAdd",
        "BroadcastTo",
        "ConcatV2",
        "Const",
        "ExpandDims",
        "Fill",
        "NoOp",
        "Pack",
        "Placeholder",
        "Reshape",
        "Select",
        "Shape",
        "Squeeze",
        "StridedSlice",
        "Sum",
        "Transpose",
    ]
)

# Total, with derivatives that are finite where the operands are.
_SMOOTH = _LINEAR | frozenset(
    [
        "BatchMatMulV2",
        "LeakyRelu",
        "MatMul",
        "Mean",
        "Mul",
        "ReadVariableOp",
        "Sigmoid",
        "Softplus",
        "Split",
        "SplitV",
        "Square",
        "Tanh",
        "Unpack",
    ]
)

# Results that are finite whatever comes in (NaN aside).
_BOUNDED = frozenset(["Relu6", "Sigmoid", "Sign", "Tanh"])

# Results that are as large as the operands at most.
_MOVES = frozenset(
    [
        "BroadcastTo",
        "Cast",
        "ConcatV2",
        "ExpandDims",
        "Identity",
        "Pack",
        "Relu",
        "LeakyRelu",
        "Reshape",
        "Select",
        "SelectV2",
        "Split",
        "SplitV",
        "Squeeze",
        "StridedSlice",
        "Transpose",
        "Unpack",
        "Neg",
        "Maximum",
        "Minimum",
        "ZerosLike",
        "OnesLike",
        "Mean",
    ]
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
    """A few total ops whose gradients are right also where a select throws them away."""
    ops = [o for o in graph.get_operations() if o.type not in ("Const", "Placeholder", "Identity")]
    return (
        len(ops) <= _SMALL
        and all(_is_linear(o) for o in ops)
        and not any(
            t.dtype in (tf.variant, tf.resource, tf.string) for t in (*graph.inputs, *graph.outputs)
        )
    )


def _is_linear(op: tf.Operation) -> bool:
    if op.type == "Mul" and op.outputs[0].dtype.is_integer:
        return True
    return op.type in _LINEAR and not (_may_fail(op) or _tf.has_own_gradient(op))


# The inputs that hold shapes or places, which must be constants.
_PLACES = {"BroadcastTo": (1,), "Fill": (0,), "Reshape": (1,), "StridedSlice": (1, 2, 3)}


def _may_fail(op: tf.Operation) -> bool:
    """Whether an op could fail on other data: a shape or a place that it is given may differ."""
    return any(_tf.static_value(op.inputs[i]) is None for i in _PLACES.get(op.type, ()))


def reads_a_step(op: tf.Operation) -> bool:
    """Whether an op reads one place, which may be outside for a row that has left."""
    return op.type in _STEPS and (op.type != "StridedSlice" or _may_fail(op))


_STEPS = (
    "GatherNd",
    "GatherV2",
    "ResourceGather",
    "ResourceGatherNd",
    "StridedSlice",
    "TensorListGetItem",
)


def is_smooth(graph: tf.Graph) -> bool:
    """Total ops with finite derivatives, if the inputs are finite; whole inputs are read.

    Products are allowed of values that cannot overflow: inputs, what only moves them, and results
    of bounded functions.
    """
    finite: set[Any] = set()
    order = _in_order(graph)
    for op in order:
        if op.type not in _SMOOTH or _may_fail(op) or _tf.has_own_gradient(op):
            return False
        operands_finite = all(_key(t) in finite for t in op.inputs)
        if op.type in ("Mul", "MatMul", "BatchMatMulV2", "Square") and not operands_finite:
            is_float = any(o.dtype.is_floating or o.dtype.is_complex for o in op.outputs)
            if is_float:
                return False
        if (
            op.type in ("Const", "Placeholder", "ReadVariableOp")
            or op.type in _BOUNDED
            or (op.type in _MOVES and operands_finite)
        ):
            finite.update(_key(t) for t in op.outputs)
    return True


# Kernels without vector instructions: some 20 times the time of a sum of 10,000 numbers.
_SLOW = frozenset(["Digamma", "FloorMod", "Igamma", "Igammac", "Lgamma", "Mod", "Pow", "Betainc"])
_SLOW_OF_INTEGERS = frozenset(["Div", "FloorDiv", "TruncateDiv", "TruncateMod"])
_SLOWER = 16


def work_of(graph: tf.Graph) -> int | None:
    """Elementary operations of a function on one row; None where shapes or trips are unknown."""
    total = 0
    for op in graph.get_operations():
        sizes = [o.shape.num_elements() for o in op.outputs if o.dtype not in _HANDLES]
        if None in sizes:
            return None
        if op.type in ("Const", "Placeholder", "Identity"):
            continue
        work = sum(sizes)
        if op.type in _SLOW or (op.type in _SLOW_OF_INTEGERS and op.outputs[0].dtype.is_integer):
            work *= _SLOWER
        if op.type in ("MatMul", "BatchMatMulV2"):
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


def writes_state(graph: tf.Graph) -> bool:
    """Whether the function changes state, so that no row may run it that does not take it."""
    return any(writes_op(op) for op in graph.get_operations())


def _key(tensor: tf.Tensor) -> Any:
    return (tensor.op, tensor.value_index)


def _in_order(graph: tf.Graph) -> list[tf.Operation]:
    """The ops that the outputs need, operands first."""
    done: dict[Any, bool] = {}
    order: list[tf.Operation] = []
    stack = [t.op for t in graph.outputs] + _tf.must_run(graph)
    while stack:
        op = stack[-1]
        if done.get(op):
            stack.pop()
            continue
        needs = [t.op for t in op.inputs] + list(op.control_inputs)
        todo = [o for o in needs if o not in done]
        if op in done or not todo:
            stack.pop()
            done[op] = True
            order.append(op)
            continue
        stack += todo
    return order
