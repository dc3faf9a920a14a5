"""The rules for rows of different shapes, by op type: converters add theirs.

A rule is called with the call and its inputs, in the order of the OpDef, of which some are
``Ragged``. It may leave no attribute unread, as rules for stacked inputs (``registry``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from tf_pfor.core.errors import RegistrationError
from tf_pfor.core.registry import REGISTRY, source_of

Rule = Callable[..., Any]
BY_KERNEL = "it has no kernel for batches: its kernel for one runs for all rows in parallel"


@dataclasses.dataclass(slots=True)
class OnRows:
    """The facts of an op type on rows of different shapes.

    Attributes:
      rule: its rule, None if there is none.
      source: the rule that makes such rows of others.
      takes_shapes: whether the rule knows what to do where only shapes, or sizes, of such rows are
        given.
      of_one_axis: whether the rule takes rows that differ along one axis only, in general.
      hands_on: whether the op hands rows on to functions of its own, which are converted for them.
      is_row_kernel: whether it has no kernel for batches. One for all rows in parallel is the best
        there is.
      large: elements of a dense row from which on the kernel, row by row, beats the rule.
    """

    rule: Rule | None = None
    source: Rule | None = None
    takes_shapes: bool = False
    of_one_axis: bool = False
    hands_on: bool = False
    is_row_kernel: bool = False
    large: int | None = None


OPS: dict[str, OnRows] = {}
"""By op type; by the family of an op's rules for stacked inputs, "family elementwise"."""
_NOTHING = OnRows()


def on_rows(op_type: str) -> OnRows:
    """The facts of an op type."""
    return OPS.get(op_type, _NOTHING)


def rule_of(op_type: str) -> Rule | None:
    """The rule for ops of a type, None if there is none."""
    return on_rows(op_type).rule or on_rows(f"family {REGISTRY.family_of(op_type)}").rule


def _register(op_types: Iterable[str], rule: Rule | None = None, **facts: object) -> None:
    """Adds facts of op types, in new records: tests put the old ones back."""
    facts = {name: fact for name, fact in facts.items() if fact}
    facts |= {"rule": rule} if rule else {}
    for name in op_types:
        known = on_rows(name)
        if known.rule is not None and rule is not None:
            first, again = source_of(known.rule), source_of(rule)
            raise RegistrationError(
                f"{name} already has a rule for rows of different shapes: registered at {first}, "
                f"and again at {again}."
            )
        OPS[name] = dataclasses.replace(known, **facts)


def family_rule(family: str, *, of_shapes: str = "") -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for a family; ``of_shapes`` as for ``ragged_rule``."""

    def register(rule: Rule) -> Rule:
        OPS[f"family {family}"] = OnRows(rule)
        _register(of_shapes.split(), takes_shapes=True)
        return rule

    return register


def source(op_types: str, *, by_kernel: bool = False) -> Callable[[Rule], Rule]:
    """A decorator: registers a rule that makes ragged rows of others.

    Args:
      op_types: one or more, with spaces between.
      by_kernel: these ops have no kernel for batches.
    """

    def register(rule: Rule) -> Rule:
        _register(op_types.split(), source=rule, is_row_kernel=by_kernel)
        return rule

    return register


def ragged_rule(
    op_types: str | Iterable[str],
    *,
    of_shapes: bool | str = False,
    of_one_axis: bool = False,
    is_source: bool = False,
    large: int | None = None,
) -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for op types.

    Args:
      op_types: one or more, in a string with spaces between.
      of_shapes: the ops that also take shapes, or sizes, of ragged rows; True for all.
      of_one_axis: they take rows that differ along one axis only, in general.
      is_source: whether the rule also makes ragged rows of others, as ``source`` says.
      large: elements of a dense row from which on the kernel, row by row, beats the rule.
    """
    names = op_types.split() if isinstance(op_types, str) else list(op_types)
    taking = of_shapes.split() if isinstance(of_shapes, str) else names if of_shapes else ()

    def register(rule: Rule) -> Rule:
        made = rule if is_source else None
        _register(names, rule=rule, source=made, of_one_axis=of_one_axis, large=large)
        _register(taking, takes_shapes=True)
        return rule

    return register


def takes_ragged(op_types: str) -> Callable[[Rule], Rule]:
    """A decorator: the converter hands ragged rows on to functions of the ops."""

    def register(rule: Rule) -> Rule:
        _register(op_types.split(), hands_on=True)
        return rule

    return register
