"""Tests of corners in which recorded ops must be as eager ops, or are refused."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import errors, grid
from tests.comparisons import gradient_of
from tf_pfor._tf import _eager_ops
from tf_pfor.core.errors import UnsupportedStateError
from tf_pfor.recording import traces
from tf_pfor.recording.compiled import Compiled


def test_a_list_of_no_tensors():
    with tf_pfor.lazy():
        x = tf.zeros([0, 2]) * 2.0
        assert tf.unstack(x) == []
    fn = tf_pfor.batched(lambda k: tf.constant(k) + len(tf.unstack(tf.zeros([0, 2]) * k)))
    assert fn([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("n", [2, 7, 8, 9, 10, 16, 17, 18, 25])
def test_sums_of_many_tensors_have_equal_bits(n):
    tensors = list(tf.random.stateless_normal([n, 40], [n, 1]))
    with tf_pfor.lazy():
        found = tf.add_n(tensors)
    np.testing.assert_array_equal(found, tf.add_n(tensors), strict=True)


def test_gradients_of_a_long_recurrence_have_equal_bits():
    start = tf.random.stateless_normal([4, 4], [1, 2])

    def gradient():
        h, w = tf.ones([1, 4]) * 0.3, tf.Variable(start)
        step = lambda h, _: tf.tanh(h @ w)
        return gradient_of(lambda: tf.reduce_sum(functools.reduce(step, range(20), h) ** 2), w)

    np.testing.assert_array_equal(tf_pfor.lazy(gradient)(), gradient(), strict=True)


def test_gradients_of_a_convolution_have_equal_bits(monkeypatch):
    image = tf.random.stateless_normal([2, 8, 8, 1], [1, 2])
    filters = tf.Variable(tf.random.stateless_normal([3, 3, 1, 3], [3, 4]))
    bias = tf.Variable(tf.zeros([3]))

    convolution = lambda: tf.nn.bias_add(tf.nn.conv2d(image, filters, 1, "VALID"), bias)
    gradients = lambda: gradient_of(lambda: tf.reduce_sum(convolution() ** 2), (bias, filters))
    traced, first = [], Compiled._first
    monkeypatch.setattr(Compiled, "_first", lambda *args: traced.append(first(*args)) or traced[-1])
    for found, expected in zip(tf_pfor.lazy(gradients)(), gradients()):
        np.testing.assert_array_equal(found, expected, strict=True)
    # In one thread, oneDNN's merged gradient has the same bits.
    waits = {op.type: op.control_inputs for op in traced[0][-1].graph.get_operations()}
    assert waits["BiasAddGrad"] != waits["Conv2DBackpropFilter"]


def test_gradients_that_eager_ops_make_dense(monkeypatch):
    v = tf.Variable([1.0, 2.0, 3.0])

    rows = lambda: tf.gather(tf.constant([0.5, 1.0, 2.0]) + v, [2, 0])
    fn = lambda k: gradient_of(lambda: tf.reduce_sum(rows() ** 2) * k, v)
    two = lambda k: fn(k) * 2.0  # another form, which runs op by op
    for patience, run in ((16, fn), (-1, two), (16, fn), (-1, fn)):
        monkeypatch.setattr(traces, "PATIENCE", patience)
        found = tf_pfor.lazy(run)(1.0)
        assert not isinstance(found, tf.IndexedSlices)
        np.testing.assert_array_equal(found, run(1.0), strict=True)


V = tf.Variable(3.0)


def stopping(x, tape):
    with tape.stop_recording():
        a = x * V
    return a + V


def watching(x, tape):
    tape.watch(V)
    return x * V


asking = lambda x, tape: tape.gradient(x * V, V)


def resetting(x, tape):
    tape.reset()
    return x * V


@grid(unit=[lambda fn: fn, tf_pfor.cell], fn=[stopping, watching, asking, resetting])
def test_a_tape_around_the_call_is_not_told_what_to_do_for_one_example(fn, unit):
    refused = pytest.raises(tf_pfor.NotVectorizableError, match="is around the call")
    with tf.GradientTape(persistent=True) as tape, refused:
        tf_pfor.batched(unit(lambda x: fn(x, tape)))([tf.constant(1.0), tf.constant(2.0)])
    assert _eager_ops.is_idle()


def test_an_accumulator_around_the_call_is_not_asked_inside():
    refused = pytest.raises(tf_pfor.NotVectorizableError, match="jvp.. of a ForwardAccumulator")
    with tf.autodiff.ForwardAccumulator(V, tf.constant(1.0)) as accumulator, refused:
        tf_pfor.batched(lambda x: accumulator.jvp(x * V))([1.0, 2.0])


def test_tapes_that_the_function_begins_may_stop_and_begin_again():
    def fn(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            with tape.stop_recording():
                a = x * x
            y = a * x
        slope = tape.gradient(y, x)
        with tape:
            z = y * y * x
        return slope, tape.gradient(z, x)

    rows = tf.constant([2.0, 3.0])
    found = tf_pfor.batched(fn)(rows)
    expected = [tf.stack(x) for x in zip(*map(fn, rows))]
    np.testing.assert_array_equal(found, expected)


class Doubled(tf.keras.layers.Layer):
    """A layer whose call is a batch of recursions; it says whether it trains."""

    def call(self, x, training=False):
        half = tf.keras.layers.Rescaling(0.5)

        def fn(row):
            return half(row) * (4.0 if half(row[0]) > 0.0 else 1.0)

        return tf_pfor.batched(fn)(x)


def test_settings_of_the_thread_go_with_the_function():
    before = tf.keras.config.dtype_policy()
    rows = tf.constant([[2.0], [-2.0]], tf.float64)
    try:
        tf.keras.config.set_dtype_policy("float64")
        found = tf_pfor.batched(lambda x: tf.keras.layers.Rescaling(2.0)(tf.constant([x])))([1.0])
        assert found.dtype == tf.float64
        assert Doubled()(rows).numpy().tolist() == [[4.0], [-1.0]]
    finally:
        tf.keras.config.set_dtype_policy(before)
    thread, devices = _eager_ops.thread_state, []
    with tf.device("CPU:0"):
        tf_pfor.batched(lambda x: devices.append(thread().device_name) or tf.constant(x))([1.0])
        assert devices == [thread().device_name]


# -- What is refused -------------------------------------------------------------------------------


def generator(x):
    yield x


async def coroutine(x):
    return x


def traced_jacobian(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * tf.ones([2])
    return tape.jacobian(y, x)


DROPOUT = tf.keras.layers.Dropout(0.5)
FULL = tf.ones([4])


def batch(fn, examples=tf.constant([1.0, 2.0])):  # noqa: B008
    return tf_pfor.batched(fn)(examples)


test_what_is_refused = errors(
    (lambda: tf_pfor.lazy(generator), tf_pfor.ArgumentTypeError, "generator function"),
    (lambda: tf_pfor.lazy(coroutine), tf_pfor.ArgumentTypeError, "coroutine function"),
    (lambda: tf_pfor.batched(generator), tf_pfor.ArgumentTypeError, "generator function"),
    (lambda: tf_pfor.cell(generator), tf_pfor.ArgumentTypeError, "generator function"),
    (lambda: tf_pfor.lazy(jit_compile="yes"), tf_pfor.ArgumentTypeError, "True or False"),
    (lambda: batch(lambda x: x, V * 1.0), tf_pfor.ArgumentTypeError, "found a scalar"),
    (lambda: batch(lambda x: x, np.array(1.0)), tf_pfor.ArgumentTypeError, "found a scalar"),
    (lambda: batch(lambda x: x, []), tf_pfor.ArgumentError, "at least one example"),
    (lambda: batch(tf_pfor.cell(lambda x: None)), tf_pfor.ArgumentTypeError, "no tensor"),
    (lambda: batch(tf_pfor.cell(lambda x: print)), tf_pfor.ArgumentTypeError, "is no tensor"),
    (lambda: batch(traced_jacobian), tf_pfor.NotVectorizableError, "jacobian.*tf_pfor.cell"),
    (lambda: batch(lambda x: DROPOUT(FULL * x, training=True)), UnsupportedStateError,
        "Dropout does with training=True. Use .* tf.nn.dropout"),
    (lambda: batch(tf_pfor.cell(lambda x: DROPOUT(FULL * x, training=True))), UnsupportedStateError,
        "Dropout does with training=True. Use .* tf.nn.dropout"),
)  # fmt: skip


def test_the_ways_out():
    found = batch(lambda x: tf.nn.dropout(tf.ones([50]) * x, 0.5))
    assert not np.array_equal(found[0] == 0.0, found[1] == 0.0)
    assert batch(tf_pfor.cell(traced_jacobian)).shape == (2, 2)
    pair = tf_pfor.cell(lambda x: {"double": x * 2.0, "none": None})
    assert batch(pair)["double"].numpy().tolist() == [2.0, 4.0]
    assert batch(pair)["none"] is None


def test_a_scope_may_be_used_again():
    scope = tf_pfor.lazy()
    for _ in range(2):
        with scope, scope:
            x = V * 2.0
        assert float(x) == 6.0

    @scope
    def double(x):
        return x * 2.0

    assert isinstance(double(V), _eager_ops.EagerTensor)
    assert _eager_ops.is_idle()


def test_functions_with_an_effect_are_traced_twice_at_most():
    traced = []

    @tf.function
    def count():
        traced.append(1)
        V.assign_add(0.0)

    with tf_pfor.lazy():
        for _ in range(5):
            count()
    assert len(traced) <= 3
