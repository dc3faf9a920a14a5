"""Random programs of control flow in control flow, and of maps in maps: seeds of tools/nested."""

import pytest

from tools.nested.outcome import outcome

NESTS = (0, 1, 6, 7, 12, 50016, 520098, 520133, 700241)
MAPS = (0, 1, 5, 6, 10, 60036, 600137, 820171)


@pytest.mark.parametrize(
    ("maps", "seed"), [(m, s) for m in (False, True) for s in (NESTS, MAPS)[m]]
)
def test_program(maps, seed):
    sign, why = outcome(seed, 2, maps)
    assert sign in ("yes", "loop"), why
