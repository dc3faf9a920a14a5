"""The cases of all modules, and the table of what became of their endpoints."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Mapping, Sequence

import tf_pfor
from tools.sweep import (
    of_arrays,
    of_image,
    of_io,
    of_keras,
    of_keras_ops,
    of_linalg,
    of_math,
    of_nn,
    of_numpy,
    of_quantization,
    of_ragged,
    of_random,
    of_raw,
    of_signal,
    of_sparse,
    of_text,
    of_v1,
)
from tools.sweep.cases import Case
from tools.sweep.outcome import STATES, Outcome

TABLE = pathlib.Path(tf_pfor.__file__).parent / "frontends" / "endpoints.csv"
HEAD = ("endpoint", "verdict", "loops", "op types")
ERROR = STATES[4]


def modules() -> dict[str, list[Case]]:
    """The cases by what they are of."""
    return {
        "tf, tf.bitwise": of_arrays.BASE,
        "tf.image": of_image.IMAGE,
        "tf.io, tf.audio": of_io.IO,
        "tf.linalg": of_linalg.LINALG,
        "tf.math": of_math.MATH,
        "tf.nn": of_nn.NN,
        "tf.quantization": of_quantization.QUANTIZATION,
        "tf.ragged": of_ragged.RAGGED,
        "tf.random": of_random.RANDOM,
        "tf.signal": of_signal.SIGNAL,
        "tf.sparse, tf.sets": of_sparse.SPARSE,
        "tf.strings, tf.lookup": of_text.TEXT,
        "tf.keras": of_keras.KERAS,
        "tf.keras.ops": of_keras_ops.KERAS_OPS,
        "tf.experimental.numpy": of_numpy.NUMPY,
        "tf.compat.v1": of_v1.V1_CASES,
        "tf.raw_ops": of_raw.RAW,
    }


def row_of(name: str, outcomes: Sequence[tuple[str, Outcome]]) -> list[str]:
    """The table's row of an endpoint, from its cases: label and outcome."""
    ran = [(label, what) for label, what in outcomes if what.state != ERROR]
    if not ran:
        return [name, "fails", "", ""]
    states = {what.state for _, what in ran}
    verdict = next(s for s in ("wrong", "refused", "looped", "vectorized") if s in states)
    if verdict == "looped" and "vectorized" in states:
        verdict = "partly"
    bad = [(label, what.why) for label, what in ran if what.state == "looped"]
    loops = "; ".join(f"{label}: {why}" if label else why for label, why in bad)
    made: set[str] = set().union(*(what.op_types for _, what in ran))
    return [name, verdict, loops, " ".join(sorted(made))]


def write(found: Mapping[str, Sequence[tuple[str, Outcome]]], *, keep: bool) -> None:
    """Writes the table; ``keep`` what it says of other endpoints of the sweep."""
    swept = {case.name for cases in modules().values() for case in cases}
    rows = {row[0]: row for row in read() if row[0] in swept} if keep else {}
    for name, outcomes in found.items():
        rows[name] = row_of(name, outcomes)
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        writer.writerows(rows[name] for name in sorted(rows))


def read() -> list[list[str]]:
    """The rows of the table."""
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return [row for row in csv.reader(file)][1:]
