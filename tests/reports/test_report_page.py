"""The report as a page: the table, the picture, and what a browser makes of it."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
import tensorflow as tf

import tf_pfor
from tests.fallback.test_fallback import unregistered
from tf_pfor.reports import layered_drawing, report_page
from tf_pfor.reports.explain import explain
from tf_pfor.reports.layered_drawing import Box

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
W = tf.Variable(tf.eye(3), name="weights")


@tf.function
def dense(x):
    return tf.nn.relu(tf.linalg.matvec(W, x))


def body(x):
    y = dense(x) + tf.math.betainc(tf.abs(x) + 1.0, 2.0, 0.4)  # looks like <b>this</b>
    while tf.reduce_sum(y) < 10.0:
        y = dense(y) + 1.0
    return y, tf.size(y)


@pytest.fixture(scope="module")
def report():
    with unregistered():
        return explain(body, tf.TensorSpec([None, 3], tf.float32))


class Page(html.parser.HTMLParser):
    """The text of each cell, what is loaded from elsewhere, and whether all tags are closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.loaded, self.open = [], [], []
        self.feed(text)
        self.close()

    def by_op_type(self):
        """The rows of the table by op type, which stands below the code."""
        heads = [i for i, row in enumerate(self.rows) if row[:1] == ["op type"]]
        return self.rows[heads[0] :]

    def handle_starttag(self, tag, attrs):
        self.loaded += [value for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def test_the_table_begins_with_what_loops(report):
    page = Page(report._repr_html_())
    assert not page.open
    head, first, *rows = page.by_op_type()
    assert head == [
        "op type",
        "count",
        "outcome",
        "your code",
        "why",
        "results",
        "operations",
        "time",
    ]
    assert first[:3] == ["Betainc", "1", "looped"]
    assert "tf.math.betainc(tf.abs(x) + 1.0, 2.0, 0.4)  # looks like <b>this</b>" in first[3]
    assert "test_report_page.py:" in first[3]
    assert first[4] == "no converter is registered for it"
    assert len(rows) == len(report.records) - 1 + 1  # the head of what is kept


def test_refusals_come_first():
    with unregistered():
        found = explain(body, tf.TensorSpec([None, 3], tf.float32), fallback="error")
    page = Page(found.html())
    assert page.by_op_type()[1][2] == "rejected"
    assert 'class="rejected"' in found.html()


def test_the_source_is_in_the_json(report):
    (first,) = [op for op in report.to_dict()["ops"] if op["op_type"] == "Betainc"]
    assert first["source"].startswith("y = dense(x) + ")


def test_the_graphs(report):
    top, *others = report.graphs
    labels = [n.label for n in top.nodes]
    assert {"input 0", "weights", "call dense", "Betainc", "AddV2", "result 0", "result 1"} <= {
        *labels
    }
    assert "Const" not in labels
    assert "Identity" not in labels
    assert [g.title for g in others].count("dense") == 1
    assert any("while" in g.title for g in others)
    for graph in report.graphs:
        for i, node in enumerate(graph.nodes):
            assert all(k < i for k in node.inputs)
    (looped,) = [n for n in top.nodes if n.kind == "looped"]
    assert (looped.label, looped.shape) == ("Betainc", "float32[3]")
    assert looped.line.startswith(__file__)
    (last,) = [n for n in top.nodes if n.label == "result 0"]
    assert top.nodes[last.inputs[0]].label == "While"


def test_save_writes_one_file(report, tmp_path):
    path = tmp_path / "report.html"
    report.save(path)
    text = path.read_text()
    page = Page(text)
    assert not page.open
    assert not page.loaded
    assert "url(" not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == len(report.graphs)
    svg = "{http://www.w3.org/2000/svg}"
    for picture, graph in zip(pictures, report.graphs):
        tree = ET.fromstring(picture)
        assert [g.get("class") for g in tree.iter(f"{svg}g")] == [n.kind for n in graph.nodes]
        edges = sum(len(n.inputs) for n in graph.nodes)
        assert len([*tree.iter(f"{svg}path")]) == edges


def _plan(*reads):
    return layered_drawing._Plan([Box((str(i),), "kept", "", r) for i, r in enumerate(reads)])


def test_boxes_stand_below_what_they_read_and_do_not_overlap(report):
    for graph in report.graphs:
        boxes = [Box((n.label, n.shape), n.kind, "", n.inputs) for n in graph.nodes]
        plan = layered_drawing._Plan(boxes)
        for i, box in enumerate(boxes):
            assert all(plan.layer[k] < plan.layer[i] for k in box.reads)
        for i in range(len(plan.x)):
            for k in range(i):
                if plan.layer[i] == plan.layer[k]:
                    apart = abs(plan.x[i] - plan.x[k])
                    assert apart >= (plan.width[i] + plan.width[k]) / 2


def test_a_long_edge_goes_around():
    plan = _plan((), (0,), (1,), (0, 2))
    (path,) = [p for p in plan.paths if p[0] == 0 and p[-1] == 3]
    assert [plan.layer[i] for i in path] == [0, 1, 2, 3]
    assert plan.x[path[1]] != plan.x[1]


def test_a_source_stands_above_its_first_reader():
    assert _plan((), (0,), (1,), (), (2, 3)).layer == [0, 1, 2, 2, 3]


def test_nothing_to_draw():
    assert ET.fromstring(layered_drawing.svg([], "nothing")).tag.endswith("svg")


def test_large_graphs_show_what_needs_attention(monkeypatch, report):
    monkeypatch.setattr(report_page, "_MOST", 3)
    text = report.html()
    more = len(report.graphs[0].nodes) - 3
    assert f"{more} more ops are not drawn" in text
    assert '<g class="looped">' in text
    text = report.html(pictures=False)
    assert "<svg" not in text


def test_a_deep_body(tmp_path):
    def deep(x):
        for _ in range(1500):
            x = tf.sin(x)
        return x

    found = explain(deep, tf.TensorSpec([None], tf.float32))
    assert len(found.graphs[0].nodes) == 1502
    assert "<svg" not in found._repr_html_()
    found.save(tmp_path / "deep.html")
    assert (tmp_path / "deep.html").stat().st_size < 300_000


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_in_a_browser(report, tmp_path):
    """A picture of the page has the colours of the outcomes, and nothing is cut off."""
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    report.save(page)
    subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1280,2600",
            f"--screenshot={picture}", pathlib.Path(page).as_uri(),
        ],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    pixels = tf.io.decode_png(picture.read_bytes(), 3).numpy().reshape(-1, 3)
    for colour in ("dff3e4", "fde3c8", "eef1f4", "e8f0fb"):
        wanted = [int(colour[i : i + 2], 16) for i in (0, 2, 4)]
        assert (pixels == wanted).all(1).sum() > 500, colour


