"""Converters of ops with state or effects: variables, generators, prints.

The room has reads and sums of variables (docs/state.md), random draws, lookup tables, and updates
in the order of the loop. It may import `converters/math`, `fallback` and below; only control flow
may import it. `core/accesses.py` tells which op of a graph reads and writes which variable.
"""

from tf_pfor.converters.state import candidates as candidates
from tf_pfor.converters.state import debug as debug
from tf_pfor.converters.state import generator as generator
from tf_pfor.converters.state import lookup as lookup
from tf_pfor.converters.state import random as random
from tf_pfor.converters.state import random_choices as random_choices
from tf_pfor.converters.state import random_stateless as random_stateless
from tf_pfor.converters.state import variables as variables
from tf_pfor.converters.state import variables_scatter as variables_scatter
