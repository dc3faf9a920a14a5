"""docs/ragged_coverage.md says what happens."""

import pytest

from tools.ragged_table.__main__ import read
from tools.ragged_table.cases import CASES
from tools.ragged_table.outcome import outcome

ROWS = read()


def test_all_cases_are_on_the_page():
    assert [case.name for case in CASES] == list(ROWS)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_line(case):
    found = outcome(case)
    assert found.line == ROWS[case.name].line, found.why
