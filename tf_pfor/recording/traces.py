"""Traces of one program, kept as a tree: each call that was ever recorded after the same calls.

A recorder walks down the tree, one look-up for each call. Where it stops, the place in the tree
says which ops were recorded, with which attributes, shapes, dtypes and inputs. So it is the
canonical form of the trace, and nothing has to be compared when the trace runs.
"""

from __future__ import annotations

import collections
import itertools
import threading
from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from tf_pfor.recording.compiled import Compiled
from tf_pfor.recording.nodes import Kind

MAX_STEPS: Final = 20_000  # calls in the tree, and kinds; when there are more, all are forgotten
MAX_FUNCTIONS: Final = 256  # compiled functions; the one used longest ago goes first
PATIENCE: Final = 16  # misses in a row at one line, before new forms run one by one there


class Place:
    """The name of a value in a trace: of a result, or of an input.

    Attributes:
      number: the number of the result; ``~k`` for the input k.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Places:
    """The same places for all traces, so that keys compare them by identity."""

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._known: list[Place] = []

    def __getitem__(self, k: int) -> Place:
        while k >= len(self._known):
            n = len(self._known)
            self._known.append(Place(n if self._sign > 0 else ~n))
        return self._known[k]


class Result:
    """Facts of a result that all values of one kind share."""

    __slots__ = ("dtype", "form", "shape", "sizes")

    def __init__(self, spec: tf.TensorSpec) -> None:
        self.shape = spec.shape
        self.dtype = spec.dtype
        self.sizes = tuple(spec.shape)
        self.form = spec.dtype.as_datatype_enum, self.sizes


class Step:
    """A call after other calls.

    Attributes:
      reads: for each input of the kind, the number of its place.
      varying: the numbers of these inputs among all inputs of the op.
      takes: the numbers of the inputs that no call has read before, with the dtype of a number.
      is_single: whether the caller gets the only result, not a list.
      first: the number of its first result.
      depth: the number of calls up to this one.
      form: a number, equal for equal traces that began at other lines.
      writes: whether this call, or one before it, writes a variable.
      reads_variables: whether this call, or one before it, is of a function that has variables.
      must_run: whether this call, or one before it, writes or may fail.
    """

    __slots__ = (
        "before",
        "depth",
        "first",
        "following",
        "form",
        "is_single",
        "kind",
        "line",
        "must_run",
        "places",
        "reads",
        "reads_variables",
        "results",
        "takes",
        "varying",
        "writes",
    )

    def __init__(
        self,
        before: Step | None,
        kind: Kind | None,
        reads: Sequence[int],
        form: int,
        line: str,
    ) -> None:
        self.places: Sequence[Place] = ()
        self.varying: Sequence[int] = ()
        self.takes: Sequence[tuple[int, tf.DType | None]] = ()
        self.following: dict[Any, Any] = {}
        self.before = before
        self.kind = kind
        self.reads = reads
        self.form = form
        self.line = line
        specs = kind.results if kind is not None and kind.results is not None else ()
        self.results = [Result(spec) for spec in specs]
        self.is_single = len(self.results) == 1 and bool(kind and kind.is_single)
        self.first = 0 if before is None else before.first + len(before.results)
        self.depth = 0 if before is None else before.depth + 1
        self.writes = before is not None and (before.writes or bool(kind and kind.writes))
        of_function = bool(kind and kind.captured)
        self.reads_variables = of_function or (before is not None and before.reads_variables)
        fails = bool(kind and kind.may_fail)
        self.must_run = before is not None and (before.must_run or fails or self.writes)

    def path(self) -> list[Step]:
        """All calls up to this one, in order."""
        found: list[Step] = []
        step = self
        while step.before is not None:
            found.append(step)
            step = step.before
        return found[::-1]


class Line:
    """Runs that ended at a line of the user's code.

    Attributes:
      seen: forms that ran one by one.
      alone: the number of runs one by one.
    """

    __slots__ = ("alone", "misses", "seen")

    def __init__(self) -> None:
        self.misses = 0
        self.alone = 0
        self.seen: set[Any] = set()


class Traces:
    """The traces of all scopes of a process, and what they were compiled to.

    Attributes:
      lines: runs by the line where they ended.
      cuts: the number of runs by line and reason.
      seconds: the time that compiling took.
      numbers: Python numbers as tensors.
    """

    def __init__(self) -> None:
        self.results, self.inputs = Places(1), Places(-1)
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.kinds: dict[Any, Any] = {}
        self._roots: dict[str, Step] = {}
        self._forms: dict[Any, int] = {}
        self._steps = 0
        self._functions: collections.OrderedDict[Any, Compiled] = collections.OrderedDict()
        self._wanted: dict[Any, list[tuple[int, ...]]] = collections.defaultdict(list)
        self.lines: dict[str, Line] = collections.defaultdict(Line)
        self.cuts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.counts: collections.Counter[str] = collections.Counter()
        self.seconds = 0.0
        self.numbers: dict[Any, tf.Tensor] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def root(self, line: str) -> Step:
        """The place in the tree before the first call of a trace that begins at a line."""
        if max(self._steps, len(self.kinds)) > MAX_STEPS:
            self.forget()
        found = self._roots.get(line)
        if found is None:
            found = self._roots.setdefault(line, Step(None, None, (), 0, line))
        return found

    def forget(self) -> None:
        """Forgets all traces. A recorder that is under way goes on with those it has."""
        with self._lock:
            self._roots, self._forms, self._steps = {}, {}, 0
            self.kinds = {}
            self._functions.clear()
            self._wanted.clear()
            for line in self.lines.values():
                line.seen.clear()

    def step(
        self,
        before: Step,
        kind: Kind,
        reads: Sequence[int],
        varying: Sequence[int],
        takes: Sequence[tuple[int, tf.DType | None]],
        line: str,
    ) -> Step:
        """A new call after others: see the attributes of ``Step``."""
        key = before.form, kind.number, tuple(reads)
        with self._lock:
            form = self._forms.get(key)
            if form is None:
                form = self._forms[key] = next(self._numbers)
            self._steps += 1
        made = Step(before, kind, reads, form, line)
        made.varying, made.takes = varying, takes
        made.places = [self.results[made.first + k] for k in range(len(made.results))]
        return made

    def function(self, step: Step, alive: Sequence[int], at: str, *, jit: bool) -> Compiled | None:
        """The function that runs a trace; None where the trace shall run one by one.

        ``alive`` has the results that are wanted. ``at`` is the line where the trace ended.
        """
        with self._lock:
            line = self.lines[at]
            key = self._key(step.form, tuple(alive), jit)
            found = self._functions.get(key)
            if found is not None:
                self._functions.move_to_end(key)
                self.counts["hits"] += 1
                line.misses = 0
                return found
            self.counts["misses"] += 1
            line.misses += 1
            if line.misses > PATIENCE and key not in line.seen:
                if len(line.seen) < MAX_FUNCTIONS:
                    line.seen.add(key)
                line.alone += 1
                return None
            found = self._functions[key] = Compiled(step.path(), alive, jit=jit)
            self._wanted[step.form, jit].append(key[1])
            while len(self._functions) > MAX_FUNCTIONS:
                (form, wanted, is_jit), _ = self._functions.popitem(last=False)
                self._wanted[form, is_jit].remove(wanted)
        return found

    def _key(
        self, form: int, alive: tuple[int, ...], jit: bool
    ) -> tuple[int, tuple[int, ...], bool]:
        """The key of a function with these results; it may have more of them.

        When dead values are freed may depend on Python's collection of garbage.
        """
        if (form, alive, jit) not in self._functions:
            for wanted in self._wanted.get((form, jit), ()):
                if set(wanted).issuperset(alive):
                    return form, wanted, jit
        return form, alive, jit

    def time(self, compiled: Compiled) -> None:
        """Adds the time that compiling took to the report, once."""
        with self._lock:
            self.seconds += compiled.seconds
            compiled.seconds = 0.0
