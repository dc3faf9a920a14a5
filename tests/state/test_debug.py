"""Prints, asserts, checks, summaries and Python functions in a vectorized loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import gradient_of
from tf_pfor.core.errors import UnsupportedStateError

X = tf.constant([1.0, -2.0, 3.0, -4.0])
mapped = lambda body, elems=X: tf_pfor.vectorized_map(body, elems)


def shows(body, text, elems=X, *, capfd):
    """The text that ``body`` prints for these rows."""
    mapped(body, elems)
    assert capfd.readouterr().err == text


# -- Prints ----------------------------------------------------------------------------------------


@case(shows, "x: [1 -2 3 -4] and [[2 -4 6 -8], 7]\n")
def test_a_print_shows_the_stacked_values_once(x):
    tf.print("x:", x, "and", [x * 2.0, 7])
    return x


@case(shows, "once\n")
def test_a_print_of_what_is_invariant(x):
    tf.print("once")
    return x


@case(shows, "", X[:0])
def test_nothing_is_printed_without_iterations(x):
    tf.print("once")
    tf.print(x)
    return x


@case(shows, "a [1 ... -4]!b\n")
def test_prints_keep_their_order_and_options(x):
    tf.print("a", x, end="!", summarize=1)
    tf.print("b")
    return x


@case(shows, '["a" "b"]\n', tf.constant(["a", "b"]))
def test_a_print_of_strings(s):
    tf.print(s)


@case(shows, "positive: [1 3]\n")
def test_a_print_in_a_branch_shows_the_active_rows(x):
    if x > 0.0:
        tf.print("positive:", x)
    return x


def test_a_formatted_string_that_is_read():
    with pytest.warns(tf_pfor.FallbackWarning, match="StringFormat"):
        found = mapped(lambda x: tf.strings.format("<{}>", x))
    assert found.numpy().tolist() == [b"<1>", b"<-2>", b"<3>", b"<-4>"]


# -- Asserts ---------------------------------------------------------------------------------------

ASSERTS = {
    "Assert": lambda x: tf.debugging.Assert(x < 9.0, ["too large", x]),
    "assert_all_finite": lambda x: tf.debugging.assert_all_finite(9.0 - x, "message"),
    "assert_equal": lambda x: tf.debugging.assert_equal(x, tf.minimum(x, 8.0)),
    "assert_less": lambda x: tf.debugging.assert_less(x, 9.0, message="too large"),
    "assert_near": lambda x: tf.debugging.assert_near(x, tf.minimum(x, 8.0)),
    "assert_non_negative": lambda x: tf.debugging.assert_non_negative(9.0 - x),
}


def fails(body, rows, *texts):
    """An assertion of the body fails for these rows, and says so."""
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        mapped(body, tf.constant(rows))
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(ASSERTS) - {"assert_all_finite"}))
def test_asserts(name):
    """Nothing when all rows hold; else an error with the numbers of the rows."""
    body = lambda x: (ASSERTS[name](x), x * 2.0)[1]
    np.testing.assert_allclose(mapped(body), X * 2.0)
    fails(body, [1.0, 10.0, 3.0, 11.0], "[1 3]")


@case(fails, [1.0, 10.0, 3.0, 11.0], "[10 11]", "too large")
def test_the_data_of_a_failed_assert_are_those_of_its_rows(x):
    tf.debugging.Assert(x < 9.0, ["too large", x])
    return x


def asserts_in_a_branch(x):
    if x < 0.0:
        tf.debugging.assert_less(x, -1.0)
    return x


def test_an_assert_in_a_branch_is_for_the_active_rows():
    np.testing.assert_allclose(mapped(asserts_in_a_branch), X)
    fails(asserts_in_a_branch, [0.5, -2.0, -0.5], "[2]")


def test_an_assert_in_two_maps_loops_over_nothing():
    both = lambda x: mapped(lambda row: mapped(asserts_in_a_branch, row), x)
    held = tf.constant([[0.5, -2.0], [3.0, 4.0]])
    np.testing.assert_allclose(both(held), held)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)iterations:.*\[1\]"):
        both(tf.constant([[0.5, -2.0], [3.0, -0.5]]))


@pytest.mark.parametrize("maps", [1, 2])
def test_what_follows_an_assert_waits_for_it(maps):
    """The user's error comes, not the error of the op behind the assert."""

    def body(x):
        with tf.control_dependencies([tf.debugging.Assert(x >= 0.0, ["no place"])]):
            at = tf.cast(tf.identity(x), tf.int32)
        return tf.gather([1.0, 2.0, 3.0, 4.0], at) * 2.0

    def run(x):
        return tf_pfor.vmap(body)(x) if maps == 1 else tf_pfor.vmap(tf_pfor.vmap(body))(x[None])[0]

    np.testing.assert_allclose(run(tf.constant([1.0, 3.0])), [4.0, 8.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)assertion failed.*no place"):
        run(X)


def test_an_assert_of_what_is_invariant():
    limit = tf.Variable(1.0)
    body = lambda x: (tf.debugging.assert_less(limit, 5.0), x)[1]
    np.testing.assert_allclose(mapped(body), X)
    limit.assign(7.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        mapped(body)


def test_check_numerics():
    body = lambda x: tf.debugging.check_numerics(tf.math.log(x), "not a number")
    np.testing.assert_allclose(mapped(body, tf.abs(X)), tf.math.log(tf.abs(X)), rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a number"):
        mapped(body)


# -- One after the other ---------------------------------------------------------------------------


def test_a_python_function_is_called_in_order():
    calls = []

    def double(x):
        calls.append(float(x))
        return x * 2.0

    np.testing.assert_allclose(mapped(lambda x: tf.py_function(double, [x], tf.float32)), X * 2.0)
    assert calls == X.numpy().tolist()


def test_a_python_function_of_nothing_is_called_for_each_row():
    calls = []

    def count():
        calls.append(0)
        return np.float32(len(calls))

    body = lambda x: x + tf.ensure_shape(tf.numpy_function(count, [], tf.float32), [])
    np.testing.assert_allclose(mapped(body), X + [1.0, 2.0, 3.0, 4.0])


def test_exceptions_pass_through():
    def fails(x):
        if x < -3.0:
            raise ValueError("four")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="ValueError: four"):
        mapped(lambda x: tf.py_function(fails, [x], tf.float32))


def test_a_python_function_whose_result_is_not_read():
    calls = []
    mapped(lambda x: (tf.py_function(lambda v: calls.append(float(v)), [x], []), x)[1])
    assert calls == X.numpy().tolist()


def test_the_gradient_of_a_python_function():
    body = lambda x: tf.ensure_shape(tf.py_function(lambda v: v * v, [x], tf.float32), [])
    np.testing.assert_allclose(gradient_of(lambda: mapped(body), X), 2.0 * X)


def test_summaries(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))

    def body(x):
        with writer.as_default(step=3):
            tf.summary.write("loss", x)
        return x

    mapped(body)
    writer.close()
    values = [v.tensor for event in _events(tmp_path) for v in event.summary.value]
    assert [float(tf.make_ndarray(v)) for v in values] == X.numpy().tolist()


def _events(folder):
    records = tf.data.TFRecordDataset([str(path) for path in folder.iterdir()])
    return [tf.compat.v1.Event.FromString(record.numpy()) for record in records]


# tf.summary's own functions need TensorBoard; they end in these.
KINDS = {
    "Audio": lambda x: {"tensor": tf.fill([1, 8, 1], x / 4.0), "sample_rate": 8000.0},
    "Histogram": lambda x: {"values": tf.fill([4], x)},
    "Image": lambda x: {
        "tensor": tf.fill([1, 2, 2, 1], tf.abs(x) / 4.0),
        "bad_color": tf.constant([255, 0, 0, 255], tf.uint8),
    },
    "Scalar": lambda x: {"value": x},
    "": lambda x: {"tensor": x, "summary_metadata": b""},
}


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kinds_of_summaries(kind, tmp_path):
    """One for each row, in order, as the loop writes them."""
    written = []
    for name in ("loop", "map"):
        writer = tf.summary.create_file_writer(str(tmp_path / name))

        def body(x, writer=writer):
            write = getattr(tf.raw_ops, f"Write{kind}Summary")
            write(writer=writer._resource, step=tf.constant(3, tf.int64), tag="t", **KINDS[kind](x))
            return x

        if name == "map":
            mapped(body)
        else:
            one = tf.function(body)
            for x in X:
                one(x)
        writer.close()
        summaries = [e.summary for e in _events(tmp_path / name) if e.summary.value]
        written.append([s.SerializeToString() for s in summaries])
    assert len(written[0]) == len(X)
    assert written[0] == written[1]


def test_flushing_and_closing_a_writer_is_done_once(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))

    def body(x):
        with writer.as_default(step=1):
            tf.summary.write("s", x)
        writer.flush()
        return x

    mapped(body)
    assert sum(len(e.summary.value) for e in _events(tmp_path)) == len(X)


