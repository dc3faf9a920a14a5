"""Plans: the calls that run together, and the places from which each batch reads its inputs.

A plan follows from the structure of what was recorded: kinds of calls, and which result each call
reads. So it is kept, and used again for examples of the same structures.
"""

from __future__ import annotations

import array
import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.recording.columns import TENSORS, Column, Place, column_of, read
from tf_pfor.recording.errors import OF_VALUES
from tf_pfor.recording.nodes import Failure, Kind, Node, Ran, Recorded, values
from tf_pfor.recording.schedule import Schedule, batches

KEPT = 16  # plans of one batched function
_TENSOR, _RAN = -1, -2


Read: TypeAlias = tuple[list[int], Place | Column]
"""Numbers of inputs, and where they are read: a place for one input, a column for one or more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Calls that run as one.

    Attributes:
      members: their numbers in the order of recording.
      stacked: true for the inputs that differ between the calls.
    """

    kind: Kind
    members: list[int]
    reads: list[Read]
    stacked: list[bool]

    @property
    def is_single(self) -> bool:
        """Whether the kind runs once, without rows."""
        return not any(self.stacked)

    def run(self, rans: Sequence[Ran], tensors: Sequence[Any]) -> Ran:
        """Runs the calls."""
        given: list[Any] = [None] * len(self.stacked)
        for numbers, source in self.reads:
            if isinstance(source, tuple):
                parts = [_value(source, rans, tensors)]
            else:
                parts = [read(source, rans, tensors)]
                if self.is_single:
                    parts = tf.unstack(parts[0], len(numbers))
                elif len(numbers) > 1:
                    parts = tf.split(parts[0], len(numbers))
            for number, part in zip(numbers, parts):
                given[number] = part
        if self.is_single:
            return Ran(self.kind.run(*given), 1, True)
        return Ran(self.kind.of_rows(given, self.stacked), len(self.members), False)


