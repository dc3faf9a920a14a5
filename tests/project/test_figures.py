"""The figures: contenders compute the same, and one that does not is seen."""

import numpy as np
import pytest

from benchmarks.figures import pages, player, players, work, works

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
