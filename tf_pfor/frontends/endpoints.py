"""Verdicts on endpoints of TensorFlow's public API, as they were measured.

``python -m tools.sweep``, from a clone, writes ``endpoints.csv``. It maps calls of each endpoint
over rows, and compares the results with a Python loop.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import pathlib
import textwrap
from typing import Any

import tensorflow as tf

from tf_pfor.core.errors import ArgumentError, did_you_mean

TABLE = pathlib.Path(__file__).parent / "endpoints.csv"
VERDICTS = {
    "vectorized": "all calls that were measured are vectorized",
    "partly": "vectorized, but for calls that run in a loop over rows",
    "looped": "a loop over rows",
    "refused": "an error says what cannot be vectorized",
    "wrong": "other numbers than a loop gives: a bug",
    "fails": "TensorFlow fails in a plain loop as well, on a CPU",
    "not measured": "nobody has measured it: explain shows what becomes of a call",
}


@dataclasses.dataclass(frozen=True, slots=True)
class EndpointCoverage:
    """The verdict on calls of an endpoint in a body.

    Attributes:
      name: the name in the table, such as "tf.math.abs".
      verdict: a key of ``VERDICTS``.
      loops: the calls that run in a loop, and their op types that do; "" if there are none.
      op_types: the op types that the calls are made of.
    """

    name: str
    verdict: str
    loops: str = ""
    op_types: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module of the endpoint: "tf.math" for "tf.math.abs"."""
        return self.name.rpartition(".")[0]

    def lines(self, width: int) -> list[str]:
        """Lines for a terminal."""
        text = f"{self.name}: {VERDICTS[self.verdict]}"
        made = textwrap.wrap(text, width, subsequent_indent="  ")
        for title, words in (("loops: ", self.loops), ("op types: ", ", ".join(self.op_types))):
            if words:
                made += textwrap.wrap(
                    title + words, width, initial_indent="  ", subsequent_indent="    "
                )
        return made


@functools.cache
def measured() -> dict[str, EndpointCoverage]:
    """All endpoints that were measured, by name."""
    with TABLE.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return {
        name: EndpointCoverage(name, verdict, loops, tuple(op_types.split()))
        for name, verdict, loops, op_types in rows
    }


def endpoint(name: str) -> EndpointCoverage:
    """The verdict on an endpoint.

    Args:
      name: a name such as "tf.math.abs" or "keras.ops.abs". Other names of the same object are
        found too.

    Raises:
      ArgumentError: if this TensorFlow has no such endpoint.
    """
    full = f"tf.{name}" if name.startswith("keras.") else name.replace("tensorflow.", "tf.", 1)
    known = measured()
    if full in known:
        return known[full]
    found = _resolve(full)
    if found is None:
        hint = did_you_mean(full, known, 0.8)
        raise ArgumentError(
            f"TensorFlow {tf.__version__} has no endpoint {name!r}.{hint} Expected: a function or "
            "class by the name that it is called by, such as tf.math.abs or tf.keras.layers.Dense."
        )
    same = _by_identity().get(id(found))
    return known[same] if same else EndpointCoverage(full, "not measured")


@functools.cache
def _by_identity() -> dict[int, str]:
    objects = {name: _resolve(name) for name in measured()}
    return {id(found): name for name, found in objects.items() if found is not None}


def _resolve(name: str) -> Any:
    parts = name.split(".")
    found = tf if parts[0] == "tf" else None
    for part in parts[1:]:
        found = getattr(found, part, None)
    return found if callable(found) else None
