"""``Report``: the result of ``explain``, as text, Markdown, HTML or JSON."""

from __future__ import annotations

import dataclasses
import linecache
import os
import textwrap
from collections.abc import Sequence
from typing import Any

from tf_pfor import _tf
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.reports import estimates, report_page
from tf_pfor.reports.body_graph import BodyGraph
from tf_pfor.reports.source_lines import ORDER, SourceLine


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
        OpRecord(op_type, len(ops), outcome, reason, line, _source(line), *_estimated(ops))
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


def _source(line: str) -> str:
    """The text of the user's code at ``file:line``; "" if it cannot be read."""
    file, _, number = line.rpartition(":")
    return linecache.getline(file, int(number)).strip() if number.isdecimal() else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The outcome of each op of a body: made by ``explain``.

    ``str(report)`` is a table of at most 100 columns. A notebook shows the user's code with the
    outcome of each line, a table by op type, and a picture of the body's graph. ``save`` writes
    all that as a page.

    Attributes:
      name: the name of the function.
      n: the number of iterations, None if it is known only at run time.
      records: the rows of the table; rows that need attention stand first.
      body_ops: the number of ops in the body and in the functions that it calls, without constants
        and arguments.
      body_constants: the number of constants in the body.
      emitted_ops: the number of ops in the vectorized graph, without constants. A sequential loop
        counts as the few ops that call it.
      emitted_constants: the number of constants in the vectorized graph.
      emitted: the emitted ops of each type and line of the body, most first.
      lines: the user's code line by line: the functions in which the ops of the body stand.
      graphs: the graphs of the picture: the body, and the functions in it.
    """

    name: str
    n: int | None
    records: tuple[OpRecord, ...]
    body_ops: int
    body_constants: int
    emitted_ops: int
    emitted_constants: int
    emitted: tuple[Emitted, ...] = ()
    lines: tuple[SourceLine, ...] = dataclasses.field(default=(), repr=False)
    graphs: tuple[BodyGraph, ...] = dataclasses.field(default=(), repr=False, compare=False)

    @property
    def totals(self) -> dict[str, int]:
        """The number of ops for each outcome, by the value of ``Outcome``."""
        return {
            o.value: sum(r.count for r in self.records if r.outcome is o) for o in reversed(ORDER)
        }

    @property
    def time_shares(self) -> tuple[float, ...]:
        """An estimate for each record: its share of the time, 0 to 1.

        The estimate uses the arithmetic, the bytes and the number of ops, for a plain processor. A
        sequential loop starts its ops n times (256 times where n is not known).
        """
        n = self.n or estimates.ROWS
        found = [
            estimates.seconds(r.flops or 0.0, r.bytes or 0.0, r.count, n, r.outcome)
            for r in self.records
        ]
        total = sum(found) or 1.0
        return tuple(x / total for x in found)

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

    def html(self, *, pictures: bool = True) -> str:
        """A table as HTML for a page, with pictures of the graphs below it."""
        rows = [
            report_page.Row(
                r.op_type,
                r.count,
                r.outcome.value,
                _short(r.line),
                r.line,
                r.source,
                r.reason,
                "" if r.bytes is None else estimates.text_of_bytes(r.bytes * self._rows(r)),
                "" if r.flops is None else estimates.text_of_flops(r.flops * self._rows(r)),
                f"{share:.0%}",
            )
            for r, share in zip(self.records, self.time_shares)
        ]
        graphs = self.graphs if pictures else ()
        return report_page.content(self._title(), rows, self._summary(), graphs, self._source())

    def _source(self) -> list[report_page.Line]:
        """The user's code as the page shows it."""
        return [
            report_page.Line(
                _short(x.file),
                x.number,
                x.source,
                "" if x.outcome is None else x.outcome.value,
                x.reason,
                str(x.emitted) if x.ops else "",
                "" if x.bytes is None else estimates.text_of_bytes(x.bytes),
                f"{x.time_share:.0%}" if x.ops else "",
            )
            for x in self.lines
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one HTML file that needs no other: the table, and the graph coloured by outcome.

        Args:
          path: the path of the file; a file that is there is replaced.

        >>> import os
        >>> import tempfile
        >>> import tensorflow as tf
        >>> import tf_pfor
        >>> report = tf_pfor.explain(tf.reduce_sum, tf.ones([8, 2]))
        >>> file = os.path.join(tempfile.mkdtemp(), "report.html")
        >>> report.save(file)
        >>> open(file).read(15)
        '<!doctype html>'
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(report_page.page(self._title(), self.html()))

    def _repr_html_(self) -> str:
        return self.html(pictures=sum(len(g.nodes) for g in self.graphs) <= _FEW)

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
                    "source": r.source,
                    "estimate": {"bytes": r.bytes, "flops": r.flops, "time_share": share},
                }
                for r, share in zip(self.records, self.time_shares)
            ],
            "totals": self.totals,
            "body": {"ops": self.body_ops, "constants": self.body_constants},
            "emitted": {
                "ops": self.emitted_ops,
                "constants": self.emitted_constants,
                "by": [dataclasses.asdict(e) for e in self.emitted],
            },
            "lines": [
                dataclasses.asdict(x) | {"outcome": x.outcome and x.outcome.value}
                for x in self.lines
            ],
        }

    def __str__(self) -> str:
        return self.text()

    def _title(self) -> str:
        return f"{self.name}, n = {'unknown' if self.n is None else self.n}"

    def _summary(self) -> list[str]:
        totals = self.totals
        parts = ", ".join(f"{totals[o.value]} {o.value}" for o in ORDER if totals[o.value])
        body = f"{_ops(self.body_ops, self.body_constants)}: {parts or 'nothing to do'}"
        if self.is_complete:
            emitted = _ops(self.emitted_ops, self.emitted_constants)
            most = [f"{e.ops} for {e.count} {e.op_type} ({_short(e.line)})" for e in self.emitted]
            emitted += f"; most: {', '.join(most[:3])}" if most else ""
        else:
            emitted = "nothing: some ops were rejected, and what depends on them was not looked at"
        return [f"In the body: {body}.", f"Emitted: {emitted}.", self._estimates()]

    def _rows(self, record: OpRecord) -> int:
        """For how many iterations the ops of a record compute, as estimates show it."""
        return 1 if record.outcome is Outcome.KEPT else self.n or 1

    def _estimates(self) -> str:
        """All in one line, said to be an estimate."""
        made = sum((r.bytes or 0.0) * self._rows(r) for r in self.records)
        flops = sum((r.flops or 0.0) * self._rows(r) for r in self.records)
        shares: dict[str, float] = {}
        for record, share in zip(self.records, self.time_shares):
            shares[record.op_type] = shares.get(record.op_type, 0.0) + share
        first = sorted(shares.items(), key=lambda x: -x[1])[:3]
        most = ", ".join(f"{name} {share:.0%}" for name, share in first)
        size = "one row" if self.n is None else f"n = {self.n}"
        return (
            f"Estimated for {size}: results of {estimates.text_of_bytes(made)}, "
            f"{estimates.text_of_flops(flops)} operations; most of the time: {most or 'none'}."
        )


_FEW = 300  # nodes that a notebook shows


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