def test_of_a_tf_function_and_of_a_keras_layer():
    import keras

    found = explain(dense, tf.TensorSpec([None, 3], tf.float32))
    assert any(n.label == "MatMul" for g in found.graphs for n in g.nodes)
    layer = keras.layers.Dense(2)
    layer.build([None, 3])
    found = explain(layer, tf.TensorSpec([None, 4, 3], tf.float32))
    assert {n.label for n in found.graphs[0].nodes} >= {"input 0", "MatMul", "result 0"}
    assert isinstance(found, tf_pfor.Report)


def test_the_page_begins_with_the_code():
    w = tf.Variable(tf.ones([3, 3]))

    def body(x):
        y = tf.linalg.matvec(w, x)
        z = tf.py_function(lambda a: a, [y], tf.float32)

        return tf.exp(y) + z

    report = explain(body, tf.ones([4, 3]))
    page = report.html()
    code, table = page.split("</table>", 1)
    first = body.__code__.co_firstlineno
    numbers = [int(k) for k in re.findall(r'<td class="rough">(\d+)</td><td><pre>', code)]
    assert numbers == [*range(first, first + 5)]
    assert re.findall(r'<tr class="line (\w+)"', code) == ["vectorized", "looped", "vectorized"]
    assert "called once for each iteration" in code
    assert "z = tf.py_function(lambda a: a, [y], tf.float32)" in code
    assert "<details><summary>1 kept" in table
    assert "ReadVariableOp" not in code
    dicts = report.to_dict()["lines"]
    assert [x["outcome"] for x in dicts] == [None, "vectorized", "looped", None, "vectorized"]
    json.dumps(dicts)
