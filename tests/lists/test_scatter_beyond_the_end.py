"""TensorArray.scatter makes an array longer where it is known to; else rows are told to stop."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import grid, refuse
from tests.comparisons import compare, mapped

D = tf.float64
P, PLACE = tf.constant([True, False, True]), tf.constant([0, 1, 2])
X = tf.constant([1.0, 2.0, 3.0], D)
INVALID = tf.errors.InvalidArgumentError


def array(size):
    return tf.TensorArray(D, size, dynamic_size=True, element_shape=[], clear_after_read=False)


length_and_last = lambda made: (made.size(), made.read(made.size() - 1))


def into_an_empty_array(p, i, x):
    return length_and_last(array(0).scatter([0, 3], tf.stack([x, 2 * x])))


def in_branches(p, i, x):
    made = lambda item: array(2).scatter([4], item[None]).scatter([1], x[None]).flow
    flow = tf.cond(p, lambda: made(2 * x), lambda: made(-x))
    return length_and_last(tf.TensorArray(D, flow=flow, dynamic_size=True))


def after_a_loop(p, i, x):
    grown = tf.while_loop(lambda k, _: k <= i, lambda k, a: (k + 1, a.write(k, x)), (0, array(1)))
    return length_and_last(grown[1].scatter([i], x[None] * 2))


at_places_of_rows = lambda p, i, x: array(4).scatter([i + 1, 0], tf.stack([x, -x])).stack()


def by_a_branch(p, i, x):
    old = array(2).unstack(tf.stack([x, x]))
    flow = tf.cond(p, lambda: old.scatter([i + 2], x[None]).flow, lambda: old.write(0, x).flow)
    return length_and_last(tf.TensorArray(D, flow=flow, dynamic_size=True))


def in_a_loop_of_rows(p, i, x):
    step = lambda k, a: (k + 1, a.scatter([2 * k], x[None]))
    return length_and_last(tf.while_loop(lambda k, _: k <= i, step, (0, array(2)))[1])


def beside_longer_rows(p, i, x):
    """Row 0 has one item, row 2 has three."""
    grown = tf.while_loop(lambda k, _: k <= i, lambda k, a: (k + 1, a.write(k, x)), (0, array(1)))
    return length_and_last(grown[1].scatter([1], x[None] * 2))


IN_FUNCTION = {"function": {}, "rtol": 0, "atol": 0}


@pytest.mark.parametrize("fn", [into_an_empty_array, in_branches, after_a_loop, at_places_of_rows])
def test_arrays_grow(fn):
    compare(fn, P, PLACE, X, **IN_FUNCTION)


@pytest.mark.parametrize("fn", [by_a_branch, in_a_loop_of_rows, beside_longer_rows])
def test_arrays_of_rows_that_are_too_short(fn):
    """In a tf.function too: nothing is lost."""
    match = "Iterations scatter into a list beyond|A loop writes an item"
    refuse(fn, P, PLACE, X, function={}, error=INVALID, match=match)


@pytest.mark.parametrize("fn", [into_an_empty_array, in_branches])
def test_refused_under_xla(fn):
    match = "scattered beyond its end is lost"
    refuse(fn, P, PLACE, X, function={"jit_compile": True}, match=match)


@grid(is_list=[False, True], place=[4, -5, 1 << 30])
def test_a_place_that_is_only_written(place, is_list):
    """TensorFlow's kernel looks at no place that it writes: -1 ended the process."""
    at = tf.constant([[0, 3], [1, place], [2, 2]])

    def one(x, at, trips):
        def step(k, x):
            if is_list:
                return k + 1, x.scatter([at[k]], tf.sin(x.read(0))[None])
            return k + 1, tf.tensor_scatter_nd_update(x, [[at[k]]], tf.sin(x[0])[None])

        start = tf.TensorArray(D, 4, element_shape=[40], clear_after_read=False).unstack(x)
        made = tf.while_loop(lambda k, _: k < trips, step, (0, start if is_list else x))[1]
        return made.stack() if is_list else made

    rows = (tf.ones([3, 4, 40], D), at, tf.constant([2, 2, 1]))
    with pytest.raises(INVALID):
        mapped(one, *rows)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_that_is_called_with_arrays_of_other_lengths(compiled):
    """The facts on the list of one call were taken for facts on the other call's list."""

    @tf.function(autograph=False)
    def like(handle, p, x):
        def made(first, last):
            length = tf.raw_ops.TensorListLength(input_handle=handle)
            a = tf.TensorArray(D, length, element_shape=[], clear_after_read=False)
            return a.write(0, first).write(length - 1, last).flow

        return tf.cond(p, lambda: made(2 * x, x), lambda: made(-x, 3 * x))

    def one(p, i, x):
        of = [tf.TensorArray(D, n, element_shape=[]).unstack(tf.zeros([n], D)) for n in (3, 5)]
        return [tf.TensorArray(D, flow=like(a.flow, p, x)).stack() for a in of]

    run = tf.function(lambda: mapped(one, P, PLACE, X), autograph=False, jit_compile=compiled)
    three, five = run()
    np.testing.assert_array_equal(three, [[2, 0, 1], [-2, 0, 6], [6, 0, 3]])
    np.testing.assert_array_equal(five, [[2, 0, 0, 0, 1], [-2, 0, 0, 0, 6], [6, 0, 0, 0, 3]])


def test_a_place_right_behind_the_end():
    def one(p, i, x):
        a = tf.TensorArray(D, 3, element_shape=[]).unstack(tf.stack([x, x, x]))
        return a.scatter([i + 1], x[None] * 2).stack()

    np.testing.assert_array_equal(mapped(one, P[:2], PLACE[:2], X[:2]), [[1, 2, 1], [2, 2, 4]])
    with pytest.raises(INVALID, match="Iterations scatter into a list beyond its end"):
        mapped(one, P, PLACE, X)
