"""Eager calls with effects, hidden state or randomness: never a stale result."""

# ruff: noqa: B023, E731  (fresh lambdas in loops are what these tests are about)

import collections
import datetime
import enum
import functools
import io
import itertools
import random
import threading
import time
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import close
from tests.tracing.counts import counts

each = tf_pfor.vectorized_map
X = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


class Counting:
    def __init__(self):
        self.calls = 0

    def counting(self, x):
        self.calls += 1
        return x


def draws_anew(call, same=np.allclose):
    """Three calls give other numbers each."""
    found = [np.asarray(call()) for _ in range(3)]
    assert not same(found[0], found[1])
    assert not same(found[1], found[2])


# ---------------------------------------------------------------------------
# Never kept
# ---------------------------------------------------------------------------


def test_python_effects_happen_in_each_call(capsys):
    calls, box = [], {"n": 0}
    plain, count = Counting(), itertools.count()

    def appends(x):
        calls.append(1)
        return x * len(calls)

    def in_a_dict(x):
        box["n"] += 1
        return x * box["n"]

    def prints(x):
        print("traced")
        return x

    for k in (1.0, 2.0, 3.0):
        close(each(appends, X), X * k)
        close(each(in_a_dict, X), X * k)
        each(plain.counting, X)
        assert plain.calls == k
        close(each(lambda x: x * float(next(count)), X), X * (k - 1.0))
        each(prints, X)
    assert capsys.readouterr().out.count("traced") == 3
    assert counts() == (0, 0, 15)


def test_assigned_cells_and_globals():
    total = 0.0

    def f(x):
        nonlocal total
        total += 1.0
        return x * total

    for k in (1.0, 2.0, 3.0):
        close(each(f, X), X * k)


def test_hidden_state_of_libraries():
    rng = np.random.default_rng(0)
    bodies = [
        lambda x: x + np.random.rand(),
        lambda x: x + random.random(),
        lambda x: x + time.perf_counter(),
        lambda x: x + rng.random(),
    ]
    for body in bodies:
        draws_anew(lambda: each(body, X), np.array_equal)  # a clock moves on by little
    assert counts() == (0, 0, 12)


def test_python_functions_in_the_graph_see_their_own_closure():
    seen = []
    for k in (1.0, 2.0):
        w, mine = tf.constant(k), []
        close(each(lambda x: tf.py_function(lambda a: a * w, [x], tf.float32), X), X * k)
        each(lambda x: tf.numpy_function(lambda a: mine.append(a), [x], []), X)
        seen.append(len(mine))
    assert seen == [3, 3]
    assert counts()[:2] == (0, 0)


def test_values_that_tracing_needs():
    """A closure over a tensor whose value Python reads: it counts by identity."""
    scale = 1.0
    mapped = tf_pfor.vmap(lambda x: x * w.numpy() * scale)
    for k in (1.0, 2.0):
        w = tf.constant(k)
        for _ in range(2):
            close(each(lambda x: x * w.numpy(), X), X * k)
        for scale in (1.0, 3.0):
            close(mapped(X), X * k * scale)
    assert counts() == (6, 2, 0)


def test_variables_made_in_the_body():
    made = []

    class Lazy:
        v = None

        def __call__(self, x):
            if self.v is None:
                self.v = tf.Variable(2.0)
                made.append(1)
            return x * self.v

    lazy = Lazy()
    for _ in range(4):
        close(each(lazy, X), X * 2.0)
    assert made == [1]
    assert counts() == (1, 2, 1)


def test_unknown_objects():
    queue = collections.deque([2.0])
    f = lambda x: x * queue[0]
    close(each(f, X), X * 2.0)
    queue[0] = 3.0
    close(each(f, X), X * 3.0)
    iterator = iter([1.0, 2.0])
    for k in (1.0, 2.0):
        close(each(lambda x: x * next(iterator), X), X * k)
    tape_free = tf_pfor.cache_info()
    assert (tape_free.misses, tape_free.uncacheable) == (0, 4)


