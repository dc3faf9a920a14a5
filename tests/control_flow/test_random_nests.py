"""Random programs of control flow in control flow: a few seeds of tools/nested."""

import pytest

from tools.nested.outcome import outcome


@pytest.mark.parametrize("seed", [*range(8), 17, 23, 42, 55])
def test_program(seed):
    sign, why = outcome(seed)
    assert sign in ("yes", "loop"), why
