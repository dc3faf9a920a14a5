"""What happened to each op of a body, and why: ``OpRecord``, ``Report``."""

from __future__ import annotations

import dataclasses
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.errors import FallbackWarning, NotVectorizableError, UnsupportedStateError
from tf_pfor.core.registry import Outcome


class Recorder:
    """Collects one record for each op of the body while it is converted."""

    def __init__(self) -> None:
        self.entries: list[tuple[tf.Operation, Outcome, str]] = []
        self._notes: dict[tf.Operation, str] = {}
        self._on_purpose: set[tf.Operation] = set()

    def add(
        self, op: tf.Operation, outcome: Outcome, reason: str = "", *, on_purpose: bool = False
    ) -> None:
        """Records one op; ``on_purpose`` for a loop that a rule decided on: no warning."""
        if on_purpose:
            self._on_purpose.add(op)
        note = self._notes.pop(op, "")
        self.entries.append((op, outcome, reason or note))

    def note(self, op: tf.Operation, text: str) -> None:
        """Sets the reason of the record of ``op`` that comes next."""
        self._notes[op] = text

    def extend(self, other: Recorder) -> None:
        """Adds the records of another one."""
        self.entries += other.entries
        self._on_purpose |= other._on_purpose

    def failures(self) -> list[str]:
        """One line for each op that was rejected: type, name, line, reason."""
        return [
            f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'}): {reason}"
            for op, outcome, reason in self.entries
            if outcome is Outcome.REJECTED
        ]

    def looped(self) -> dict[str, tuple[int, str, str]]:
        """Count of the ops in the fallback loop, by op type; reason and line of the first."""
        found: dict[str, tuple[int, str, str]] = {}
        for op, outcome, reason in self.entries:
            if outcome is Outcome.LOOPED and op not in self._on_purpose:
                count, *first = found.get(op.type, (0, reason, _tf.user_line(op)))
                found[op.type] = (count + 1, *first)  # type: ignore[assignment]
        return found


def refusal(recorder: Recorder) -> NotVectorizableError:
    """The error that lists every op that was rejected."""
    failures = recorder.failures()
    rejected = [_tf.schema(op.type) for op, o, _ in recorder.entries if o is Outcome.REJECTED]
    only_state = bool(rejected) and all(s is not None and s.is_stateful for s in rejected)
    kind = UnsupportedStateError if only_state else NotVectorizableError
    ways = ["move these ops out of the body"]
    if any("the fallback loop is off" in text for text in failures):
        ways = ["allow the sequential fallback (fallback_to_while_loop=True)", *ways]
    if any("jit_compile" in text for text in failures):
        ways.append("leave out jit_compile")
    if not only_state:
        ways.append("register a converter with tf_pfor.RegisterPFor")
    advice = f"{', '.join(ways[:-1])} or {ways[-1]}" if len(ways) > 1 else ways[0]
    return kind(
        f"{len(failures)} op(s) of the loop body cannot be vectorized:\n  "
        + "\n  ".join(failures)
        + f"\n{advice[0].upper()}{advice[1:]}.",
        tuple(failures),
    )


