"""Programs as users write them, for one row: a module for each field.

``ALL`` has them by name.
"""

from tests.programs import containers, dynamics, networks, optimisation, probability, search
from tests.programs.program import Program

FIELDS = (containers, dynamics, networks, optimisation, probability, search)
ALL: dict[str, Program] = {
    value.name: value
    for field in FIELDS
    for value in vars(field).values()
    if isinstance(value, Program)
}
