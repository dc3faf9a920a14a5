"""What happened to each op of a body, and why: ``OpRecord``, ``Report``."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.errors import FallbackWarning, NotVectorizableError
from tf_pfor.registry import Outcome


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
        self.entries.append((op, outcome, self._notes.pop(op, "") or reason))

    def note(self, op: tf.Operation, text: str) -> None:
        """Sets the reason of the record of ``op`` that comes next."""
        self._notes[op] = text

    def failures(self) -> list[str]:
        """One line for each op that was rejected: type, name, line, reason."""
        return [
            f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'}): {reason}"
            for op, outcome, reason in self.entries
            if outcome is Outcome.REJECTED
        ]

    def looped(self) -> dict[str, tuple[int, str]]:
        """Count and first reason of the ops in the fallback loop, by op type."""
        found: dict[str, tuple[int, str]] = {}
        for op, outcome, reason in self.entries:
            if outcome is Outcome.LOOPED and op not in self._on_purpose:
                count, first = found.get(op.type, (0, reason))
                found[op.type] = (count + 1, first)
        return found


def refusal(recorder: Recorder) -> NotVectorizableError:
    """The error that lists every op that was rejected."""
    failures = recorder.failures()
    return NotVectorizableError(
        f"{len(failures)} op(s) of the loop body cannot be vectorized:\n  "
        + "\n  ".join(failures)
        + "\nAllow the sequential fallback (fallback_to_while_loop=True) where it is off, "
        "register a converter with tf_pfor.RegisterPFor, or move these ops out of the body.",
        tuple(failures),
    )


def warn_of_loops(recorder: Recorder) -> None:
    """One warning for each op type that runs in a sequential loop, with a count and a reason."""
    for op_type, (count, reason) in recorder.looped().items():
        warnings.warn(
            f"{count} op(s) of type {op_type} run in a sequential loop: {reason}.",
            FallbackWarning,
            stacklevel=3,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class OpRecord:
    """All ops of one type that ended the same way.

    Attributes:
      op_type: the OpDef name.
      count: how many there are in the body.
      outcome: what happened to them.
      reason: why, for those that were not simply kept or vectorized.
      line: ``file:line`` in the user's code of the first of them.
    """

    op_type: str
    count: int
    outcome: Outcome
    reason: str
    line: str


def records(recorder: Recorder) -> list[OpRecord]:
    """Groups the entries of a recorder by op type, outcome and reason."""
    groups: dict[tuple[str, Outcome, str], list[Any]] = {}
    for op, outcome, reason in recorder.entries:
        groups.setdefault((op.type, outcome, reason), []).append(op)
    return [
        OpRecord(op_type, len(ops), outcome, reason, _tf.user_line(ops[0]))
        for (op_type, outcome, reason), ops in groups.items()
    ]
