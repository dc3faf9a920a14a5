"""Which tests a run picks: what always runs, a share of the rest by seconds, and rooms.

Long sweeps take turns. ``durations.json`` has the seconds of one test of each function, from a
recorded run (``TF_PFOR_RECORD``, ``python -m tools.durations``). Cheap tests run each day; of a
function with costly ones some run, or one on some days. Besides, all tests are put into an order
that only names decide and are cut into shares of ``budget`` seconds each; the day says which one
runs, so that each test runs once in so many days.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
DURATIONS = HERE / "durations.json"
UNKNOWN = 0.5  # seconds of a test that was never recorded
SWEEP = 0.5  # seconds; of a function whose tests take longer together, some run each day
DAILY = 0.4  # seconds of tests of such a function that run on a day; a longer one takes turns
ROOM_SECONDS = 900.0  # when changed rooms have more than this, the share decides for them too

# Files whose functions each run one case every second day, also where they are slow.
BASICS = (
    "test_cond.py",
    "test_random.py",
    "test_state.py",
    "test_tensor_array.py",
    "test_while.py",
)


# Of programs as users write them, each in several modes, every second test runs each day.
HALVED = ("test_programs.py",)

# The rooms are the folders of tests/ that have tests. Sources of these rooms have tests in others.
ROOMS = tuple(
    sorted(p.parent.name for p in HERE.glob("*/__init__.py") if [*p.parent.glob("test_*")])
)
OTHERS = {
    "analysis": ("control_flow", "lists"),
    "walker": ("core", "fallback"),
    "_tf": ("core",),
}


@dataclasses.dataclass(frozen=True)
class Test:
    """A test that was collected.

    Attributes:
      name: its id.
      file: the name of its file.
      function: file and function: what durations are recorded for.
      unit: what is picked together.
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


def pick(tests: Sequence[Test], seconds: dict[str, float], budget: float, day: int) -> set[Test]:
    """What runs on a day: what its function is due, and the day's share of ``budget`` seconds."""
    cost = {t: seconds.get(t.function, UNKNOWN) for t in tests}
    units: dict[str, list[Test]] = collections.defaultdict(list)
    functions: dict[str, list[Test]] = collections.defaultdict(list)
    for t in tests:
        functions[t.function].append(t)
        units[t.unit].append(t)
    chosen = {t for group in functions.values() for t in _always(group, cost[group[0]], day)}
    total = sum(cost.values())
    shares = max(1, round(total / budget)) if budget else 1
    begins = 0.0
    for unit in sorted(units, key=lambda unit: (zlib.crc32(unit.encode()), unit)):
        if int(begins / total * shares) == day % shares:
            chosen.update(units[unit])
        begins += sum(cost[t] for t in units[unit])
    return chosen


def _always(group: list[Test], seconds: float, day: int) -> set[Test]:
    """Those tests of a function that run on a day whatever the share.

    Cheap ones run each day; costly ones so seldom that the function takes ``DAILY`` seconds of a
    day on average.
    """
    fast = [t for t in group if not t.is_slow]
    if group[0].file in HALVED:
        return set(group[day % 2 :: 2])
    if fast and fast[0].file in ("test_samples.py", "test_call_sites.py"):
        return set(fast)
    turn = day + zlib.crc32(group[0].function.encode())
    if not fast and group[0].file in BASICS:
        return set(group[:1]) if turn % 2 else set()
    if len(fast) * seconds <= SWEEP:
        return set(fast)
    period, count = max(1, round(seconds / DAILY)), max(1, int(DAILY / seconds))
    if turn % period:
        return set()
    return {fast[(turn // period * count + k) % len(fast)] for k in range(min(count, len(fast)))}


def rooms_of(files: Iterable[str]) -> tuple[list[str], list[str]]:
    """The rooms and the topics of samples that files belong to, as names and as patterns."""
    rooms: set[str] = set()
    others: set[str] = set()
    for file in files:
        path = pathlib.PurePosixPath(file)
        if path.suffix != ".py":
            continue
        folder = path.parent.name
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            others.add(path.name)
        elif path.parts[:2] in (("tf_pfor", "converters"), ("tests", "samples")):
            others.add(f"test_samples.py[{path.stem}.*")
            others.add(f"test_call_sites.py[{path.stem}.*")
        if path.parts[0] == "tf_pfor":
            rooms |= {room for room in OTHERS.get(folder, (folder,)) if room in ROOMS}
    return sorted(rooms), sorted(others)


def in_rooms(test: Test, rooms: Iterable[str], others: Iterable[str] = ()) -> bool:
    """Whether a test belongs to rooms, or to files and topics that are named besides."""
    path, _, case = test.name.partition("[")
    if pathlib.PurePosixPath(path.split("::")[0]).parent.name in rooms:
        return True
    return any(fnmatch(test.file, o) or _is_prefix(o, f"{test.file}[{case}") for o in others)


def _is_prefix(pattern: str, name: str) -> bool:
    return pattern.endswith("*") and name.startswith(pattern[:-1])


def changed_files() -> list[str]:
    """Files that differ from where this branch left the main one; there, from the last commit."""
    bases = [_git("merge-base", "HEAD", name) for name in ("origin/main", "main")]
    head = _git("rev-parse", "HEAD")
    base = next((b for b in bases if b and b != head), "") or _git("rev-parse", "HEAD~1")
    return _git("diff", "--name-only", base).splitlines() if base else []


def _git(*args: str) -> str:
    """What git says; nothing where there is no git or no such commit."""
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
