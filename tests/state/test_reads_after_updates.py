"""Reads of a variable that the iteration has just updated from the variable's value."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, strict_map
from tests.state.maps import check_as_the_loop, made, starts

X = [1.0, 2.0, 4.0, 8.0]


@starts(0.0, 0.0)
def running_mean_by_add(count, mean, a):
    count.assign_add(1.0)
    mean.assign_add((a - mean) / count)
    return a


@starts(0.0, 0.0)
def running_mean_by_result(count, mean, a):
    now = count.assign_add(1.0)
    mean.assign_add((a - mean) / now)
    return a


@starts(0.0, 0.0)
def running_mean(count, mean, a):
    count.assign(count + 1.0)
    mean.assign(mean + (a - mean) / count)
    return mean * 1.0


@starts(0.0, 0.0, 0.0)
def welford(count, mean, squares, a):
    count.assign_add(1.0)
    old = mean.read_value()
    mean.assign_add((a - mean) / count)
    squares.assign_add((a - old) * (a - mean))
    return a


@starts(0.0)
def largest(most, a):
    most.assign(tf.maximum(most, a))
    return most - a


@starts(1.0, 2.0)
def average_and_what_follows(first, second, a):
    first.assign(first * 0.5 + a)
    second.assign(second * 0.5 + first)
    return first + second


@starts(1.0, 2.0)
def each_of_the_other(first, second, a):
    first.assign(first + second)
    second.assign(second * 0.5 + first)
    return first + second + a


@starts([1.0, 2.0])
def gathered(table, a):
    table.assign(table * 0.5 + a)
    return tf.gather(table, 0)


@starts(1.0)
def decayed_and_moved(weight, a):
    weight.assign_sub(0.1 * weight)
    weight.assign_sub(0.1 * a)
    return a


@starts(1.0)
def updated_in_a_function(weight, a):
    tf.function(lambda a: weight.assign(weight * 0.5 + a))(a)
    return weight + a


VECTORIZED = (running_mean, largest, average_and_what_follows)
IN_ORDER = (
    running_mean_by_add, running_mean_by_result, welford, each_of_the_other, gathered,
    decayed_and_moved, updated_in_a_function,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@grid(body=VECTORIZED + IN_ORDER, n=[4, 1, 0])
def test_as_in_a_loop(body, n):
    rows = tf.constant(X[:n])
    mapped = tf_pfor.vectorized_map
    check_as_the_loop(body, *body.starts, mapped=mapped, elems=rows, rtol=1e-6)


@pytest.mark.parametrize("body", VECTORIZED)
def test_no_loop(body):
    strict_map(made(body)[0], tf.constant(X))


def test_gradient_of_what_is_read_afterwards():
    """Gradients as in eager code: none by the assignment, one for the variable that is read."""
    weight = tf.Variable(1.0)

    def step(a):
        weight.assign(weight * 0.5 + a)
        return weight * a

    rows = tf.constant(X)
    assert float(gradient_of(lambda: tf_pfor.vectorized_map(step, rows), weight)) == sum(X)
