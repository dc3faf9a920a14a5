"""``python -m tools.nested [--seed S] [--count N]``: runs programs, prints what is not right."""

from __future__ import annotations

import argparse
import collections
import gc
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tf_pfor
from tools.nested.outcome import mode_of, outcome
from tools.nested.programs import program


def main() -> None:
    """Runs programs of consecutive seeds."""
    parser = argparse.ArgumentParser(prog="python -m tools.nested", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--depth", type=int, default=3, help="statements within each other")
    parser.add_argument("--maps", action="store_true", help="programs of maps in the map")
    parser.add_argument("--numbered", action="store_true", help="counts are numbers of rows")
    parser.add_argument("--ops", action="store_true", help="ops of vectors follow what is read")
    parser.add_argument("--seconds", type=float, default=1e9, help="none begins after so many")
    args = parser.parse_args()
    signs: collections.Counter[str] = collections.Counter()
    begun = time.monotonic()
    for seed in range(args.seed, args.seed + args.count):
        if time.monotonic() - begun > args.seconds:
            break
        sign, why = outcome(seed, args.depth, args.maps, args.numbered, args.ops)
        tf_pfor.clear_cache()
        gc.collect()  # graphs are cycles, of 60 MB a program
        signs[sign] += 1
        if sign != "yes":
            said = program(seed, args.depth, args.maps, args.ops)[0]
            print(f"{seed} ({mode_of(seed)}): {sign}: {why}\n    {said}", flush=True)
    print(dict(signs), f"{(time.monotonic() - begun) / signs.total():.1f} s each")


if __name__ == "__main__":
    main()
