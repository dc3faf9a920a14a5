"""``Report``: the result of ``explain``, as text, Markdown, HTML or JSON."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections.abc import Sequence
from typing import Any

from tf_pfor.core.registry import Outcome
from tf_pfor.reports import estimates, report_page
from tf_pfor.reports.body_graph import BodyGraph
from tf_pfor.reports.op_records import Emitted, OpRecord, short
from tf_pfor.reports.source_lines import ORDER, SourceLine


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
        rows = [(r.op_type, str(r.count), r.outcome.value, short(r.line)) for r in self.records]
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
            f"{f'`{short(r.line)}`' if r.line else ''} | {_escaped(r.reason)} |"
            for r in self.records
        ]
        return "\n".join([f"**{_escaped(self._title())}**", "", *head, *body, "", *self._summary()])

    def html(self, *, pictures: bool = True) -> str:
        """A table as HTML for a page, with pictures of the graphs below it."""
        graphs = self.graphs if pictures else ()
        rows = list(zip(self.records, self.time_shares))
        return report_page.content(self._title(), self.n, rows, self._summary(), graphs, self.lines)

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
            most = [f"{e.ops} for {e.count} {e.op_type} ({short(e.line)})" for e in self.emitted]
            emitted += f"; most: {', '.join(most[:3])}" if most else ""
        else:
            emitted = "nothing: some ops were rejected, and what depends on them was not looked at"
        return [f"In the body: {body}.", f"Emitted: {emitted}.", self._estimates()]

    def _estimates(self) -> str:
        """All in one line, said to be an estimate."""
        made = sum((r.bytes or 0.0) * r.rows(self.n) for r in self.records)
        flops = sum((r.flops or 0.0) * r.rows(self.n) for r in self.records)
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


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