def test_a_tape_in_the_closure():
    for k in (1.0, 2.0):
        x = tf.constant([k, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x**2
        close(tf_pfor.tape_jacobian(tape, y, x), np.diag([2 * k, 4.0]))


def test_errors_are_those_of_a_plain_call():
    for _ in range(2):
        with pytest.raises(tf_pfor.ArgumentError, match=r"differ in the size"):
            each(lambda e: e[0], (X, tf.ones([4])))
        with pytest.raises(tf_pfor.ArgumentTypeError, match="handle of dtype variant"):
            each(lambda x: tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=-1), X)
        with pytest.raises(Exception, match="division by zero"):
            each(lambda x: x * (1 / 0), X)
    assert counts()[:2] == (0, 0)


def test_more_hidden_state():
    box, reads = [1.0], io.StringIO("123")
    memo = functools.lru_cache(lambda k: box[0])
    number = Counting()
    weak, local = weakref.ref(number), threading.local()
    local.k = 1.0
    for k in (1.0, 2.0, 3.0):
        close(each(lambda x: x * float(reads.read(1)), X), X * k)
        number.calls = local.k = box[0] = k
        close(each(lambda x: x * weak().calls, X), X * k)
        close(each(lambda x: x * local.k, X), X * k)
        memo.cache_clear()
        close(each(lambda x: x * memo(0), X), X * k)
        each(lambda x: x + datetime.datetime.now().microsecond, X)
    assert counts() == (0, 0, 15)


class Colour(enum.Enum):
    RED = 1.0

    def scaled(self, x):
        return x * self.value * FACTOR


FACTOR = 1.0


def test_methods_of_enums(monkeypatch):
    for k in (1.0, 1.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", k)
        close(each(Colour.RED.scaled, X), X * k)
    assert counts() == (2, 1, 0)


def test_keras_masks_stay():
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(tf.constant([[1, 0, 2]]))
    pool = keras.layers.GlobalAveragePooling1D()
    expected = pool(embedded)
    for _ in range(2):
        found = each(lambda x: pool(embedded)[0] + 0.0 * x, X)
        close(found, tf.repeat(expected, 3, 0))


def test_global_generators():
    draws_anew(lambda: each(lambda x: x + keras.random.normal([2]), X))
    draws_anew(lambda: each(lambda x: x + tf.random.get_global_generator().normal([2]), X))


def test_too_much_to_look_at():
    many = list(range(200_000))
    close(each(lambda x: x * many[2], X), X * 2.0)
    nested = [1.0]
    for _ in range(5000):
        nested = [nested]
    close(each(lambda x: x * len(nested), X), X)
    assert counts() == (0, 0, 2)


def test_functions_that_are_run_eagerly():
    tf.config.run_functions_eagerly(True)
    try:
        close(each(lambda x: x * 2.0, X), X * 2.0)
        assert counts() == (0, 0, 1)
    finally:
        tf.config.run_functions_eagerly(False)


# ---------------------------------------------------------------------------
# Randomness and state
# ---------------------------------------------------------------------------


def test_unseeded_draws_differ():
    draws_anew(lambda: each(lambda x: x + tf.random.normal([2]), X))
    assert counts() == (1, 2, 0)


def test_seeded_draws_are_those_of_a_trace_for_each_call():
    seeded = lambda x: x + tf.random.normal([2], seed=7)
    first = each(seeded, X)
    for _ in range(3):
        close(each(seeded, X), first)
    plain = lambda x: x + tf.random.normal([2])
    each(plain, X)
    tf.random.set_seed(3)
    try:
        first = each(plain, X)
        close(each(plain, X), first)
        tf.random.set_seed(4)
        assert not np.allclose(each(plain, X), first)
    finally:
        tf.random.set_seed(None)
    assert counts()[1] == 0


def test_generators_go_on():
    a, b = tf.random.Generator.from_seed(1), tf.random.Generator.from_seed(1)
    for _ in range(3):
        found = each(lambda x: x + a.normal([2]), X)
        close(found, X + tf.stack([b.normal([2]) for _ in range(3)]))
    assert counts() == (1, 2, 0)


def test_assignments_happen_in_each_call():
    total, calls = tf.Variable(0.0), tf.Variable(0)

    def f(x):
        total.assign_add(x[0])
        calls.assign_add(1)

    for k in (1, 2, 3):
        assert each(f, X) is None
        assert (total.numpy(), calls.numpy()) == (9.0 * k, 3 * k)
    assert counts() == (1, 2, 0)


def test_tf_print_prints_each_time(capfd):
    for _ in range(3):
        each(lambda x: tf.print("row", x[0]), X)
    assert capfd.readouterr().err.count("row") == 3
    assert counts() == (1, 2, 0)


# ---------------------------------------------------------------------------
# Functions that were made once
# ---------------------------------------------------------------------------


def test_vmap_sees_changes():
    scale = 2.0
    f = tf_pfor.vmap(lambda x: x * scale)
    close(f(X), X * 2.0)
    scale = 3.0
    close(f(X), X * 3.0)
    jacobian = tf_pfor.jacrev(lambda x: x * scale)
    close(jacobian(X[0]), np.eye(2) * 3.0)
    scale = 4.0
    close(jacobian(X[0]), np.eye(2) * 4.0)


def test_vmap_keeps_what_the_cache_does_not():
    traces = []
    rng = np.random.default_rng(0)

    def f(x):
        traces.append(1)
        return x + rng.random()

    mapped = tf_pfor.vmap(f)
    close(mapped(X), mapped(X))
    assert len(traces) == 1


def test_vmap_over_other_arguments():
    f = tf_pfor.vmap(lambda x, y, power=1: x * y["k"] ** power, in_axes=(0, None))
    for k in (1.0, 2.0):
        close(f(X, {"k": tf.constant(k)}), X * k)
        close(f(X, {"k": k}), X * k)
        close(f(X, {"k": np.float32(k)}), X * k)
    assert tf_pfor.cache_info().uncacheable == 0


class Member:
    scale = 2.0

    @tf_pfor.vmap(in_axes=(None, 0))
    def mapped(self, x):
        return x * self.scale


def test_vmap_of_a_method():
    o = Member()
    close(o.mapped(X), X * 2.0)
    o.scale = 3.0
    close(o.mapped(X), X * 3.0)
