"""Runs the benchmarks one after the other: ``make bench``."""

import pkgutil
import subprocess
import sys

import benchmarks


def main() -> int:
    """Runs every module of this package that has a ``main``; the names of some may be given."""
    known = [m.name for m in pkgutil.iter_modules(benchmarks.__path__)]
    names = [n for n in known if n not in ("__main__", "timing")]
    chosen = [n for n in sys.argv[1:] if n in names] or names
    codes = []
    for name in chosen:
        print(f"== {name}", flush=True)
        codes.append(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
