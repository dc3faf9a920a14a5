"""The rules for rows of different shapes, by op type: converters add theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tf_pfor.core.registry import REGISTRY

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
"""``RULES[op_type](call, *inputs)``, in the order of the OpDef, of which some are ``Ragged``."""
FAMILIES: dict[str, Rule] = {}
"""The same, by the family of the op's rules for stacked inputs."""
OF_SHAPES: set[str] = set()
"""Ops whose rules know what to do where only shapes, or sizes, of ragged rows are given."""
OF_ONE_AXIS: set[str] = set()
"""Ops whose rules take rows that differ along one axis only, in general."""
TAKERS: set[str] = set()
"""Ops that hand ragged rows on to functions of theirs, which are converted for them."""
ROW_KERNELS: set[str] = set()
"""Ops that have no kernel for batches: one for all rows in parallel is the best there is."""
BY_KERNEL = "it has no kernel for batches: its kernel for one runs for all rows in parallel"
SOURCES: dict[str, Rule] = {}
"""By op type: what makes rows of different shapes of others."""


LARGE: dict[str, int] = {}
"""By op type: elements of a dense row from which on the kernel, row by row, beats the rule."""


def rule_of(op_type: str) -> Rule | None:
    """The rule for ops of a type, None if there is none."""
    return RULES.get(op_type) or FAMILIES.get(REGISTRY.family_of(op_type))


def family_rule(family: str, *, of_shapes: str = "") -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for a family; ``of_shapes`` as for ``ragged_rule``."""

    def register(rule: Rule) -> Rule:
        FAMILIES[family] = rule
        OF_SHAPES.update(of_shapes.split())
        return rule

    return register


def source(op_types: str, *, by_kernel: bool = False) -> Callable[[Rule], Rule]:
    """A decorator: registers what makes ragged rows.

    Args:
      op_types: one or more, with spaces between.
      by_kernel: these ops have no kernel for batches (``ROW_KERNELS``).
    """

    def register(rule: Rule) -> Rule:
        SOURCES.update(dict.fromkeys(op_types.split(), rule))
        ROW_KERNELS.update(op_types.split() if by_kernel else ())
        return rule

    return register


def ragged_rule(
    op_types: str | Iterable[str],
    *,
    of_shapes: bool | str = False,
    of_one_axis: bool = False,
    is_source: bool = False,
) -> Callable[[Rule], Rule]:
    """A decorator: registers a rule for op types.

    Args:
      op_types: one or more, in a string with spaces between.
      of_shapes: the ops that also take shapes, or sizes, of ragged rows; True for all.
      of_one_axis: they take rows that differ along one axis only, in general.
      is_source: whether the rule also makes ragged rows of others, as ``source`` says.
    """
    names = op_types.split() if isinstance(op_types, str) else list(op_types)
    taking = of_shapes.split() if isinstance(of_shapes, str) else names if of_shapes else ()

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"{name} has a rule"
            RULES[name] = rule
        OF_SHAPES.update(taking)
        OF_ONE_AXIS.update(names if of_one_axis else ())
        SOURCES.update(dict.fromkeys(names if is_source else (), rule))
        return rule

    return register


def takes_ragged(op_types: str) -> Callable[[Rule], Rule]:
    """A decorator: the converter hands ragged rows on to functions of the ops (``TAKERS``)."""

    def register(rule: Rule) -> Rule:
        TAKERS.update(op_types.split())
        return rule

    return register
