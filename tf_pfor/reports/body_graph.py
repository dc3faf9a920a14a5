"""The graph of a body as a report shows it: which op reads which, and what became of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.tracing.trace import Body

# The worst last: what an op is that several calls of a function have converted.
_ORDER = (Outcome.KEPT, Outcome.VECTORIZED, Outcome.TILED, Outcome.LOOPED, Outcome.REJECTED)
_UNSEEN = ("Const", "NoOp")  # not shown
_PASSING = ("Identity", "StopGradient", "PreventGradient")  # shown only if they are no more than it

_LONG = 24  # letters of the name of an input


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """An op, an input or a result.

    Attributes:
      label: the text in its box: the op type.
      name: the name of the op.
      kind: the value of an ``Outcome``, or "input" or "result". "call" is a call of a function that
        has a separate picture. "unread" is an op that nobody reached, since another was rejected.
      shape: the shape of its first output, in one iteration.
      reason: the reason, as in the report.
      line: ``file:line`` in the user's code.
      inputs: the numbers of the nodes that it reads.
    """

    label: str
    name: str
    kind: str
    shape: str
    reason: str
    line: str
    inputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class BodyGraph:
    """The body, or a function in it: a branch, a loop's condition or body, a call.

    Attributes:
      title: its name.
      nodes: each behind those that it reads.
    """

    title: str
    nodes: tuple[Node, ...]


def graphs(body: Body, recorder: Recorder) -> tuple[BodyGraph, ...]:
    """The graphs of a body and of the functions in it, as far as the walker has seen them."""
    seen: dict[int, _Graph] = {id(body.graph): _Graph("the body")}
    for op, outcome, reason in recorder.entries:
        graph = seen.setdefault(id(op.graph), _Graph(_plain(op.graph.name)))
        graph.add(op, outcome, reason)
    top, *others = seen.values()
    shown = [top.drawn(_names(body), body.outputs)]
    known: dict[Any, BodyGraph] = {}
    for graph in others:
        made = graph.drawn({}, ())
        # A function that is called twice is shown twice only if something else became of it.
        known.setdefault((made.title, tuple((n.name, n.kind) for n in made.nodes)), made)
    return (*shown, *(g for g in known.values() if g.nodes))


def _plain(name: str) -> str:
    """The name of a function without what TensorFlow adds to make it unique."""
    return re.sub(r"^__(inference|forward|backward)_|(_\d+)+$", "", name)


def _names(body: Body) -> dict[int, str]:
    """The names of the inputs of the body, by the ids of their ops."""
    variables = {id(v.handle): v.name.split(":")[0] for v in body.graph.variables}
    found = {id(t.op): variables.get(id(outside), "captured") for outside, t in body.captures}
    return found | {id(t.op): f"input {i}" for i, t in enumerate(body.placeholders)}


class _Graph:
    """One graph, what became of its ops, and nodes for these, the ones that they read first."""

    def __init__(self, title: str):
        self.title = title
        self.found: dict[tf.Operation, tuple[Outcome, str]] = {}
        self.names: dict[int, str] = {}
        self.nodes: list[Node] = []
        self._numbers: dict[tf.Operation, int] = {}

    def add(self, op: tf.Operation, outcome: Outcome, reason: str) -> None:
        known = self.found.get(op)
        if known is None or _ORDER.index(outcome) > _ORDER.index(known[0]):
            self.found[op] = (outcome, reason)

    def drawn(self, names: dict[int, str], outputs: Iterable[tf.Tensor]) -> BodyGraph:
        """The nodes; ``names`` are the names of the inputs of the body."""
        self.names = names
        for op in self.found:
            if op.type not in _UNSEEN and not self.is_passing(op):
                self.node_of(op)
        for i, tensor in enumerate(outputs):
            source = self.source(tensor)
            read = () if source is None else (self.node_of(source),)
            self.nodes.append(Node(f"result {i}", "", "result", _shape(tensor), "", "", read))
        return BodyGraph(self.title, tuple(self.nodes))

    def is_passing(self, op: tf.Operation) -> bool:
        """Whether an op passes on its input, and was only kept or vectorized."""
        known = self.found.get(op)
        is_plain = known is None or known[0] in (Outcome.KEPT, Outcome.VECTORIZED)
        return op.type in _PASSING and is_plain

    def source(self, tensor: tf.Tensor) -> tf.Operation | None:
        """The op that is shown as making a tensor; None for constants."""
        op = tensor.op
        while self.is_passing(op):
            op = op.inputs[0].op
        return None if op.type in _UNSEEN else op

    def node_of(self, op: tf.Operation) -> int:
        """The number of an op's node; makes it, and those that it reads, where there is none."""
        stack = [op]
        while stack:
            todo = stack[-1]
            read = [s for s in map(self.source, todo.inputs) if s is not None]
            missing = [s for s in read if s not in self._numbers]
            if todo not in self._numbers and missing:
                stack += missing
                continue
            stack.pop()
            if todo not in self._numbers:
                self._numbers[todo] = len(self.nodes)
                inputs = tuple(dict.fromkeys(self._numbers[s] for s in read))
                self.nodes.append(self._made(todo, inputs))
        return self._numbers[op]

    def _made(self, op: tf.Operation, inputs: tuple[int, ...]) -> Node:
        several = f"{len(op.outputs)} results" if op.outputs else ""
        shape = _shape(op.outputs[0]) if len(op.outputs) == 1 else several
        if op in self.found:
            outcome, reason = self.found[op]
            return Node(op.type, op.name, outcome.value, shape, reason, _tf.user_line(op), inputs)
        if op.type == "Placeholder":
            label = self.names.get(id(op), op.name.rsplit("/", 1)[-1])
            label = label[:_LONG] if label[:1].isalpha() else "argument"
            return Node(label, op.name, "input", shape, "", "", inputs)
        kind = "call" if op.type in _tf.CALLS else "unread"
        label = op.type
        if kind == "call":
            label = f"call {_plain(_tf.attr_map(op)['f'].func.name)}"
        return Node(label, op.name, kind, shape, "", _tf.user_line(op), inputs)


def _shape(tensor: tf.Tensor) -> str:
    if tensor.dtype in (tf.resource, tf.variant):
        return str(tensor.dtype.name)
    shape = tensor.shape
    sizes = "..." if shape.rank is None else ",".join("?" if s is None else str(s) for s in shape)
    return f"{tensor.dtype.name}[{sizes}]"
