"""Converters of what has state or effects: variables, generators, prints.

Lock-step semantics (DESIGN 9), random draws, lookup tables, and updates in the order of the
loop. It may import `converters/math`, `fallback` and below; nobody but control flow may
import it. Who reads and writes what in a graph is told by `core/accesses.py`.
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
