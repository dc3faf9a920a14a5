"""Writes tests/durations.json from a recorded run of the tests.

``pytest --seconds-to=FILE``, then ``python -m tools.durations FILE``: the mean CPU seconds of one
case of each function. Functions that the run did not reach stay as they were.

Machines differ, and are busy at times. So all seconds of a run are divided by one factor. It is the
time of the whole run, divided by the recorded time of the same tests.
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys

DURATIONS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "durations.json"
LEAST = 0.02  # what is faster need not be told apart


def main(paths: list[str]) -> None:
    """Merges lines ``[function, seconds]``, one for each test that ran."""
    found: dict[str, list[float]] = collections.defaultdict(list)
    for path in paths:
        for line in pathlib.Path(path).read_text().splitlines():
            function, seconds = json.loads(line)
            found[function].append(seconds)
    known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    both = [(sum(v), known[name] * len(v)) for name, v in found.items() if name in known]
    slower = sum(new for new, _ in both) / sum(old for _, old in both) if both else 1.0
    print(f"This run was {slower:.2f} times as slow as what is recorded.")
    means = {name: max(LEAST, round(sum(v) / len(v) / slower, 2)) for name, v in found.items()}
    merged = {**known, **means}
    DURATIONS.write_text(json.dumps(merged, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
