"""Rules for sizes: the ops by which a graph makes sizes of other sizes, apart from the graph.

A trip of a loop makes the sizes of ``x[1:]`` of the sizes of x. The rule is the same in each trip.
So a list of such rows holds rows of one size in all trips, which is known before the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import emitter
from tf_pfor.core.regions import key

_MOST_STEPS = 40

Step = tuple[str, tuple[tuple[int, int], ...], tuple[tuple[str, bytes], ...]]


class Rule(Protocol):
    """A way in which sizes of rows follow from others; equal rules are the same way."""

    def on(self, sizes: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sizes that follow from others, int32 [n]."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class SizeRule:
    """A rule that was read from ops of a graph.

    Attributes:
      steps: for each op the type, the inputs and the attributes. An input is the number of a step
        and of its output. The k-th of the sizes that are read first is step -1 - k.
      made: the step and the output with the result, int32 [n].
    """

    steps: tuple[Step, ...]
    made: tuple[int, int]

    @classmethod
    def of(cls, made: tf.Tensor, sizes: Sequence[tf.Tensor]) -> tuple[SizeRule | None, list[int]]:
        """The rule by which ``made`` follows from sizes, and the numbers of those that it reads.

        The rule is None if it reads anything else.
        """
        if not tf.is_symbolic_tensor(made):
            return None, []
        captured: dict[Any, dict[Any, tf.Tensor]] = {}
        known = [(k, t) for k, t in enumerate(sizes) if tf.is_symbolic_tensor(t)]
        given = {key(_origin(t, captured)): k for k, t in known}
        places: dict[Any, tuple[int, int]] = {}
        steps: dict[Step, int] = {}
        read: list[int] = []
        todo = [_origin(made, captured)]
        while todo:
            tensor = todo[-1]
            op, at = tensor.op, key(tensor)
            inputs = [_origin(t, captured) for t in op.inputs]
            missing = [t for t in reversed(inputs) if key(t) not in places]
            if at in places:
                todo.pop()
            elif at in given:
                read.append(given[at])
                places[at] = (-len(read), 0)
            elif len(todo) + len(steps) > _MOST_STEPS or not _is_plain(op):
                return None, []
            elif missing:
                todo += missing
            else:
                attrs = sorted((k, v.SerializeToString()) for k, v in _tf.attr_map(op).items())
                found = tuple(places[key(t)] for t in inputs)
                step = (op.type, found, tuple(a for a in attrs if a[0][0] != "_"))
                number = steps.setdefault(step, len(steps))
                places.update((key(t), (number, k)) for k, t in enumerate(op.outputs))
        return (
            cls(tuple(steps), places[key(_origin(made, captured))]) if read and steps else None
        ), read

    def on(self, sizes: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sizes that follow from others, int32 [n]."""
        emit = emitter()
        known: dict[tuple[int, int], Any] = {(-1 - k, 0): t for k, t in enumerate(sizes)}
        for number, (op_type, inputs, attrs) in enumerate(self.steps):
            protos = {name: _tf.AttrValue.FromString(proto) for name, proto in attrs}
            op = emit.create(op_type, [known[i] for i in inputs], protos)
            known.update(((number, k), t) for k, t in enumerate(op.outputs))
        return known[self.made]


def _origin(tensor: tf.Tensor, captured: dict[Any, dict[Any, tf.Tensor]]) -> tf.Tensor:
    """The tensor outside of a function that captures it; other tensors stay as they are."""
    while tensor.op.type == "Placeholder":
        graph = tensor.graph
        if graph not in captured:
            pairs = [
                pair for pair in getattr(graph, "captures", ()) if tf.is_symbolic_tensor(pair[0])
            ]
            captured[graph] = {key(inside): outside for outside, inside in pairs}
        if key(tensor) not in captured[graph]:
            break
        tensor = captured[graph][key(tensor)]
    return tensor


def _is_plain(op: tf.Operation) -> bool:
    """Whether a step is an op on numbers, or a number that a check hands on."""
    schema = _tf.schema(op.type)
    return (
        schema is not None
        and not schema.is_stateful
        and op.type not in ("Placeholder", "PlaceholderWithDefault")
        and "func" not in schema.attr_types.values()
        and (not op.control_inputs or op.type == "Identity")
        and all(t.dtype.is_integer or t.dtype == tf.bool for t in op.outputs)
    )
