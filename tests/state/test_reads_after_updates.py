"""Reads of a variable before and after the row updates it, and what they go into."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, strict_map
from tests.state.maps import check_as_the_loop, starts

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


@starts(0.0, 0.0)
def weighted_by_the_count(total, count, a):
    total.assign_add(a * count)
    count.assign_add(1.0)
    return a


@starts([0.0, 0.0, 0.0, 0.0], 0)
def scattered_at_the_count(table, count, a):
    table.scatter_nd_add([[count]], [a])
    count.assign_add(1)
    return a


@starts(0.0, 0)
def the_first_two(total, count, a):
    if count < 2:
        total.assign_add(a)
    count.assign_add(1)
    return a


@starts(0)
def every_other_row(count, a):
    count.assign_sub(1)
    return tf.where(count % 2 == 0, a, -a)


@starts(0)
def drawn_by_the_count(count, a):
    count.assign_add(1)
    return a + tf.random.stateless_uniform([], tf.stack([count, 7]))


@starts(0.0, 0.0)
def sum_of_sums(total, of_totals, a):
    total.assign_add(a)
    of_totals.assign_add(total)
    return of_totals / total


@starts(1.0, 0.0, 0.0)
def loss_times_the_step(weight, step, total, a):
    with tf.GradientTape() as tape:
        loss = (weight * a - 1.0) ** 2
    weight.assign_sub(0.01 * tape.gradient(loss, weight))
    step.assign_add(1.0)
    total.assign_add(loss * step)
    return loss


@starts(0.0, 1.0)
def each_adds_the_other(first, second, a):
    first.assign_add(second)
    second.assign_add(first)
    return a


@starts(0.0, 0.0)
def the_last_sum(total, last, a):
    total.assign_add(a)
    last.assign(total)
    return a


@starts(1.0)
def a_flag(flag, a):
    seen = flag.read_value()
    flag.assign(5.0)
    return seen * a


@starts(0.0)
def two_sums(total, a):
    total.assign_add(a)
    middle = total * 1.0
    total.assign_add(1.0)
    return middle


@starts(0.0, 1.0)
def by_a_branch(total, count, a):
    if a > 1.5:
        total.assign_add(count * a)
    count.assign_add(1.0)
    return a


@starts(0.0)
def added_in_both_branches(v, a):
    return tf.cond(
        a > 1.5, lambda: (v.assign_add(1.0), a * v)[1], lambda: (v.assign_add(2.0), a + v)[1]
    )


@starts(0.0)
def added_in_one_and_read_in_the_other(v, a):
    return tf.cond(a > 1.5, lambda: (v.assign_add(1.0), a)[1], lambda: a + v)


@starts(1.0)
def updated_in_both_branches(v, a):
    steps = [lambda: v.assign_sub(0.1 * v * a), lambda: v.assign_sub(0.2 * v)]
    return tf.cond(a > 1.5, *[lambda step=step: (step(), a)[1] for step in steps])


@starts(0.0)
def added_and_read_in_one_branch(v, a):
    return tf.cond(a > 1.5, lambda: (v.assign_add(1.0), a * v)[1], lambda: a)


VECTORIZED = (
    added_and_read_in_one_branch,
    average_and_what_follows, drawn_by_the_count, every_other_row, largest, loss_times_the_step,
    running_mean, running_mean_by_add, running_mean_by_result, scattered_at_the_count, sum_of_sums,
    the_first_two, weighted_by_the_count, welford,
)  # fmt: skip
IN_ORDER = (
    added_in_both_branches, added_in_one_and_read_in_the_other, updated_in_both_branches,
    a_flag, by_a_branch, decayed_and_moved, each_adds_the_other, each_of_the_other, gathered,
    the_last_sum, two_sums, updated_in_a_function,
)  # fmt: skip


def _table(bodies):
    return pytest.mark.parametrize("body", bodies, ids=[body.__name__ for body in bodies])


def _check(body, mapped, n=None):
    rows = tf.constant(X[:n])
    check_as_the_loop(body, *body.starts, mapped=mapped, elems=rows, rtol=1e-6)


@_table(VECTORIZED)
def test_table_of_bodies_at_once(body):
    _check(body, strict_map)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@_table(IN_ORDER)
def test_table_of_bodies_in_order(body):
    _check(body, tf_pfor.vectorized_map)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@grid(body=VECTORIZED + IN_ORDER, n=[1, 0])
def test_few_rows(body, n):
    _check(body, tf_pfor.vectorized_map, n)


def test_gradient_of_what_is_read_afterwards():
    """Gradients as in eager code: none by the assignment, one for the variable that is read."""
    weight = tf.Variable(1.0)

    def step(a):
        weight.assign(weight * 0.5 + a)
        return weight * a

    rows = tf.constant(X)
    assert float(gradient_of(lambda: tf_pfor.vectorized_map(step, rows), weight)) == sum(X)
