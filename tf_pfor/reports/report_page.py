"""A report as HTML: the user's code, a table by op type, and pictures of the graphs."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

from tf_pfor.core.registry import Outcome
from tf_pfor.reports import estimates
from tf_pfor.reports.body_graph import BodyGraph, Node
from tf_pfor.reports.layered_drawing import Box, svg
from tf_pfor.reports.op_records import OpRecord, short
from tf_pfor.reports.source_lines import SourceLine

_MOST = 250  # boxes in one picture
_KINDS = {
    "rejected": "refused: it can be neither vectorized nor looped",
    "looped": "runs in a sequential loop",
    "tiled": "vectorized after repeating what all rows share",
    "vectorized": "all rows at once",
    "kept": "the same for all rows: computed once",
    "unread": "not looked at, since something else was refused",
}
_ATTENTION = ("rejected", "looped")
_ROUGH = (
    "Results (bytes), operations (arithmetic) and time (share) are estimates from static shapes; a "
    "trip of a loop counts once, and nothing was run."
)

_STYLE = """
.tfp { font: 14px/1.45 system-ui, sans-serif; color: #1d2530; max-width: 1200px; }
.tfp h1 { font-size: 20px; margin: 0 0 4px; } .tfp h2 { font-size: 15px; margin: 24px 0 6px; }
.tfp td.why { min-width: 120px; } .tfp td.rough { color: #5c6876; text-align: right; }
.tfp table { border-collapse: collapse; margin: 12px 0; width: 100%; table-layout: auto; }
.tfp th, .tfp td { text-align: left; vertical-align: top; padding: 5px 10px; border: 0;
  border-bottom: 1px solid #dfe4ea; background: none; color: inherit; }
.tfp td.count { text-align: right; }
.tfp code { font: 12.5px ui-monospace, monospace; color: inherit; background: none; padding: 0; }
.tfp code.source { display: block; min-width: 200px; overflow-wrap: anywhere; }
.tfp table.code td { padding: 0 10px; border: 0; }
.tfp table.code pre { font: 12.5px/1.6 ui-monospace, monospace; margin: 0; padding: 0;
  background: none; color: inherit; border: 0; white-space: pre-wrap; }
.tfp tr.vectorized pre { background: #dff3e4; } .tfp tr.tiled pre { background: #fdf6d3; }
.tfp tr.looped pre { background: #fde3c8; } .tfp tr.rejected pre { background: #fbd5d5; }
.tfp summary { cursor: pointer; color: #5c6876; }
.tfp .where { color: #5c6876; font-size: 12.5px; }
.tfp .key { display: inline-block; padding: 1px 8px; border-radius: 9px; border: 1px solid; }
.tfp .picture { overflow: auto; max-height: 900px; border: 1px solid #dfe4ea; border-radius: 6px; }
.tfp svg { display: block; margin: 0 auto; background: #fff; }
.tfp svg path { fill: none; stroke: #9aa5b1; }
.tfp svg text { font: 12px ui-monospace, monospace; text-anchor: middle; fill: #1d2530; }
.tfp svg text.small { font-size: 10px; fill: #5c6876; }
.tfp svg rect { fill: #fff; stroke: #9aa5b1; }
.tfp svg .input rect, .tfp svg .result rect { fill: #e8f0fb; stroke: #6f9bd8; }
.tfp svg .call rect { stroke-dasharray: 2 2; }
.tfp .key.kept { background: #eef1f4; border-color: #9aa5b1; }
.tfp svg .kept rect { fill: #eef1f4; stroke: #9aa5b1; }
.tfp .key.vectorized { background: #dff3e4; border-color: #4c9a63; }
.tfp svg .vectorized rect { fill: #dff3e4; stroke: #4c9a63; }
.tfp .key.tiled { background: #fdf6d3; border-color: #b99b1d; }
.tfp svg .tiled rect { fill: #fdf6d3; stroke: #b99b1d; }
.tfp .key.looped { background: #fde3c8; border-color: #d9731a; }
.tfp svg .looped rect { fill: #fde3c8; stroke: #d9731a; stroke-width: 2; stroke-dasharray: 6 3; }
.tfp .key.rejected { background: #fbd5d5; border-color: #c62828; }
.tfp svg .rejected rect { fill: #fbd5d5; stroke: #c62828; stroke-width: 3; }
""".replace(".tfp ", ".tfp.tfp.tfp ")  # stronger than what notebooks say of all tables


def page(title: str, body: str) -> str:
    """A file that needs no other."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}: tf_pfor</title>\n</head>\n"
        f'<body style="margin: 24px; background: #fff">\n{body}\n</body>\n</html>\n'
    )


def content(
    title: str,
    n: int | None,
    records: Sequence[tuple[OpRecord, float]],
    summary: Sequence[str],
    graphs: Sequence[BodyGraph],
    lines: Sequence[SourceLine],
) -> str:
    """The content of a page or a notebook.

    The user's ``lines`` come first, then the ``records``, each with its share of the time.
    """
    parts = [f'<div class="tfp"><style>{_STYLE}</style>', f"<h1>{_text(title)}</h1>"]
    parts += _source(lines)
    parts += [f"<div>{_text(line)}</div>" for line in summary]
    kept = [(r, share) for r, share in records if r.outcome is Outcome.KEPT]
    parts += _table([x for x in records if x[0].outcome is not Outcome.KEPT], n)
    if kept:
        says = f"{sum(r.count for r, _ in kept)} kept: {_KINDS['kept']}"
        parts += [f"<details><summary>{_text(says)}</summary>", *_table(kept, n), "</details>"]
    parts.append(f"<div>{_ROUGH}</div>")
    used = {node.kind for graph in graphs for node in graph.nodes}
    if graphs:
        keys = [f"{_key(k)} {_text(says)}" for k, says in _KINDS.items() if k in used]
        parts += ["<h2>The graph</h2>", f"<div>{' &ensp; '.join(keys)}</div>"]
    for i, graph in enumerate(graphs):
        parts += [f"<h2>{_text(graph.title)}</h2>"] if i else []
        parts.append(_picture(graph))
    return "\n".join([*parts, "</div>"])


def _source(lines: Sequence[SourceLine]) -> list[str]:
    """The user's code: the outcome of each line as its colour, and what it costs."""
    parts: list[str] = []
    for k, line in enumerate(lines):
        if k == 0 or line.file != lines[k - 1].file:
            parts += ["</tbody></table>"] if k else []
            name = _text(short(line.file) or "line unknown")
            parts.append(
                f'<table class="code"><thead><tr><th></th><th>{name}</th><th>emitted ops</th>'
                "<th>results</th><th>time</th></tr></thead><tbody>"
            )
        elif line.number > lines[k - 1].number + 1:
            parts.append('<tr><td></td><td colspan="4">...</td></tr>')
        kind, rough = "", ["", "", ""]
        if line.outcome is not None:
            outcome = line.outcome.value
            tip = " ".join(x for x in (_KINDS.get(outcome, ""), line.reason) if x)
            kind = f' class="line {_text(outcome)}" title="{_text(tip)}"'
            rough = [str(line.emitted), _bytes(line.bytes), f"{line.time_share:.0%}"]
        parts.append(
            f'<tr{kind}><td class="rough">{line.number or ""}</td>'
            f"<td><pre>{_text(line.source)}</pre></td>{_cells(rough)}</tr>"
        )
    return [*parts, "</tbody></table>"] if parts else []


def _table(records: Sequence[tuple[OpRecord, float]], n: int | None) -> list[str]:
    return [
        "<table><thead><tr><th>op type</th><th>count</th><th>outcome</th><th>your code</th>"
        "<th>why</th><th>results</th><th>operations</th><th>time</th></tr></thead><tbody>",
        *[_row(r, share, n) for r, share in records],
        "</tbody></table>",
    ]


def _row(r: OpRecord, share: float, n: int | None) -> str:
    where = f'<div class="where" title="{_text(r.line)}">{_text(short(r.line))}</div>'
    code = f'<code class="source">{_text(r.source)}</code>' if r.source else ""
    name = f"<code>{_text(r.op_type)}</code>"
    if r.outcome.value in _ATTENTION:
        name = f"<strong>{name}</strong>"
    size = None if r.bytes is None else r.bytes * r.rows(n)
    work = "" if r.flops is None else estimates.text_of_flops(r.flops * r.rows(n))
    return (
        f'<tr><td>{name}</td><td class="count">{r.count}</td><td>{_key(r.outcome.value)}</td>'
        f'<td>{code}{where if r.line else ""}</td><td class="why">{_text(r.reason)}</td>'
        f"{_cells([_bytes(size), work, f'{share:.0%}'])}</tr>"
    )


def _cells(rough: Sequence[str]) -> str:
    """Estimates, "" where nothing is known."""
    return "".join(f'<td class="rough">{_text(x)}</td>' for x in rough)


def _bytes(size: float | None) -> str:
    return "" if size is None else estimates.text_of_bytes(size)


def _key(kind: str) -> str:
    return f'<span class="key {_text(kind)}">{_text(kind)}</span>'


def _picture(graph: BodyGraph) -> str:
    nodes, left_out = _few(graph.nodes)
    boxes = [
        Box((n.label, n.shape) if n.shape else (n.label,), n.kind, _tip(n), n.inputs) for n in nodes
    ]
    note = ""
    if left_out:
        note = f"<div>{left_out} more ops are not drawn; those that need attention are.</div>"
    return f'{note}<div class="picture">{svg(boxes, f"the graph of {graph.title}")}</div>'


def _few(nodes: Sequence[Node]) -> tuple[list[Node], int]:
    """At most ``_MOST`` nodes, those that need attention first, and how many are left out."""
    if len(nodes) <= _MOST:
        return list(nodes), 0
    ranks = {kind: i for i, kind in enumerate(_KINDS)}
    order = sorted(range(len(nodes)), key=lambda i: (ranks.get(nodes[i].kind, 3), i))
    kept = sorted(order[:_MOST])
    numbers = {i: k for k, i in enumerate(kept)}
    made = [
        dataclasses.replace(
            nodes[i], inputs=tuple(numbers[k] for k in nodes[i].inputs if k in numbers)
        )
        for i in kept
    ]
    return made, len(nodes) - _MOST


def _tip(node: Node) -> str:
    kind = _KINDS.get(node.kind, node.kind)
    return "\n".join(t for t in (node.name, kind, node.reason, node.line) if t)


def _text(text: str) -> str:
    return html.escape(text, quote=True)
