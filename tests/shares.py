"""The choice of tests for a run: tests that always run, a share of the rest, and rooms.

Long sweeps take turns. ``durations.json`` has the seconds of one test of each function, from a
recorded run (``TF_PFOR_RECORD``, ``python -m tools.durations``). Cheap tests run each time; of a
function with costly ones some run, or one at some times. Besides, all tests are put into an order
that only names decide and are cut into shares of ``budget`` seconds each. The content of the tree
says whose turn it is. One tree has the same tests on any day, in any clone; another change has
others.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import zlib
from collections.abc import Iterable, Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
DURATIONS = HERE / "durations.json"
UNKNOWN = 0.5  # seconds of a test that was never recorded
SWEEP = 0.5  # seconds; of a function whose tests take longer together, some run each time
AT_A_TIME = 0.4  # seconds of tests of such a function in a run; a longer one takes turns

# Files whose functions each run one case every second time, also where they are slow.
BASICS = (
    "test_cond.py",
    "test_random.py",
    "test_state.py",
    "test_tensor_array.py",
    "test_while.py",
)


# Of programs as users write them, each in several modes, every second test runs each time.
HALVED = ("test_programs.py",)

# The rooms are the folders of tests/ that have tests.
ROOMS = tuple(
    sorted(p.parent.name for p in HERE.glob("*/__init__.py") if [*p.parent.glob("test_*")])
)


@dataclasses.dataclass(frozen=True)
class Test:
    """A test that was collected.

    Attributes:
      name: its id.
      file: the name of its file.
      function: file and function, for which durations are recorded.
      unit: the tests that are picked together.
      is_slow: whether it is marked as slow.
    """

    name: str
    file: str
    function: str
    unit: str
    is_slow: bool

    @classmethod
    def of(cls, name: str, is_slow: bool) -> Test:
        file = name.split("::")[0].rsplit("/", 1)[-1]
        path, _, case = name.partition("[")
        function = path.rsplit("/", 1)[-1]
        if file not in ("test_samples.py", "test_call_sites.py") or not case:
            return cls(name, file, function, name, is_slow)
        topic = case.split(".")[0]
        unit = f"{file}[{case}" if file == "test_samples.py" else name
        return cls(name, file, f"{function}[{topic}", unit, is_slow)


def recorded() -> dict[str, float]:
    """Seconds of one test of each function."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


@functools.cache
def turn() -> int:
    """Whose turn it is: a number made of all Python files, or ``TF_PFOR_TURN``."""
    if given := os.environ.get("TF_PFOR_TURN"):
        return int(given)
    made = hashlib.blake2b(digest_size=6)
    for folder in ("tf_pfor", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            made.update(path.relative_to(ROOT).as_posix().encode() + b"\n" + path.read_bytes())
    return int.from_bytes(made.digest(), "big")


def pick(tests: Sequence[Test], seconds: dict[str, float], budget: float, turn: int) -> set[Test]:
    """The tests of a turn: tests that are due, and the share of ``budget`` seconds."""
    cost = {t: seconds.get(t.function, UNKNOWN) for t in tests}
    units: dict[str, list[Test]] = collections.defaultdict(list)
    functions: dict[str, list[Test]] = collections.defaultdict(list)
    for t in tests:
        functions[t.function].append(t)
        units[t.unit].append(t)
    chosen = {t for group in functions.values() for t in _always(group, cost[group[0]], turn)}
    total = sum(cost.values())
    shares = max(1, round(total / budget)) if budget else 1
    begins = 0.0
    for unit in sorted(units, key=lambda unit: (zlib.crc32(unit.encode()), unit)):
        if int(begins / total * shares) == turn % shares:
            chosen.update(units[unit])
        begins += sum(cost[t] for t in units[unit])
    return chosen


def _always(group: list[Test], seconds: float, turn: int) -> set[Test]:
    """The tests of a function that run at a turn whatever the share.

    Cheap tests run each time. Costly tests run so seldom that the function takes ``AT_A_TIME``
    seconds on average.
    """
    fast = [t for t in group if not t.is_slow]
    if group[0].file in HALVED:
        return set(group[turn % 2 :: 2])
    if fast and fast[0].file in ("test_samples.py", "test_call_sites.py"):
        return set(fast)
    own = turn + zlib.crc32(group[0].function.encode())
    if not fast and group[0].file in BASICS:
        return set(group[:1]) if own % 2 else set()
    if len(fast) * seconds <= SWEEP:
        return set(fast)
    period, count = max(1, round(seconds / AT_A_TIME)), max(1, int(AT_A_TIME / seconds))
    if own % period:
        return set()
    return {fast[(own // period * count + k) % len(fast)] for k in range(min(count, len(fast)))}


def in_rooms(test: Test, rooms: Iterable[str]) -> bool:
    """Whether a test belongs to rooms."""
    return pathlib.PurePosixPath(test.name.split("::")[0]).parent.name in rooms
