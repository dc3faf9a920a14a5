"""A process with the contenders of one library, which runs them when it is told to.

``players.py`` starts it: ``python -m benchmarks.figures.player LIBRARY WORK SIZE FILE``. It writes
a digest of each contender's numbers to FILE. Then it prints a line of JSON: first calls, ops and
errors by contender. For each name that it reads it prints the seconds of a call.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.figures import work, works

TURN = 0.03  # seconds: short calls are repeated
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def digest(found: work.Arrays) -> list[np.ndarray]:
    """The first and last row of each array, and the sums of all rows of their magnitudes."""
    numbers: list[np.ndarray] = []
    for x in found:
        sums = np.abs(x).reshape(len(x), -1).sum(1, dtype=np.float64)
        numbers += [x[0], x[-1], sums]
    return numbers


def seconds(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """The mean of calls for a short time."""
    began, start, count = time.perf_counter(), clock(), 0
    while True:
        call()
        count += 1
        if time.perf_counter() - began > TURN:
            return (clock() - start) / count


def first(contender: work.Contender) -> tuple[Callable[[], Any], dict[str, Any], list[np.ndarray]]:
    """The call, what is known of it, and its numbers."""
    began = time.perf_counter()
    call, ops = contender.start()
    results = call()
    known = {"first": time.perf_counter() - began, "ops": ops}
    return call, known, digest(contender.arrays(results))


def main() -> None:
    """Prepares the contenders, then runs those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=work.LIBRARIES)
    parser.add_argument("work", choices=works.WORKS)
    parser.add_argument("size", type=int)
    parser.add_argument("file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print what they like, elsewhere
    warnings.simplefilter("ignore")
    made = work.LIBRARIES[given.library](works.WORKS[given.work], given.size, given.device)
    calls: dict[str, Callable[[], Any]] = {}
    known: dict[str, Any] = {}
    numbers: dict[str, np.ndarray] = {}
    for name, contender in made.items():
        if name in given.without:
            continue
        print(f"begins: {name}", file=answers, flush=True)
        try:
            calls[name], known[name], found = first(contender)
        except Exception as why:
            known[name] = {"error": f"{type(why).__name__}: {why}"[:300]}
            continue
        numbers.update({f"{name}/{k}": x for k, x in enumerate(found)})
    np.savez(given.file, **numbers)
    print(json.dumps(known), file=answers, flush=True)
    for line in sys.stdin:
        print(
            json.dumps(seconds(calls[line.strip()], CLOCKS[given.clock])), file=answers, flush=True
        )


if __name__ == "__main__":
    main()
