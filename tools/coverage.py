"""Writes docs/coverage.md: every op type of the installed TensorFlow, and what happens to it.

Run by ``make docs``. The facts come from TensorFlow's op registry and from ours.
"""

from __future__ import annotations

import collections
import pathlib

import tensorflow as tf

import tf_pfor  # noqa: F401  (registers all converters)
from tf_pfor import _tf
from tf_pfor.core.registry import REGISTRY, Outcome, describe
from tf_pfor.layouts.ragged_rules import SOURCES
from tools.verdicts import verdict

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "coverage.md"

HEAD = """# Coverage

Written by `make docs` from the op registry of TensorFlow {version} and from the registry of
tf_pfor. Do not edit.

| what happens to an op that differs between iterations | op types |
|---|---:|
| a converter takes it | {converted} |
| rows of different shapes come out of it, in one op (docs/ragged.md) | {ragged} |
| a sequential loop, on purpose | {on_purpose} |
| the fallback, a sequential loop (a warning tells; or an error, as the caller chose) | {looped} |
| stateful, without a converter: looped in order where that is safe, else refused | {stateful} |
| all | {total} |

{decided} op types without a converter have a verdict with its reason, at the end of this page.

An op that is the same in every iteration is emitted once, whatever its type, unless it is
stateful.

"stacked" names the inputs that may differ between iterations: an exact set, `any` of them, or
`always` (also when none does). What is not listed is repeated first, or goes to the fallback.
"""


def op_types() -> list[str]:
    """All op types that this TensorFlow offers to Python."""
    return sorted(n for n in dir(tf.raw_ops) if n[0].isupper() and _tf.schema(n) is not None)


def page() -> str:
    """The text of docs/coverage.md."""
    names = op_types()
    topics: dict[str, list[str]] = collections.defaultdict(list)
    on_purpose: set[str] = set()
    for name in names:
        rules = REGISTRY.rules(name)
        if not rules:
            continue
        if all(r.outcome is Outcome.LOOPED for r in rules):
            on_purpose.add(name)
        topics[pathlib.Path(rules[0].where.rsplit(":", 1)[0]).stem].append(_row(name))
    ragged = [n for n in names if n in SOURCES and n not in REGISTRY]
    free = [n for n in names if n not in REGISTRY and n not in SOURCES]
    stateful = [n for n in free if _is_stateful(n)]
    looped = [n for n in free if not _is_stateful(n)]
    parts = [
        HEAD.format(
            version=".".join(tf.__version__.split(".")[:2]),
            converted=len(names) - len(free) - len(ragged) - len(on_purpose),
            ragged=len(ragged),
            decided=f"{sum(verdict(n) is not None for n in free)} of the {len(free)}",
            on_purpose=len(on_purpose),
            looped=len(looped),
            stateful=len(stateful),
            total=len(names),
        )
    ]
    for topic in sorted(topics):
        rows = topics[topic]
        parts += [
            f"## {topic.replace('_', ' ').capitalize()}: {len(rows)}\n",
            "| op type | family or converter, and what may be stacked |",
            "|---|---|",
            *rows,
            "",
        ]
    parts += [f"## Ragged results: {len(ragged)}\n", *_columns(ragged), ""]
    parts += _verdicts(free)
    return "\n".join(parts) + "\n"


def _row(name: str) -> str:
    cells: list[str] = []
    for rule in REGISTRY.rules(name):
        stacked = describe(rule.stacked).strip("[]").replace("'", "")
        note = f", a loop: {rule.note}" if rule.outcome is Outcome.LOOPED else ""
        cells.append(f"{rule.family} ({stacked or 'none'}){note}")
    return f"| {name} | {'; '.join(cells)} |"


def _verdicts(free: list[str]) -> list[str]:
    """Op types without a converter, by what becomes of them and why."""
    groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for name in free:
        groups[verdict(name) or ("a loop, or refused", "nobody has decided")].append(name)
    lines = [
        "## Without a converter\n",
        "| what becomes of them, and why | op types |",
        "|---|---|",
    ]
    for (what, why), names in sorted(groups.items()):
        lines.append(f"| **{what}**: {why} | {', '.join(names)} |")
    return lines


def _is_stateful(name: str) -> bool:
    schema = _tf.schema(name)
    return schema is not None and schema.is_stateful


def _columns(names: list[str]) -> list[str]:
    """Names in paragraphs by first letter."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        groups[name[0]].append(name)
    return [line for k in sorted(groups) for line in (", ".join(groups[k]) + ".", "")][:-1]


if __name__ == "__main__":
    PAGE.write_text(page())
    print(*[line for line in page().splitlines() if line.endswith(" |")][1:6], sep="\n")
