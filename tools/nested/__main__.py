"""``python -m tools.nested [--seed S] [--count N]``: runs programs, prints what is not right."""

from __future__ import annotations

import argparse
import collections
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from tools.nested.outcome import outcome
from tools.nested.programs import program


def main() -> None:
    """Runs programs of consecutive seeds."""
    parser = argparse.ArgumentParser(prog="python -m tools.nested", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    args = parser.parse_args()
    signs: collections.Counter[str] = collections.Counter()
    for seed in range(args.seed, args.seed + args.count):
        sign, why = outcome(seed)
        signs[sign] += 1
        if sign != "yes":
            print(f"{seed}: {sign}: {why}\n    {program(seed)[0]}", flush=True)
    print(dict(signs))


if __name__ == "__main__":
    main()
