"""Reads of a variable that the iteration has just updated from the variable's value."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

X = [1.0, 2.0, 4.0, 8.0]


def running_mean_by_add():
    count, mean = tf.Variable(0.0), tf.Variable(0.0)

    def step(a):
        count.assign_add(1.0)
        mean.assign_add((a - mean) / count)
        return a

    return (count, mean), step


def running_mean_by_result():
    count, mean = tf.Variable(0.0), tf.Variable(0.0)

    def step(a):
        now = count.assign_add(1.0)
        mean.assign_add((a - mean) / now)
        return a

    return (count, mean), step


def running_mean():
    count, mean = tf.Variable(0.0), tf.Variable(0.0)

    def step(a):
        count.assign(count + 1.0)
        mean.assign(mean + (a - mean) / count)
        return mean * 1.0

    return (count, mean), step


def welford():
    count, mean, squares = (tf.Variable(0.0) for _ in range(3))

    def step(a):
        count.assign_add(1.0)
        old = mean.read_value()
        mean.assign_add((a - mean) / count)
        squares.assign_add((a - old) * (a - mean))
        return a

    return (count, mean, squares), step


def largest():
    most = tf.Variable(0.0)

    def step(a):
        most.assign(tf.maximum(most, a))
        return most - a

    return (most,), step


def average_and_what_follows():
    first, second = tf.Variable(1.0), tf.Variable(2.0)

    def step(a):
        first.assign(first * 0.5 + a)
        second.assign(second * 0.5 + first)
        return first + second

    return (first, second), step


def each_of_the_other():
    first, second = tf.Variable(1.0), tf.Variable(2.0)

    def step(a):
        first.assign(first + second)
        second.assign(second * 0.5 + first)
        return first + second + a

    return (first, second), step


def gathered():
    table = tf.Variable([1.0, 2.0])

    def step(a):
        table.assign(table * 0.5 + a)
        return tf.gather(table, 0)

    return (table,), step


def decayed_and_moved():
    weight = tf.Variable(1.0)

    def step(a):
        weight.assign_sub(0.1 * weight)
        weight.assign_sub(0.1 * a)
        return a

    return (weight,), step


def updated_in_a_function():
    weight = tf.Variable(1.0)
    update = tf.function(lambda a: weight.assign(weight * 0.5 + a))

    def step(a):
        update(a)
        return weight + a

    return (weight,), step


VECTORIZED = (running_mean, largest, average_and_what_follows)
IN_ORDER = (
    running_mean_by_add, running_mean_by_result, welford, each_of_the_other, gathered,
    decayed_and_moved, updated_in_a_function,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("n", [4, 1, 0])
@pytest.mark.parametrize("make", VECTORIZED + IN_ORDER)
def test_as_in_a_loop(make, n):
    variables, step = make()
    expected = [step(tf.constant(a)).numpy() for a in X[:n]]
    states = [v.numpy() for v in variables]
    variables, step = make()
    found = tf_pfor.vectorized_map(step, tf.constant(X[:n]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for variable, state in zip(variables, states):
        np.testing.assert_allclose(variable.numpy(), state, rtol=1e-6)


@pytest.mark.parametrize("make", VECTORIZED)
def test_no_loop(make):
    _, step = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", tf_pfor.FallbackWarning)
        tf_pfor.vectorized_map(step, tf.constant(X))


def test_gradient_of_what_is_read_afterwards():
    """Gradients as in eager code: none by the assignment, one for the variable that is read."""
    weight = tf.Variable(1.0)

    def step(a):
        weight.assign(weight * 0.5 + a)
        return weight * a

    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf_pfor.vectorized_map(step, tf.constant(X)))
    assert float(tape.gradient(total, weight)) == sum(X)
