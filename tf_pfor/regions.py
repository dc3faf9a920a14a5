"""Regions: ops of the body that run together in one sequential loop (DESIGN 11)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.registry import REGISTRY
from tf_pfor.values import Layout

if TYPE_CHECKING:
    from tf_pfor.convert import Walker


_SMALL = 32  # elements of a constant that each row may hold


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """Ops of the body that run together, once for each row.

    Attributes:
      ops: the ops, each after those it needs.
      inputs: the tensors of the body that they read and do not make.
      outputs: the tensors that others read.
    """

    ops: tuple[tf.Operation, ...]
    inputs: tuple[tf.Tensor, ...]
    outputs: tuple[tf.Tensor, ...]

    @classmethod
    def of(cls, ops: Sequence[tf.Operation], outputs: Iterable[tf.Tensor] | None = None) -> Region:
        """The region of ``ops``; all that they make is wanted if ``outputs`` is None."""
        # XLA wants to see the constants that are shapes.
        small = {t.op: None for op in ops for t in op.inputs if _is_small_constant(t)}
        ops = [*(op for op in small if op not in ops), *ops]
        inside = set(ops)
        inputs = {key(t): t for op in ops for t in op.inputs if t.op not in inside}
        if outputs is None:
            outputs = [t for op in ops for t in op.outputs if op not in small]
        return cls(tuple(ops), tuple(inputs.values()), tuple(outputs))

    @classmethod
    def of_graph(cls, graph: Any) -> Region:
        """All ops of a function graph, from its inputs to its outputs."""
        ops = [op for op in graph.get_operations() if op.type != "Placeholder"]
        return cls(tuple(ops), tuple(graph.inputs), tuple(graph.outputs))

    @property
    def is_stateful(self) -> bool:
        """Whether running it has effects, or gives another result each time."""
        return any(_tf.schema(op.type).is_stateful for op in self.ops)  # type: ignore[union-attr]

    @property
    def has_variables(self) -> bool:
        """Whether it gets handles of variables."""
        return any(t.dtype == tf.resource for t in self.inputs)

    def copy(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Emits the ops in the current graph on ``inputs``; returns the outputs."""
        graph = tf.compat.v1.get_default_graph()
        new: dict[Any, tf.Tensor] = {key(t): x for t, x in zip(self.inputs, inputs)}
        copies: dict[tf.Operation, tf.Operation] = {}
        for op in self.ops:
            schema = _tf.schema(op.type)
            assert schema is not None
            protos = {k: v for k, v in _tf.attr_map(op).items() if k in schema.attr_types}
            _tf.add_functions(op.graph, graph, protos)
            given = [new[key(t)] for t in op.inputs]
            before = [copies[c] for c in op.control_inputs if c in copies]
            with graph.control_dependencies(before):
                made = _tf.create_op(graph, op.type, given, protos, op.name)
            copies[op] = made
            for old, copied in zip(op.outputs, made.outputs):
                new[key(old)] = copied
        return [new[key(t)] for t in self.outputs]


def _is_small_constant(tensor: tf.Tensor) -> bool:
    """A shape or the like: of integers, since the others may be differentiated by."""
    is_small = tensor.dtype.is_integer and (tensor.shape.num_elements() or 0) <= _SMALL
    return tensor.op.type == "Const" and is_small


def key(tensor: tf.Tensor) -> Any:
    """Names a tensor of a graph; equal for equal ones."""
    return (tensor.op, tensor.value_index)


def reached(roots: Iterable[tf.Operation]) -> set[tf.Operation]:
    """The operations that ``roots`` need, and themselves."""
    found: set[tf.Operation] = set()
    todo = list(roots)
    while todo:
        op = todo.pop()
        if op not in found:
            found.add(op)
            todo += [t.op for t in op.inputs]
            todo += op.control_inputs
    return found


# ---------------------------------------------------------------------------
# Growing
# ---------------------------------------------------------------------------


def grow(first: tf.Operation, walker: Walker) -> list[tf.Operation]:
    """The ops that share a loop with ``first``, an op that no rule takes, in running order.

    They are stateless, have no rule at all, are connected with it through such ops, and no path
    leaves them and comes back. What they need from outside is converted on the way.
    """
    wanted = walker.wanted()
    members = _connected(first, lambda op: op in wanted and _may_join(op, first, walker))
    _make_convex(members, wanted)
    if len(members) == 1:
        return [first]
    outside = [t.op for op in members for t in op.inputs if t.op not in members]
    walker.visit([op for op in outside if not walker.is_done(op)])
    joined: dict[tf.Operation, None] = {}
    for op in _in_order(members):
        if op is first or _fits(op, joined, walker):
            joined[op] = None
    return list(joined)


def _may_join(op: tf.Operation, first: tf.Operation, walker: Walker) -> bool:
    schema = _tf.schema(op.type)
    return (
        schema is not None
        and not schema.is_stateful
        and not walker.is_done(op)
        and op.type not in ("Const", "Placeholder")
        and op.type not in REGISTRY
        and walker.settings.may_loop(op.type)
        and not op.control_inputs
        and bool(op.outputs)
        and op.device == first.device
    )


def _connected(first: tf.Operation, may_join: Any) -> set[tf.Operation]:
    """``first`` and what is connected with it through ops that may join."""
    found = {first}
    todo = [first]
    while todo:
        op = todo.pop()
        near = [t.op for t in op.inputs] if op is not first else []
        near += [c for t in op.outputs for c in t.consumers()]
        for other in near:
            if other not in found and may_join(other):
                found.add(other)
                todo.append(other)
    return found


def _make_convex(members: set[tf.Operation], wanted: set[tf.Operation]) -> None:
    """Takes out what a path reaches that left the members: in the end none leaves and returns."""
    while True:
        behind: set[tf.Operation] = set()  # outside, and downstream of a member
        todo = [c for op in members for c in _after(op) if c in wanted and c not in members]
        while todo:
            op = todo.pop()
            if op not in behind:
                behind.add(op)
                todo += [c for c in _after(op) if c in wanted]
        back = members & behind
        if not back:
            return
        members -= back


def _after(op: tf.Operation) -> list[tf.Operation]:
    return [c for t in op.outputs for c in t.consumers()] + list(_tf.control_outputs(op))


def _in_order(members: set[tf.Operation]) -> list[tf.Operation]:
    """The members, each after those it needs."""
    order: dict[tf.Operation, None] = {}
    for root in sorted(members, key=lambda op: op.name):
        stack = [root]
        while stack:
            op = stack[-1]
            todo = [t.op for t in op.inputs if t.op in members and t.op not in order]
            stack += todo
            if not todo:
                order[stack.pop()] = None
    return list(order)


def _fits(op: tf.Operation, joined: dict[tf.Operation, None], walker: Walker) -> bool:
    """Whether an op can run with those joined so far; one that is loop-invariant is converted."""
    values = [walker.value_of(t) for t in op.inputs if t.op not in joined]
    if any(v is None or v.layout not in (Layout.STACKED, Layout.UNSTACKED) for v in values):
        return False
    if any(t.op in joined for t in op.inputs) or any(v and v.is_stacked for v in values):
        return True
    walker.visit([op])
    return False
