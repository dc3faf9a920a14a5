"""Tests of variables that a scope of ``lazy`` shares with other threads."""

import threading

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import in_threads
from tf_pfor._tf import _eager_ops


def elsewhere(fn):
    """The result of a function in another thread."""
    return in_threads(lambda _: fn(), [0])[0]


def made_here():
    v = tf.Variable(2.0)
    return elsewhere(lambda: v * 3.0)


def written_here(v):
    v.assign(5.0)
    return elsewhere(lambda: v * 3.0), elsewhere(lambda: tf.multiply(v, 2.0)), elsewhere(v.numpy)


def written_there(v):
    before = v * 1.0
    elsewhere(lambda: v.assign_add(1.0))
    middle = v * 1.0
    v.assign(7.0)
    elsewhere(lambda: v.assign_add(1.0))
    return before, middle, v * 1.0


def by_functions(v):
    read = tf.function(lambda: v * 2.0)
    read()
    v.assign(3.0)
    before = read()
    elsewhere(lambda: v.assign_add(1.0))
    return before, read(), elsewhere(read)


def by_another_scope(v):
    v.assign(3.0)
    before = v + 1.0
    double = tf_pfor.lazy(lambda: v.assign(v * 2.0) + 0.0)
    return before, elsewhere(double), v + 1.0


@pytest.mark.parametrize("fn", [written_here, written_there, by_functions, by_another_scope])
def test_threads_see_variables_as_eager_threads_do(fn):
    expected = tf.nest.map_structure(float, fn(tf.Variable(1.0)))
    with tf_pfor.lazy():
        found = fn(tf.Variable(1.0))
    assert tf.nest.map_structure(float, found) == expected
    assert tf.nest.map_structure(float, tf_pfor.lazy(fn)(tf.Variable(1.0))) == expected
    assert _eager_ops.is_idle()
    assert not _eager_ops._catchers


def test_variables_that_are_made_in_the_scope():
    assert float(tf_pfor.lazy(made_here)()) == 6.0
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def replicas():
        with strategy.scope():
            w = tf.Variable(2.0)
        w.assign(5.0)
        return strategy.run(lambda: w * 3.0)

    assert float(tf_pfor.lazy(replicas)()) == 15.0


def test_an_error_belongs_to_the_scope_that_recorded_it():
    v = tf.Variable(2.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="test_sharing"), tf_pfor.lazy():  # noqa: PT012
        tf.gather(tf.constant([1.0, 2.0]), tf.cast(v, tf.int32) + 3)
        assert float(elsewhere(lambda: v.assign_add(1.0))) == 3.0
    assert float(v) == 3.0


def test_threads_with_other_variables_do_not_end_a_trace():
    v, w = tf.Variable(2.0), tf.Variable(3.0)
    with tf_pfor.lazy():
        y = v * 2.0
        v.assign(y)
        assert elsewhere(lambda: w.assign_add(1.0).numpy()) == 4.0
        assert y.made is None
        z = v + y
        assert elsewhere(lambda: (w * 1.0).numpy()) == 4.0
        assert z.made is None
    assert float(z) == 8.0


def test_one_scope_in_two_threads():
    scope, barrier, found = tf_pfor.lazy(), threading.Barrier(2), {}

    def run(k):
        with scope:
            barrier.wait()
            x = tf.constant(float(k)) * 2.0
            barrier.wait()
            if k:
                barrier.wait()
        if not k:
            barrier.wait()
        found[k] = float(x), _eager_ops.catcher()

    in_threads(run, range(2))
    assert found == {0: (0.0, None), 1: (2.0, None)}
    assert _eager_ops.is_idle()
