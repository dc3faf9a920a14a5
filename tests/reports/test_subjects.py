"""``explain`` and ``check`` of objects that map a function, and with the options of ``vmap``."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor import ArgumentError, ArgumentTypeError
from tf_pfor.core.registry import Outcome

X = tf.constant(np.random.default_rng(0).normal(size=[3, 4]).astype(np.float32))


def scaled(x, factor):
    return tf.cumsum(x) * factor


def of(report, op_type):
    (record,) = [r for r in report.records if r.op_type == op_type]
    return record.outcome


def test_axes_of_vmap():
    report = tf_pfor.explain(scaled, X, tf.constant(2.0), in_axes=(1, None))
    assert (report.n, report.name, of(report, "Cumsum")) == (4, "scaled", Outcome.VECTORIZED)
    specs = tf.TensorSpec([3, None]), tf.TensorSpec([])
    report = tf_pfor.explain(scaled, *specs, in_axes=[-1, None])
    assert report.n is None
    nested = tf_pfor.explain(
        lambda d: d["x"] * d["s"], {"x": X, "s": tf.constant(2.0)}, in_axes=({"x": 1, "s": None},)
    )
    assert nested.n == 4
    assert tf_pfor.explain(tf.exp, X, axis_size=7, in_axes=None).n == 7
    checked = tf_pfor.check(scaled, X, tf.constant(2.0), in_axes=(1, None))
    assert checked.is_equal
    assert (checked.rows, checked.compared) == (4, 2)
    with pytest.raises(ArgumentError, match="in_axes has 2 entries"):
        tf_pfor.explain(tf.exp, X, in_axes=(0, None))
    with pytest.raises(ArgumentError, match="no axis 5"):
        tf_pfor.explain(tf.exp, X, in_axes=5)


def test_options_of_vmap():
    def drawn(x):
        return x + tf.random.normal([])

    assert of(tf_pfor.explain(drawn, X), "RandomStandardNormal") is Outcome.VECTORIZED
    same = tf_pfor.explain(drawn, X, randomness="same")
    assert of(same, "RandomStandardNormal") is Outcome.KEPT
    refused = tf_pfor.explain(drawn, X, randomness="error")
    assert of(refused, "RandomStandardNormal") is Outcome.REJECTED
    named = tf_pfor.explain(lambda x: tf_pfor.psum(x, "i"), X, axis_name="i")
    assert named.is_complete


def test_a_vmapped_function():
    mapped = tf_pfor.vmap(scaled, in_axes=(1, None), randomness="error")
    with pytest.raises(ArgumentError, match="was not called yet"):
        tf_pfor.explain(mapped)
    assert tf_pfor.explain(mapped, X, tf.constant(2.0)).n == 4
    mapped(X, tf.constant(2.0))
    report = tf_pfor.explain(mapped)
    assert (report.n, report.name) == (4, "scaled")
    assert tf_pfor.check(mapped, X, tf.constant(2.0)).is_equal
    with pytest.raises(ArgumentError, match="mapped already"):
        tf_pfor.explain(mapped, X, tf.constant(2.0), in_axes=0, axis_size=4)
    draws = tf_pfor.vmap(lambda x: x + tf.random.normal([]), randomness="same")
    assert of(tf_pfor.explain(draws, X), "RandomStandardNormal") is Outcome.KEPT
    report = tf_pfor.explain(draws, X, randomness="error")
    assert of(report, "RandomStandardNormal") is Outcome.REJECTED


def test_a_method():
    class Scale(tf.Module):
        @tf_pfor.vmap(in_axes=(None, 0))
        def rows(self, x):
            return x * 2.0

    report = tf_pfor.explain(Scale().rows, X)
    assert (report.n, of(report, "Mul")) == (3, Outcome.VECTORIZED)


def test_a_layer():
    layer = tf_pfor.keras.Vectorized(lambda x: tf.nn.softmax(x) + tf.random.normal([]))
    layer(X)
    built = tf_pfor.explain(layer)
    assert (built.n, of(built, "Softmax")) == (None, Outcome.VECTORIZED)
    assert built.totals == layer.explain().totals
    assert tf_pfor.explain(layer, X).n == 3
    assert tf_pfor.check(tf_pfor.keras.Vectorized(tf.nn.softmax), X).is_equal
    same = tf_pfor.keras.Vectorized(lambda x: x + tf.random.normal([]), randomness="same")
    assert of(tf_pfor.explain(same, X), "RandomStandardNormal") is Outcome.KEPT


def test_a_saved_model(tmp_path):
    module = tf.Module()
    module.w = tf.Variable(tf.ones([2, 4]))
    one = tf.function(lambda x: {"y": tf.linalg.matvec(module.w, x)})
    concrete = one.get_concrete_function(tf.TensorSpec([4], tf.float32, "x"))
    tf.saved_model.save(module, tmp_path, signatures=concrete)
    loaded = tf.saved_model.load(tmp_path)
    for subject in (tmp_path, str(tmp_path), loaded, loaded.signatures["serving_default"]):
        report = tf_pfor.explain(subject)
        assert (report.n, of(report, "MatMul")) == (None, Outcome.VECTORIZED)
        assert tf_pfor.check(subject, {"x": X}).is_equal
    with pytest.raises(ArgumentError, match="no SavedModel"):
        tf_pfor.explain("nowhere")
    with pytest.raises(ArgumentError, match="needs the elements"):
        tf_pfor.check(tmp_path)


@pytest.mark.parametrize("out_shapes", ["ragged", "padded"])
def test_a_function_of_a_batch_of_a_dataset(out_shapes):
    mapped = tf_pfor.data.vectorize(lambda x: tf.cumsum(x), out_shapes=out_shapes)
    assert of(tf_pfor.explain(mapped, X), "Cumsum") is Outcome.VECTORIZED
    assert tf_pfor.check(mapped, X).is_equal


def test_an_optimized_function():
    @tf_pfor.optimize
    def norms(rows):
        total = tf.constant(0.0)
        for row in rows:
            total = total * 0.5 + tf.norm(row)
        return tf.map_fn(tf.math.softplus, rows), total

    report = tf_pfor.explain(norms, X)
    assert isinstance(report, tf_pfor.Report)
    assert of(report, "Softplus") is Outcome.VECTORIZED
    assert of(report, "for") is Outcome.LOOPED
    assert tf_pfor.explain(norms, tf.TensorSpec([None, 4])).totals == report.totals
    with pytest.raises(ArgumentError, match="check compares"):
        tf_pfor.check(norms, X)


def test_what_is_no_function():
    for subject in (3, None, [tf.exp]):
        with pytest.raises(ArgumentTypeError, match="must be a function"):
            tf_pfor.explain(subject, X)


def test_lines():
    def body(x):
        y = tf.exp(x)

        if tf.reduce_sum(y) > 1.0:
            y = tf.sin(y) + tf.constant([1.0] * 4)
        return y

    report = tf_pfor.explain(body, X)
    first = body.__code__.co_firstlineno
    assert [line.number for line in report.lines] == [*range(first, first + 6)]
    assert [bool(line.ops) for line in report.lines] == [False, True, False, True, True, False]
    assert report.lines[1].source.strip() == "y = tf.exp(x)"
    assert {line.file for line in report.lines} == {__file__}
    assert sum(line.ops for line in report.lines) == report.body_ops
    assert [line.number for line in report.lines if line.outcome is None] == [
        first, first + 2, first + 5,
    ]  # fmt: skip
    assert report.lines[1].bytes == X.shape.num_elements() * 4
    assert abs(sum(line.time_share for line in report.lines) - 1.0) < 1e-6
    assert report.lines[1].outcome is Outcome.VECTORIZED
    assert sum(line.emitted for line in report.lines) > 0