class Structure:
    """Recorded calls, with numbers in place of what they read.

    Attributes:
      rans: the runs before, from which calls read.
      form: equal for structures of one plan.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._rans: dict[Ran, int] = {}
        self._tensors: dict[int, int] = {}
        self.tensors: list[Any] = []
        form: list[int] = []
        add = form.append
        for node in nodes:
            add(node.kind.number)
            for x in node.inputs:
                if type(x) is not Recorded:
                    form += _TENSOR, self._tensor(x)
                    continue
                source = x.node
                if source.ran is not None:
                    form += self._form_of_run(source.ran, x)
                    continue
                if source.wait is not node.wait:
                    raise NotVectorizableError(
                        f"{source.kind.name} was recorded in a call of batched() that has failed. "
                        "Its value is not known."
                    )
                add(source.number)
                add(x.index)
        self.form = array.array("q", form).tobytes()

    @property
    def rans(self) -> list[Ran]:
        """The runs before, by number."""
        return list(self._rans)

    def place(self, x: object, ran_of: Sequence[tuple[int, int | None]]) -> Place:
        """The place of an input; ``ran_of``: the run and the row of each planned call."""
        if not isinstance(x, Recorded):
            return TENSORS, self._tensors[id(x)], None
        ran = x.node.ran
        if ran is None:
            source, row = ran_of[x.node.number]
            return source, x.index, row
        return self._rans[ran], x.index, None if ran.is_single else x.node.row

    def _tensor(self, x: object) -> int:
        number = self._tensors.setdefault(id(x), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(x)
        return number

    def _form_of_run(self, ran: Ran, x: Recorded) -> tuple[int, ...]:
        number = self._rans.setdefault(ran, len(self._rans))
        return _RAN, number, x.index, ran.count, -1 if ran.is_single else x.node.row


class Plans:
    """The plans of a batched function, of the structures that it saw last."""

    def __init__(self) -> None:
        self._kept: collections.OrderedDict[Any, list[Step]] = collections.OrderedDict()
        self.made = 0  # plans that were not kept

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, structure: Structure, schedule: Schedule) -> list[Step]:
        """The plan of a structure."""
        key = schedule, structure.form
        plan = self._kept.pop(key, None)
        if plan is None:
            self.made += 1
            plan = _plan(structure, schedule)
        self._kept[key] = plan
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return plan


def execute(
    nodes: Sequence[Node], schedule: Schedule, plans: Plans, failures: list[Failure]
) -> int:
    """Runs recorded calls, and adds to the failures; returns how many times something ran."""
    if failures:
        nodes = _that_may_run(nodes)
    structure = Structure(nodes)
    plan = plans.of(structure, schedule)
    rans = structure.rans
    for k, step in enumerate(plan):
        try:
            ran = step.run(rans, structure.tensors)
        except OF_VALUES:  # whose error is it?
            left = [nodes[number] for later in plan[k:] for number in later.members]
            return k + _one_by_one(left, failures)
        rans.append(ran)
        for row, number in enumerate(step.members):
            node = nodes[number]
            node.ran, node.row = ran, row
    return len(plan)


def _that_may_run(nodes: Sequence[Node]) -> list[Node]:
    """The calls that read no result of a call that has failed, with new numbers."""
    found: list[Node] = []
    for node in nodes:
        node.failure = _failure_before(node)
        if node.failure is None:
            node.number = len(found)
            found.append(node)
    return found


def _failure_before(node: Node) -> Failure | None:
    """The failure of a call whose result a call reads."""
    failures = (x.node.failure for x in node.inputs if isinstance(x, Recorded))
    return next((failure for failure in failures if failure is not None), None)


def _one_by_one(nodes: Sequence[Node], failures: list[Failure]) -> int:
    """Runs each call for itself, so that the error of one is no error of another."""
    for node in nodes:
        node.failure = _failure_before(node)
        if node.failure is not None:
            continue
        try:
            node.ran = Ran(node.kind.run(*values(node.inputs)), 1, True)
        except OF_VALUES as error:
            node.failure = Failure(node, error)
            failures.append(node.failure)
    return len(nodes)


def _plan(structure: Structure, schedule: Schedule) -> list[Step]:
    """The steps for a structure."""
    steps: list[Step] = []
    counts = [ran.count for ran in structure.rans]
    ran_of: list[tuple[int, int | None]] = [(0, None)] * len(structure.nodes)
    for batch in batches(structure.nodes, schedule):
        for step in _steps(batch, structure, ran_of, counts):
            for row, number in enumerate(step.members):
                ran_of[number] = len(counts), None if step.is_single else row
            counts.append(1 if step.is_single else len(step.members))
            steps.append(step)
    return steps


def _steps(
    batch: list[Node],
    structure: Structure,
    ran_of: Sequence[tuple[int, int | None]],
    counts: Sequence[int],
) -> list[Step]:
    """The steps that run a batch: one, or one for each call."""
    kind = batch[0].kind
    rows = [[structure.place(x, ran_of) for x in node.inputs] for node in batch]
    columns = [list(places) for places in zip(*rows)]
    stacked = [any(place != places[0] for place in places) for places in columns]
    if len(batch) > 1 and (kind.results is None or not (any(stacked) or kind.may_share)):
        return [step for node in batch for step in _steps([node], structure, ran_of, counts)]
    numbers = [node.number for node in batch]
    return [Step(kind, numbers, _reads(kind, columns, stacked, counts), stacked)]


def _reads(
    kind: Kind, columns: list[list[Place]], stacked: list[bool], counts: Sequence[int]
) -> list[Read]:
    """The reads of a step. Inputs of one shape that need a gather are read by one."""
    reads: list[Read] = []
    groups: dict[Any, list[int]] = collections.defaultdict(list)
    for number, (places, is_stacked) in enumerate(zip(columns, stacked)):
        is_row = not any(stacked) and places[0][2] is not None
        column = column_of(places, counts) if is_stacked else None
        if is_row or (column and (len(column) > 1 or column[0].taken is not None)):
            spec = kind.inputs[number]
            groups[spec.dtype, str(spec.shape)].append(number)
        else:
            reads.append(([number], column or places[0]))
    for numbers in groups.values():
        if len(numbers) > (1 if any(stacked) else 3):
            whole = column_of([place for n in numbers for place in columns[n]], counts)
            reads.append((numbers, whole))
            continue
        for n in numbers:
            reads.append(([n], column_of(columns[n], counts) if stacked[n] else columns[n][0]))
    return reads


def _value(place: Place, rans: Sequence[Ran], tensors: Sequence[Any]) -> Any:
    source, index, row = place
    if source == TENSORS:
        return tensors[index]
    made = rans[source].results[index]
    return made if row is None else made[row]
