"""Ops by rules of the registry: each by the first one that can take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tf_pfor import _tf
from tf_pfor.core import matching
from tf_pfor.core.call import Call
from tf_pfor.core.conversion import Inputs
from tf_pfor.core.errors import CannotVectorize, Refused
from tf_pfor.core.registry import REGISTRY, Outcome, Rule
from tf_pfor.core.stacked_lists import StackedList
from tf_pfor.core.values import Results
from tf_pfor.fallback import nested_maps, refusals
from tf_pfor.layouts.list_handles import only_passes_lists
from tf_pfor.layouts.ragged_rules import rule_of
from tf_pfor.walker.by_loop import by_loop
from tf_pfor.walker.checked import checked, rejected
from tf_pfor.walker.kept import kept


def stacked_inputs(call: Call) -> frozenset[str]:
    """The names of the inputs that may differ between iterations."""
    return frozenset(name for name, v in call.inputs.items() if matching.any_stacked(v))


def passed_on(call: Call) -> Results | None:
    """An op that makes vectors of lists, or takes such apart."""
    if not only_passes_lists(call.op, call.schema, call.flat_inputs()):
        return None
    call.walker.recorder.add(call.op, Outcome.VECTORIZED)
    made = call.rebuild()
    return [StackedList.of(t) for t in (made if isinstance(made, list) else [made])]


def by_rule(call: Call) -> Results:
    """Applies the first rule that can take the op, else the fallback."""
    op, stacked = call.op, stacked_inputs(call)
    rules = REGISTRY.find(call.op_type, stacked)
    if not stacked and not call.schema.is_stateful and not rules:
        return kept(call)
    if matching.handle_differs(op, call.inputs):  # rules and kernels take the first one for all
        raise rejected(op, call.walker, refusals.OTHER_HANDLES)
    reasons: list[str] = []
    otherwise: Callable[..., Any] | None = None
    for rule in rules:
        tiling = matching.to_tile(rule, stacked, call.inputs)
        try:
            matching.check_attrs(rule.attrs, op)
            given = _tiled(call, tiling)
            results = checked(given, rule, rule.function(given, *given.inputs.values()))
        except Refused as why:
            nested_maps.check(call.walker)
            raise rejected(op, call.walker, str(why)) from None
        except CannotVectorize as why:
            if str(why) not in reasons:
                reasons.append(str(why))
            otherwise = otherwise or getattr(why, "otherwise", None)
            continue
        is_kept = not stacked and not any(v.is_stacked for v in results)
        _record(call, rule, tiling, reasons, is_kept=is_kept)
        return results
    reason = "; ".join(reasons) or REGISTRY.why_none(call.op_type, stacked)
    is_for_rows = call.op_type not in REGISTRY and rule_of(call.op_type) is not None
    if is_for_rows and not reasons and _tf.in_xla_context(call.emit.graph):
        reason = "its result may have another shape in each iteration, which XLA does not take"
    return by_loop(call, reason, otherwise)


def _tiled(call: Call, names: frozenset[str]) -> Call:
    """The call for one rule, some of whose inputs are repeated for all iterations."""
    tile = call.walker.tile
    inputs: Inputs = {
        name: v if name not in names else [tile(x) for x in v] if isinstance(v, list) else tile(v)
        for name, v in call.inputs.items()
    }
    return Call(call.op, inputs, call.walker)


def _record(
    call: Call, rule: Rule, tiling: frozenset[str], reasons: list[str], *, is_kept: bool
) -> None:
    """Tells reports which rule has taken an op, and why others did not where it loops."""
    if rule.family == "inline":
        return
    outcome, reason = rule.outcome, rule.note
    if outcome is Outcome.VECTORIZED and is_kept:
        outcome = Outcome.KEPT
    elif outcome is Outcome.VECTORIZED and tiling:
        outcome, reason = Outcome.TILED, rule.note or matching.repeated(tiling)
    on_purpose = outcome is Outcome.LOOPED
    reason = ("; ".join(reasons) if on_purpose else "") or reason
    call.walker.recorder.add(call.op, outcome, reason, on_purpose=on_purpose)
