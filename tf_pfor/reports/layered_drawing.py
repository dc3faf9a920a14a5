"""Drawing a directed graph in layers, as SVG: longest paths, barycenters, curves."""

from __future__ import annotations

import dataclasses
import html
import itertools
from collections.abc import Sequence

ROW, GAP, CHAR, HEIGHT = 78, 18, 7.2, 38  # pixels: between layers and boxes, of a letter, of a box
_SWEEPS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A node as it is drawn.

    Attributes:
      lines: the text in it.
      kind: its class in the style sheet.
      tip: the text that is shown when a pointer rests on it.
      reads: the numbers of the boxes that it reads, all smaller than its own.
    """

    lines: tuple[str, ...]
    kind: str
    tip: str
    reads: tuple[int, ...]


def svg(boxes: Sequence[Box], label: str) -> str:
    """The picture: a box below those that it reads.

    Args:
      boxes: each behind those that it reads.
      label: the content of the picture, for readers who do not see it.
    """
    plan = _Plan(boxes)
    left = min((plan.x[i] - plan.width[i] / 2 for i in range(len(plan.x))), default=0) - GAP
    right = max((plan.x[i] + plan.width[i] / 2 for i in range(len(plan.x))), default=0) + GAP
    high = (max(plan.layer, default=0) + 1) * ROW + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_text(label)}" '
        f'width="{right - left:.0f}" height="{high}" '
        f'viewBox="{left:.0f} 0 {right - left:.0f} {high}">'
    ]
    parts += [f'<path d="{plan.curve(path)}"/>' for path in plan.paths]
    parts += [_drawn(box, plan, i) for i, box in enumerate(boxes)]
    return "\n".join([*parts, "</svg>"])


def _drawn(box: Box, plan: _Plan, i: int) -> str:
    x, y, width = plan.x[i], plan.top(i), plan.width[i]
    first = y + HEIGHT / 2 + 4 - 7 * (len(box.lines) - 1)
    lines = "".join(
        f'<text x="{x:.0f}" y="{first + 14 * k:.0f}"{" class=small" if k else ""}>{_text(t)}</text>'
        for k, t in enumerate(box.lines)
    ).replace("class=small", 'class="small"')
    return (
        f'<g class="{_text(box.kind)}"><title>{_text(box.tip)}</title>'
        f'<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="5"/>'
        f"{lines}</g>"
    )


def _text(text: str) -> str:
    return html.escape(text, quote=True)


class _Plan:
    """The places of boxes and edges.

    Attributes:
      layer: the layer of each place. A place is a box, or a layer that a long edge crosses.
      width: the width of each place.
      x: the middle of each place.
      paths: for each edge the places that it goes through, from the box that is read.
    """

    def __init__(self, boxes: Sequence[Box]):
        self.layer: list[int] = []
        for box in boxes:
            self.layer.append(max((self.layer[i] + 1 for i in box.reads), default=0))
        self._lower_sources(boxes)
        self.width = [max(CHAR * max(map(len, b.lines), default=0) + 16, 48.0) for b in boxes]
        self.paths: list[list[int]] = []
        for i, box in enumerate(boxes):
            for source in box.reads:
                self.paths.append([source, *self._crossings(source, i), i])
        self._place()

    def _lower_sources(self, boxes: Sequence[Box]) -> None:
        """A box that reads nothing stands right above its first reader."""
        readers: list[list[int]] = [[] for _ in boxes]
        for i, box in enumerate(boxes):
            for source in box.reads:
                readers[source].append(i)
        for i, box in enumerate(boxes):
            if not box.reads and readers[i]:
                self.layer[i] = min(self.layer[r] for r in readers[i]) - 1

    def _crossings(self, source: int, target: int) -> list[int]:
        """New places, one in each layer between two boxes."""
        made: list[int] = []
        for layer in range(self.layer[source] + 1, self.layer[target]):
            made.append(len(self.layer))
            self.layer.append(layer)
            self.width.append(8.0)
        return made

    def _place(self) -> None:
        """Sweeps down and up: each place below (above) the middle of its neighbours."""
        layers: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for i, layer in enumerate(self.layer):
            layers[layer].append(i)
        self.x = [0.0] * len(self.layer)
        for row in layers:
            self._spread(row, [0.0] * len(row))
        above: list[list[int]] = [[] for _ in self.layer]
        below: list[list[int]] = [[] for _ in self.layer]
        for path in self.paths:
            for a, b in itertools.pairwise(path):
                above[b].append(a)
                below[a].append(b)
        for sweep in range(_SWEEPS):
            beside = below if sweep % 2 else above
            for row in reversed(layers) if sweep % 2 else layers:
                wanted = [
                    sum(self.x[k] for k in beside[i]) / len(beside[i]) if beside[i] else self.x[i]
                    for i in row
                ]
                order = sorted(range(len(row)), key=lambda k: (wanted[k], k))
                row[:] = [row[k] for k in order]
                self._spread(row, [wanted[k] for k in order])

    def _spread(self, row: Sequence[int], wanted: Sequence[float]) -> None:
        """Places a layer from left to right, without overlaps and near to where it wants to be."""
        if not row:
            return
        end = -float("inf")
        for i, x in zip(row, wanted):
            self.x[i] = max(x, end + self.width[i] / 2)
            end = self.x[i] + self.width[i] / 2 + GAP
        shift = sum(self.x[i] - x for i, x in zip(row, wanted)) / len(row)
        for i in row:
            self.x[i] -= shift

    def top(self, i: int) -> float:
        """The upper edge of a place."""
        return self.layer[i] * ROW + GAP

    def curve(self, path: Sequence[int]) -> str:
        """The line of an edge, smooth through the layers that it crosses."""
        x, y = self.x[path[0]], self.top(path[0]) + HEIGHT
        parts = [f"M{x:.0f} {y:.0f}"]
        for k, place in enumerate(path[1:], 1):
            to_x, to_y = self.x[place], self.top(place)
            middle = (y + to_y) / 2
            parts.append(f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}")
            x, y = to_x, to_y
            if k < len(path) - 1:  # straight through the layer
                y += HEIGHT
                parts.append(f"V{y:.0f}")
        return "".join(parts)
