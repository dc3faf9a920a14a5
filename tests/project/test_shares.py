"""The tests that run at a turn: cheap tests always, costly tests by turns, each at some time."""

from tests import shares

CHEAP = [shares.Test.of(f"tests/api/test_api.py::test_{k}", is_slow=False) for k in range(5)]
CASES = [
    shares.Test.of(f"tests/api/test_api.py::test_cases[{k}]", is_slow=False) for k in range(40)
]
COSTLY = [
    shares.Test.of(f"tests/lists/test_stacks.py::test_costly_{k}", is_slow=False) for k in range(6)
]
SLOW = [
    shares.Test.of(f"tests/lists/test_stacks.py::test_slow[{k}]", is_slow=True) for k in range(30)
]
ALL = CHEAP + CASES + COSTLY + SLOW
SECONDS = {
    **{t.function: 0.1 for t in CHEAP + CASES},
    **{t.function: 2.0 for t in COSTLY},
    **{t.function: 3.0 for t in SLOW},
}


def _turns(count, budget=10.0):
    return [shares.pick(ALL, SECONDS, budget, turn) for turn in range(count)]


def test_cheap_tests_run_each_time():
    for chosen in _turns(5):
        assert chosen.issuperset(CHEAP)


def test_some_cases_of_a_sweep_run_each_time_and_others_the_next():
    first, second = (chosen.intersection(CASES) for chosen in _turns(2))
    at_least = int(shares.AT_A_TIME / 0.1)
    assert len(first) >= at_least
    assert len(second) >= at_least
    assert first != second


def test_a_costly_test_takes_turns():
    period = round(2.0 / shares.AT_A_TIME)
    for test in COSTLY:
        ran = sum(test in chosen for chosen in _turns(period, budget=0.001))
        assert 1 <= ran <= 2


def test_every_test_has_its_turn():
    total = sum(SECONDS[t.function] for t in ALL)
    assert set.union(*_turns(1 + int(total / 10.0))) == set(ALL)


def test_the_rest_costs_about_the_budget():
    for chosen in _turns(10):
        assert sum(SECONDS[t.function] for t in chosen.intersection(SLOW)) <= 2 * 10.0


def test_without_a_budget_all_run():
    assert shares.pick(ALL, SECONDS, 0, turn=3) == set(ALL)


def test_all_tests_of_a_room_belong_to_it():
    assert all(shares.in_rooms(t, ["lists"]) for t in COSTLY + SLOW)
    assert not any(shares.in_rooms(t, ["lists"]) for t in CHEAP)


def test_the_turn_is_that_of_the_tree(monkeypatch, tmp_path):
    monkeypatch.delenv("TF_PFOR_TURN", raising=False)
    turns = []
    for text in ("a = 1", "a = 1", "a = 2"):
        folder = tmp_path / f"clone{len(turns)}" / "tests"
        folder.mkdir(parents=True)
        (folder / "test_it.py").write_text(text)
        monkeypatch.setattr(shares, "ROOT", folder.parent)
        turns.append(shares.turn.__wrapped__())
    assert turns[0] == turns[1] != turns[2]
