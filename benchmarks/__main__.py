"""Runs benchmarks one after the other: ``make bench``, ``make bench-full``."""

import argparse
import pkgutil
import subprocess
import sys

import benchmarks


def main() -> int:
    """Runs the figures in small sizes, or the benchmarks that are named, or all of them."""
    known = [m.name for m in pkgutil.iter_modules(benchmarks.__path__)]
    names = [n for n in known if n not in ("__main__", "compare", "kernels", "timing")]
    parser = argparse.ArgumentParser("python -m benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(names)}")
    parser.add_argument("--full", action="store_true", help="all, the figures in all sizes")
    given = parser.parse_args()
    chosen = given.names
    if unknown := sorted({*chosen} - {*names}):
        parser.error(f"no benchmark is named {', '.join(unknown)}: choose from {', '.join(names)}")
    codes = []
    for name in chosen or (names if given.full else ["figures"]):
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        command += ["--full"] if given.full and name == "figures" else []
        codes.append(subprocess.run(command).returncode)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
