"""The outcome of the loops of a function: a line for each."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

from tf_pfor.reports.source_lines import text_at


@dataclasses.dataclass(frozen=True, slots=True)
class LoopRecord:
    """One loop of the user's code.

    Attributes:
      kind: the construct of the code: "for", "while", "tf.map_fn", "tf.while_loop" ...
      line: ``file:line`` in the user's code; "" if unknown.
      is_vectorized: whether all its trips run at once; else the loop is kept.
      reason: the reason why it is kept; "" for a vectorized loop.
    """

    kind: str
    line: str
    is_vectorized: bool
    reason: str = ""

    @property
    def source(self) -> str:
        """The text of the line; "" if it cannot be read."""
        return text_at(self.line)

    def __str__(self) -> str:
        what = "vectorized" if self.is_vectorized else f"kept: {self.reason}"
        return f"{self.kind} ({self.line or 'line unknown'}): {what}"


@dataclasses.dataclass(frozen=True, slots=True)
class LoopReport:
    """The outcome of the loops that a function had when it was traced.

    Attributes:
      name: the name of the function.
      records: the loops in the order in which they were found, kept loops first.
      is_traced: whether the function was traced at all.
    """

    name: str
    records: tuple[LoopRecord, ...]
    is_traced: bool = True

    @property
    def vectorized(self) -> tuple[LoopRecord, ...]:
        """The loops whose trips run at once."""
        return tuple(r for r in self.records if r.is_vectorized)

    @property
    def kept(self) -> tuple[LoopRecord, ...]:
        """The loops that are kept as loops."""
        return tuple(r for r in self.records if not r.is_vectorized)

    def to_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists and strings, ready for JSON."""
        return {"name": self.name, "loops": [dataclasses.asdict(r) for r in self.records]}

    def __str__(self) -> str:
        if not self.is_traced:
            return f"{self.name}: not traced yet. Call it, or its explain(...) with arguments."
        if not self.records:
            return f"{self.name}: no loops were found."
        head = f"{self.name}: {len(self.vectorized)} of {len(self.records)} loops vectorized"
        return "\n".join([head, *(f"  {r}" for r in self.records)])

    def _repr_html_(self) -> str:
        lines = [f"<li>{html.escape(str(r))}</li>" for r in self.records]
        return f"<div>{html.escape(str(self).splitlines()[0])}<ul>{''.join(lines)}</ul></div>"


def in_order(records: Sequence[LoopRecord]) -> tuple[LoopRecord, ...]:
    """The last record of each loop, kept loops first."""
    last = {(r.kind, r.line, r.line or i): r for i, r in enumerate(records)}
    return tuple(sorted(last.values(), key=lambda r: r.is_vectorized))
