"""Scatters, slices and gathers of variables in a vectorized loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, grid
from tests.state.maps import X, check_as_the_loop, mapped, refused, var  # noqa: F401  (mapped is a fixture)

I = tf.constant([0, 2, 2])  # noqa: E741


@case(check_as_the_loop, [8.0, 8.0, 8.0], elems=(I, X), rtol=1e-6)
@pytest.mark.parametrize("name", ["add", "div", "max", "min", "mul", "sub"])
@pytest.mark.parametrize("varies", ["both", "indices", "updates", "none"])
def test_scatters_are_those_of_the_loop(name, varies, v, i, x):
    i = i if varies in ("both", "indices") else 1
    x = x if varies in ("both", "updates") else 3.0
    getattr(v, f"scatter_{name}")(tf.IndexedSlices([x, 2.0 * x], [i, 0]))
    return x


@case(check_as_the_loop, tf.ones([3, 2]), elems=(I, X), rtol=1e-6)
@grid(varies=["both", "indices", "updates", "none"], name=["add", "max", "min", "sub"])
def test_scatters_of_slices_are_those_of_the_loop(name, varies, v, i, x):
    i = i if varies in ("both", "indices") else 1
    x = x if varies in ("both", "updates") else 3.0
    getattr(v, f"scatter_nd_{name}")([[i, 0], [2, 1]], [x, 2.0 * x])
    return x


def test_scatter_update(mapped):
    v, w = var(tf.zeros([4, 2])), var(tf.zeros([4, 2]))

    def body(e):
        i, x = e
        v.scatter_update(tf.IndexedSlices([x, -x], i))
        w.scatter_nd_update([[i, 1]], [9.0])
        return x

    mapped(body, (tf.constant([3, 0, 2]), X))
    np.testing.assert_allclose(v, [[2, -2], [0, 0], [4, -4], [1, -1]])
    np.testing.assert_allclose(w, [[0, 9], [0, 0], [0, 9], [0, 9]])


def test_two_updates_of_elements_of_one_variable_run_in_order(mapped):
    v = var(tf.zeros([4, 2]))

    def body(e):
        i, x = e
        v.scatter_update(tf.IndexedSlices([x, -x], i))
        v.scatter_nd_update([[i, 1]], [9.0])
        return x

    with pytest.raises(tf_pfor.core.errors.UnsupportedStateError, match="one row after"):
        mapped(body, (tf.constant([3, 0, 2]), X))


def test_the_same_value_may_meet(mapped):
    v = var(tf.zeros([3]))
    mapped(lambda i: (v.scatter_update(tf.IndexedSlices(5.0, i)), i)[1], I)
    assert v.numpy().tolist() == [5.0, 0.0, 5.0]


@pytest.mark.parametrize("kind", ["scatter", "nd", "slice"])
def test_rows_that_collide_are_an_error(mapped, kind):
    v = var(tf.zeros([4]), name="table")

    def body(e):
        i, x = e
        if kind == "scatter":
            v.scatter_update(tf.IndexedSlices(x, i))
        elif kind == "nd":
            v.scatter_nd_update([[i]], [x])
        else:
            v[i].assign(x)
        return x

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        mapped(body, (I, X))
    message = str(caught.value)
    assert "Two iterations of the loop write the same place of the variable table" in message
    assert "[2]" in message  # the place, and the rows that write it
    assert "[1 2]" in message
    assert v.numpy().tolist() == [0.0] * 4


def test_one_place_and_several_values_are_refused():
    v = var(tf.zeros([4]), name="table")
    refused(lambda x: (v.scatter_update(tf.IndexedSlices(x, 1)), x)[1], "table")
    refused(lambda x: (v[1].assign(x), x)[1], "table")


def test_slices_of_two_places(mapped):
    v = var(tf.zeros([3, 3]))
    mapped(lambda e: (v[e[0], 1].assign(e[1]), e[1])[1], (tf.constant([2, 0, 1]), X))
    np.testing.assert_allclose(v, [[0, 2, 0], [0, 4, 0], [0, 1, 0]])


def test_negative_places_of_slices(mapped):
    v = var(tf.zeros([4, 2]))
    mapped(lambda e: (v[e[0]].assign([e[1], -e[1]]), e[1])[1], (tf.constant([3, 0, -2]), X))
    np.testing.assert_allclose(v, [[2, -2], [0, 0], [4, -4], [1, -1]])


def test_a_slice_and_a_value_that_are_invariant(mapped):
    v = var(tf.zeros([4]))
    mapped(lambda x: (v[1:3].assign([5.0, 6.0]), x)[1])
    assert v.numpy().tolist() == [0.0, 5.0, 6.0, 0.0]


def test_gathers(mapped):
    v = var([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows, cells = mapped(lambda i: (v.sparse_read(i), v.gather_nd([i, 1])), I)
    np.testing.assert_allclose(rows, [[1, 2], [5, 6], [5, 6]])
    np.testing.assert_allclose(cells, [2, 6, 6])


def test_a_counter_with_a_limit_is_refused():
    v = var(0)
    refused(lambda x: tf.raw_ops.ResourceCountUpTo(resource=v.handle, limit=5, T=tf.int32), "limit")
