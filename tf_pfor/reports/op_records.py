"""The ops of a body by type and outcome, and the ops that they became."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_pfor import _tf
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.reports import estimates
from tf_pfor.reports.source_lines import ORDER, text_at


@dataclasses.dataclass(frozen=True, slots=True)
class OpRecord:
    """All ops of one type that have the same outcome.

    Attributes:
      op_type: the OpDef name.
      count: the number of these ops in the body.
      outcome: the outcome of these ops.
      reason: the reason, for ops that were not simply kept or vectorized. For rows whose shape
        differs it is their form (packed: one behind the other; or padded) and their largest size.
      line: ``file:line`` in the user's code of the first of these ops; "" if unknown.
      source: the text of that line.
      flops: an estimate of their arithmetic operations in one iteration; None if it is not known.
      bytes: an estimate of the bytes of their results in one iteration; None if it is not known. A
        trip of a loop counts once.
    """

    op_type: str
    count: int
    outcome: Outcome
    reason: str
    line: str
    source: str = ""
    flops: float | None = None
    bytes: float | None = None

    def rows(self, n: int | None) -> int:
        """For how many of n iterations the ops compute, as estimates show it."""
        return 1 if self.outcome is Outcome.KEPT else n or 1


@dataclasses.dataclass(frozen=True, slots=True)
class Emitted:
    """The ops that all ops of one type in one line became.

    Attributes:
      op_type: the OpDef name.
      line: ``file:line`` in the user's code; "" if unknown.
      count: the number of such ops in the body.
      ops: the number of emitted ops, with constants, also inside of branches and loops.
    """

    op_type: str
    line: str
    count: int
    ops: int


def emitted_by(recorder: Recorder) -> list[Emitted]:
    """The ops that the body became, by type and line, most first."""
    found: dict[tuple[str, str], list[int]] = {}
    for op, count in recorder.emitted.items():
        found.setdefault((op.type, _tf.user_line(op)), []).append(count)
    made = [Emitted(*where, len(each), sum(each)) for where, each in found.items() if any(each)]
    return sorted(made, key=lambda e: -e.ops)


def records(recorder: Recorder) -> list[OpRecord]:
    """The entries of a recorder by op type, outcome and reason; constants are left out."""
    groups: dict[tuple[str, Outcome, str], list[Any]] = {}
    for op, outcome, reason in recorder.entries:
        if op.type != "Const":
            groups.setdefault((op.type, outcome, reason), []).append(op)
    found = [
        OpRecord(op_type, len(ops), outcome, reason, line, text_at(line), *_estimated(ops))
        for (op_type, outcome, reason), ops in groups.items()
        for line in [_tf.user_line(ops[0])]
    ]
    return sorted(found, key=lambda r: (ORDER.index(r.outcome), -r.count, r.op_type))


def _estimated(ops: Sequence[Any]) -> tuple[float | None, float | None]:
    """Arithmetic and bytes of some ops, as far as their sizes are known."""
    known = [found for op in ops if (found := estimates.of_row(op)) is not None]
    if not known:
        return None, None
    return sum(flops for flops, _ in known), sum(made for _, made in known)


def short(line: str) -> str:
    """``file:line`` without the directories."""
    return line.rsplit("/", 1)[-1].rsplit("\\", 1)[-1]
