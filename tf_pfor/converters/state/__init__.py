"""Converters of ops with state or effects: variables, generators, prints.

The room has lock-step semantics (docs/state.md), random draws, lookup tables, and updates in the
order of the loop. It may import `converters/math`, `fallback` and below; only control flow may
import it. `core/accesses.py` tells which op of a graph reads and writes which variable.
"""

from tf_pfor.converters.state import (
    candidates,
    debug,
    generator,
    lookup,
    random,
    random_choices,
    random_stateless,
    variables,
    variables_scatter,
)

__all__ = [
    "candidates",
    "debug",
    "generator",
    "lookup",
    "random",
    "random_choices",
    "random_stateless",
    "variables",
    "variables_scatter",
]
