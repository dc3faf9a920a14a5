"""``coverage``: the outcome of op types and endpoints of the installed TensorFlow."""

from __future__ import annotations

import collections
import dataclasses
import os
import textwrap
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import ArgumentError, did_you_mean
from tf_pfor.core.registry import REGISTRY, Outcome, Rule, describe
from tf_pfor.frontends.endpoints import EndpointCoverage, endpoint, measured
from tf_pfor.frontends.verdicts import verdict
from tf_pfor.layouts.ragged_rules import on_rows

STATES = {
    "converter": "a converter takes it",
    "ragged": "rows of different shapes come out of it, in one op",
    "loop": "a sequential loop, on purpose",
    "fallback": "the fallback, a sequential loop (a warning tells; or an error, as the caller "
    "chose)",
    "stateful": "stateful, without a converter: looped in order where that is safe, else refused",
}


@dataclasses.dataclass(frozen=True, slots=True)
class OpCoverage:
    """The outcome of an op type whose inputs differ between iterations.

    Attributes:
      op_type: the OpDef name.
      state: "converter", "ragged", "loop", "fallback" or "stateful": see ``STATES``.
      topic: the file of its converters, "" if it has none.
      rules: for each rule the family or converter, the inputs that may be stacked, and a note.
      verdict: the outcome of an op type without a converter, with the reason; "" if undecided.
    """

    op_type: str
    state: str
    topic: str
    rules: tuple[tuple[str, str, str], ...]
    verdict: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Coverage:
    """The outcome of some or all op types and endpoints: made by ``coverage``.

    Attributes:
      tensorflow: the version of TensorFlow.
      ops: one entry for each op type, sorted.
      endpoints: one entry for each endpoint of the public API that was asked for or measured.
    """

    tensorflow: str
    ops: tuple[OpCoverage, ...]
    endpoints: tuple[EndpointCoverage, ...] = ()

    @property
    def totals(self) -> dict[str, int]:
        """The number of op types in each state."""
        return {s: sum(op.state == s for op in self.ops) for s in STATES}

    @property
    def verdicts(self) -> dict[str, int]:
        """The number of endpoints for each verdict."""
        return dict(collections.Counter(e.verdict for e in self.endpoints).most_common())

    @property
    def is_vectorized(self) -> bool:
        """Whether converters take all of these op types, and all endpoints are vectorized."""
        return all(op.state == "converter" for op in self.ops) and all(
            e.verdict == "vectorized" for e in self.endpoints
        )

    def in_state(self, state: str) -> list[str]:
        """The op types in a state."""
        return [op.op_type for op in self.ops if op.state == state]

    @property
    def topics(self) -> dict[str, list[OpCoverage]]:
        """The op types that have converters, by topic."""
        found: dict[str, list[OpCoverage]] = collections.defaultdict(list)
        for op in self.ops:
            if op.topic:
                found[op.topic].append(op)
        return dict(sorted(found.items()))

    def text(self, width: int = 100) -> str:
        """Text for a terminal: each op if there are few, else the counts and names by topic."""
        if len(self.ops) + len(self.endpoints) <= 40:
            lines = [line for op in self.ops for line in _lines(op, width)]
            return "\n".join([*lines, *(x for e in self.endpoints for x in e.lines(width))])
        lines = [f"TensorFlow {self.tensorflow}, {len(self.ops)} op types", ""]
        for state, count in self.totals.items():
            lines += textwrap.wrap(f"{count:5}  {STATES[state]}", width, subsequent_indent=" " * 7)
        for topic, ops in self.topics.items():
            names = ", ".join(op.op_type for op in ops)
            lines += ["", f"{topic.replace('_', ' ')} ({len(ops)})"]
            lines += textwrap.wrap(names, width, initial_indent="  ", subsequent_indent="  ")
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items())
        lines += ["", f"{len(self.endpoints)} endpoints of the public API were measured: {counts}"]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers, ready for JSON."""
        return {
            "tensorflow": self.tensorflow,
            "totals": self.totals,
            "ops": [dataclasses.asdict(op) for op in self.ops],
            "endpoints": [dataclasses.asdict(e) for e in self.endpoints],
        }

    def __str__(self) -> str:
        return self.text()


def coverage(*names: str) -> Coverage:
    """The outcome of op types whose inputs differ between iterations, and of endpoints.

    Args:
      *names: OpDef names, such as "MatMul", or endpoints of the public API, such as
        "tf.image.resize". No names stand for all op types that this TensorFlow has, and all
        endpoints that were measured.

    Returns:
      The ``Coverage``: ``print`` shows it, ``to_dict()`` is for programs. docs/coverage.md is made
      of it.

    Raises:
      ArgumentError: if this TensorFlow has no such op type or endpoint.

    >>> import tf_pfor
    >>> print(tf_pfor.coverage("Cholesky", "MatrixLogarithm"))
    Cholesky: a converter takes it
      native_batch: any inputs may be stacked
    MatrixLogarithm: a converter takes it
      native_batch: any inputs may be stacked
    >>> tf_pfor.coverage("tf.linalg.cholesky").endpoints[0].verdict
    'vectorized'
    """
    known = op_types_of_tensorflow()
    if not names:
        every = tuple(measured().values())
        return Coverage(tf.__version__, tuple(map(_of, known)), every)
    op_types = [name.removeprefix("tf.raw_ops.") for name in names if _is_op_type(name)]
    for name in op_types:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ArgumentError(
                f"TensorFlow {tf.__version__} has no op type {name!r}.{hint} Expected: the name of "
                "an OpDef, such as MatMul or Conv2D, or an endpoint, such as tf.image.resize; "
                "explain and warnings show op types."
            )
    found = tuple(endpoint(name) for name in names if not _is_op_type(name))
    return Coverage(tf.__version__, tuple(map(_of, op_types)), found)


def _is_op_type(name: str) -> bool:
    return "." not in name or (name.startswith("tf.raw_ops.") and name not in measured())


def op_types_of_tensorflow() -> list[str]:
    """All op types that this TensorFlow offers to Python."""
    return _tf.op_types()


def _of(name: str) -> OpCoverage:
    rules = REGISTRY.rules(name)
    if not rules:
        if on_rows(name).source is not None:
            return OpCoverage(name, "ragged", "", ())
        schema = _tf.schema(name)
        is_stateful = schema is not None and schema.is_stateful
        what = ": ".join(verdict(name) or ())
        return OpCoverage(name, "stateful" if is_stateful else "fallback", "", (), what)
    loops = all(r.outcome is Outcome.LOOPED for r in rules)
    topic = os.path.splitext(os.path.basename(rules[0].where.rsplit(":", 1)[0]))[0]
    return OpCoverage(name, "loop" if loops else "converter", topic, tuple(map(_rule, rules)))


def _rule(rule: Rule) -> tuple[str, str, str]:
    stacked = describe(rule.stacked).strip("[]").replace("'", "")
    note = f"a loop: {rule.note}" if rule.outcome is Outcome.LOOPED else ""
    return rule.family, stacked or "none", note


def _lines(op: OpCoverage, width: int) -> list[str]:
    lines = textwrap.wrap(f"{op.op_type}: {STATES[op.state]}", width, subsequent_indent="  ")
    if op.verdict:
        lines += textwrap.wrap(op.verdict, width, initial_indent="  ", subsequent_indent="    ")
    for family, stacked, note in op.rules:
        what = {"any": "any inputs", "always": "any inputs, or none,", "none": "no input"}
        text = f"{family}: {what.get(stacked, stacked)} may be stacked" + (note and f"; {note}")
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    return lines
