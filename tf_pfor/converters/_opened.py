"""Optionals that are not made: what would be in them stands beside.

A map in the body of another one must know all shapes, so that it cannot put the rows of each branch
into an optional of their own. Where a conditional keeps tensors for a gradient that is made by
another conditional, all rows have them: those of other branches stand in (``cond._padded``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.call import Call
from tf_pfor.converters._kinds import BRANCHES
from tf_pfor.converters._loop_graphs import source
from tf_pfor.errors import CannotVectorize
from tf_pfor.values import Cell, Layout, ListRows, Value, dims


def opened_by(call: Call, branches: Sequence[Any]) -> dict[int, list[list[tf.Tensor]]]:
    """The outputs of a conditional that are such optionals: what each branch would put there."""
    found: dict[int, list[list[tf.Tensor]]] = {}
    for k, output in enumerate(call.op.outputs):
        made = [source(graph.outputs[k]).op for graph in branches]
        if output.dtype != tf.variant or not all(op.type in _MAKES for op in made):
            continue
        values = [list(op.inputs) for op in made]
        flat = [t for each in values for t in each]
        if all(_is_plain(t) for t in flat) and _is_only_opened(output):
            found[k] = values
    return found


_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_MAKES = ("OptionalFromValue", "OptionalNone")


def _is_plain(tensor: tf.Tensor) -> bool:
    is_handle = tensor.dtype in (tf.variant, tf.resource, tf.string)
    return tensor.shape.is_fully_defined() and not is_handle


def _is_only_opened(tensor: tf.Tensor) -> bool:
    """Whether all that happens to an optional is that conditionals read its values."""
    if any(t is tensor for t in tensor.graph.outputs):
        return False
    for op in tensor.consumers():
        if op.type == "OptionalGetValue":
            continue
        if op.type == "Identity":
            inside = [op.outputs[0]]
        elif op.type in (*BRANCHES, *_CALLS):
            given = list(op.inputs)[int(op.type in BRANCHES) :]
            places = [i for i, t in enumerate(given) if t is tensor]
            inside = [graph.inputs[i] for graph in _tf.functions_of(op) for i in places]
        else:
            return False
        if not all(_is_only_opened(t) for t in inside):
            return False
    return True


def values_in(graph: Any, outputs: Collection[int]) -> list[tf.Tensor]:
    """What a branch would put into its outputs that are such optionals."""
    return [t for k in outputs for t in source(graph.outputs[k]).op.inputs]


def as_opened(
    call: Call, opened: Mapping[int, Sequence[Sequence[tf.Tensor]]], masks: Sequence[tf.Tensor],
    made: Sequence[Sequence[tf.Tensor]],
) -> dict[int, Value]:  # fmt: skip
    """The optionals, by output.

    Args:
      call: the conditional.
      opened: what ``opened_by`` has found.
      masks: bool [n], which rows take each branch.
      made: for each branch all that ``values_in`` became: [n, ...].
    """
    supplies, found = [iter(tensors) for tensors in made], dict[int, Value]()
    for k, branches in opened.items():
        alike: dict[Any, list[Value]] = {}  # who reads one of them knows dtypes and shapes only
        for mask, supply, like in zip(masks, supplies, branches):
            values = [Value.stacked(next(supply)).with_inner_shape(dims(t)) for t in like]
            key = tuple((v.dtype, v.inner_shape) for v in values)
            if key in alike:
                both = zip(values, alike[key])
                values = [
                    Value.stacked(call.emit("Select", mask, new.tensor, old.tensor))
                    for new, old in both
                ]
            alike[key] = values
        rows = ListRows(call.loop.length, opened=list(alike.values()))
        found[k] = Value(Layout.STACKED_LIST, Cell(None, _not_made), (), tf.variant, rows=rows)
    return found


def _not_made() -> tf.Tensor:
    raise CannotVectorize("what a conditional keeps in a map of a map is not just read")


def opened_values(call: Call, opened: Sequence[Sequence[Value]]) -> list[Value]:
    """What an OptionalGetValue reads."""
    wanted = [(o.dtype, dims(o)) for o in call.op.outputs]
    found = [each for each in opened if [(v.dtype, v.inner_shape) for v in each] == wanted]
    if not found:
        raise CannotVectorize("what a conditional keeps in a map of a map is read in other shapes")
    return list(found[0])
