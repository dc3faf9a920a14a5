"""Runs the benchmarks one after the other: ``make bench``."""

import argparse
import pkgutil
import subprocess
import sys

import benchmarks


def main() -> int:
    """Runs every module of this package that has a ``main``; the names of some may be given."""
    known = [m.name for m in pkgutil.iter_modules(benchmarks.__path__)]
    names = [n for n in known if n not in ("__main__", "compare", "kernels", "timing")]
    parser = argparse.ArgumentParser("python -m benchmarks", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(names)}")
    chosen = parser.parse_args().names
    if unknown := sorted({*chosen} - {*names}):
        parser.error(f"no benchmark is named {', '.join(unknown)}: choose from {', '.join(names)}")
    codes = []
    for name in chosen or names:
        print(f"== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
