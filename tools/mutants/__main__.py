"""Whether ``make test`` sees faults that somebody put into the package.

``python -m tools.mutants [WORD ...]`` puts each fault of ``faults.txt`` into a copy of the
repository. It runs tests of ``make test`` there until the first failure: first the fault's room,
then the samples. A fault that neither sees counts as not seen. With ``--whole``, all tests of
``make test`` run before that. WORDs choose the faults whose file or words contain one of them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tools.mutants.faults import Fault, faults

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def outcome(fault: Fault, *, whole: bool) -> str:
    """A line on which test saw the fault, and after how many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.split():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        fault.put_into(copy / "tf_pfor")
        env = {**os.environ, "PYTHONPATH": folder}
        begun = time.monotonic()
        rooms = [name for name in fault.rooms if (copy / name).exists()]
        runs = [rooms, ["tests/test_samples.py", "tests/test_call_sites.py"], *[["tests"]] * whole]
        for tests in runs[not rooms :]:
            command = [sys.executable, "-m", "pytest", "-q", "-x", "--chosen"]
            command += ["-p", "no:cacheprovider", "--deselect=tests/project", *tests]
            ran = subprocess.run(
                command, cwd=copy, env=env, capture_output=True, text=True, check=False
            )
            if ran.returncode:
                break
        seconds = time.monotonic() - begun
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    seen = f"seen by {failed[1]}" if failed else "NOT SEEN" if ran.returncode == 0 else "FAILED"
    return f"{seen}, {seconds:.0f} s"


def main() -> None:
    """Prints a line for each fault; the exit status is 1 if one was not seen."""
    parser = argparse.ArgumentParser("python -m tools.mutants")
    parser.add_argument("words", nargs="*", help="what the file or the words of a fault contain")
    parser.add_argument("--whole", action="store_true", help="with all tests of make test")
    given = parser.parse_args()
    unseen = 0
    for fault in faults():
        title = f"{fault.file}: {fault.what}"
        if not given.words or any(word in title for word in given.words):
            found = outcome(fault, whole=given.whole)
            unseen += "seen by" not in found
            print(f"{title}: {found}", flush=True)
    raise SystemExit(unseen > 0)


if __name__ == "__main__":
    main()
