"""Recorded calls that may run together, and the order in which they do."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tf_pfor.recording.nodes import Kind, Node, Ran, Recorded, joined

Schedule = Literal["agenda", "depth"]


def execute(nodes: Iterable[Node], schedule: Schedule) -> int:
    """Runs recorded calls; returns how many times something ran."""
    waiting = [node for node in nodes if node.ran is None]
    batches = 0
    for batch in (_by_depth if schedule == "depth" else _by_agenda)(waiting):
        _run(batch)
        batches += 1
    return batches


def _run(batch: list[Node]) -> None:
    kind = batch[0].kind
    columns = list(zip(*[node.inputs for node in batch]))
    is_single = len(batch) == 1 or kind.results is None
    if is_single:
        for node in batch:
            node.ran = Ran(kind.run(*values(node.inputs)), 1, True)
        return
    stacked = [any(x is not column[0] for x in column) for column in columns]
    tensors = [joined(c) if s else values(c[:1])[0] for c, s in zip(columns, stacked)]
    if any(stacked):
        ran = Ran(kind.of_rows(tensors, stacked), len(batch), False)
    elif kind.may_share:
        ran = Ran(kind.run(*tensors), 1, True)
    else:
        for node in batch:
            node.ran = Ran(kind.run(*tensors), 1, True)
        return
    for row, node in enumerate(batch):
        node.ran, node.row = ran, row


def _by_depth(nodes: list[Node]) -> Iterator[list[Node]]:
    """All calls of one kind at one depth run together."""
    groups: dict[tuple[int, Kind], list[Node]] = collections.defaultdict(list)
    for node in nodes:
        groups[node.depth, node.kind].append(node)
    for key in sorted(groups, key=lambda key: key[0]):
        yield groups[key]


def _by_agenda(nodes: list[Node]) -> Iterator[list[Node]]:
    """All calls of a kind that may run do so together; the kind of the least average depth first.

    This is the agenda of Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic
    Computation Graphs" (2017).
    """
    left: dict[Kind, list[int]] = collections.defaultdict(lambda: [0, 0])  # sum of depths, calls
    ready: dict[Kind, list[Node]] = collections.defaultdict(list)
    for node in nodes:
        of_kind = left[node.kind]
        of_kind[0] += node.depth
        of_kind[1] += 1
        sources = {x.node for x in node.inputs if isinstance(x, Recorded) and x.node.ran is None}
        node.waiting = len(sources)
        for source in sources:
            source.readers.append(node)
        if not sources:
            ready[node.kind].append(node)
    while ready:
        kind = min(ready, key=lambda k: left[k][0] / left[k][1])
        batch = ready.pop(kind)
        yield batch
        for node in batch:
            left[kind][0] -= node.depth
            left[kind][1] -= 1
            for reader in node.readers:
                reader.waiting -= 1
                if not reader.waiting:
                    ready[reader.kind].append(reader)
            node.readers = []


def values(items: Iterable[Any]) -> list[Any]:
    """Recorded values that have run as tensors; other things stay."""
    return [x.node.value(x.index) if isinstance(x, Recorded) else x for x in items]
