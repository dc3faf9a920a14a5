"""The outcome of each op of a body, with the reason: refusals and warnings are made of it."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import tensorflow as tf

from tf_pfor import _tf
from tf_pfor._tf import _patience
from tf_pfor.core.errors import FallbackWarning, NotVectorizableError, UnsupportedStateError
from tf_pfor.core.registry import Outcome


class Recorder:
    """Collects one record for each op of the body while it is converted."""

    def __init__(self) -> None:
        self.entries: list[tuple[tf.Operation, Outcome, str]] = []
        self._notes: dict[tf.Operation, str] = {}
        self._on_purpose: set[tf.Operation] = set()
        self._readers: dict[tf.Operation, tf.Operation] = {}  # which take no rows of their shapes
        self.emitted: dict[tf.Operation, int] = {}  # the number of ops for each
        self._told = weakref.WeakKeyDictionary[Any, int]()  # the ops counted, by graph

    def begin(self, graph: tf.Graph) -> tuple[int, int]:
        """The state of a graph before an op is converted, for ``end``."""
        return graph.version, self._told.get(graph, 0)

    def end(self, op: tf.Operation, graph: tf.Graph, begun: tuple[int, int]) -> None:
        """Counts the ops that one op added to a graph, without ops that others added meanwhile."""
        (size, told), by_now = begun, self._told.get(graph, 0)
        own = graph.version - size - (by_now - told)
        self._told[graph] = by_now + own
        self.emitted[op] = self.emitted.get(op, 0) + own

    def add(
        self, op: tf.Operation, outcome: Outcome, reason: str = "", *, on_purpose: bool = False
    ) -> None:
        """Records one op; ``on_purpose`` for a loop that a rule decided on: no warning."""
        if on_purpose:
            self._on_purpose.add(op)
        _patience.working("vectorizing", lambda: _tf.user_line(op))
        note = self._notes.pop(op, "")
        self.entries.append((op, outcome, reason or note))

    def note(self, op: tf.Operation, text: str) -> None:
        """Sets the reason of the record of ``op`` that comes next."""
        self._notes[op] = text

    def extend(self, other: Recorder) -> None:
        """Adds the records of another one."""
        self.entries += other.entries
        self._on_purpose |= other._on_purpose
        self._readers |= other._readers
        for op, count in other.emitted.items():
            self.emitted[op] = self.emitted.get(op, 0) + count

    def failures(self) -> list[str]:
        """One line for each op that was rejected: type, name, line, reason."""
        return [
            f"{op.type} '{op.name}' ({_tf.user_line(op) or 'line unknown'}): {reason}"
            for op, outcome, reason in self.entries
            if outcome is Outcome.REJECTED
        ]

    def blame(self, op: tf.Operation, reader: tf.Operation) -> str:
        """The part of the reason why ``op`` loops: ``reader`` takes no rows of different shapes."""
        self._readers[op] = reader
        return f"; {_named(reader)}, which reads it, {_NO_RULE}"

    def looped(self) -> list[str]:
        """One line for each type of ops in the fallback loop: their count, reason and line.

        The op that is the cause is the first that it names.
        """
        found: dict[str, list[tuple[tf.Operation, str]]] = {}
        for op, outcome, reason in self.entries:
            if outcome is Outcome.LOOPED and op not in self._on_purpose:
                found.setdefault(op.type, []).append((op, reason))
        texts: list[str] = []
        for op_type, ops in found.items():
            (first, reason), cause = ops[0], ""
            if (reader := self._readers.get(first)) is not None:
                cause = f"{_named(reader)} {_NO_RULE}{_INSTEAD.get(reader.type, '')}. So "
                reason = reason.replace(self.blame(first, reader), "")
            line = _tf.user_line(first)
            where = f" ({line})" if line else ""
            of_reader = ", which it reads," if cause else ""
            kind = f"{len(ops)} op(s) of type {op_type}{where}{of_reader}"
            texts.append(f"{cause}{kind} run in a sequential loop: {reason}.")
        return texts


_NO_RULE = "has no rule for rows of different shapes"
_INSTEAD = {
    "RaggedTensorToVariant": " (tf.map_fn over a RaggedTensor: write tf_pfor.vectorized_map there)"
}


def _named(op: tf.Operation) -> str:
    return f"{op.type} ({_tf.user_line(op) or 'line unknown'})"


_FALLBACK = (
    'allow the sequential fallback (fallback="loop"; of TensorFlow\'s own functions '
    "fallback_to_while_loop=True)"
)


def refusal(recorder: Recorder) -> NotVectorizableError:
    """The error that lists every op that was rejected."""
    failures = recorder.failures()
    rejected = [op for op, outcome, _ in recorder.entries if outcome is Outcome.REJECTED]
    others = [op for op in rejected if _tf.COLLECTIVE not in _tf.attr_map(op)]
    schemas = [_tf.schema(op.type) for op in others]
    only_state = bool(others) and all(s is not None and s.is_stateful for s in schemas)
    kind = UnsupportedStateError if only_state else NotVectorizableError
    text = f"{len(failures)} op(s) of the loop body cannot be vectorized:\n  " + "\n  ".join(
        failures
    )
    if rejected and not others:  # the reason says what to do, and they have no meaning elsewhere
        return NotVectorizableError(text, tuple(failures))
    ways = ["move these ops out of the body"]
    if any("the fallback loop is off" in text for text in failures):
        ways = [_FALLBACK, *ways]
    if any("jit_compile" in text for text in failures):
        ways.append("leave out jit_compile")
    if not only_state:
        ways.append("register a converter with tf_pfor.RegisterPFor")
    advice = f"{', '.join(ways[:-1])} or {ways[-1]}" if len(ways) > 1 else ways[0]
    return kind(f"{text}\n{advice[0].upper()}{advice[1:]}.", tuple(failures))


def warn_of_loops(recorder: Recorder) -> None:
    """One warning for each op type that runs in a sequential loop."""
    for text in recorder.looped():
        warnings.warn(text, FallbackWarning, stacklevel=_tf.user_stack_level())
