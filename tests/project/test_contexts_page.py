"""docs/contexts.md says what happens where features meet."""

import pytest

from tools.contexts.__main__ import read
from tools.contexts.bodies import BODIES
from tools.contexts.contexts import contexts
from tools.contexts.outcome import RAW, WRONG, outcome

CELLS = read()
CONTEXTS = list(contexts().values())
# A diagonal of the table: each body in one context, each context with a few bodies.
CHOSEN = [(body, CONTEXTS[(7 * i) % len(CONTEXTS)]) for i, body in enumerate(BODIES)]


def test_all_cells_are_on_the_page():
    assert set(CELLS) == {(b.name, c.name) for b in BODIES for c in CONTEXTS}


def test_no_cell_is_wrong():
    """No wrong number stands there, and no error that is not one of ours."""
    assert not [key for key, cell in CELLS.items() if cell.sign in (WRONG, RAW)]


@pytest.mark.parametrize(("body", "context"), CHOSEN, ids=[f"{b.name}-{c.name}" for b, c in CHOSEN])
def test_cell(body, context):
    found, known = outcome(body, context), CELLS[body.name, context.name]
    assert found.sign == known.sign, found.why
