"""The tests that ``make test`` runs: the same ones each time, and some of each function."""

from tests import chosen

CHEAP = [chosen.Test.of(f"tests/api/test_api.py::test_{k}") for k in range(5)]
CASES = [chosen.Test.of(f"tests/api/test_api.py::test_cases[{k}]") for k in range(40)]
COSTLY = [chosen.Test.of(f"tests/lists/test_stacks.py::test_costly_{k}") for k in range(6)]
LONGEST = [chosen.Test.of(f"tests/lists/test_stacks.py::test_long[{k}]") for k in range(30)]
SAMPLES = [
    chosen.Test.of(f"tests/test_samples.py::test_{check}[math.{name}]")
    for check in ("outcome", "values", "gradients", "xla", "nested")
    for name in ("Sin", "MatMul-1", "MatMul-2")
]
PROGRAMS = [
    chosen.Test.of(f"tests/{chosen.PROGRAMS}[{name}-{mode}]")
    for name in ("viterbi", "bisection")
    for mode in ("values", "two maps", "compiled")
]
ROWS = [
    chosen.Test.of(f"tests/lists/test_stacks.py::test_table_of_lists[{row}-{mode}]")
    for row in ("an array", "a list")
    for mode in range(9)
]
CELLS = [chosen.Test.of(f"tests/{chosen.CALL_SITES}[math.{k}]") for k in range(40)]
ALL = CHEAP + CASES + COSTLY + LONGEST + SAMPLES + PROGRAMS + ROWS + CELLS
SECONDS = {
    **{t.function: chosen.SECONDS / 8 for t in CHEAP + CASES + ROWS},
    **{t.function: chosen.LONGEST - 0.1 for t in COSTLY},
    **{t.function: chosen.LONGEST + 1 for t in LONGEST},
}


def test_cheap_functions_run_whole_and_costly_ones_in_part():
    found = chosen.chosen(ALL, SECONDS)
    assert found.issuperset(CHEAP + COSTLY)
    assert len(found.intersection(CASES)) == 8
    assert len(found.intersection(ROWS)) == 2 * 8
    assert not found.intersection(LONGEST)


def test_each_file_has_a_test_that_runs():
    assert len(chosen.chosen(LONGEST, SECONDS)) == 1


def test_each_sample_and_each_program_runs():
    found = chosen.chosen(ALL, SECONDS)
    for name in ("Sin", "MatMul-1", "MatMul-2"):
        checks = [t.name for t in found if t.case == f"math.{name}"]
        assert len(checks) == 3
        assert sum("outcome" in x or "values" in x for x in checks) == 2
    assert sorted(t.case.split("-")[0] for t in found.intersection(PROGRAMS)) == [
        "bisection", "viterbi",
    ]  # fmt: skip
    assert len(found.intersection(CELLS)) == len(CELLS) * chosen.PART_OF_CALL_SITES


def test_only_names_choose():
    found = chosen.chosen(ALL, SECONDS)
    assert chosen.chosen([*reversed(ALL)], SECONDS) == found
    more = [chosen.Test.of("tests/api/test_new.py::test_new"), *ALL]
    assert chosen.chosen(more, SECONDS) == found | {more[0]}


def test_shards_are_all_tests_and_have_none_twice():
    shards = [chosen.in_shard(ALL, k, 7) for k in range(1, 8)]
    assert sum(map(len, shards)) == len(ALL)
    assert set.union(*shards) == set(ALL)
    of_one = [s for s in shards if any(t.case == "math.Sin" for t in s)]
    assert len(of_one) == 1


def test_seconds_are_of_functions_that_exist():
    for function in chosen.recorded():
        path = chosen.DURATIONS.parent / function.partition("::")[0]
        assert path.exists(), f"{function}: run `python -m tools.durations` for its new name"


def test_each_op_type_of_xla_runs_in_one_function_of_values():
    path = f"tests/{chosen.VALUES_OF_OPS[0]}"
    names = [f"{path}{kind}[{case}]" for kind in ("", "_of_sizes") for case in ("Pad", "3-Sort")]
    found = chosen.chosen([chosen.Test.of(name) for name in names], SECONDS)
    assert sorted(t.case.split("-")[-1] for t in found) == ["Pad", "Sort"]
