"""Optionals: tf.cond keeps tensors of the taken branch in them, for its gradient.

The handle stays a scalar variant (layout STACKED_LIST); the values inside are stacked. Rows may
have taken different branches, which make optionals of different shapes under one name. So an
optional is a list of optionals, and ``ListRows.lengths`` says in which of them a row is. Rows are
numbered through all of them. A reader with other rows than the maker's gathers its rows.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor.converters.analysis._variant_types import kept_constant
from tf_pfor.converters.lists._list_rows import row_ids
from tf_pfor.converters.lists._list_sums import sum_of_lists
from tf_pfor.converters.lists._lists import list_rule, stack_list
from tf_pfor.converters.lists._optional_values import first_with_value, item_at, of_all_rows, one_of
from tf_pfor.converters.lists._ragged_optionals import kept, parts_of, read
from tf_pfor.converters.lists._unpacked_optionals import opened_value, opened_values
from tf_pfor.core.call import Call
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.stacked_lists import OpenOptional, PendingSum, known_rows, list_with_rows, rows_of
from tf_pfor.core.values import Value
from tf_pfor.layouts import quick
from tf_pfor.layouts.ragged_rules import ragged_rule


@ragged_rule("OptionalFromValue", of_shapes=True)
@list_rule("OptionalFromValue")
def optional_from_value(call: Call, components: list[Value]) -> Any:
    """All components stacked, so that whoever reads one knows how it is stored."""
    opened = opened_value(call, components)
    if opened is not None:
        return opened
    parts = parts_of(call, components)
    made = of_all_rows(call, kept(call, components, parts))
    if not parts:
        return made
    return list_with_rows(made, known_rows(made).holding(parts=parts))


@list_rule("OptionalNone")
def optional_none(call: Call) -> Any:
    """Nothing inside: the same for all rows."""
    return of_all_rows(call, call.rebuild())


@list_rule("OptionalFromValue", ())
def invariant_optional(call: Call, components: list[Value]) -> Any:
    """Kept unchanged; its content stands beside if its conditional asks for that."""
    return opened_value(call, components) or Value.unstacked(call.rebuild())


@list_rule("OptionalNone", ())
def invariant_none(call: Call) -> Any:
    """Kept unchanged; nothing stands beside if its conditional asks for that."""
    return opened_value(call, []) or Value.unstacked(call.rebuild())


@list_rule("OptionalHasValue")
def optional_has_value(call: Call, optional: Value) -> Any:
    """The same for all rows."""
    source = stack_list(call, optional)
    if isinstance(source, PendingSum):
        source = source.terms[0]
    made, _ = _chosen(call, source)
    return Value.unstacked(call.rebuild(optional=made))


@list_rule("OptionalGetValue", attrs=("output_shapes", "output_types"))
def optional_get_value(call: Call, optional: Value) -> Any:
    """Values [n, ...]; lists as lists. Constants that branches kept are constants."""
    found = _read(call, optional)
    for k, output in enumerate(call.op.outputs):
        known = kept_constant(call, output) if _may_be_axes(output) else None
        if known is not None:
            found[k] = Value.unstacked(call.emit.constant(known, output.dtype), constant=known)
    return found


def _may_be_axes(tensor: tf.Tensor) -> bool:
    """True of a few integers, as axes and permutations are."""
    count = tensor.shape.num_elements()
    return tensor.dtype.is_integer and count is not None and count <= _MOST_AXES


_MOST_AXES = 16


def _read(call: Call, optional: Value) -> list[Any]:
    source = stack_list(call, optional)
    if isinstance(source, OpenOptional):
        return [*opened_values(call, source.alternatives)]
    if not isinstance(source, PendingSum):
        return _values(call, source)
    found = zip(*(_values(call, term) for term in source.terms))
    return [
        sum_of_lists(call, same)
        if same[0].dtype == tf.variant
        else call.emit("AddN", [v.tensor for v in same])
        for same in found
    ]


def _values(call: Call, source: Value) -> list[Value]:
    """The values in an optional, for the rows of the loop."""
    made, ids = _chosen(call, source)
    return read(call, made, ids, known_rows(source).holds.parts)


def _chosen(call: Call, source: Value) -> tuple[tf.Tensor, tf.Tensor | None]:
    """The optional that the active rows are in, and which of its rows they are; None for all."""
    rows, emit = rows_of(source), call.emit
    if rows is None:  # in a trial
        return source.tensor, None
    for part, own, _ in rows.holds.by_branch:
        if part is None:
            with emit.graph.as_default():
                return item_at(own, 0), None
    number, ids = emit.constant(np.int32(0)), rows.ids
    if not rows.is_even:
        if rows.lengths is None:  # one that a map in this one has put into a list of its own
            raise CannotVectorize("it is not known which optional each row has")
        with emit.graph.as_default():
            ids = row_ids(call, source)
            each = quick.gather(rows.lengths, ids)
            number = _number(call, source.tensor, each)
            is_same = quick.both("Equal", each, number)
            same = call.check(is_same, "rows read optionals of two branches", [each])
            with tf.control_dependencies([same]):
                is_before = quick.op("Less", rows.lengths, number)
                before = quick.op("Sum", quick.op("Cast", is_before, DstT=tf.int32), 0)
                ids = quick.subtract(ids, before)
    with emit.graph.as_default():
        return one_of(source.tensor, number), ids


def _number(call: Call, handle: tf.Tensor, each: tf.Tensor) -> tf.Tensor:
    """int32 []: which optional to read. Rows say it; if there are none, one that has a value."""
    known = call.loop.static_length
    if known or call.loop.rows is not None:  # what some rows do is not run without any
        return quick.largest(each)
    first = functools.partial(first_with_value, handle)
    if known == 0:
        return first()
    return tf.cond(tf.size(each) > 0, lambda: tf.reduce_max(each), first)
