"""The rules for rows of different shapes, by op type (DESIGN 10): converters add theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""``RULES[op_type](call, *inputs)``, in the order of the OpDef, of which some are ``Ragged``."""


def ragged_rule(op_types: str | Iterable[str]) -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for op types.

    Args:
      op_types: one or more, in a string with spaces between.
    """
    names = op_types.split() if isinstance(op_types, str) else list(op_types)

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has a rule"
            RULES[name] = rule
        return rule

    return register
