"""explain, and the Report it returns."""

import json

import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors
from tests.comparisons import in_threads
from tests.fallback.test_fallback import UNREGISTERED, unregistered
from tf_pfor.core.registry import Outcome
from tf_pfor.frontends import inputs

W = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def body(x):
    return tf.linalg.matvec(W, x) + 1.0


def found(report, op_type):
    return {r.outcome for r in report.records if r.op_type == op_type}


def test_nothing_is_printed(capsys):
    rows = tf.ones([8, 2])
    reports = [
        tf_pfor.explain(body, rows),
        tf_pfor.data.explain(body, tf.data.Dataset.from_tensor_slices(rows)),
    ]
    assert capsys.readouterr().out == ""
    assert all("MatMul" in report._repr_html_() for report in reports)


def test_of_a_map(capsys):
    report = tf_pfor.explain(body, tf.ones([8, 2]))
    assert capsys.readouterr().out == ""
    assert found(report, "MatMul") == {Outcome.VECTORIZED}
    assert found(report, "ReadVariableOp") == {Outcome.KEPT}
    assert report.n == 8
    assert report.name == "body"
    assert report.is_complete
    assert sum(report.totals.values()) == report.body_ops
    assert 0 < report.emitted_ops <= report.body_ops + 2


def test_the_line_is_the_users():
    report = tf_pfor.explain(body, tf.ones([8, 2]))
    line = next(r.line for r in report.records if r.op_type == "MatMul")
    assert line == f"{__file__}:{body.__code__.co_firstlineno + 1}"
    assert f"test_report.py:{body.__code__.co_firstlineno + 1}" in report.text()


@pytest.mark.parametrize("iters", [8, tf.constant(8)])
def test_of_a_pfor_body(iters):
    x = tf.ones([8, 3])
    report = tf_pfor.explain(lambda i: tf.gather(x, i) * 2.0, iters)
    assert report.n == 8
    assert found(report, "Mul") == {Outcome.VECTORIZED}


def test_of_several_arguments_and_nests():
    one = tf.ones([4, 2])
    report = tf_pfor.explain(lambda a, b: a * b["x"], one, {"x": one})
    assert report.n == 4
    assert found(report, "Mul") == {Outcome.VECTORIZED}
    report = tf_pfor.explain(lambda ab: ab[0] * ab[1], (one, one))
    assert found(report, "Mul") == {Outcome.VECTORIZED}


def test_of_specs_and_unknown_n():
    report = tf_pfor.explain(body, tf.TensorSpec([None, 2]))
    assert report.n is None
    assert "n = unknown" in str(report)
    report = tf_pfor.explain(lambda x: x * 2.0, tf.TensorSpec(None))
    assert found(report, "Mul") == {Outcome.VECTORIZED}


def test_nothing_runs():
    ran = []

    def watched(x):
        tf.py_function(lambda: ran.append(1), [], [])
        return tf.math.log(x)

    counter = tf.Variable(0)

    def counting(x):
        counter.assign_add(1)
        return x

    tf_pfor.explain(watched, tf.ones([3]))
    tf_pfor.explain(counting, tf.ones([3]))
    assert not ran
    assert counter.numpy() == 0


def test_loops_and_refusals_have_reasons():
    with unregistered():
        report = tf_pfor.explain(UNREGISTERED, tf.ones([3, 2]))
        assert found(report, "Betainc") == {Outcome.LOOPED}
        assert "no converter" in report.text()
        assert report.is_complete
        report = tf_pfor.explain(UNREGISTERED, tf.ones([3, 2]), fallback="error")
        assert found(report, "Betainc") == {Outcome.REJECTED}
        assert not report.is_complete
        assert report.records[0].op_type == "Betainc"  # what needs attention comes first
        assert "the fallback loop is off" in report.markdown()


@unregistered()
def test_tiled_says_what_is_repeated():
    @tf_pfor.RegisterPFor("Xlogy", stacked=("x", "y"), override=True)
    def xlogy(call, x, y):
        return call.rebuild(x=x.tensor, y=y.tensor)

    report = tf_pfor.explain(lambda x: tf.math.xlogy(x, [1.0, 2.0]), tf.ones([3, 2]))
    assert found(report, "Xlogy") == {Outcome.TILED}
    assert "repeats the loop-invariant 'y'" in report.text()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_fits(width):
    def long(x):
        return tf.math.betainc(x, x, x)

    with unregistered():
        report = tf_pfor.explain(long, tf.ones([3, 2]), fallback="error")
    assert max(map(len, report.text(width).splitlines())) <= width