def warn_of_loops(recorder: Recorder) -> None:
    """One warning for each op type that runs in a sequential loop, with a count and a reason."""
    for op_type, (count, reason, line) in recorder.looped().items():
        where = f" ({line})" if line else ""
        warnings.warn(
            f"{count} op(s) of type {op_type}{where} run in a sequential loop: {reason}.",
            FallbackWarning,
            stacklevel=_tf.user_stack_level(),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class OpRecord:
    """All ops of one type that ended the same way.

    Attributes:
      op_type: the OpDef name.
      count: how many there are in the body.
      outcome: what happened to them.
      reason: why, for those that were not simply kept or vectorized.
      line: ``file:line`` in the user's code of the first of them; "" if unknown.
    """

    op_type: str
    count: int
    outcome: Outcome
    reason: str
    line: str


# The order of the table: what needs attention first.
_ORDER = (
    Outcome.REJECTED,
    Outcome.LOOPED,
    Outcome.TILED,
    Outcome.VECTORIZED,
    Outcome.KEPT,
)


def records(recorder: Recorder) -> list[OpRecord]:
    """The entries of a recorder by op type, outcome and reason; constants are left out."""
    groups: dict[tuple[str, Outcome, str], list[Any]] = {}
    for op, outcome, reason in recorder.entries:
        if op.type != "Const":
            groups.setdefault((op.type, outcome, reason), []).append(op)
    found = [
        OpRecord(op_type, len(ops), outcome, reason, _tf.user_line(ops[0]))
        for (op_type, outcome, reason), ops in groups.items()
    ]
    return sorted(found, key=lambda r: (_ORDER.index(r.outcome), -r.count, r.op_type))


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What becomes of each op of a body: made by ``explain``.

    ``str(report)`` is a table of at most 100 columns.

    Attributes:
      name: the function.
      n: the number of iterations, None if it is known only when running.
      records: the rows of the table, what needs attention first.
      body_ops: how many ops of the body were looked at, those of functions it calls included;
        constants and arguments apart.
      body_constants: how many constants it has.
      emitted_ops: how many ops the vectorized graph has, constants apart; a sequential loop
        counts as the few ops that call it.
      emitted_constants: how many constants it has.
    """

    name: str
    n: int | None
    records: tuple[OpRecord, ...]
    body_ops: int
    body_constants: int
    emitted_ops: int
    emitted_constants: int

    @property
    def totals(self) -> dict[str, int]:
        """How many ops ended how, by the value of ``Outcome``."""
        return {
            o.value: sum(r.count for r in self.records if r.outcome is o) for o in reversed(_ORDER)
        }

    @property
    def is_complete(self) -> bool:
        """True when nothing was rejected."""
        return not self.totals[Outcome.REJECTED.value]

    def text(self, width: int = 100) -> str:
        """A table for a terminal, of at most ``width`` columns (80 or more)."""
        rows = [(r.op_type, str(r.count), r.outcome.value, _short(r.line)) for r in self.records]
        head = ("op type", "count", "outcome", "first line")
        size = [max(len(row[i]) for row in [head, *rows]) for i in range(4)]
        size[0], size[3] = min(size[0], width // 4 + 7), min(size[3], width // 4)
        room = max(width - sum(size) - 8, 16)
        notes = [r.reason for r in self.records]
        rule = "-" * min(width, sum(size) + 8 + min(room, max([3, *map(len, notes)])))
        lines = [self._title(), "", *_row(head, "why", size, room), rule]
        for row, note in zip(rows, notes):
            lines += _row(row, note, size, room)
        ends = [part for line in self._summary() for part in textwrap.wrap(line, width)]
        return "\n".join([*lines, rule, *ends])

    def markdown(self) -> str:
        """The same as a Markdown table."""
        head = ["| op type | count | outcome | first line | why |", "|---|--:|---|---|---|"]
        body = [
            f"| `{r.op_type}` | {r.count} | {r.outcome.value} | "
            f"{f'`{_short(r.line)}`' if r.line else ''} | {_escaped(r.reason)} |"
            for r in self.records
        ]
        return "\n".join([f"**{_escaped(self._title())}**", "", *head, *body, "", *self._summary()])

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers, ready for JSON."""
        return {
            "name": self.name,
            "n": self.n,
            "ops": [
                {
                    "op_type": r.op_type,
                    "count": r.count,
                    "outcome": r.outcome.value,
                    "reason": r.reason,
                    "line": r.line,
                }
                for r in self.records
            ],
            "totals": self.totals,
            "body": {"ops": self.body_ops, "constants": self.body_constants},
            "emitted": {"ops": self.emitted_ops, "constants": self.emitted_constants},
        }

    def __str__(self) -> str:
        return self.text()

    def _title(self) -> str:
        return f"{self.name}, n = {'unknown' if self.n is None else self.n}"

    def _summary(self) -> list[str]:
        totals = self.totals
        parts = ", ".join(f"{totals[o.value]} {o.value}" for o in _ORDER if totals[o.value])
        body = f"{_ops(self.body_ops, self.body_constants)}: {parts or 'nothing to do'}"
        if self.is_complete:
            emitted = _ops(self.emitted_ops, self.emitted_constants)
        else:
            emitted = "nothing: some ops were rejected, and what depends on them was not looked at"
        return [f"In the body: {body}.", f"Emitted: {emitted}."]


def _ops(ops: int, constants: int) -> str:
    return (
        f"{ops} op{'' if ops == 1 else 's'} and {constants} constant{'' if constants == 1 else 's'}"
    )


def _row(cells: Sequence[str], note: str, size: Sequence[int], room: int) -> list[str]:
    """The lines of one row: long cells are cut at the left or right, a long note is wrapped."""
    name, count, outcome, line = cells
    name = name if len(name) <= size[0] else name[: size[0] - 2] + ".."
    line = line if len(line) <= size[3] else ".." + line[2 - size[3] :]
    first, *more = textwrap.wrap(note, room) or [""]
    start = (
        f"{name:<{size[0]}}  {count:>{size[1]}}  {outcome:<{size[2]}}  {line:<{size[3]}}  {first}"
    )
    return [start.rstrip(), *(" " * (sum(size) + 8) + text for text in more)]


def _short(line: str) -> str:
    """``file:line`` without the directories."""
    return line.rsplit("/", 1)[-1].rsplit("\\", 1)[-1]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