W = tf.Variable([1.0, 2.0])
_squared = lambda x: tf.ensure_shape(tf.py_function(lambda v: v * v, [x], tf.float32), x.shape)
_slope = lambda x: gradient_of(lambda: tf.reduce_sum(_squared(x) ** 2), x)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_python_in_the_body_follow_the_call_of_their_row(compiled):
    """Python remembers one call, the last: the gradient of a row is taken before the next row."""

    def run(x):
        slopes = tf_pfor.vectorized_map(_slope, x)
        loss = lambda row: tf.reduce_sum(_squared(row * W))
        return slopes, tf_pfor.per_example_gradients(loss, W, x)[0]

    x = tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]])
    slopes, by_w = (tf.function(run) if compiled else run)(x)
    np.testing.assert_allclose(slopes, 4 * x**3)
    np.testing.assert_allclose(by_w, 2 * x**2 * W)


@pytest.mark.parametrize("compiled", [False, True])
def test_jacobians_of_python_are_refused(compiled):
    """All rows of a jacobian ask for one call."""
    run = lambda x: tf_pfor.vmap(tf_pfor.jacrev(_squared))(x)
    with pytest.raises(UnsupportedStateError, match="use tf.map_fn with the tape in its function"):
        (tf.function(run) if compiled else run)(tf.ones([3, 2]))


def test_what_the_refusal_of_gradients_of_python_says_to_do():
    x = tf.constant([[1.0, 2.0], [3.0, -1.0]])
    np.testing.assert_allclose(tf.map_fn(_slope, x), 4 * x**3)
