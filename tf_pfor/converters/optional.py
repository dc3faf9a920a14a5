"""Optionals: what tf.cond keeps for its gradient when only one of its branches made it.

The handle stays a scalar variant (layout STACKED_LIST); the values inside are stacked.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_pfor.call import Call
from tf_pfor.converters._lists import list_rule, stack_list
from tf_pfor.errors import CannotVectorize
from tf_pfor.values import Value


@list_rule("OptionalFromValue")
def optional_from_value(call: Call, components: list[Value]) -> Any:
    """All components stacked, so that whoever reads one knows how it is stored."""
    if any(v.rows is not None for v in components):
        raise CannotVectorize("an optional holds a list of which only some rows are active")
    tensors = [
        stack_list(call, v).tensor if v.dtype == tf.variant else call.stacked(v) for v in components
    ]
    return Value.stacked_list(call.rebuild(components=tensors))


@list_rule("OptionalNone")
def optional_none(call: Call) -> Any:
    """Nothing inside: the same for all rows."""
    return Value.stacked_list(call.rebuild())


@list_rule("OptionalHasValue")
def optional_has_value(call: Call, optional: Value) -> Any:
    """The same for all rows."""
    if optional.rows is not None:
        raise CannotVectorize("rows may differ in whether an optional has a value")
    return Value.unstacked(call.rebuild(optional=stack_list(call, optional).tensor))


@list_rule("OptionalGetValue", attrs=("output_shapes", "output_types"))
def optional_get_value(call: Call, optional: Value) -> Any:
    """Values [n, ...]; lists as lists."""
    source = stack_list(call, optional)
    if source.rows is not None:
        raise CannotVectorize("an optional is read where only some rows are active")
    dtypes, shapes = call.attr("output_types"), call.attr("output_shapes")
    n = call.loop.static_length
    stacked = [
        s if d == tf.variant else tf.TensorShape([n]).concatenate(s) for d, s in zip(dtypes, shapes)
    ]
    made = call.rebuild(optional=source.tensor, output_shapes=stacked)
    values = made if isinstance(made, list) else [made]
    return [Value.stacked_list(t) if t.dtype == tf.variant else t for t in values]
