"""The results of an op, checked against the dtypes and shapes of the body's trace; or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion, Failed
from tf_pfor.core.errors import ConversionError, Refused
from tf_pfor.core.matching import check_attrs
from tf_pfor.core.registry import REGISTRY, Outcome, Rule
from tf_pfor.core.values import Shape, Value, dims, folded_form, merge
from tf_pfor.layouts.ragged import Ragged

# Which factors of a product are gradients, and counts of results: no result depends on these.
_HINTS = frozenset({"grad_a", "grad_b", "grad_x", "grad_y", "num_split"})


def rejected(op: tf.Operation, walker: Conversion, reason: str) -> Failed:
    """The failure of an op that cannot be converted; reports say why."""
    walker.recorder.add(op, Outcome.REJECTED, reason)
    return Failed()


def checked(call: Call, rule: Rule | None, returned: Any) -> list[Value]:
    """One place checks what every rule returned: count, dtype, static shape."""
    items = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    outputs = call.op.outputs
    if len(items) != len(outputs) and not (items == [None] and not outputs):
        raise _broken(call, rule, f"{len(outputs)} results", f"{len(items)}")
    values: list[Value] = []
    for item, output in zip(items, outputs):
        value = item if isinstance(item, Value) else Value.stacked(item)
        if value.dtype.base_dtype != output.dtype.base_dtype:
            raise _broken(call, rule, output.dtype.name, value.dtype.name)
        if value.dtype == tf.string and value.is_stacked and _tf.in_xla_context(call.emit.graph):
            raise Refused("it makes strings, and under jit_compile XLA compiles numbers only")
        if isinstance(value, Ragged) and value.origin is None:
            value = dataclasses.replace(value, origin=output)
        values.append(shaped(call, rule, value, dims(output)))
    return values


def check_attrs_of_rows(call: Call, function: Callable[..., Any]) -> None:
    """Refuses a rule for rows of different shapes that has not read all attributes.

    The function may be the rule for dense rows as well, which says what it knows.
    """
    known = [r.attrs for r in REGISTRY.rules(call.op_type) if r.function is function]
    check_attrs(call.read.union(_HINTS, *known), call.op)


def shaped(call: Call, rule: Rule | None, value: Value, inner: Shape) -> Value:
    """Sets the static shape that the trace knows."""
    if not value.is_tensor:
        return value
    try:
        merged = merge(value.inner_shape, inner)
        if value.cell.is_made:
            tensor = value.tensor
            lead = (call.loop.static_length,) if value.is_stacked else ()
            full = merge(dims(tensor), None if merged is None else (*lead, *merged))
            if full != dims(tensor):
                tensor.set_shape(full)
            merged = None if full is None else full[len(lead) :]
        form = folded_form(value)
        if form is not None:
            form.check(merged, call.loop.static_length)
    except ValueError as why:
        raise _broken(call, rule, f"inner shape {inner}", f"{value.inner_shape}") from why
    return value if merged == value.inner_shape else value.with_inner_shape(merged)


def _broken(call: Call, rule: Rule | None, expected: str, found: str) -> ConversionError:
    where = "the fallback" if rule is None else f"the converter at {rule.where}"
    return ConversionError(
        f"{call.op_type} '{call.op.name}' ({_tf.user_line(call.op) or 'line unknown'}): {where}"
        f" returned {found}, expected {expected}. This is a bug in the converter."
    )
