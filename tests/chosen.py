"""The tests that ``make test`` runs: for one tree the same ones on any day and in any clone.

All cases together take hours; ``make test-all`` runs them. ``make test`` runs each function of
tests: all cases where they take less than ``SECONDS`` together, else as many as fit into that, and
at least one. A function whose cases take longer than ``LONGEST`` each is left to ``make test-all``,
unless it is the cheapest one of a file of such functions. ``ALONE`` are chosen in any case.
Each sample of an op runs its first checks and one of the others. Each program runs in one of its
modes, and each op type of XLA in one function. Of a table of tests, ``test_table_of_...``, each row
counts as a function: the first part of a case's name, up to a hyphen. Names decide which cases of a
function run. So a new case leaves the others where they are.

``durations.json`` has the CPU seconds of one case of each function (``python -m tools.durations``).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import pathlib
import zlib
from collections.abc import Iterable

DURATIONS = pathlib.Path(__file__).resolve().parent / "durations.json"
UNKNOWN = 0.5  # seconds of a case that was never recorded
SECONDS = 0.4
LONGEST = 0.6

# Each sample runs these, and one of the other checks.
OF_EACH_SAMPLE = ("test_outcome", "test_values")
PROGRAMS = "test_programs.py::test_programs"
CALL_SITES = "test_call_sites.py::test_call_sites"
# Each case of these functions, an op type, runs in one of them.
VALUES_OF_OPS = ("arrays/test_xla_ops.py::test_values",)
PART_OF_CALL_SITES = 0.25
# Each of these tests sees a fault of tools/mutants/faults.txt that no cheaper one sees.
ALONE = (
    "tests/arrays/test_xla_ops.py::test_nothing_loops[XlaPad]",
    "tests/control_flow/test_doubled_in_branches.py::test_predicates_of_rows[1-twice]",
    "tests/derivatives/test_derivatives_of_maps_of_loops.py::test_jacobian_forward[until_large]",
    "tests/fallback/test_gradients_by_captured.py::test_variable_assigned_before_the_gradient[eager]",
    "tests/lists/test_sizes_made_in_trips.py"
    "::test_table_of_gradients_in_the_body[inside-inside, two maps-chained]",
    "tests/lists/test_sizes_made_in_trips.py"
    "::test_table_of_gradients_in_the_body[inside-inside, compact-cut, own trips]",
    "tests/lists/test_scatter_beyond_the_end.py::test_a_place_right_behind_the_end",
    "tests/math/test_joint_products.py::test_blocks_of_different_widths",
    "tests/parsing/test_examples.py::test_table_of_examples[values-eager, few rows-pairs]",
    "tests/parsing/test_sequences.py::test_table_of_sequences[values-eager, few rows-splits]",
    "tests/ragged/test_control_flow.py"
    "::test_table_of_loop_variables[compiled values-compiled-total in a loop]",
    "tests/ragged/test_forms.py::test_table_of_finite_rows[around-around-penalty]",
    "tests/ragged/test_forms.py::test_table_of_finite_rows[around-around-xlogy]",
    "tests/ragged/test_several_axes.py"
    "::test_table_of_scores[around-function around-masked by infinity]",
)
TABLE = "::test_table_of_"


@dataclasses.dataclass(frozen=True)
class Test:
    """A test that was collected.

    Attributes:
      name: its id.
      function: file and function, of samples and cells with the topic, of tables with the row;
        seconds are recorded for it.
      case: its parameters, "" if it has none.
    """

    name: str
    function: str
    case: str

    @classmethod
    def of(cls, name: str) -> Test:
        path, _, case = name.removesuffix("]").partition("[")
        function = path.removeprefix("tests/")
        if function.startswith(("test_samples.py", "test_call_sites.py")) and case:
            function = f"{function}[{case.split('.')[0]}"
        elif TABLE in function and case:
            function = f"{function}[{case.partition('-')[0]}"
        return cls(name, function, case)

    @property
    def number(self) -> int:
        """A number that only the name decides."""
        return zlib.crc32(self.name.encode())


def recorded() -> dict[str, float]:
    """CPU seconds of one case of each function."""
    return json.loads(DURATIONS.read_text())


def chosen(tests: Iterable[Test], seconds: dict[str, float]) -> set[Test]:
    """The tests that ``make test`` runs."""
    functions: dict[str, list[Test]] = collections.defaultdict(list)
    alternatives: dict[str, list[Test]] = collections.defaultdict(list)
    for t in sorted(tests, key=lambda t: (t.number, t.name)):
        name = t.function if TABLE in t.function else t.function.partition("[")[0]
        if name.startswith("test_samples.py") and t.case:
            is_first = name.endswith(OF_EACH_SAMPLE)
            alternatives[t.name if is_first else t.case].append(t)
        elif t.case and name.startswith(VALUES_OF_OPS):
            alternatives[f"{name.partition('::')[0]} {t.case.split('-')[-1]}"].append(t)
        elif name == PROGRAMS:
            alternatives[t.case.partition("-")[0]].append(t)
        else:
            functions[name].append(t)
    found = {group[0] for group in alternatives.values()}
    found.update(t for group in functions.values() for t in group if t.name in ALONE)

    def cost(name: str) -> tuple[float, str]:
        return seconds.get(name, UNKNOWN), name

    files = itertools.groupby(sorted(functions), key=lambda name: name.partition("::")[0])
    cheapest = {min(names, key=cost) for _, names in files}
    for name, group in functions.items():
        part = int(PART_OF_CALL_SITES * len(group))
        count = part if name == CALL_SITES else _count(len(group), seconds.get(name, UNKNOWN))
        found.update(group[: count or (name in cheapest)])
    return found


def _count(cases: int, seconds: float) -> int:
    """The number of cases of a function that run."""
    if cases * seconds <= SECONDS:
        return cases
    return 0 if seconds > LONGEST else max(1, int(SECONDS / seconds))


def in_shard(tests: Iterable[Test], k: int, count: int) -> set[Test]:
    """The k-th of ``count`` shards of all tests, from 1; one shard has all checks of a sample."""
    return {t for t in tests if zlib.crc32(unit(t).encode()) % count == k - 1}


def unit(t: Test) -> str:
    """The name of the tests that run in one process: all checks of a sample, else one test."""
    is_sample = t.function.startswith("test_samples.py") and t.case
    return f"test_samples.py[{t.case}" if is_sample else t.name
