"""Whether ``make test`` sees faults that somebody put into the package.

``python -m tools.mutants [WORD ...]`` runs ``make test`` in a copy of the repository first. There
it sees which tests reach the place of which fault. Then it puts each fault of ``faults.txt`` into
a copy, and runs the tests that reach it until the first failure. WORDs choose the faults whose file
or words contain one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tools.mutants import reach
from tools.mutants.faults import Fault, faults

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def copy_to(folder: pathlib.Path) -> None:
    """Copies the files of the repository into an empty folder."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def run(
    folder: pathlib.Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs tests of ``make test`` in a copy."""
    command = [sys.executable, "-m", "pytest", "-q", "--chosen", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-p", "tools.mutants.reach", *arguments],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def reached(folder: pathlib.Path) -> dict[int, dict[str, float]]:
    """For each fault the tests that reach it, with their seconds: runs all tests in the folder."""
    copy_to(folder)
    reach.put_probes(folder / "tf_pfor", faults())
    run(folder, "-n2", "--dist=loadgroup", "--no-loadscope-reorder", "tests", REACH="1")
    return reach.read(folder)


def outcome(fault: Fault, tests: dict[str, float]) -> str:
    """A line on which test saw the fault, and after how many seconds."""
    if not tests:
        return "NOT REACHED"
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        copy_to(copy)
        fault.put_into(copy / "tf_pfor")
        (copy / reach.ONLY).write_text(json.dumps(tests))
        begun = time.monotonic()
        ran = run(copy, "-x", *sorted({test.partition("::")[0] for test in tests}))
        seconds = time.monotonic() - begun
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    other = "seen by the end of the process" if ran.returncode else "NOT SEEN"
    seen = f"seen by {failed[1]}" if failed else other
    return f"{seen}, {seconds:.0f} s, {len(tests)} tests reach it"


def main() -> None:
    """Prints a line for each fault; the exit status is 1 if one was not seen."""
    parser = argparse.ArgumentParser("python -m tools.mutants")
    parser.add_argument("words", nargs="*", help="what the file or the words of a fault contain")
    parser.add_argument("--reached", type=pathlib.Path, help="the folder of a run that was kept")
    parser.add_argument("--shard", default="1/1", help="2/3 is the second of three parts")
    given = parser.parse_args()
    part, parts = (int(x) for x in given.shard.split("/"))
    with tempfile.TemporaryDirectory() as name:
        if given.reached and given.reached.exists():
            tests = reach.read(given.reached)
        else:
            tests = reached(given.reached or pathlib.Path(name))
    unseen = 0
    for number, fault in enumerate(faults()):
        title = f"{fault.file}: {fault.what}"
        is_meant = not given.words or any(word in title for word in given.words)
        if is_meant and number % parts == part - 1:
            found = outcome(fault, tests.get(number, {}))
            unseen += "seen by" not in found
            print(f"{number} {title}: {found}", flush=True)
    raise SystemExit(unseen > 0)


if __name__ == "__main__":
    main()
