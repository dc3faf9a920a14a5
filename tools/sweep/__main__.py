"""``python -m tools.sweep [PART...]`` finds the endpoints that vectorize, loop, refuse or fail.

Each case is mapped over three rows with the fallback off, and compared with a Python loop over
them. It is mapped with the fallback on if that is refused, or if shapes differ per row. ``PART``
selects the endpoints whose names contain it. The verdicts are written into
``tf_pfor/frontends/endpoints.csv``, which ``tf_pfor.coverage`` and docs/coverage.md read. A case
that fails in the loop as well is an error of TensorFlow.
"""

from __future__ import annotations

import collections
import sys
import warnings

from tools.sweep import table
from tools.sweep.outcome import STATES, Outcome, outcome


def main(parts: list[str]) -> None:
    """Prints a line for each case that is not vectorized, and a table."""
    warnings.simplefilter("ignore")
    totals: dict[str, collections.Counter[str]] = {}
    found: dict[str, list[tuple[str, Outcome]]] = collections.defaultdict(list)
    for module, cases in table.modules().items():
        counts: collections.Counter[str] = collections.Counter()
        for case in cases:
            if parts and not any(part in case.name for part in parts):
                continue
            what = outcome(case)
            counts[what.state] += 1
            found[case.name].append((case.label, what))
            if what.state != "vectorized" or parts:
                print(f"{what.state}: {case.title}: {what.why}", flush=True)
        if counts:
            totals[module] = counts
    table.write(found, keep=bool(parts))
    print(f"\n| module | {' | '.join(STATES)} |\n|---|{'---:|' * len(STATES)}")
    all_of_them: collections.Counter[str] = sum(totals.values(), collections.Counter())
    for module, counts in [*totals.items(), ("all", all_of_them)]:
        print(f"| {module} | {' | '.join(str(counts[o]) for o in STATES)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