def test_json():
    report = tf_pfor.explain(body, tf.ones([8, 2]))
    again = json.loads(json.dumps(report.to_dict()))
    assert again["totals"] == report.totals
    assert again["body"]["ops"] == report.body_ops
    assert {o["op_type"] for o in again["ops"]} == {r.op_type for r in report.records}


def test_inside_a_function_and_in_threads():
    @tf.function
    def outer(x):
        assert tf_pfor.explain(body, x).is_complete
        return x

    graph = outer.get_concrete_function(tf.ones([8, 2])).graph
    graph_ops = [o.type for o in graph.get_operations()]
    assert "MatMul" not in graph_ops
    assert "BatchMatMulV2" not in graph_ops
    reports = in_threads(lambda _: tf_pfor.explain(body, tf.ones([8, 2])), range(4))
    assert len({str(r) for r in reports}) == 1


explained = lambda *args: lambda: tf_pfor.explain(lambda *x: x, *args)
test_bad_arguments = errors(
    (explained(), tf_pfor.ArgumentError, "number of iterations"),
    (explained(-1), tf_pfor.ArgumentError, "negative"),
    (explained(1.5), tf_pfor.ArgumentTypeError, "integer"),
    (explained(tf.ones([2, 1]), tf.ones([3, 1])), tf_pfor.ArgumentError, "differ"),
    (lambda: tf_pfor.explain(3, 4), tf_pfor.ArgumentTypeError, "function"),
)


def test_names_of_concrete_functions():
    """TensorFlow has them as bytes, with a number."""

    @tf.function(input_signature=[tf.TensorSpec([3])])
    def doubled(x):
        return 2.0 * x

    assert tf_pfor.explain(doubled.get_concrete_function()).name == "doubled"


def _draws(seed, *, dtype=tf.float32, size=()):
    return tf.random.stateless_normal(size, seed, dtype=dtype)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda seed: _draws(seed, dtype=tf.float64), "(float64)"),
        (lambda seed: _draws(seed, size=[100_000]), "it draws many numbers"),
        (
            lambda seed: tf.random.stateless_uniform(
                [], seed, minval=0, maxval=seed[0], dtype=tf.int32
            ),
            "more than the seed differs between iterations",
        ),
    ],
    ids=["float64", "large", "bounds"],
)
def test_why_a_draw_is_the_kernels(fn, why):
    """A scalar of float64 was said to be a large draw."""
    report = tf_pfor.explain(fn, tf.TensorSpec([4, 2], tf.int32))
    (reason,) = [r.reason for r in report.records if r.outcome is Outcome.LOOPED]
    assert why in reason


def _of_seed(seed):
    return tf.random.stateless_uniform([], seed)


def _of_two(seed, offset):
    return tf.random.stateless_uniform([], seed + offset)


@pytest.mark.parametrize("way", ["explain", "several", "command line"])
def test_the_cut_of_a_ragged_row_is_where_the_function_is_written(way):
    """It named the caller of explain."""
    rows, spec = tf.ragged.constant([[1, 2], [3, 4]]), "ragged:int32[None]"
    if way == "explain":
        report = tf_pfor.explain(_of_seed, rows)
    elif way == "several":
        report = tf_pfor.explain(_of_two, rows, tf.zeros([2, 2], tf.int32))
    else:
        report = inputs.explained(_of_seed, [inputs.parse(spec)])
    first = (_of_two if way == "several" else _of_seed).__code__.co_firstlineno
    lines = {int(r.line.rpartition(":")[2]) for r in report.records if r.line}
    assert lines == {first, first + 1}, report


def test_what_ops_became_is_told_by_type_and_line():
    def branches(x):
        y = tf.sin(x)
        return tf.cond(y[0] > 0, lambda: tf.reduce_mean(y) * y, lambda: tf.math.exp(tf.cos(y)))

    report = tf_pfor.explain(branches, tf.ones([4, 3]))
    counts = {e.op_type: (e.count, e.ops) for e in report.emitted}
    assert counts["Sin"] == counts["Exp"] == (1, 1)
    assert counts["Cos"] == (1, 2)  # the rows that take the branch are gathered for it
    assert counts["StatelessIf"][1] > 10
    assert report.emitted[0].op_type == "StatelessIf"
    assert all(e.line.partition(":")[0].endswith("test_report.py") for e in report.emitted)
    assert f"most: {counts['StatelessIf'][1]} for 1 StatelessIf (test_report.py:" in " ".join(
        str(report).split()
    )
    assert report.to_dict()["emitted"]["by"][0]["count"] == 1
