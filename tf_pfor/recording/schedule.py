"""The order in which recorded calls run: batches of calls of one kind."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Literal

from tf_pfor.recording.nodes import Kind, Node, Recorded

Schedule = Literal["agenda", "depth"]


def batches(nodes: Sequence[Node], schedule: Schedule) -> Iterator[list[Node]]:
    """Calls that run together, in an order in which each has its inputs."""
    return (_by_depth if schedule == "depth" else _by_agenda)(nodes)


def _by_depth(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """All calls of one kind at one depth run together."""
    groups: dict[tuple[int, Kind], list[Node]] = collections.defaultdict(list)
    for node in nodes:
        groups[node.depth, node.kind].append(node)
    for key in sorted(groups, key=lambda key: key[0]):
        yield groups[key]


def _by_agenda(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """All calls of a kind that may run do so together; the kind of the least average depth first.

    This is the agenda of Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic
    Computation Graphs" (2017).
    """
    left: dict[Kind, list[int]] = collections.defaultdict(lambda: [0, 0])  # sum of depths, calls
    ready: dict[Kind, list[Node]] = collections.defaultdict(list)
    waiting: dict[Node, int] = {}  # the number of inputs that have not run
    readers: dict[Node, list[Node]] = collections.defaultdict(list)
    for node in nodes:
        of_kind = left[node.kind]
        of_kind[0] += node.depth
        of_kind[1] += 1
        sources = {x.node for x in node.inputs if isinstance(x, Recorded) and x.node.ran is None}
        waiting[node] = len(sources)
        for source in sources:
            readers[source].append(node)
        if not sources:
            ready[node.kind].append(node)
    while ready:
        kind = min(ready, key=lambda k: left[k][0] / left[k][1])
        batch = ready.pop(kind)
        yield batch
        for node in batch:
            left[kind][0] -= node.depth
            left[kind][1] -= 1
            for reader in readers.get(node, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready[reader.kind].append(reader)
