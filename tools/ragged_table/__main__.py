"""``python -m tools.ragged_table [PART...]``: writes docs/ragged_coverage.md.

It prints what is not vectorized. With parts of names only these are measured, and all else stays.
"""

from __future__ import annotations

import pathlib
import sys
import warnings
from collections.abc import Iterable

from tools.ragged_table.cases import CASES
from tools.ragged_table.outcome import NONE, YES, Row, outcome

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "ragged_coverage.md"

HEAD = """# What may be done with rows of different shapes

Written by `python -m tools.ragged_table`; tests measure some of its lines again. Do not edit.

Each operation is called on variable-length rows (images and matrices of different sizes) in a
function of one row. The function is mapped with the fallback off and compared with a Python loop:
its result, the gradient of a tape around the map, and a sum of the result under `jit_compile`. The
next column says whether TensorFlow takes the same call on a `tf.RaggedTensor` of all rows (its
operators, and the functions that it dispatches), called in the same run. The last column says
whether the operator stands in torch's table of operators of jagged nested tensors
(`torch/nested/_internal/ops.py`, 2.5), which was read, not run.

yes: all rows at once; a loop over the items of a row is one loop for all rows. loop: a sequential
loop over the rows, with a warning. no: refused. An empty cell: one row has none.

{totals}
"""


def main(parts: list[str]) -> None:
    """Measures the cases whose names contain one of ``parts``; or all, and writes the page."""
    warnings.simplefilter("ignore")
    known = read() if parts else {}
    rows: list[Row] = []
    for case in CASES:
        if parts and not any(part in case.name for part in parts):
            rows += [known[case.name]] if case.name in known else []
            continue
        row = outcome(case)
        rows.append(row)
        if parts or {row.forward, row.gradient, row.xla} - {YES, NONE} or row.why:
            print(f"{case.name}: {row.forward} {row.gradient} {row.xla} {row.why}", flush=True)
    PAGE.write_text(page(rows, _op_types() if parts else ()), encoding="utf-8")


def read() -> dict[str, Row]:
    """The rows that the page has, by name."""
    kinds = {case.name: case.kind for case in CASES}
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    return {c[0]: Row(kinds[c[0]], *c) for c in cells if c[0] in kinds}


def _op_types() -> list[str]:
    """The op types that the page names."""
    return PAGE.read_text(encoding="utf-8").rstrip(".\n").splitlines()[-1].split(", ")


def page(rows: list[Row], more: Iterable[str] = ()) -> str:
    """The text of the page; ``more`` are op types beside the op types of the rows."""
    columns = ("forward", "gradient", "xla", "ragged_tensor", "torch")
    counts = [sum(getattr(row, c) == YES for row in rows) for c in columns]
    op_types = sorted(set(more).union(*(row.op_types for row in rows)))
    totals = (
        f"Of {len(rows)} operations ({len(op_types)} op types) {counts[0]} run for all rows at "
        f"once, {counts[1]} with their gradient, {counts[2]} under `jit_compile`;\n"
        f"`tf.RaggedTensor` takes {counts[3]}, torch {counts[4]}."
    )
    parts = [HEAD.format(totals=totals)]
    for kind in dict.fromkeys(row.kind for row in rows):
        parts += [
            f"## {kind.capitalize()}\n",
            "| operation | tf_pfor | gradient | `jit_compile` | `tf.RaggedTensor` | torch |",
            "|---|---|---|---|---|---|",
            *(row.line for row in rows if row.kind == kind),
            "",
        ]
    parts += ["## Op types\n", ", ".join(op_types) + "."]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
