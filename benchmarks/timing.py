"""Timings that hold on a shared machine: contenders take turns, results are ratios."""

from __future__ import annotations

import json
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"


def interleaved(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = 3.0,
    least: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Runs the contenders in turn and returns the seconds of each run.

    Args:
      contenders: functions that return when their work is done.
      seconds: the time for each contender, about, after one warm-up.
      least: the least number of rounds.
      clock: the clock. ``time.process_time``, the time of all cores, holds on a machine on which
        others compute too.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    started = time.perf_counter()
    rounds = 0
    while rounds < least or time.perf_counter() - started < seconds * len(contenders):
        for name, run in contenders.items():
            start = clock()
            run()
            times[name].append(clock() - start)
        rounds += 1
        if rounds >= 200:
            break
    return times


def ratio(times: Mapping[str, list[float]], name: str, base: str) -> float:
    """The median over rounds of time(name) / time(base): slow drifts cancel out."""
    return statistics.median(a / b for a, b in zip(times[name], times[base]))


def milliseconds(times: Mapping[str, list[float]], name: str) -> float:
    """The median time of one run."""
    return statistics.median(times[name]) * 1e3


def save(name: str, result: Any) -> None:
    """Writes a result as JSON beside the benchmarks."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def table(rows: list[list[str]], head: list[str]) -> str:
    """A plain text table."""
    every = [head, *rows]
    widths = [max(len(r[i]) for r in every) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in every]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)
