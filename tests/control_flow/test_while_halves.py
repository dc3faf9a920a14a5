"""While loops of much work, per-row trips: two loops, each of half of the rows."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import case
from tests.comparisons import check, notes, vectorized
from tests.devices import of_cpus
from tf_pfor import _tf
from tf_pfor.converters.control_flow import while_compact

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
LENGTHS = np.array([2, 0, 4, 1, 4], np.int32)
ONES = tf.ones([3])
WEIGHTS = tf.Variable(np.eye(3, dtype=np.float32) * 0.5)


@pytest.fixture
def always(monkeypatch):
    """Whatever the work, and whether or not gradients are recorded."""
    monkeypatch.setattr(while_compact, "_LARGE", 0)
    monkeypatch.setattr(_tf, "may_record_gradients", lambda: False)


def steps(k, x):
    """The number of trips, and a state that each trip changes."""
    return tf.while_loop(
        lambda t, s: t < k, lambda t, s: (t + 1, tf.tanh(s * 1.5 + s[::-1])), (0, x)
    )


@pytest.mark.parametrize(
    "lengths", [[2, 0, 4, 1, 4], [0, 0, 0, 0, 0], [0, 0, 3, 3, 3], [3, 3, 0, 0, 0], [1, 2], [4], []]
)
@of_cpus
def test_values(always, lengths):
    k = np.array(lengths, np.int32)
    check(steps, k, X[: len(k)], while_strategy="compact", xla=False)
    found = notes(steps, k, X[: len(k)], while_strategy="compact")
    assert any("compact, in two halves" in n for n in found) == (len(k) > 1)


@pytest.mark.usefixtures("always")
@case(
    check,
    LENGTHS,
    np.random.default_rng(1).normal(size=(5, 4, 2)).astype(np.float32),
    X,
    while_strategy="compact",
    xla=False,
)
def test_what_the_body_captures(k, x, y):
    """Reads at the counter, at an index for each row, and of everything."""
    body = lambda t, s: (t + 1, tf.tanh(s + x[t] + tf.gather(x, k - 1 - t) + tf.reduce_sum(y)))
    return tf.while_loop(lambda t, s: t < k, body, (0, tf.zeros([2])))[1]


def test_one_loop_where_the_work_is_not_known(always):
    def f(k, x):
        return tf.while_loop(lambda t, s: t < k, lambda t, s: (t + 1, steps(k - t, s)[1]), (0, x))

    assert not any("halves" in n for n in notes(f, LENGTHS, X, while_strategy="compact"))
    check(f, LENGTHS, X, while_strategy="compact", xla=False)


def _loops(fn, *args):
    graph = tf.function(fn, autograph=False).get_concrete_function(*args).graph
    return sum(op.type in ("While", "StatelessWhile") for op in graph.get_operations())


@of_cpus
def test_one_loop_where_gradients_are_recorded(monkeypatch):
    """Two loops would each add up gradients of the weights."""
    monkeypatch.setattr(while_compact, "_LARGE", 0)
    mapped = lambda k, x: vectorized(steps, (k, x), while_strategy="compact")

    def recorded(k, x):
        with tf.GradientTape():
            return mapped(k, x)

    assert _loops(mapped, LENGTHS, X) == 2
    assert _loops(recorded, LENGTHS, X) == 1


def test_one_loop_where_there_is_an_effect_or_little_to_do(monkeypatch):
    assert not any("halves" in n for n in notes(steps, LENGTHS, X, while_strategy="compact"))
    monkeypatch.setattr(while_compact, "_LARGE", 0)
    total = tf.Variable(0.0)

    def f(k, x):
        def body(t, s):
            total.assign_add(s[0])
            return t + 1, s * 0.5

        return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]

    assert not any("halves" in n for n in notes(f, LENGTHS, X))


@pytest.mark.usefixtures("always")
@case(check, LENGTHS, X, while_strategy="compact", xla=False)
def test_a_variable_that_is_only_read(k, x):
    body = lambda t, s: (t + 1, tf.tanh(tf.linalg.matvec(WEIGHTS, s)))
    return tf.while_loop(lambda t, s: t < k, body, (0, x))[1]


def test_one_loop_where_trips_push_the_same_tensor(always):
    """The list is a tensor and a count, which are not rows."""

    def pushed(k, x):
        empty = tf.raw_ops.EmptyTensorList(
            element_shape=[3], max_num_elements=-1, element_dtype=tf.float32
        )
        return tf.while_loop(
            lambda t, _: t < k,
            lambda t, h: (t + 1, tf.raw_ops.TensorListPushBack(input_handle=h, tensor=ONES)),
            (0, empty),
        )[1]

    length = lambda k, x: tf.raw_ops.TensorListLength(input_handle=pushed(k, x))
    run = tf.function(
        lambda *rows: vectorized(length, rows, while_strategy="compact"), autograph=False
    )
    np.testing.assert_array_equal(run(LENGTHS, X)[0], LENGTHS)
