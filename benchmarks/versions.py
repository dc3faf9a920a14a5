"""This version against an older one: the same workloads in two processes that take turns.

``python -m benchmarks.versions REVISION [NAME ...]`` checks the revision out into a temporary
folder. The workloads come from ``models``, ``derivatives``, ``while_loops`` and ``eager_calls`` as
the revision has them. Each version runs with its package; a ratio below 1 is a gain.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = 64

Run = Callable[[], Any]


def workloads() -> dict[str, Callable[[], tuple[Run, Run]]]:
    """For each name what makes two functions: one that traces, and one that runs."""
    from benchmarks import derivatives, eager_calls, models, while_loops

    made: dict[str, Callable[[], tuple[Run, Run]]] = {}
    for name in models.MODELS:
        made[f"models: {name}"] = lambda name=name: _model(models, name)
    for name in derivatives.CASES:
        made[f"derivatives: {name}"] = lambda name=name: _derivative(derivatives, name)
    for name in while_loops.WORK:
        for kind in ("forward", "backward"):
            key = f"while loops: {name}, {kind}"
            made[key] = lambda name=name, kind=kind: _loop(while_loops, name, kind)
    for name in ("two ops", "five steps"):
        made[f"eager calls: {name}"] = lambda name=name: _eager(eager_calls, name)
    return made


def _model(models: Any, name: str) -> tuple[Run, Run]:
    import tensorflow as tf

    import tf_pfor

    _, one, data = models.build(name, BATCH)
    return _both(tf, lambda x: tf_pfor.vectorized_map(one, x), data)


def _derivative(derivatives: Any, name: str) -> tuple[Run, Run]:
    import tensorflow as tf

    case = derivatives.CASES[name](BATCH if "jacobian" not in name else 0)
    return _both(tf, case.contenders["tf_pfor"], *case.data)


def _loop(loops: Any, name: str, kind: str) -> tuple[Run, Run]:
    import numpy as np

    batch = 4 if name in ("node", "graph") else BATCH
    contenders, args, weights = loops.WORK[name][0](batch, np.random.default_rng(0))
    make = loops.KINDS[kind][0]
    kept = make(weights, contenders["tf_pfor"])
    return (
        lambda: make(weights, contenders["tf_pfor"]).get_concrete_function(args),
        lambda: loops.run_all(kept, args),
    )


def _eager(calls: Any, name: str) -> tuple[Run, Run]:
    import tensorflow as tf

    x, k = tf.ones([8, 3]), tf.constant(2.0)
    one = calls.contenders(calls.BODIES[name], x, k)["vectorized_map"]
    traced = calls.BODIES[name](k)
    import tf_pfor

    trace, _ = _both(tf, lambda x: tf_pfor.vectorized_map(traced, x), x)
    return trace, lambda: [one() for _ in range(20)]


def _both(tf: Any, fn: Callable[..., Any], *data: Any) -> tuple[Run, Run]:
    concrete = tf.function(fn, autograph=False).get_concrete_function(*data)
    return (
        lambda: tf.function(fn, autograph=False).get_concrete_function(*data),
        lambda: tf.nest.map_structure(lambda t: t.numpy(), concrete(*data)),
    )


def worker() -> None:
    """Answers each line, a name or what to do, with a line of JSON."""
    known = workloads()
    print(json.dumps(list(known)), flush=True)
    trace = run = print
    for line in sys.stdin:
        word = line.strip()
        begun = time.process_time(), time.perf_counter()
        if word in known:
            trace, run = known[word]()
            run()
        else:
            {"trace": trace, "run": run}[word]()
        took = time.process_time() - begun[0], time.perf_counter() - begun[1]
        print(json.dumps(took), flush=True)


class Side:
    """A process with one version of the package."""

    def __init__(self, tree: pathlib.Path):
        self._process = subprocess.Popen(
            [sys.executable, __file__, "worker"],
            cwd=tree, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tree), "HOME": str(tree)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.names: list[str] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def do(self, word: str) -> tuple[float, float]:
        """CPU and clock seconds of what is asked."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._answer()


def measured(now: Side, old: Side, name: str, seconds: float) -> Iterator[tuple[str, float, float]]:
    """The measured parts, and medians over rounds of the ratios of CPU time and clock time."""
    now.do(name)
    old.do(name)
    for what in ("trace", "run"):
        ratios: list[tuple[float, float]] = []
        begun = time.perf_counter()
        while len(ratios) < 5 or (time.perf_counter() - begun < seconds and len(ratios) < 100):
            sides = (now, old) if len(ratios) % 2 else (old, now)  # who is first is not always
            took = {side: side.do(what) for side in sides}
            a, b = took[now], took[old]
            ratios.append((a[0] / b[0], a[1] / b[1]))
        cpu, clock = (statistics.median(r[k] for r in ratios) for k in (0, 1))
        yield what, cpu, clock


def main() -> None:
    """Prints a line for each workload."""
    parser = argparse.ArgumentParser("python -m benchmarks.versions", description=__doc__)
    parser.add_argument("revision", help="of this repository, as git names it")
    parser.add_argument("names", nargs="*", help="parts of names of workloads")
    parser.add_argument("--seconds", type=float, default=8.0, help="for each workload")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "old"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(tree), options.revision]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            now, old = Side(ROOT), Side(tree)
            print("| workload | trace, CPU | clock | run, CPU | clock |\n|---|---:|---:|---:|---:|")
            for name in old.names:
                if options.names and not any(part in name for part in options.names):
                    continue
                lines = measured(now, old, name, options.seconds / 2)
                cells = [f"{r:.2f}" for _, *pair in lines for r in pair]
                print(f"| {name} | {' | '.join(cells)} |", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT)


if __name__ == "__main__":
    worker() if sys.argv[1:] == ["worker"] else main()
