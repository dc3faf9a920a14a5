"""The results that got worse or better by a tenth, and those that are new or gone.

    python -m benchmarks.compare OLD NEW

OLD and NEW are two files of results, or two folders such as ``benchmarks/results``. Numbers that
have no better direction are not compared. The exit status is 1 if a number got worse.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

from benchmarks import timing

LIMIT = 1.1
# Words, no numbers: the table of tools.outcomes.
NO_NUMBERS = ("outcomes.json",)
KINDS = ("worse", "better", "new", "gone")
# Benchmark, workload, and measure with its contender.
Key = tuple[str, str, str]


def is_record(found: Any) -> bool:
    """Tells whether a value has the form of ``timing.Record``."""
    if not isinstance(found, dict) or found.keys() != timing.Record.__annotations__.keys():
        return False
    texts = [found["workload"], found["measure"], found["against"] or ""]
    number = found["value"]
    is_number = number is None or (type(number) in (int, float) and math.isfinite(number))
    is_direction = found["better"] in ("lower", "higher", None)
    return is_number and is_direction and all(isinstance(x, str) for x in texts)


def records_of(path: pathlib.Path) -> list[timing.Record]:
    """The records of one file.

    Raises:
      ValueError: the file is no JSON, or no list of records, or has a number twice.
    """
    try:
        found = json.loads(path.read_text())
    except ValueError as why:
        raise ValueError(f"{path} is no JSON: {why}") from why
    if not isinstance(found, list):
        raise ValueError(f"{path} holds no list of records")
    seen: set[tuple[str, str]] = set()
    for at, record in enumerate(found):
        if not is_record(record):
            raise ValueError(f"{path}: item {at} is no record of benchmarks.timing: {record!r}")
        name = record["workload"], timing.column(record)
        if name in seen:
            raise ValueError(f"{path} has two numbers of {' | '.join(name)}")
        seen.add(name)
    return found


def numbers(path: pathlib.Path) -> dict[Key, timing.Record]:
    """The numbers that have a better direction, of a file or a folder."""
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.glob("*.json") if f.name not in NO_NUMBERS)
        if not files:
            raise ValueError(f"{path} has no results")
    return {
        (file.stem if path.is_dir() else "", record["workload"], timing.column(record)): record
        for file in files
        for record in records_of(file)
        if record["better"] and record["value"] is not None
    }


def kind(old: timing.Record | None, new: timing.Record | None) -> str | None:
    """The change between two numbers, None if it is small."""
    before, after = (r["value"] if r else None for r in (old, new))
    if new is None or after is None:
        return "gone"
    if before is None:
        return "new"
    low, high = (before, after) if new["better"] == "lower" else (after, before)
    if high > low * LIMIT:
        return "worse"
    return "better" if low > high * LIMIT else None


def changes(old: pathlib.Path, new: pathlib.Path) -> list[list[str]]:
    """The lines of the table, the worst kind first.

    Raises:
      ValueError: one is a file and one a folder, or a file is damaged.
      OSError: a file cannot be read.
    """
    if old.is_dir() != new.is_dir():
        raise ValueError(f"{old} and {new} must be two files or two folders")
    before, after = numbers(old), numbers(new)
    lines: list[list[str]] = []
    for key in dict.fromkeys([*before, *after]):
        pair = before.get(key), after.get(key)
        if change := kind(*pair):
            lines.append([change, *key, *(timing.shown(r["value"]) if r else "" for r in pair)])
    return sorted(lines, key=lambda line: KINDS.index(line[0]))


def main(arguments: list[str] | None = None) -> int:
    """Prints the changes; 1 if a number got worse."""
    parser = argparse.ArgumentParser("python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    given = parser.parse_args(arguments)
    try:
        lines = changes(given.old, given.new)
    except (OSError, ValueError) as why:
        parser.error(str(why))
    if lines:
        head = ["change", "benchmark", "workload", "measure", "old", "new"]
        print(timing.table(lines, head))
    found = [line[0] for line in lines]
    print(", ".join(f"{found.count(k)} {k}" for k in KINDS))
    return int("worse" in found)


if __name__ == "__main__":
    sys.exit(main())
