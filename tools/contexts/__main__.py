"""``python -m tools.contexts [-b BODY] [-c CONTEXT]``: measures cells, and writes docs/contexts.md.

Parts of names choose bodies and contexts; the other cells of the page stay as they are.
"""

from __future__ import annotations

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from tools.contexts.bodies import BODIES
from tools.contexts.contexts import contexts
from tools.contexts.outcome import Cell, outcome

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "contexts.md"

HEAD = """# Which features meet

Written by `python -m tools.contexts`. Do not edit.

Each line is a function of one row, a matrix [k, 4]. Each column is a context: where the rows come
from, and what stands around the map. Each cell was run, and compared with a Python loop over the
rows: values, dtypes, shapes, and the state that the rows leave.

- yes: all rows run at once; the fallback is off.
- loop: some ops run in a sequential loop over the rows, with a warning.
- refused: one error says why.
- Nothing stands where a row by itself fails too, or has no gradient.

The reasons of loops and refusals stand at the end.

{totals}
"""


def main() -> None:
    """Measures what is asked for, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.contexts", description=__doc__)
    parser.add_argument("-b", "--body", default="", help="a part of the names of bodies")
    parser.add_argument("-c", "--context", default="", help="a part of the names of contexts")
    parser.add_argument("--exact", action="store_true", help="whole names, not parts")
    args = parser.parse_args()
    cells = read()
    for context in contexts().values():
        if not _is_named(args.context, context.name, args.exact):
            continue
        for body in BODIES:
            if not _is_named(args.body, body.name, args.exact):
                continue
            cell = outcome(body, context)
            cells[body.name, context.name] = cell
            if cell.sign not in ("yes", ""):
                print(f"{context.name} / {body.name}: {cell.sign}: {cell.why}", flush=True)
        PAGE.write_text(page(cells), encoding="utf-8")


def _is_named(part: str, name: str, is_exact: bool) -> bool:
    return not part or (part == name if is_exact else part in name)


def read() -> dict[tuple[str, str], Cell]:
    """The cells that the page has, by body and context."""
    if not PAGE.exists():
        return {}
    found: dict[tuple[str, str], Cell] = {}
    names: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        parts = [p.strip() for p in line.split("|")[1:-1]]
        if line.startswith("| body |"):
            names = parts[1:]
        elif line.startswith("| context |"):
            names = []
        elif parts and names and not line.startswith("|---"):
            found |= {(parts[0], c): Cell(sign) for c, sign in zip(names, parts[1:])}
        elif parts and not names and len(parts) == 4 and not line.startswith("|---"):
            key = parts[1], parts[0]
            if key in found:
                found[key] = Cell(parts[2], parts[3])
    return found


def page(cells: dict[tuple[str, str], Cell]) -> str:
    """The text of the page."""
    names = [c for c in contexts() if any((b.name, c) in cells for b in BODIES)]
    signs = [c.sign for c in cells.values()]
    kinds = ", ".join(f"{signs.count(s)} {s}" for s in dict.fromkeys(signs) if s)
    made = [HEAD.format(totals=f"Of {len(signs) - signs.count('')} cells: {kinds}.")]
    for kind in dict.fromkeys(b.kind for b in BODIES):
        made += [
            f"## {kind[0].upper()}{kind[1:]}\n",
            f"| body | {' | '.join(names)} |",
            f"|{'---|' * (len(names) + 1)}",
            *(_row(b.name, names, cells) for b in BODIES if b.kind == kind),
            "",
        ]
    made += ["## Loops and refusals\n", "| context | body | outcome | why |", "|---|---|---|---|"]
    for context in names:
        for body in BODIES:
            cell = cells.get((body.name, context))
            if cell and cell.sign not in ("yes", ""):
                made.append(f"| {context} | {body.name} | {cell.sign} | {cell.why} |")
    return "\n".join(made) + "\n"


def _row(name: str, names: list[str], cells: dict[tuple[str, str], Cell]) -> str:
    signs = [cells[name, c].sign if (name, c) in cells else "" for c in names]
    return f"| {' | '.join((name, *signs))} |"


if __name__ == "__main__":
    main()
