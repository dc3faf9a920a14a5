"""What a day's tests are: cheap ones always, costly ones by turns, each of them at some time."""

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


def _days(count, budget=10.0):
    return [shares.pick(ALL, SECONDS, budget, day) for day in range(count)]


def test_cheap_tests_run_every_day():
    for chosen in _days(5):
        assert chosen.issuperset(CHEAP)


def test_some_cases_of_a_sweep_run_every_day_and_others_the_next():
    first, second = (chosen.intersection(CASES) for chosen in _days(2))
    at_least = int(shares.DAILY / 0.1)
    assert len(first) >= at_least
    assert len(second) >= at_least
    assert first != second


def test_a_costly_test_takes_turns():
    period = round(2.0 / shares.DAILY)
    for test in COSTLY:
        ran = sum(test in chosen for chosen in _days(period, budget=0.001))
        assert 1 <= ran <= 2


def test_every_test_has_its_day():
    total = sum(SECONDS[t.function] for t in ALL)
    assert set.union(*_days(1 + int(total / 10.0))) == set(ALL)


def test_the_rest_costs_about_the_budget():
    for chosen in _days(10):
        assert sum(SECONDS[t.function] for t in chosen.intersection(SLOW)) <= 2 * 10.0


def test_without_a_budget_all_run():
    assert shares.pick(ALL, SECONDS, 0, day=3) == set(ALL)


def test_all_tests_of_a_room_belong_to_it():
    rooms, others = shares.rooms_of(["tf_pfor/lists/stack.py", "tests/test_call_sites.py"])
    assert rooms == ["lists"]
    assert others == ["test_call_sites.py"]
    assert all(shares.in_rooms(t, rooms) for t in COSTLY + SLOW)
    assert not any(shares.in_rooms(t, rooms) for t in CHEAP)
