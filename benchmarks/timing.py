"""Timings that hold on a shared machine: contenders take turns, results are ratios."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

RESULTS = pathlib.Path(__file__).parent / "results"
Better = Literal["lower", "higher", None]


class Record(TypedDict):
    """A number of a benchmark: ``record`` says what the fields mean."""

    workload: str
    against: str | None
    measure: str
    value: float | None
    better: Better


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


def record(
    workload: str,
    measure: str,
    value: float | None,
    against: str | None = None,
    better: Better = "lower",
) -> Record:
    """A number of a benchmark.

    Args:
      workload: the work, with its size where sizes differ.
      measure: the quantity with its unit, such as ``"ms"``; ``"time"`` for a ratio of times.
      value: the number; None (or not finite) where a contender fails.
      against: the contender by whose number ours was divided; None if the number is no ratio.
      better: the better direction; None for numbers that are not ours to improve.
    """
    known = None if value is None or not math.isfinite(value) else float(value)
    return {
        "workload": workload, "against": against, "measure": measure, "value": known,
        "better": better,
    }  # fmt: skip


def amounts(
    workload: str, unit: str, values: Mapping[str, float | None], ours: str = "tf_pfor"
) -> list[Record]:
    """The amounts of all contenders; others have no better direction."""
    return [
        record(workload, unit, v) if who == ours
        else record(workload, f"{unit}, {who}", v, better=None)
        for who, v in values.items()
    ]  # fmt: skip


def records(
    workload: str,
    times: Mapping[str, list[float]],
    contenders: Iterable[str] = (),
    *,
    ours: str = "tf_pfor",
    clock: str = "",
) -> list[Record]:
    """Milliseconds of all contenders, and the ratios of ours to the others.

    Args:
      workload: the work.
      times: the times of the contenders that run.
      contenders: the names of all contenders, where some may fail; their ratios are None.
      ours: the name of our contender.
      clock: a word before the measures, such as ``"CPU "``.
    """
    ratios = [
        record(workload, f"{clock}time", ratio(times, ours, who) if who in times else None, who)
        for who in dict.fromkeys([*times, *contenders])
        if who != ours
    ]
    medians = {who: milliseconds(times, who) for who in times}
    return amounts(workload, f"{clock}ms", medians, ours) + ratios


def save(name: str, result: Sequence[Mapping[str, object]]) -> None:
    """Writes records beside the benchmarks as JSON, one a line."""
    RESULTS.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(x, allow_nan=False) for x in result)
    (RESULTS / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def shown(value: float | None) -> str:
    """A number with three digits, or the word for none."""
    if value is None:
        return "fails"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def column(found: Record) -> str:
    """The measure, and the contender that it was divided by."""
    return f"{found['measure']} / {found['against']}" if found["against"] else found["measure"]


def overview(found: Sequence[Record]) -> str:
    """The records as a table with a line for each workload."""
    rows: dict[str, dict[str, str]] = {}
    for r in found:
        rows.setdefault(r["workload"], {})[column(r)] = shown(r["value"])
    columns = list(dict.fromkeys(map(column, found)))
    lines = [[name, *(cells.get(c, "") for c in columns)] for name, cells in rows.items()]
    return table(lines, ["workload", *columns])


def table(rows: list[list[str]], head: list[str]) -> str:
    """A plain text table."""
    every = [head, *rows]
    widths = [max(len(r[i]) for r in every) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in every]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)
