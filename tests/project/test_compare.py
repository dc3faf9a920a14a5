"""Benchmark results have a form and are compared; contenders of figures compute the same."""

import json

import numpy as np
import pytest

from benchmarks import timing
from benchmarks.compare.__main__ import changes, main, numbers
from benchmarks.figures import pages, player, players, work, works
from benchmarks.timing import record

OLD = [
    record("slower", "ms", 1.0),
    record("slower by little", "ms", 1.0),
    record("faster", "time", 1.0, "loop"),
    record("faster", "time", 1.0, "by hand"),
    record("fewer", "a second", 110.0, better="higher"),
    record("more", "a second", 100.0, better="higher"),
    record("of another", "ms, loop", 1.0, better=None),
    record("fails now", "ms", 1.0),
    record("failed", "ms", None),
    record("fails", "ms", None),
    record("removed", "ms", 1.0),
    record("first loop", "loops", 0),
]
NEW = [
    record("slower", "ms", 1.11),
    record("slower by little", "ms", 1.09),
    record("faster", "time", 0.9, "loop"),
    record("faster", "time", 1.0, "by hand"),
    record("fewer", "a second", 99.0, better="higher"),
    record("more", "a second", 111.0, better="higher"),
    record("of another", "ms, loop", 9.0, better=None),
    record("fails now", "ms", float("nan")),
    record("failed", "ms", 1.0),
    record("fails", "ms", None),
    record("added", "ms", 1234.0),
    record("first loop", "loops", 1),
]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders with a file each, and the words of ``tools.outcomes`` beside it."""
    found = [tmp_path / "old", tmp_path / "new"]
    for folder, records in zip(found, (OLD, NEW)):
        monkeypatch.setattr(timing, "RESULTS", folder)
        timing.save("a", records)
        (folder / "outcomes.json").write_text('[{"tf_pfor": {"sort": "right"}}]')
    return found


def test_changes(folders):
    expected = [
        ["worse", "a", "slower", "ms", "1", "1.11"],
        ["worse", "a", "fewer", "a second", "110", "99"],
        ["worse", "a", "first loop", "loops", "0", "1"],
        ["better", "a", "faster", "time / loop", "1", "0.9"],
        ["better", "a", "more", "a second", "100", "111"],
        ["new", "a", "failed", "ms", "", "1"],
        ["new", "a", "added", "ms", "", "1,234"],
        ["gone", "a", "fails now", "ms", "1", ""],
        ["gone", "a", "removed", "ms", "1", ""],
    ]
    assert changes(*folders) == expected
    files = [folder / "a.json" for folder in folders]
    assert changes(*files) == [[line[0], "", *line[2:]] for line in expected]


def test_exit_status(folders, capsys):
    old, new = map(str, folders)
    assert main([old, new]) == 1
    assert capsys.readouterr().out.endswith("3 worse, 2 better, 2 new, 2 gone\n")
    assert main([old, old]) == 0
    assert capsys.readouterr().out == "0 worse, 0 better, 0 new, 0 gone\n"


ONE = json.dumps(OLD[0])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", "is no JSON"),
        ("{}", "no list of records"),
        ('[["sort", "4.5"]]', "item 0 is no record"),
        ("[" + ONE.replace("1.0", "true") + "]", "item 0 is no record"),
        ("[" + ONE.replace("1.0", "NaN") + "]", "item 0 is no record"),
        ("[" + ONE.replace("lower", "slower") + "]", "item 0 is no record"),
        (f"[{ONE}, {ONE}]", "two numbers of slower | ms"),
    ],
)
def test_damaged_files(folders, capsys, text, why):
    (folders[1] / "a.json").write_text(text)
    with pytest.raises(SystemExit) as stop:
        main([*map(str, folders)])
    assert stop.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("second", "why"), [("new/a.json", "two folders"), ("empty", "no results"), ("none.json", "")]
)
def test_no_results(folders, capsys, tmp_path, second, why):
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as stop:
        main([str(folders[0]), str(tmp_path / second)])
    assert stop.value.code == 2
    assert why in capsys.readouterr().err


def test_results_of_the_package_have_the_form():
    assert len(numbers(timing.RESULTS)) > 500


def test_records_of_times():
    times = {"tf_pfor": [0.001, 0.002, 0.003], "loop": [0.01, 0.01, 0.01]}
    found = timing.records("sort", times, ["tf_pfor", "TensorFlow's", "loop"], clock="CPU ")
    assert found == [
        record("sort", "CPU ms", 2.0),
        record("sort", "CPU ms, loop", 10.0, better=None),
        record("sort", "CPU time", 0.2, "loop"),
        record("sort", "CPU time", None, "TensorFlow's"),
    ]
    assert timing.overview(found).splitlines()[2].split() == ["sort", "2", "10", "0.2", "fails"]


CHEAP = sorted({*works.WORKS} - {"vgg_48", "vgg_224"})


def _digests(name, size):
    """The numbers of contenders that are not compiled, as ``player`` writes them."""
    made, numbers = work.tensorflow(works.WORKS[name], size, "cpu"), {}
    for who in (work.LOOP, work.OURS, work.HAND):
        call, ops = made[who].start()
        assert ops > 0
        found = player.digest(made[who].arrays(call()))
        numbers.update({f"{who}/{k}": x for k, x in enumerate(found)})
    return numbers


@pytest.mark.parametrize("name", CHEAP)
def test_contenders_agree(name):
    numbers = _digests(name, 3)
    for who in (work.OURS, work.HAND):
        assert players.difference(numbers, who, work.LOOP) < players.CLOSE


@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_wrong_row_is_seen(row):
    right = np.arange(1.0, 7.0, dtype=np.float32).reshape(3, 2)
    wrong = right.copy()
    wrong[row] *= 1.1
    found = {}
    for who, x in (("loop", right), ("same", right), ("wrong", wrong), ("short", right[:2])):
        found |= {f"{who}/{k}": v for k, v in enumerate(player.digest([x]))}
    found |= {"nan/0": right[0] * np.nan, "nan/1": right[2], "nan/2": found["loop/2"]}
    assert players.difference(found, "same", "loop") == 0.0
    for who in ("wrong", "short", "nan", "missing"):
        assert players.difference(found, who, "loop") > players.CLOSE


def test_full_has_all_small_sizes():
    """A saved record is found again by its title, and the sizes of both runs compare."""
    assert len({of.title for of in works.WORKS.values()}) == len(works.WORKS)
    for of in works.WORKS.values():
        assert {*of.small} <= {*of.full}


def test_saved_figures_make_a_table():
    lines = pages.table().splitlines()
    assert len(lines) > len(CHEAP)
    assert all(line.count("|") == lines[0].count("|") for line in lines)
