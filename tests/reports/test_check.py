"""``check``: equal bodies are equal, and a wrong converter is found with op, line and row."""

import inspect
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.devices import of_cpus
from tf_pfor.core.errors import ArgumentError, NotVectorizableError
from tf_pfor.core.registry import ANY, REGISTRY

X = tf.random.stateless_normal([4, 3], [1, 2])


@pytest.fixture
def wrong_tanh():
    """A converter that is right for all rows but the last two."""
    with REGISTRY.temporary():

        @tf_pfor.RegisterPFor("Tanh", ANY, override=True)
        def tanh(call, x):
            good = call.rebuild()
            return call.emit("ConcatV2", [good[:2], good[2:] * 1.5], np.int32(0))

        yield


def test_a_wrong_converter_is_found(wrong_tanh, capsys):
    def fn(x):
        y = tf.exp(x) + 1.0
        z = tf.tanh(y)  # the line
        return tf.reduce_sum(z * 2.0)

    report = tf_pfor.check(fn, X)
    found = report.difference
    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, text in enumerate(lines) if "# the line" in text)
    assert not report.is_equal
    assert (found.op_type, found.row, found.output) == ("Tanh", 2, 0)
    assert pathlib.Path(found.line).name == f"test_check.py:{line}"
    np.testing.assert_allclose(found.found, 1.5 * found.expected, 1e-5)
    largest = 0.5 * np.tanh(np.exp(X[2:]) + 1).max()
    np.testing.assert_allclose(found.largest, largest, 1e-5)
    assert capsys.readouterr().out == ""
    said = str(report)
    assert "first that differs" in said
    assert f"test_check.py:{line}" in said


def test_inside_control_flow_it_names_the_op_around(wrong_tanh):
    def fn(x):
        return tf.while_loop(lambda y: tf.reduce_sum(y) < 3.0, lambda y: [tf.tanh(y) + 1], [x])[0]

    assert tf_pfor.check(fn, -tf.abs(X)).difference.op_type in ("While", "StatelessWhile")


def test_inside_functions_it_names_the_op(wrong_tanh):
    w = tf.Variable(2.0)
    inner = tf.function(lambda x, k: tf.tanh(x * k * w) + 1.0)
    outer = tf.function(lambda x: inner(tf.exp(x), 3.0) * w)

    found = tf_pfor.check(lambda x: tf.reduce_sum(outer(x + 1.0)), X).difference
    assert (found.op_type, found.row) == ("Tanh", 2)
    assert "test_check.py" in found.line

    model = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Activation("tanh")])
    call = tf.function(lambda x: model(x[None]))
    assert tf_pfor.check(lambda x: call(x)[0], X).difference.op_type == "Tanh"


def test_equal_bodies():
    dense = tf.keras.layers.Dense(2)
    dense.build([None, 3])

    def fn(x):
        y = dense(x[None])[0]
        if tf.reduce_sum(x) > 0:
            y = tf.sqrt(tf.abs(y))
        values, order = tf.math.top_k(x, 2)
        return {"y": y, "order": order, "v": values, "none": None, "text": tf.strings.as_string(x)}

    report = tf_pfor.check(fn, X)
    assert report.is_equal
    assert report.rows == 4
    assert report.compared > 8
    assert tf_pfor.check(lambda i: X[i] * 2, 4).is_equal
    assert tf_pfor.check(lambda a, b: a @ b, tf.ones([2, 3, 4]), tf.ones([2, 4, 5])).compared == 1
    assert tf_pfor.check(lambda x: x * 2, tf.zeros([0, 3])).rows == 0
    assert tf_pfor.check(lambda x: tf.cast(x, tf.bfloat16) ** 2, X).is_equal
    nan = tf.constant([[1.0, np.nan], [np.inf, 0.0]])
    assert tf_pfor.check(lambda x: x * 2, nan).is_equal


def test_strings_that_are_scalars():
    def fn(x):
        text = tf.strings.as_string(tf.reduce_sum(x))
        return tf.strings.join(["is", text], " "), tf.strings.length(text)

    report = tf_pfor.check(fn, X)
    assert report.is_equal
    assert report.compared > 1


def test_variables_are_as_before():
    total = tf.Variable(1.0)

    def fn(x):
        total.assign_add(tf.reduce_sum(x))
        return x * 2

    assert tf_pfor.check(fn, tf.ones([4, 3])).is_equal
    assert total.numpy() == 1.0


