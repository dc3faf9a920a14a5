"""The table of endpoints is the table of the sweep; some endpoints are measured each time."""

import collections

import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor.frontends.endpoints import VERDICTS, measured
from tools.sweep import table
from tools.sweep.outcome import outcome

PARTS = 100
ONLY_THIS = pytest.mark.skipif(
    not tf.__version__.startswith("2.21."), reason="the table is of TensorFlow 2.21"
)


@pytest.fixture(scope="module")
def cases():
    """The cases of each endpoint."""
    found = collections.defaultdict(list)
    for of_module in table.modules().values():
        for case in of_module:
            found[case.name].append(case)
    return found


@ONLY_THIS
def test_the_table_has_the_endpoints_of_the_sweep(cases):
    assert sorted(cases) == sorted(measured()), "run `python -m tools.sweep`, or with a part of it"


def test_titles_tell_cases_apart(cases):
    titles = [case.title for of_one in cases.values() for case in of_one]
    repeated = [title for title, count in collections.Counter(titles).items() if count > 1]
    assert not repeated


def test_nothing_is_wrong_and_most_is_vectorized():
    found = collections.Counter(e.verdict for e in measured().values())
    assert set(found) <= set(VERDICTS)
    assert not found["wrong"]
    assert found["vectorized"] >= 720
    assert len(measured()) >= 900


def test_the_table_names_op_types_of_tensorflow():
    known = set(tf_pfor.frontends.coverage.op_types_of_tensorflow())
    loops = {word for e in measured().values() for word in e.loops.replace(":", " ").split()}
    assert {"StringFormat"} <= loops & known
    made = set().union(*(e.op_types for e in measured().values()))
    assert len(made & known) > 450


@ONLY_THIS
@pytest.mark.parametrize("part", range(PARTS))
def test_a_part_of_the_table_is_what_is_measured(cases, part):
    for name in sorted(cases)[part::PARTS]:
        outcomes = [(case.label, outcome(case)) for case in cases[name]]
        _, verdict, loops, _ = table.row_of(name, outcomes)
        expected = measured()[name]
        assert (verdict, loops) == (expected.verdict, expected.loops), f"{name}: {outcomes}"
