"""The match of a rule and an op: inputs by name, inputs to repeat, attributes nobody read."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeVar

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.conversion import Inputs
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import Rule
from tf_pfor.core.values import Value

_Item = TypeVar("_Item")
_INDICES = frozenset([tf.int32, tf.int64, tf.bool])


def group(
    op: tf.Operation, schema: _tf.Schema, values: Sequence[_Item]
) -> dict[str, _Item | list[_Item]]:
    """The items for the inputs of ``op``, by OpDef name; ``values`` is the flat list."""
    if not any(a.is_list for a in schema.inputs):
        return dict(zip([a.name for a in schema.inputs], values))
    attrs = _tf.attr_map(op)
    grouped: dict[str, _Item | list[_Item]] = {}
    position = 0
    for arg in schema.inputs:
        if arg.number_attr:
            count = attrs[arg.number_attr].i
        elif arg.type_list_attr:
            count = len(attrs[arg.type_list_attr].list.type)
        else:
            grouped[arg.name] = values[position]
            position += 1
            continue
        grouped[arg.name] = list(values[position : position + count])
        position += count
    return grouped


def is_shape_arithmetic(op: tf.Operation) -> bool:
    """Integer scalars and vectors made from others: of little use but in shapes and indices."""
    return may_be_folded(op) and not op.device


def may_be_folded(op: tf.Operation) -> bool:
    """The same, on any device: where it is a constant nobody need know on which."""
    if len(op.outputs) != 1 or not op.inputs or op.control_inputs:
        return False
    output = op.outputs[0]
    return output.dtype in _INDICES and output.shape.rank in (0, 1)


def any_stacked(value: Value | list[Value]) -> bool:
    """Whether an input, or a part of a list input, may differ between iterations."""
    if isinstance(value, list):
        return any(v.is_stacked for v in value)
    return value.is_stacked


def handle_differs(op: tf.Operation, inputs: Inputs) -> bool:
    """Whether an op reads or changes another variable, table or queue in each iteration.

    Not an op that moves handles, nor a call, a branch or a loop, which hands a list of them on.
    """
    handles = [v for v in inputs.values() if not isinstance(v, list) and v.dtype == tf.resource]
    return any(v.is_stacked for v in handles) and all(t.dtype != tf.resource for t in op.outputs)


def to_tile(rule: Rule, stacked: frozenset[str], inputs: Inputs) -> frozenset[str]:
    """The inputs that must be repeated before ``rule`` can take them."""
    if not isinstance(rule.stacked, frozenset):
        return frozenset()
    partly = (
        name
        for name in stacked
        if isinstance(given := inputs[name], list) and not all(v.is_stacked for v in given)
    )
    return (rule.stacked - stacked) | frozenset(partly)


def repeated(tiling: frozenset[str]) -> str:
    """The reason that reports give for a TILED op."""
    return "repeats the loop-invariant " + ", ".join(f"'{name}'" for name in sorted(tiling))


def check_attrs(read: Container[str], op: tf.Operation) -> None:
    """Refuses an attribute that is not in ``read`` and not at its default."""
    schema = _tf.schema(op.type)
    assert schema is not None
    unread = [
        name
        for name, kind in schema.attr_types.items()
        if name not in read and name not in schema.inferred_attrs and kind != "type"
    ]
    if not unread:
        return
    attrs = _tf.attr_map(op)
    for name in unread:
        default = schema.attr_defaults.get(name)
        if name in attrs and (default is None or attrs[name] != default):
            raise CannotVectorize(f"its converter does not know the attribute '{name}'")
