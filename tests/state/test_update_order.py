"""Updates to which only the order of the loop gives a meaning: they end as a loop leaves them."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map

NUMBER, TABLE = tf.Variable(0.0), tf.Variable(tf.zeros([3]))


@tf.function
def in_branches(x):
    if x > 0.0:
        NUMBER.assign(7.0)
    else:
        NUMBER.assign(-7.0)
    return x


@tf.function
def in_three_branches(x):
    if x < 0.0:
        NUMBER.assign(0.0)
    elif x > 3.0:
        NUMBER.assign(1.0)
    else:
        NUMBER.assign(2.0)
    return x


@tf.function
def in_trips(x):
    for i in tf.range(tf.cast(x, tf.int32)):
        NUMBER.assign(tf.cast(i, tf.float32))
    return x


@tf.function
def part_in_trips(x):
    i = 0.0
    while i < x:
        TABLE[0].assign(i)
        i += 1.0
    return i


@tf.function
def sum_or_reset(x):
    if x > 0.0:
        NUMBER.assign_add(x)
    else:
        NUMBER.assign(0.0)
    return x


def reset_and_sum(x):
    NUMBER.assign(0.0)
    NUMBER.assign_add(x)
    return NUMBER.read_value()


def sum_and_reset(x):
    NUMBER.assign_add(x)
    found = NUMBER.read_value()
    NUMBER.assign(0.0)
    return found


def counts(x):
    TABLE.assign(tf.zeros([3]))
    TABLE.scatter_add(tf.IndexedSlices(1.0, tf.cast(tf.abs(x), tf.int32) % 3))
    return TABLE.read_value()


_place = lambda x: tf.cast(tf.abs(x), tf.int32) % 2


def reset_and_element(x):
    TABLE.assign(tf.ones([3]))
    TABLE[_place(x)].assign(2.0)
    return x


def elements_side_by_side(x):
    TABLE.scatter_update(tf.IndexedSlices(1.0, _place(x)))
    TABLE.scatter_update(tf.IndexedSlices(2.0, _place(x) + 1))
    return x


@tf.function
def until(x):
    NUMBER.assign(0.0)
    while x > NUMBER:
        NUMBER.assign_add(1.0)
    return NUMBER.read_value()


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize(
    "body",
    [
        in_branches, in_three_branches, in_trips, part_in_trips, sum_or_reset, reset_and_sum,
        sum_and_reset, counts, reset_and_element, elements_side_by_side, until,
    ],
    ids=lambda f: f.__name__ if hasattr(f, "__name__") else f.python_function.__name__,
)  # fmt: skip
@pytest.mark.parametrize("x", [[1.0, -1.0, 2.0, 5.0], [5.0, 2.0, -3.0], [4.0]])
def test_final_values(body, x):
    x, found = tf.constant(x), []
    for run in (lambda: tf.stack([body(a) for a in x]), lambda: tf_pfor.vectorized_map(body, x)):
        NUMBER.assign(0.0)
        TABLE.assign(tf.zeros([3]))
        found.append([np.asarray(t) for t in (run(), NUMBER, TABLE)])
    for expected, own in zip(*found):
        np.testing.assert_allclose(own, expected)


def test_one_value_in_a_branch_or_in_all_trips_is_vectorized():
    @tf.function
    def body(x):
        if x > 0.0:
            NUMBER.assign(1.0)
        for _ in tf.range(2):
            TABLE[1].assign(3.0)
        return x

    def of_fixed_elements(x):
        TABLE[0].assign(1.0)
        TABLE[2].assign(2.0)
        return x

    NUMBER.assign(0.0)
    TABLE.assign(tf.zeros([3]))
    strict_map(body, tf.constant([-1.0, 1.0, 0.5]))
    assert NUMBER.numpy() == 1.0
    strict_map(of_fixed_elements, tf.constant([-1.0, 1.0]))
    assert TABLE.numpy().tolist() == [1.0, 3.0, 2.0]
