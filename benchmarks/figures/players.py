"""The contenders of one size: processes that take turns, and the records of what they took."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks import timing
from benchmarks.figures import work, works

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOSE = 1e-3  # of the largest number
TENSORFLOWS = (work.LOOP, work.THEIRS, work.OURS, work.COMPILED, work.HAND, work.OUR_HAND)


class Player:
    """A process with the contenders of a library; ``known`` is what it told of each."""

    def __init__(self, python: str, library: str, *arguments: str) -> None:
        self.without: list[str] = []
        self.known: dict[str, Any] = {}
        command = [python, "-m", "benchmarks.figures.player", library, *arguments]
        begun = ""
        while True:
            self.process = subprocess.Popen(
                [*command, "--without", *self.without], cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            for line in self.process.stdout or ():
                if line.startswith("{"):
                    self.known.update(json.loads(line))
                    return
                begun = line.partition(": ")[2].strip()
            code = self.process.wait()
            if code >= 0 or begun in self.without:  # no crash of a contender
                raise RuntimeError(f"{library} ends with {code}")
            self.known[begun] = {"error": f"the process crashes (signal {-code})"}
            self.without.append(begun)

    def seconds(self, name: str) -> float:
        """Lets a contender run."""
        assert self.process.stdin
        assert self.process.stdout
        print(name, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()


def difference(found: dict[str, np.ndarray], name: str, truth: str) -> float:
    """The largest difference, of the largest number of an array; infinite for other arrays."""
    keys = [k for k in found if k.startswith(f"{truth}/")]
    mine = {k: found.get(name + k[len(truth) :]) for k in keys}
    worst = 0.0
    for key, other in mine.items():
        expected = found[key]
        if other is None or other.shape != expected.shape:
            return float("inf")
        scale = max(float(np.max(np.abs(expected), initial=0.0)), 1e-30)
        apart = float(np.max(np.abs(other - expected), initial=0.0))
        worst = max(worst, apart / scale if np.isfinite(apart) else float("inf"))
    return worst


def rounds(owners: dict[str, Player], duration: float, least: int) -> dict[str, list[float]]:
    """The seconds of all contenders, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in owners}
    began = time.perf_counter()
    while (count := len(next(iter(times.values())))) < least or (
        time.perf_counter() - began < duration and count < 50
    ):
        for name, player in owners.items():
            times[name].append(player.seconds(name))
    return times


def spread(times: list[float]) -> float:
    """The distance of the quartiles, of the median."""
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / middle


def records(
    title: str,
    known: dict[str, Any],
    times: dict[str, list[float]],
    amount: tuple[str, float],
    clock: str,
) -> list[timing.Record]:
    """The records of one size."""
    contenders = [*known]
    found = timing.records(title, times, contenders, clock=clock)
    found += [timing.record(title, f"{clock}ms, {who}", None, better=None)
              for who in contenders if who not in times and who != work.OURS]  # fmt: skip
    found.append(timing.record(title, amount[0], amount[1], better=None))
    for who, of in times.items():
        found.append(timing.record(title, f"spread, {who}", spread(of), better=None))
        first = known[who]["first"] * 1e3
        found.append(timing.record(title, f"first call ms, {who}", first, better=None))
        if known[who]["ops"] is not None:
            found.append(timing.record(title, f"ops, {who}", known[who]["ops"], better=None))
    return found


def play(
    name: str,
    size: int,
    pythons: dict[str, str],
    options: list[str],
    duration: float,
    least: int,
) -> list[timing.Record]:
    """Measures one size of a workload; contenders that fail or differ are named.

    ``options`` are arguments of each player.
    """
    of, players = works.WORKS[name], []
    numbers: dict[str, np.ndarray] = {}
    owners: dict[str, Player] = {}
    known: dict[str, Any] = {}
    title = f"{of.title}, {of.axis} {size}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            for library, python in pythons.items():
                file = f"{folder}/{library}.npz"
                try:
                    player = Player(python, library, name, str(size), file, *options)
                except RuntimeError as why:
                    if library == "tensorflow":
                        raise
                    print(f"  {title}: {why}", flush=True)
                    continue
                players.append(player)
                known.update(player.known)
                with np.load(file) as found:
                    numbers.update(found)
                for who, about in player.known.items():
                    why = about.get("error")
                    if not why and (apart := difference(numbers, who, work.LOOP)) > CLOSE:
                        why = f"differs from the loop by {apart:.1e} of the largest number"
                    if why:
                        print(f"  {title}: {who} is not reported: {why}", flush=True)
                    else:
                        owners[who] = player
            times = rounds(owners, duration, least)
        finally:
            for player in players:
                player.close()
    _, rows = of.data(size)
    clock = "CPU " if "cpu" in options[options.index("--clock") :] else ""
    return records(title, known, times, (of.unit, of.amount(size, rows)), clock)


def pythons(peers: str | None) -> dict[str, str]:
    """Library -> its interpreter; peers that it has not are left out."""
    found = {"tensorflow": sys.executable}
    for library in ("jax", "torch"):
        python = peers or sys.executable
        code = f"import importlib.util as u, sys; sys.exit(u.find_spec({library!r}) is None)"
        if subprocess.run([python, "-c", code], check=False).returncode == 0:
            found[library] = python
        else:
            print(f"{library} is not there: pip install -e '.[peers]', or --peers PYTHON")
    return found
