"""Tables and plots of the saved figures."""

from __future__ import annotations

import collections
import json
import pathlib

from benchmarks import timing
from benchmarks.figures import work, works

IMAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "images"
Sizes = dict[int, dict[str, float | None]]


def saved() -> dict[str, Sizes]:
    """Name of a workload -> size -> contender -> ms; the amount of work is under its unit."""
    found: dict[str, Sizes] = {}
    names = {f"{of.title}, {of.axis}": name for name, of in works.WORKS.items()}
    for r in json.loads((timing.RESULTS / "figures.json").read_text()):
        title, _, size = r["workload"].rpartition(" ")
        name = names[title]
        numbers = found.setdefault(name, {}).setdefault(int(size), {})
        measure = r["measure"].removeprefix("CPU ")
        if measure.startswith("ms"):
            numbers[measure.removeprefix("ms, ") if "," in measure else work.OURS] = r["value"]
        elif r["measure"] == (unit := works.WORKS[name].unit):
            numbers[unit] = r["value"]
    return found


COLUMNS = (work.LOOP, work.THEIRS, work.HAND, work.OUR_HAND, "JAX", "torch")


def best(times: dict[str, float | None], prefix: str) -> float | None:
    """The time of the fastest of torch's contenders, or of one contender."""
    known = [
        v
        for k, v in times.items()
        if v and (k == prefix or (k.startswith("torch") and prefix == "torch"))
    ]
    return min(known, default=None)


def table() -> str:
    """Ratios of the faster of tf_pfor's two contenders to each other one, in Markdown."""
    head = ["workload", "tf_pfor, ms", "compiled, ms", *(f"to {x}" for x in COLUMNS)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, sizes in saved().items():
        of = works.WORKS[name]
        for size, times in sizes.items():
            plain, compiled = times.get(work.OURS), times.get(work.COMPILED)
            ours = min(filter(None, (plain, compiled)))
            cells = [f"{of.title}, {of.axis} {size}", timing.shown(plain), timing.shown(compiled)]
            for column in COLUMNS:
                other = best(times, column)
                cells.append(f"{ours / other:.2f}" if other else "-")
            lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def plot() -> str:
    """Draws throughput by size for each workload, as the papers do, and returns the paths."""
    import matplotlib as library

    library.use("Agg")
    from matplotlib import pyplot

    found = saved()
    across = 4
    down = -(-len(found) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(4 * across, 3 * down), squeeze=False)
    for axis, (name, sizes) in zip(axes.flat, found.items()):
        of = works.WORKS[name]
        curves: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
        for size, times in sorted(sizes.items()):
            amount = times[of.unit] or 0.0
            for who, ms in times.items():
                if ms and who != of.unit:
                    curves[who].append((size, amount / ms * 1e3))
        for who, points in curves.items():
            width = 2.5 if who in (work.OURS, work.COMPILED) else 1.0
            color = f"C{at}" if (at := ORDER.index(who)) < 10 else "black"
            axis.loglog(*zip(*points), marker="o", label=who, linewidth=width, color=color)
        axis.set(title=of.title, xlabel=of.axis, ylabel=f"{of.unit} a second")
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    lines = {text: line for a in axes.flat for line, text in zip(*a.get_legend_handles_labels())}
    figure.tight_layout()
    figure.legend(
        [*lines.values()], [*lines], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=6
    )
    paths = [IMAGES / f"figures.{kind}" for kind in ("png", "svg")]
    for path in paths:
        more = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=60, bbox_inches="tight", **more)
    return "\n".join(f"docs/images/{path.name}" for path in paths)


ORDER = [
    work.LOOP, work.THEIRS, work.OURS, work.COMPILED, work.HAND, work.OUR_HAND,
    "JAX", "torch", "torch compiled", "torch packed", "torch nested",
]  # fmt: skip
