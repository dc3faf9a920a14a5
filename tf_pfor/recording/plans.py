"""Plans: the calls that run together, and the places from which each batch reads its inputs.

A plan follows from the structure of what was recorded: kinds of calls, and which result each call
reads. So it is kept, and used again for examples of the same structures.
"""

from __future__ import annotations

import array
import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.recording.columns import TENSORS, Column, Place, column_of, read
from tf_pfor.recording.nodes import Kind, Node, Ran, Recorded
from tf_pfor.recording.schedule import Schedule, batches

KEPT = 16  # plans of one batched function
_TENSOR, _RAN = -1, -2


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Calls that run as one.

    Attributes:
      kind: their kind.
      members: their numbers in the order of recording.
      inputs: a place for an input that all calls share, a column for another.
      is_single: whether the kind runs once, without rows.
    """

    kind: Kind
    members: list[int]
    inputs: list[Place | Column]
    is_single: bool

    def run(self, rans: Sequence[Ran], tensors: Sequence[Any]) -> Ran:
        """Runs the calls."""
        given = [
            read(x, rans, tensors) if isinstance(x, list) else _value(x, rans, tensors)
            for x in self.inputs
        ]
        if self.is_single:
            return Ran(self.kind.run(*given), 1, True)
        stacked = [isinstance(x, list) for x in self.inputs]
        return Ran(self.kind.of_rows(given, stacked), len(self.members), False)


class Structure:
    """Recorded calls, with numbers in place of what they read.

    Attributes:
      nodes: the calls.
      rans: the runs before, from which calls read.
      tensors: the tensors that calls read.
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

    def place(self, x: Any, ran_of: Sequence[tuple[int, int | None]]) -> Place:
        """The place of an input; ``ran_of``: the run and the row of each planned call."""
        if not isinstance(x, Recorded):
            return TENSORS, self._tensors[id(x)], None
        ran = x.node.ran
        if ran is None:
            source, row = ran_of[x.node.number]
            return source, x.index, row
        return self._rans[ran], x.index, None if ran.is_single else x.node.row

    def _tensor(self, x: Any) -> int:
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


def execute(nodes: Sequence[Node], schedule: Schedule, plans: Plans) -> int:
    """Runs recorded calls; returns how many times something ran."""
    structure = Structure(nodes)
    plan = plans.of(structure, schedule)
    rans = structure.rans
    for step in plan:
        ran = step.run(rans, structure.tensors)
        rans.append(ran)
        for row, number in enumerate(step.members):
            node = nodes[number]
            node.ran, node.row = ran, row
    return len(plan)


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
    numbers = [node.number for node in batch]
    columns = zip(*[[structure.place(x, ran_of) for x in node.inputs] for node in batch])
    inputs: list[Place | Column] = []
    for places in columns:
        is_stacked = any(place != places[0] for place in places)
        inputs.append(column_of(places, counts) if is_stacked else places[0])
    are_equal = not any(isinstance(x, list) for x in inputs)
    if len(batch) > 1 and (kind.results is None or (are_equal and not kind.may_share)):
        return [step for node in batch for step in _steps([node], structure, ran_of, counts)]
    return [Step(kind, numbers, inputs, are_equal)]


def _value(place: Place, rans: Sequence[Ran], tensors: Sequence[Any]) -> Any:
    source, index, row = place
    if source == TENSORS:
        return tensors[index]
    made = rans[source].results[index]
    return made if row is None else made[row]
