"""Whether ``make test`` sees faults that somebody put into the package.

``python -m tools.mutants [NAME ...]`` puts each fault into a copy of the repository, and runs there
what ``make test`` runs, until the first failure. A fault that no test sees is a hole in the choice.

With ``--room`` all tests of the fault's room run.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
      what: the fault in words.
      file: the file in the package.
      old: the text that stands there, once.
      new: the text that replaces it.
    """

    what: str
    file: str
    old: str
    new: str

    @property
    def room(self) -> str:
        """The room whose tests are likely to see the fault."""
        return pathlib.PurePath(self.file).parent.name

    def put_into(self, package: pathlib.Path) -> None:
        """Writes the fault."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.file} has {text.count(self.old)} times: {self.old}")
        path.write_text(text.replace(self.old, self.new))


MUTANTS = {
    "stitch": Mutant(
        "the rows of branches and loops come back in the order of the pieces",
        "converters/control_flow/_subgraphs.py",
        'whole = emit("DynamicStitch", list(rows), list(pieces))',
        'whole = emit("ConcatV2", list(pieces), np.int32(0)) if rows[1:] else pieces[0]',
    ),
    "mask": Mutant(
        "a loop that masks writes the rows that are done, too",
        "converters/control_flow/while_mask.py",
        "        active = goes_on\n",
        '        active = emit("OnesLike", goes_on)\n',
    ),
    "partition": Mutant(
        "a loop that compacts keeps the rows that are done",
        "converters/control_flow/while_compact.py",
        "return [p[0] for p in parts], [p[1] for p in parts if count > 2], [p[-1] for p in parts]",
        "return [p[-1] for p in parts], [p[1] for p in parts if count > 2], [p[0] for p in parts]",
    ),
    "axis input": Mutant(
        "an axis that is an input is not moved past the loop's",
        "converters/math/_families.py",
        "        return (inner + 1).astype(inner.dtype)\n",
        "        return inner\n",
    ),
    "axis attribute": Mutant(
        "a negative axis of a stack counts one place further from the end",
        "converters/arrays/joining.py",
        "        axis += call.require_rank(values[0]) + 1\n",
        "        axis += call.require_rank(values[0])\n",
    ),
    "row sizes": Mutant(
        "empty rows are not counted when entries are given to rows",
        "layouts/row_sizes.py",
        "marks = tf.scatter_nd(begins[:, None], tf.ones_like(begins), tf.stack([total + 1]))",
        "marks = tf.minimum(1, tf.scatter_nd(begins[:, None], tf.ones_like(begins), "
        "tf.stack([total + 1])))",
    ),
    "padding": Mutant(
        "what lies behind the last element of a row counts as one of it",
        "layouts/packing.py",
        "own = (tf.range(most) if at is None else at) < size.tensor[:, None]",
        "own = (tf.range(most) if at is None else at) <= size.tensor[:, None]",
    ),
    "repeated list": Mutant(
        "a list of the same item in all places is one too long where rows differ",
        "layouts/repeated.py",
        "return StackedList.of(made, ListRows(n, lengths=count))",
        'return StackedList.of(made, ListRows(n, lengths=emit("AddV2", count, np.int32(1))))',
    ),
    "lazy rows": Mutant(
        "a read of x[-1] of some rows reads the first element",
        "layouts/row_reads.py",
        "return emit.constant(np.int32(known if known >= 0 else known + size))",
        "return emit.constant(np.int32(max(known, 0)))",
    ),
    "fingerprint": Mutant(
        "an eager call takes the trace of another shape",
        "tracing/fingerprint.py",
        'self.parts += ("input", number, tensor.dtype, tuple(kept))',
        'self.parts += ("input", number, tensor.dtype, len(tuple(kept)))',
    ),
    "clip": Mutant(
        "gradients of examples that are small are made large",
        "derivatives/per_example.py",
        "scales = limit / tf.maximum(norms, limit)",
        "scales = limit / norms",
    ),
    "fold": Mutant(
        "the folded form of a value counts for any number of axes",
        "core/shapes.py",
        "if form is not None and form.axes == axes:\n        return form.tensor\n    shape = value",
        "if form is not None:\n        return form.tensor\n    shape = value",
    ),
    "segments": Mutant(
        "entries of a ragged row are scattered into the next one's places",
        "converters/ragged/scatter.py",
        "return tf.where(is_kept, tf.cast(rows, ids.dtype) * count + ids, -1)",
        "return tf.where(is_kept, tf.cast(rows, ids.dtype) * (count + 1) + ids, -1)",
    ),
    "shuffle": Mutant(
        "all rows are shuffled in the same order",
        "converters/state/random.py",
        'keys = emit("RandomUniform", shape, dtype=tf.float64, **seeds)',
        'keys = emit("RandomUniform", shape, dtype=tf.float64, seed=1, seed2=1) * 0.0',
    ),
}


def outcome(mutant: Mutant, *, with_room: bool) -> str:
    """A line on which test saw the fault, and after how many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.split():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        mutant.put_into(copy / "tf_pfor")
        env = {**os.environ, "PYTHONPATH": folder}
        begun = time.monotonic()
        near = [f for f in ("tests/test_samples.py", f"tests/{mutant.room}") if (copy / f).exists()]
        runs = [[*near, "--chosen"], ["--chosen"]]  # what is likely to see it comes first
        for tests in [[f"tests/{mutant.room}"]] if with_room else runs:
            ran = subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadgroup"),
                    *("-p", "no:cacheprovider", "--deselect", "tests/project/test_structure.py"),
                    *tests,
                ],
                cwd=copy, env=env, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if ran.returncode:
                break
        seconds = time.monotonic() - begun
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    seen = f"seen by {failed[1]}" if failed else "NOT SEEN" if ran.returncode == 0 else "FAILED"
    return f"{seen}, {seconds:.0f} s"


def main() -> None:
    """Prints a line for each fault; the exit status is 1 if one was not seen."""
    parser = argparse.ArgumentParser("python -m tools.mutants")
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(MUTANTS)}")
    parser.add_argument("--room", action="store_true", help="with all tests of the fault's room")
    given = parser.parse_args()
    lines: list[str] = []
    for name, mutant in MUTANTS.items():
        if not given.names or name in given.names:
            lines.append(f"{name} ({mutant.what}): {outcome(mutant, with_room=given.room)}")
            print(lines[-1], flush=True)
    raise SystemExit(any("NOT SEEN" in line or "FAILED" in line for line in lines))


if __name__ == "__main__":
    main()
