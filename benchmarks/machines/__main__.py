"""Runs both: ``python -m benchmarks.machines``."""

import subprocess
import sys


def main() -> int:
    """Runs engines and serving, each in a process of its own."""
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.machines.{name}"]).returncode
        for name in ("engines", "serving")
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
