"""The ways to lower an op of the body to ops for all iterations, in the order of their trial.

A lowering takes a ``Call``. It returns the results, or None for ops of other kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core import matching
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.registry import Outcome
from tf_pfor.core.values import Results, Value
from tf_pfor.fallback.randomness import draws, why_not_drawn
from tf_pfor.layouts import row_major, row_reads
from tf_pfor.walker import ragged_ops
from tf_pfor.walker.by_loop import by_loop
from tf_pfor.walker.by_rule import by_rule, passed_on, stacked_inputs
from tf_pfor.walker.checked import rejected, shaped
from tf_pfor.walker.kept import constant, kept, known_before_running

Lowering = Callable[[Call], Results | None]


def lowered(
    op: tf.Operation, schema: _tf.Schema, values: Sequence[Value], walker: Conversion
) -> tuple[Results, list[tf.Operation]]:
    """The results of an op, and the ops that others may have to wait for."""
    emit, call = walker.emit, Call(op, matching.group(op, schema, values), walker)
    mark = len(emit.operations)
    results = _first(_OF_ANY_LAYOUT, call)
    if results is not None:
        return results, emit.operations[mark:]
    try:
        known = ragged_ops.known_forms(op, values, emit)
    except CannotVectorize as why:
        return by_loop(call, str(why)), emit.operations[mark:]
    if known is not values:
        call = Call(op, matching.group(op, schema, known), walker)
    is_watched = schema.is_stateful or not op.outputs  # also ops that no emitter has added
    before = len(emit.graph.get_operations()) if is_watched else 0
    mark = len(emit.operations)
    results = _first(_OF_KNOWN_LAYOUTS, call)
    assert results is not None  # the last one takes every op, or raises
    made = emit.graph.get_operations()[before:] if is_watched else emit.operations[mark:]
    return results, made


def _first(lowerings: Sequence[Lowering], call: Call) -> Results | None:
    for lower in lowerings:
        results = lower(call)
        if results is not None:
            return results
    return None


def _of_ragged_rows(call: Call) -> Results | None:
    """An op that reads rows of different shapes, or numbers that such rows have."""
    try:
        return ragged_ops.convert(call)
    except CannotVectorize as why:
        return by_loop(call, str(why))


def _stored_by_row(call: Call) -> Results | None:
    """A read or a write of items that are stored by row (``row_major``)."""
    found = row_major.convert(call)
    if found is not None:
        call.walker.recorder.add(call.op, Outcome.VECTORIZED)
    return found


def _drawn_once(call: Call) -> Results | None:
    """A draw of random numbers that are the same for all iterations, if they are to be."""
    if call.settings.randomness == "different" or not draws(call.op):
        return None
    why = why_not_drawn(call.walker, stacked_inputs(call))
    if why:
        raise rejected(call.op, call.walker, why)
    return kept(call) if _tf.draws_randomly(call.op_type) else None


def _read_of_row(call: Call) -> Results | None:
    """A read of one element of rows that were not gathered yet (``row_reads``)."""
    if call.op_type not in ("GatherV2", "GatherNd", "StridedSlice"):
        return None
    found = row_reads.fuse(call)
    if found is None:
        return None
    call.walker.recorder.add(call.op, Outcome.VECTORIZED)
    return [shaped(call, None, found, call.output_shape())]


_OF_ANY_LAYOUT: Sequence[Lowering] = (
    constant,
    known_before_running,
    _of_ragged_rows,
    _stored_by_row,
)
_OF_KNOWN_LAYOUTS: Sequence[Lowering] = (_drawn_once, _read_of_row, passed_on, by_rule)
