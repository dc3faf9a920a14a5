"""``python -m tools.nested [--seed S] [--count N]``: runs programs, prints what is not right."""

from __future__ import annotations

import argparse
import collections
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tools.nested.outcome import mode_of, outcome
from tools.nested.programs import program


def main() -> None:
    """Runs programs of consecutive seeds."""
    parser = argparse.ArgumentParser(prog="python -m tools.nested", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--depth", type=int, default=3, help="statements within each other")
    parser.add_argument("--maps", action="store_true", help="programs of maps in the map")
    args = parser.parse_args()
    signs: collections.Counter[str] = collections.Counter()
    took: dict[int, float] = {}
    for seed in range(args.seed, args.seed + args.count):
        begun = time.monotonic()
        sign, why = outcome(seed, args.depth, args.maps)
        took[seed] = time.monotonic() - begun
        signs[sign] += 1
        if sign != "yes":
            said = program(seed, args.depth, args.maps)[0]
            print(f"{seed} ({mode_of(seed)}): {sign}: {why}\n    {said}", flush=True)
    slowest = max(took, key=took.__getitem__)
    mean = sum(took.values()) / len(took)
    print(dict(signs), f"{mean:.1f} s each; seed {slowest}: {took[slowest]:.0f} s")


if __name__ == "__main__":
    main()
