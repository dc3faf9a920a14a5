"""The user's code line by line, with the outcome of the ops of each line."""

from __future__ import annotations

import dataclasses
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tf_pfor import _tf
from tf_pfor.core.registry import Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.reports import estimates

# What needs attention first.
ORDER = (
    Outcome.REJECTED,
    Outcome.LOOPED,
    Outcome.TILED,
    Outcome.VECTORIZED,
    Outcome.KEPT,
)


@dataclasses.dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of the user's code.

    Attributes:
      file: the path of the file; "" for ops whose line is unknown.
      number: the number of the line, from 1.
      source: the text of the line; "" if it cannot be read.
      outcome: the outcome of its ops that needs attention most; None for a line without ops.
      reason: the reason for that outcome, "" if there is none.
      ops: the number of ops that the line has in the body, without constants.
      emitted: the number of ops that they became, with constants, also inside of branches and
        loops.
      bytes: an estimate of the bytes of their results for all iterations (one, if their number is
        not known); None if nothing is known.
      time_share: an estimate of the share of the time, 0 to 1.
    """

    file: str
    number: int
    source: str
    outcome: Outcome | None = None
    reason: str = ""
    ops: int = 0
    emitted: int = 0
    bytes: float | None = None
    time_share: float = 0.0


def lines_of(recorder: Recorder, n: int | None) -> tuple[SourceLine, ...]:
    """The lines of the functions in which the ops of a body stand, in the order of the code."""
    groups: dict[str, list[tuple[Any, Outcome, str]]] = {}
    for entry in recorder.entries:
        if entry[0].type != "Const":
            groups.setdefault(_tf.user_line(entry[0]), []).append(entry)
    seconds = {line: _seconds(entries, n) for line, entries in groups.items()}
    total = sum(seconds.values()) or 1.0
    found: dict[tuple[str, int], SourceLine] = {}
    for line, entries in groups.items():
        file, number = _place(line)
        outcome, reason = min(
            ((o, why) for _, o, why in entries), key=lambda x: (ORDER.index(x[0]), not x[1])
        )
        emitted = sum(recorder.emitted.get(op, 0) for op, *_ in entries)
        found[file, number] = SourceLine(
            file,
            number,
            _text(file, number),
            outcome,
            reason,
            len(entries),
            emitted,
            _bytes(entries, n),
            seconds[line] / total,
        )
    return tuple(found.get(place) or SourceLine(*place, _text(*place)) for place in _places(found))


def _bytes(entries: Sequence[tuple[Any, Outcome, str]], n: int | None) -> float | None:
    known = [
        size[1] * (1 if outcome is Outcome.KEPT else n or 1)
        for op, outcome, _ in entries
        if (size := estimates.of_row(op)) is not None
    ]
    return sum(known) if known else None


def _seconds(entries: Sequence[tuple[Any, Outcome, str]], n: int | None) -> float:
    return sum(
        estimates.seconds(*(estimates.of_row(op) or (0.0, 0.0)), 1, n or estimates.ROWS, outcome)
        for op, outcome, _ in entries
    )


def _place(line: str) -> tuple[str, int]:
    """The file and number of ``file:line``; ("", 0) if there is none."""
    file, _, number = line.rpartition(":")
    return (file, int(number)) if number.isdecimal() else ("", 0)


def _text(file: str, number: int) -> str:
    return linecache.getline(file, number).rstrip() if file else ""


def text_at(line: str) -> str:
    """The text of the user's code at ``file:line``; "" if it cannot be read."""
    return _text(*_place(line)).strip()


def _places(found: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The lines that were found, and all lines of the functions around them."""
    numbers: dict[str, set[int]] = {}
    for file, number in found:
        numbers.setdefault(file, set()).add(number)
    whole: list[tuple[str, int]] = []
    for file, some in numbers.items():
        every = set(some)
        for first, last in _functions(file) if file else ():
            if any(first <= k <= last for k in some):
                every |= set(range(first, last + 1))
        whole += [(file, k) for k in sorted(every)]
    return whole


def _functions(file: str) -> list[tuple[int, int]]:
    """The first and last line of each function of a file that holds no named function.

    The functions are read from compiled code: making objects of a syntax tree fails in CPython
    3.11 if two threads do it at once.
    """
    try:
        source = "".join(linecache.getlines(file))
        module = compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # a cell of a notebook with commands of the shell
        return []
    functions = [code for code in _codes(module) if _is_function(code)]
    return sorted({(code.co_firstlineno, _last(code)) for code in functions if _is_innermost(code)})


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code, and all code that stands inside of it."""
    yield code
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            yield from _codes(x)


def _is_function(code: types.CodeType) -> bool:
    """Whether a ``def`` or a ``lambda`` made the code, not a class or a comprehension."""
    optimized = code.co_flags & inspect.CO_OPTIMIZED
    return bool(optimized) and (code.co_name == "<lambda>" or not code.co_name.startswith("<"))


def _is_innermost(code: types.CodeType) -> bool:
    """Whether no named function is inside: a test or a maker is not the body itself."""
    return all(x is code or x.co_name == "<lambda>" or not _is_function(x) for x in _codes(code))


def _last(code: types.CodeType) -> int:
    """The last line of a function."""
    lines = [code.co_firstlineno]
    for x in _codes(code):
        lines += [line for *_, line in x.co_lines() if line is not None]
        # Ends of expressions of several lines are known from Python 3.11 on.
        ends = getattr(x, "co_positions", tuple)()
        lines += [end for _, end, *_ in ends if end is not None]
    return max(lines)
