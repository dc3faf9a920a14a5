"""Writes docs/coverage.md: every op type of the installed TensorFlow, and what happens to it.

Run by ``make docs``. The facts come from TensorFlow's op registry and from ours; what is said of
endpoints is from the table that ``python -m tools.sweep`` writes.
"""

from __future__ import annotations

import collections
import pathlib

import tf_pfor  # noqa: F401  (registers all converters)
from tf_pfor.frontends import coverage
from tf_pfor.frontends.endpoints import VERDICTS

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "coverage.md"

HEAD = """# Coverage

Written by `make docs` from the op registry of TensorFlow {version} and from the registry of
tf_pfor. Do not edit.

| what happens to an op that differs between iterations | op types |
|---|---:|
{rows}
| all | {total} |

Op types without a converter have a verdict with its reason, at the end of this page.

An op that is the same in every iteration is emitted once, whatever its type, unless it is
stateful.

"stacked" names the inputs that may differ between iterations: an exact set, `any` of them, or
`always` (also when none does). What is not listed is repeated first, or goes to the fallback.
"""


def page() -> str:
    """The text of docs/coverage.md."""
    found = coverage.coverage()
    totals = found.totals
    parts = [
        HEAD.format(
            version=".".join(found.tensorflow.split(".")[:2]),
            rows="\n".join(f"| {says} | {totals[s]} |" for s, says in coverage.STATES.items()),
            total=len(found.ops),
        )
    ]
    for topic, ops in found.topics.items():
        parts += [
            f"## {topic.replace('_', ' ').capitalize()}: {len(ops)}\n",
            "| op type | family or converter, and what may be stacked |",
            "|---|---|",
            *map(_row, ops),
            "",
        ]
    parts += ["## Ragged results\n", *_columns(found.in_state("ragged")), ""]
    parts += _endpoints(found)
    parts += _verdicts([op for op in found.ops if op.state in ("fallback", "stateful")])
    return "\n".join(parts) + "\n"


def _endpoints(found: coverage.Coverage) -> list[str]:
    """The endpoints that were measured, by module and verdict."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.verdicts.items())
    lines = [
        f"## Endpoints of the public API: {len(found.endpoints)}\n",
        "Small calls of each, mapped over three rows with the fallback off (and on, where that is "
        "refused or rows have shapes of their own) and held against a Python loop by "
        f"`python -m tools.sweep`: {counts}. "
        "`python -m tf_pfor coverage tf.image.resize` tells which op types an endpoint is made of. "
        "What loops over rows says so in brackets: which call, and the op types that do (kernels "
        "of images and sounds in parallel, without a warning).\n",
    ]
    modules: dict[str, dict[str, list[str]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    for e in found.endpoints:
        loops = f" ({e.loops})" if e.loops else ""
        modules[e.module][e.verdict].append(e.name.rpartition(".")[2] + loops)
    for module, verdicts in sorted(modules.items()):
        lines.append(f"### {module}: {sum(map(len, verdicts.values()))}\n")
        for verdict in VERDICTS:
            if verdict in verdicts:
                names = verdicts[verdict]
                lines += [f"{verdict} ({len(names)}): {', '.join(names)}.", ""]
    return lines


def _verdicts(ops: list[coverage.OpCoverage]) -> list[str]:
    """Op types without a converter, by what becomes of them and why."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for op in ops:
        groups[op.verdict or "a loop, or refused: nobody has decided"].append(op.op_type)
    lines = [
        "## Without a converter\n",
        "| what becomes of them, and why | op types |",
        "|---|---|",
    ]
    for verdict, names in sorted(groups.items()):
        lines.append(f"| {verdict} | {', '.join(names)} |")
    return lines


def _row(op: coverage.OpCoverage) -> str:
    cells = [f"{family} ({stacked}){note and ', ' + note}" for family, stacked, note in op.rules]
    return f"| {op.op_type} | {'; '.join(cells)} |"


def _columns(names: list[str]) -> list[str]:
    """Names in paragraphs by first letter."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        groups[name[0]].append(name)
    return [line for k in sorted(groups) for line in (", ".join(groups[k]) + ".", "")][:-1]


if __name__ == "__main__":
    PAGE.write_text(page())
    print(*[line for line in page().splitlines() if line.endswith(" |")][1:6], sep="\n")
