"""``python -m tests.emitted NAME...``: the canonical form of the graphs that tf_pfor emits.

``--list`` prints names of cases, those that contain NAME. ``--digests`` prints a line for each
case, its digest and name; ``--times`` adds how long it took. ``--diff A B`` compares two saved
forms: it prints by how many ops of each type B has more or fewer.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from tests.emitted.canonical import counts, digest_of
from tests.emitted.cases import cases, emitted


def main() -> None:
    """Prints what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.emitted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of cases, whole")
    parser.add_argument("--list", action="store_true", help="names of cases that contain NAME")
    parser.add_argument("--digests", action="store_true", help="digests, not forms")
    parser.add_argument("--file", help="a file with more names, one a line; - for stdin")
    parser.add_argument("--times", action="store_true", help="milliseconds beside digests")
    parser.add_argument("--twice", action="store_true", help="emit each case once more")
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), help="two files with saved forms")
    args = parser.parse_args()
    if args.diff:
        print("\n".join(difference(*map(pathlib.Path, args.diff))))
        return
    known = cases()
    if args.list:
        print("\n".join(x for x in known if all(part in x for part in args.names)))
        return
    names = [*args.names]
    if args.file:
        file = "/dev/stdin" if args.file == "-" else args.file
        names += pathlib.Path(file).read_text(encoding="utf-8").splitlines()
    if missing := [x for x in names if x not in known]:
        parser.error(f"no case is named {missing}; --list PART prints names.")
    for name in names * (2 if args.twice else 1):
        report(name, known[name], args.digests or args.times, args.times)


def report(name: str, case: Callable[[], Any], digests: bool, times: bool) -> None:
    """Prints the form of a case, or its digest; an error stands in place of it."""
    try:
        found = emitted(case)
    except Exception as why:
        print(f"{type(why).__name__:32}  {name}", flush=True)
        return
    if digests:
        took = f"  ({found.emission * 1e3:.0f} ms, form {found.form * 1e3:.1f} ms)" if times else ""
        print(f"{digest_of(found.lines)}  {name}{took}", flush=True)
    else:
        print("\n".join(found.lines))


def difference(a: pathlib.Path, b: pathlib.Path) -> list[str]:
    """The ops of each type that a saved form has more than another: ``+2 Reshape``."""
    before, after = (counts(x.read_text(encoding="utf-8").splitlines()) for x in (a, b))
    changes = {x: after[x] - before[x] for x in sorted({*before, *after})}
    return [f"{change:+d} {x}" for x, change in changes.items() if change] or ["as many of each"]


if __name__ == "__main__":
    main()
