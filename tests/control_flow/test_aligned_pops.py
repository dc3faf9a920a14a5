"""Loops that pop lists out of a list, of rows that leave before their own lists end."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import case, refuse
from tests.comparisons import compare
from tests.samples.lists.tensor_list import count, empty, pop, push

K = tf.constant([3, 2, 3, 1])  # how many lists a row pushes
X = tf.constant(np.random.default_rng(0).normal(size=[4, 2]))


def pushed(k, x):
    """A list of k lists of one item each: x, 2 x ... k x."""

    def add(t, made):
        one = push(empty([2], x.dtype), x * tf.cast(t + 1, x.dtype))
        return t + 1, push(made, one)

    return tf.while_loop(lambda t, _: t < k, add, (0, empty([], tf.variant)))[1]


def popped(made):
    made, one = pop(made, [], tf.variant)
    return made, tf.ensure_shape(pop(one, [2], X.dtype)[1], [2])


def pop_some(k, m, x):
    def take(t, made, s):
        made, item = popped(made)
        return t + 1, made, s * 0.5 + item

    return tf.while_loop(lambda t, *_: t < m, take, (0, pushed(k, x), x))[2]


# Longer than what any row pops.
of_equal_lists = lambda k, m, x: pop_some(tf.constant(5), m, x)


def stops_by_value(k, m, x):
    def take(t, made, s):
        made, item = popped(made)
        return t + 1, made, s + item**2

    goes_on = lambda t, _, s: (t < k) & (s[0] < tf.cast(m, x.dtype))
    return tf.while_loop(goes_on, take, (0, pushed(k, x), x))[2]


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("pops", [K, [1, 2, 2, 0], [1, 1, 1, 1], [2, 1, 2, 0], [0, 0, 0, 0]])
@pytest.mark.parametrize("model", [pop_some, of_equal_lists, stops_by_value])
def test_rows_that_leave_early(model, pops, strategy):
    compare(model, K, tf.constant(pops), X, while_strategy=strategy)


@case(refuse, K, tf.constant([1, 1, 0, 0]), X, match="whose rows differ in length")
def test_what_is_left_after_the_loop(k, m, x):
    """Rows have lists of different lengths left, which are no longer popped in one place."""
    take = lambda t, made: (t + 1, popped(made)[0])
    _, made = tf.while_loop(lambda t, _: t < m, take, (0, pushed(k, x)))
    return popped(made)[1]


@case(compare, K, X)
def test_how_long_a_list_is_that_rows_begin_to_pop_late(k, x):
    """The length of each row's list, in the loop that pops it: such a loop moved the list."""

    def move(t, made, moved):
        made, item = pop(made, [], tf.variant)
        return t + 1, made, push(moved, item)

    def add(t, made, total):
        length = tf.cast(count(made), x.dtype)
        made, item = popped(made)
        return t + 1, made, total * 2 + item * length

    start = (0, pushed(k, x), empty([], tf.variant))
    _, _, moved = tf.while_loop(lambda t, *_: t < k, move, start)
    return tf.while_loop(lambda t, *_: t < k, add, (0, moved, tf.zeros([2], x.dtype)))[2]
