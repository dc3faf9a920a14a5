"""The figures of the papers: every workload, beside JAX and torch where they are there.

    python -m benchmarks.figures [--only lstm tree_15] [--full] [--peers PYTHON] [--device gpu]
    python -m benchmarks.figures --plot | --table

Contenders take turns; times are medians with the distance of the quartiles. First calls (traces,
compilations) and numbers of ops stand apart. ``--clock cpu`` takes the time of all cores, which
holds on a busy machine. Then set ``OMP_WAIT_POLICY=PASSIVE``, or torch's threads count waiting.
``--peers`` is a Python that has JAX and torch, if this one has not; the environment variable
``PEERS`` says the same. ``--plot`` draws ``docs/images/figures`` and ``--table`` prints the table
of the page, both from the saved results.
"""

from __future__ import annotations

import argparse
import os
import time

from benchmarks import timing
from benchmarks.figures import pages, players, works


def main() -> None:
    """Measures, or shows what has been measured."""
    parser = argparse.ArgumentParser("python -m benchmarks.figures")
    parser.add_argument("--only", nargs="*", choices=works.WORKS, default=list(works.WORKS))
    parser.add_argument("--full", action="store_true", help="all sizes")
    parser.add_argument("--sizes", nargs="*", type=int, help="these sizes")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--peers", default=os.environ.get("PEERS"), metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each size, about")
    parser.add_argument("--rounds", type=int, default=5, help="the least number")
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.plot or given.table:
        print(pages.table() if given.table else pages.plot())
        return
    pythons = players.pythons(given.peers)
    kind = "full" if given.full else "small"
    todo = [
        (name, size)
        for name in given.only
        for size in given.sizes or getattr(works.WORKS[name], kind)
    ]
    found: list[timing.Record] = []
    began = time.perf_counter()
    for done, (name, size) in enumerate(todo, 1):
        options = ["--device", given.device, "--clock", given.clock]
        found += players.play(name, size, pythons, options, given.seconds, given.rounds)
        took = time.perf_counter() - began
        print(f"[{done}/{len(todo)}, {took:.0f} s] {found[-1]['workload']}", flush=True)
        if len(given.only) == len(works.WORKS) and not given.sizes:
            timing.save("figures", found)  # what is measured stays if the rest is not
    print(timing.overview([r for r in found if r["measure"].startswith(("ms", "time", "CPU"))]))


if __name__ == "__main__":
    main()
