"""What happened to each op of a body, and why: ``OpRecord``, ``Report``."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.registry import Outcome


class Recorder:
    """Collects one record for each op of the body while it is converted."""

    def __init__(self) -> None:
        self.entries: list[tuple[tf.Operation, Outcome, str]] = []
        self._notes: dict[tf.Operation, str] = {}

    def add(self, op: tf.Operation, outcome: Outcome, reason: str = "") -> None:
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
        """Count and first reason of the looped ops, by op type, on-purpose loops included."""
        found: dict[str, tuple[int, str]] = {}
        for op, outcome, reason in self.entries:
            if outcome is Outcome.LOOPED:
                count, first = found.get(op.type, (0, reason))
                found[op.type] = (count + 1, first)
        return found


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
