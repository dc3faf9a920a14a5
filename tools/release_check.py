"""A check of a release: ``make release-check``, or ``python -m tools.release_check [OPTIONS]``.

It builds wheel and sdist, and installs them in clean environments outside of the clone. There it
imports the package, runs the code of the README, and ``python -m tf_pfor doctor``. It does so for
each Python on the path and each TensorFlow, where there are wheels. Nothing is uploaded.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TENSORFLOWS = ("2.16", "2.21")
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(*command: str | pathlib.Path, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs a command outside of the clone, so that only what is installed is imported."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {k: v for k, v in os.environ.items() if k not in hidden}
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)


def must(*command: str | pathlib.Path, folder: pathlib.Path) -> str:
    """The output of a command that must succeed."""
    done = run(*command, folder=folder)
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{words} failed with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(folder: pathlib.Path) -> list[pathlib.Path]:
    """The wheel and the sdist, built from a copy; their metadata is checked."""
    clone, out = folder / "clone", folder / "dist"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "_build")
    shutil.copytree(ROOT, clone, ignore=ignored)
    python = environment(sys.executable, folder / "tools")
    must(python, "-m", "pip", "install", "-q", "build", "twine", folder=folder)
    must(python, "-m", "build", "--outdir", out, clone, folder=folder)
    files = sorted(out.iterdir())
    must(python, "-m", "twine", "check", "--strict", *files, folder=folder)
    return files


def environment(python: str | pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    """The Python of a new virtual environment."""
    must(python, "-m", "venv", place, folder=place.parent)
    return place / "bin" / "python"


def tried(name: str, file: pathlib.Path, tensorflow: str, folder: pathlib.Path) -> str:
    """The outcome for a Python, a TensorFlow and a file: "works" or the reason why not."""
    interpreter = shutil.which(f"python{name}")
    if not interpreter or run(interpreter, "--version", folder=folder).returncode:
        return "no such Python here"  # a shim may stand for one that is not there
    place = folder / f"{name}-{tensorflow}-{file.suffix[1:]}"
    python = environment(interpreter, place)
    wanted = f"tensorflow-cpu=={tensorflow}.*"
    if run(python, "-m", "pip", "install", "-q", wanted, folder=folder).returncode:
        return "no wheel of this TensorFlow"
    must(python, "-m", "pip", "install", "-q", file, folder=folder)
    must(python, "-m", "pip", "check", folder=folder)
    readme = place / "readme.py"
    readme.write_text("\n".join(CODE.findall((ROOT / "README.md").read_text())))
    where = must(python, "-c", "import tf_pfor; print(tf_pfor.__file__)", folder=place)
    if str(place) not in where:
        sys.exit(f"the package is imported from {where}, not from {place}")
    must(python, readme, folder=place)
    must(python, "-m", "tf_pfor", "doctor", folder=place)
    shutil.rmtree(place)
    return "works"


def main() -> int:
    """Prints a line for each environment; the exit code is 1 if none works."""
    parser = argparse.ArgumentParser("python -m tools.release_check")
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions to try")
    parser.add_argument("--tensorflow", nargs="+", default=TENSORFLOWS, help="versions to try")
    options = parser.parse_args()
    outcomes: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sdist, wheel = sorted(built(folder), key=lambda f: f.suffix == ".whl")
        print(f"built {sdist.name} and {wheel.name}", flush=True)
        for python in options.python:
            for tensorflow in options.tensorflow:
                outcomes.append(tried(python, wheel, tensorflow, folder))
                print(f"Python {python}, TensorFlow {tensorflow}: {outcomes[-1]}", flush=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        outcomes.append(tried(version, sdist, options.tensorflow[-1], folder))
        print(f"the sdist, Python {version}, TensorFlow {options.tensorflow[-1]}: {outcomes[-1]}")
    return "works" not in outcomes


if __name__ == "__main__":
    sys.exit(main())
