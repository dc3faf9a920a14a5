"""TensorArrays that a loop carries, read by conditionals and loops in it; trips differ by row.

The gradient of such a list is a sum of three lists and more. They come from the ops that write the
list, from the reads of a padded write, and from the conditional or loop. TensorFlow does not know
the items of the last one.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of
from tf_pfor import _tf
from tf_pfor._tf import _graphs

X = np.random.default_rng(0).normal(size=(4, 5, 3))
N = np.array([4, 2, 3, 1], np.int32)
SIZE = 5
_in_a_branch = lambda t, x, ta: tf.cond(t > 1, lambda: tf.sin(ta.read(t - 1)), lambda: x[0])


def _in_a_branch_by_row(t, x, ta):
    return tf.cond(x[t, 0] > 0, lambda: tf.sin(ta.read(t - 1)), lambda: x[0])


def _in_a_loop(t, x, ta):
    step = lambda u, s: (u + 1, tf.sin(s + ta.read(0)))
    return tf.while_loop(lambda u, _: u < 3, step, (0, x[t]), maximum_iterations=3)[1]


def _in_a_loop_by_row(t, x, ta):
    step = lambda u, s: (u + 1, tf.sin(s + ta.read(u)))
    return tf.while_loop(lambda u, _: u < t, step, (0, x[t]), maximum_iterations=4)[1]


def _three_times(t, x, ta):
    return ta.read(0) * ta.read(t - 1) + _in_a_branch_by_row(t, x, ta) + _in_a_loop(t, x, ta)


IN_BRANCHES = (_in_a_branch, _in_a_branch_by_row, _three_times)
READS = (*IN_BRANCHES, _in_a_loop, _in_a_loop_by_row)


def _last(read, x, n):
    array = tf.TensorArray(x.dtype, SIZE, element_shape=[3], clear_after_read=False)
    array = array.write(0, x[0])
    step = lambda t, ta: (t + 1, ta.write(t, read(t, x, ta)))
    end = tf.while_loop(lambda t, _: t < n, step, (1, array), maximum_iterations=SIZE)
    return end[1].stack()


_gradient = lambda f, x, n: gradient_of(lambda: tf.reduce_sum(f(x, n) ** 2), x)
_mapped = lambda f, x, n: tf_pfor.vectorized_map(lambda e: f(*e), (x, n))
WAYS = {
    "values": lambda f: functools.partial(_mapped, f),
    "gradient in the body": lambda f: functools.partial(_mapped, functools.partial(_gradient, f)),
    "tape around": lambda f: functools.partial(_gradient, functools.partial(_mapped, f)),
}


def _expected(way, f, x, n):
    one = f if way == "values" else functools.partial(_gradient, f)
    one = tf.function(one)
    return np.stack([one(*row).numpy() for row in zip(tf.constant(x), tf.constant(n))])


@pytest.mark.parametrize("jit", [False, True], ids=["", "jit"])
@grid(read=READS, way=WAYS)
def test_rows(read, way, jit):
    f = functools.partial(_last, read)
    run = tf.function(WAYS[way](f), jit_compile=jit)
    if jit and way == "gradient in the body" and read in IN_BRANCHES:
        with pytest.raises(tf_pfor.NotVectorizableError, match="length is not known"):
            run(tf.constant(X), tf.constant(N))
        return
    for n in (N, np.zeros_like(N)):
        found = run(tf.constant(X), tf.constant(n))
        np.testing.assert_allclose(found, _expected(way, f, X, n), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("jit", [False, True], ids=["", "jit"])
@pytest.mark.parametrize("read", READS)
def test_one_row(read, jit):
    f = functools.partial(_last, read)
    found = tf.function(WAYS["tape around"](f), jit_compile=jit)(X[:1], N[:1])
    np.testing.assert_allclose(found, _expected("tape around", f, X[:1], N[:1]), rtol=1e-9)


@pytest.mark.parametrize("read", READS)
def test_jacobian_of_a_map(read):
    f = functools.partial(_last, read)
    found = tf_pfor.jacrev(lambda x: _mapped(f, x, tf.constant(N))[:, -2])(tf.constant(X))
    for i, n in enumerate(N):
        own = tf_pfor.jacrev(lambda x, n=n: f(x, tf.constant(n))[-2])(tf.constant(X[i]))
        np.testing.assert_allclose(found[i, :, i], own, rtol=1e-9, atol=1e-12)
    assert not np.any(found[0, :, 1])


ORDERS = ("known known nothing", "nothing known known", "known nothing known", "nothing nothing")


@pytest.mark.parametrize("order", ORDERS)
def test_a_sum_of_lists_is_made_in_any_order(order):
    """The shape function of AddN throws for some; then the process would never end."""

    def list_of(what):
        if what == "nothing":
            return tf.raw_ops.Placeholder(dtype=tf.variant, shape=[])
        return tf.raw_ops.TensorListReserve(
            element_shape=[2], num_elements=3, element_dtype=tf.float32
        )

    def function():
        lists = [list_of(what) for what in order.split()]
        graph = tf.compat.v1.get_default_graph()
        protos = {"T": _tf.attr_value("type", tf.variant), "N": _tf.attr_value("int", len(lists))}
        op = _graphs.add_op(graph, "AddN", lists, protos, None)
        assert sorted(t.name for t in op.inputs) == sorted(t.name for t in lists)
        return [tf.raw_ops.AddN(inputs=lists)]

    _graphs.trace("lists", function, [])