def test_nothing_that_was_compared_is_not_equal():
    report = tf_pfor.check(lambda x: x + tf.random.normal([]), X)
    assert not report.is_equal
    assert str(report).startswith("Nothing was compared")


def test_random_numbers_are_not_compared():
    report = tf_pfor.check(lambda x: (x + tf.random.normal([3]), x * 2), X)
    assert report.is_equal
    assert report.compared == 1
    assert report.not_compared >= 2
    assert "could not be" in str(report)


def test_errors():
    with pytest.raises(ArgumentError, match=r"outside of tf\.function"):
        tf.function(lambda: tf_pfor.check(lambda x: x, X))()
    with pytest.raises(ArgumentError, match="collectives"):
        tf_pfor.check(lambda x: tf_pfor.psum(x), X)
    with pytest.raises(NotVectorizableError):
        tf_pfor.check(
            lambda x: tf.raw_ops.AudioSpectrogram(input=x[:, None], window_size=2, stride=1),
            X,
            fallback="error",
        )
    with pytest.raises(ArgumentError, match="needs the elements"):
        tf_pfor.check(lambda x: x)


@pytest.fixture
def failing_atan():
    """A converter whose op fails for numbers that Atan takes."""
    with REGISTRY.temporary():

        @tf_pfor.RegisterPFor("Atan", ANY, override=True)
        def atan(call, x):
            return call.emit("CheckNumerics", call.emit("Log", x.tensor), message="no atan")

        yield


def test_what_fails_in_the_vectorized_version_only_is_found(failing_atan):
    def fn(x):
        y = tf.exp(x)
        z = tf.atan(-y)  # the line
        return tf.reduce_sum(tf.sin(z) + y)

    report = tf_pfor.check(fn, X)
    found = report.difference
    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, text in enumerate(lines) if "# the line" in text)
    assert not report.is_equal
    assert found.op_type == "Atan"
    assert pathlib.Path(found.line).name == f"test_check.py:{line}"
    assert found.error == "no atan : Tensor had NaN values"
    assert (found.expected, found.found, found.largest) == (None, None, None)
    said = str(report)
    assert "first that fails in the vectorized version, and not in the loop" in said
    assert found.error in said


@of_cpus
def test_what_fails_in_the_loop_as_well_is_raised():
    with pytest.raises(tf.errors.InvalidArgumentError, match="= 5 is not in"):
        tf_pfor.check(lambda x: tf.gather(x, tf.cast(x[0] * 0, tf.int32) + 5), X)


# ---------------------------------------------------------------------------
# Lookup tables are as before
# ---------------------------------------------------------------------------


def _tables():
    words = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "?")
    words.insert(tf.constant([1, 2], tf.int64), ["a", "b"])
    points = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, [0.0, 0.0], -1, -2)
    points.insert(tf.constant([5, 6], tf.int64), [[1.0, 2.0], [3.0, 4.0]])
    return words, points


def _held(words, points):
    """The entries of both tables, in order."""
    keys, values = points.export()
    kept = keys[:, 0].numpy() >= 0
    pairs = [*zip(keys[:, 0].numpy()[kept].tolist(), values.numpy()[kept].tolist())]
    sizes = [int(t.size()) for t in (words, points)]
    return sorted(zip(*[x.numpy().tolist() for x in words.export()])), sorted(pairs), sizes


def test_tables_are_as_before():
    words, points = _tables()
    before = _held(words, points)

    @tf.function
    def inserted(i):
        points.insert(i, tf.ones([2]) * tf.cast(i, tf.float32))
        return i + 1

    def changed(i):
        words.insert(i, tf.strings.as_string(i))
        return tf.cond(i > 5, lambda: inserted(i), lambda: i)

    def removed(i):
        words.remove(i[None])
        points.erase(i[None])
        return points.lookup(i), words.lookup(i)

    for fn in (changed, removed, changed):
        assert tf_pfor.check(fn, tf.constant([1, 7, 6], tf.int64)).rows == 3
        assert _held(words, points) == before
    points.insert(tf.constant(9, tf.int64), [1.0, 1.0])  # they still work
    assert _held(words, points)[1] == sorted([*before[1], (9, [1.0, 1.0])])


def test_the_page_of_a_check_has_the_verdict():
    report = tf_pfor.check(tf.tanh, X)
    assert str(report) in report.html()
    assert report.text().splitlines()[0].endswith(report.verdict)
