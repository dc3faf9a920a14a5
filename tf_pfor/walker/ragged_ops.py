"""Results of ops that read rows of different shapes: by a rule of their kind, or by a loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Conversion
from tf_pfor.core.emit import Emitter
from tf_pfor.core.errors import CannotVectorize
from tf_pfor.core.regions import key
from tf_pfor.core.registry import REGISTRY, Outcome
from tf_pfor.core.values import Results, Value, dims, is_static
from tf_pfor.fallback import uneven_regions
from tf_pfor.layouts.ragged import Ragged, RowSizes, differ_in_shape, is_ragged
from tf_pfor.layouts.ragged_rules import BY_KERNEL, Rule, on_rows, rule_of
from tf_pfor.layouts.repeated import RepeatedList
from tf_pfor.layouts.row_shapes import dense_of_known_shape
from tf_pfor.walker.checked import check_attrs_of_rows, checked, rejected

_UNDER_XLA = (
    "under jit_compile a slice has one length: a window x[k:k + 3] must begin inside of the "
    "tensor, by tf.clip_by_value(k, 0, size - 3); for x[:k] mask the rest, by "
    "tf.where(tf.range(size) < k, x, 0); or leave out jit_compile"
)


def convert(call: Call) -> Results | None:
    """The results of an op that reads rows of different shapes, or numbers of such rows.

    Returns:
      None for an op that reads shapes only and has no rule for them: numbers like any others.

    Raises:
      CannotVectorize: if it has no rule for such rows.
    """
    values = call.flat_inputs()
    if on_rows(call.op_type).hands_on or not differ_in_shape(values):
        return None
    has_rows = any(map(is_ragged, values))
    rule = rule_of(call.op_type) if has_rows or on_rows(call.op_type).takes_shapes else None
    if rule is not None:
        try:
            return _applied(rule, call)
        except CannotVectorize:
            if has_rows:
                raise
    if has_rows:
        raise CannotVectorize("it has no rule for rows of different shapes")
    return None


def known_forms(op: tf.Operation, values: Sequence[Value], emit: Emitter) -> Sequence[Value]:
    """The inputs of an op, those in standard form whose layout its rules do not take.

    They are the same sequence if the rules take all of them.

    Raises:
      CannotVectorize: if one has no standard form.
    """
    if all(v.is_standard or is_ragged(v) for v in values):
        return values
    if op.type in (*_tf.CALLS, *_tf.LOOPS):
        kept = (Ragged, RepeatedList)
    else:
        kept = (Ragged,)
    return [v if isinstance(v, kept) or op.type in v.readers else v.standard(emit) for v in values]


def from_source(
    call: Call, reason: str, otherwise: Callable[..., Any] | None
) -> tuple[Results | None, str]:
    """The results, without a loop, of an op whose results differ in shape; else why it loops.

    For a ``PastEdge``, ``otherwise`` makes a result of one shape, checked at run time.
    """
    op, walker = call.op, call.walker
    missing: list[tf.Operation] = []

    def ragged() -> Results | None:
        rule = on_rows(op.type).source
        if rule is None:
            return None
        members, uneven, _ = uneven_regions.spread(op, walker, in_loop=False)
        others = [o for o in members - {op} if any(key(t) in uneven for t in o.inputs)]
        rows = [v.inner_shape for v in call.flat_inputs()]
        largest = max((math.prod(r) for r in rows if r is not None and is_static(r)), default=0)
        if otherwise is not None and (not members or _leaves(members, uneven, walker)):
            return None  # a window of one length, dense
        # From so many elements on kernels, row by row, beat the rule for dense rows.
        limits = (on_rows(o.type).large for o in members)
        if any(limit is not None and largest >= limit for limit in limits) or _is_cut(op, others):
            return None
        without = [o for o in others if not _takes_rows(o)]
        if without and not uneven_regions.have_effects(op, members, walker):
            missing.append(min(without, key=lambda o: o.name))
            return None
        try:
            return _applied(rule, call)
        except CannotVectorize:
            return None

    if any(is_ragged(v) for v in call.flat_inputs()):
        return None, reason
    results = ragged()
    if results is not None:
        return results, reason
    if missing and not REGISTRY.rules(op.type):
        reason = "the shape of its result may differ between iterations"
    elif op.type in ("Fill", "Range") and _tf.in_xla_context(walker.emit.graph):
        reason += "; make it of one shape, and cut that: tf.eye(size)[:k, :k], tf.range(size)[:k]"
    for o in missing:
        reason += walker.recorder.blame(op, o)
    is_unknown = op.type == "StridedSlice" and not is_static(dims(op.outputs[0]))
    if is_unknown and _tf.in_xla_context(walker.emit.graph):
        raise rejected(op, walker, f"{reason}; {_UNDER_XLA}")
    if otherwise is None:
        return None, reason
    results = checked(call, None, otherwise())
    walker.recorder.add(op, Outcome.VECTORIZED, "checked when it runs: it is inside of the tensor")
    return results, reason


def _leaves(members: Iterable[tf.Operation], uneven: set[Any], walker: Conversion) -> bool:
    """Whether a tensor whose shape may differ is asked of the walker."""
    return any(key(t) in uneven and walker.is_asked(t) for o in members for t in o.outputs)


def _is_cut(op: tf.Operation, others: Iterable[tf.Operation]) -> bool:
    """Whether images are read by ops whose rules take rows that differ along one axis only."""
    axes = [t.shape.as_list().count(None) for t in op.outputs if t.shape.rank is not None]
    return (
        on_rows(op.type).is_row_kernel
        and max(axes, default=0) > 1
        and any(on_rows(o.type).of_one_axis for o in others)
    )


def _takes_rows(op: tf.Operation) -> bool:
    """Whether rows of different shapes may come to an op."""
    known = on_rows(op.type)
    return known.hands_on or known.source is not None or rule_of(op.type) is not None


def _applied(rule: Rule, call: Call) -> Results:
    op, walker, graph = call.op, call.walker, call.emit.graph
    before = len(graph.get_operations())
    with graph.as_default():
        results = checked(call, None, rule(call, *call.inputs.values()))
        if not on_rows(op.type).is_row_kernel:  # which run as they are
            check_attrs_of_rows(call, rule)
        if not _tf.in_xla_context(graph):
            results = [_of_known_shape(v, t) for v, t in zip(results, op.outputs)]
    walker.emit.operations += graph.get_operations()[before:]
    if on_rows(op.type).is_row_kernel:
        walker.recorder.add(op, Outcome.LOOPED, BY_KERNEL, on_purpose=True)
    elif (dense := REGISTRY.rules(op.type)) and dense[0].outcome is Outcome.LOOPED:
        walker.recorder.add(op, Outcome.LOOPED, dense[0].note, on_purpose=True)
    else:
        given = [v for v in call.flat_inputs() if isinstance(v, Ragged)]
        note = _forms([v for v in results if isinstance(v, Ragged)] or given)
        walker.recorder.add(op, Outcome.VECTORIZED, note)
    return results


def _forms(values: Sequence[Ragged]) -> str:
    """In which form rows are, and how large they may be, for a report."""
    found: list[str] = []
    for value in values:
        sizes = [s for s in value.sizes if isinstance(s, RowSizes)]
        known = [str(s.most) for s in sizes if s.most is not None]
        largest = f", {' x '.join(known)} at most" if len(known) == len(sizes) else ""
        found.append(f"{'packed' if value.is_packed else 'padded'} rows{largest}")
    return "; ".join(dict.fromkeys(found))


def _of_known_shape(value: object, output: tf.Tensor) -> Any:
    """A result; dense where the body knows its shape, of what ``set_shape`` has said."""
    if isinstance(value, Ragged) and output.shape.is_fully_defined():
        return dense_of_known_shape(value, output)
    return value
