"""TensorArrays that branches write, which rows choose: growing, nested, with gradients."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests import comparisons
from tests.cases import grid
from tests.comparisons import (
    assert_close,
    by_row,
    gradient_of,
    strict_map,
    value_and_gradient,
)

N = 6
RNG = np.random.default_rng(1)
X = tf.constant(RNG.normal(size=(N, 4)))
K = tf.constant([0, 3, 1, 5, 2, 4])
C = tf.constant(RNG.integers(0, 4, (N, 9)), tf.int32)


def _array(x, size=0):
    array = tf.TensorArray(
        tf.float64, size, dynamic_size=not size, clear_after_read=False, element_shape=[]
    )
    return array.write(0, x[0])


def stack_machine(x, k, c):
    stack, top = _array(x), tf.constant(1)
    for i in tf.range(9):
        if c[i] == 0:
            stack, top = stack.write(top, x[i % 4]), top + 1
        elif c[i] == 1 and top >= 2:
            stack, top = stack.write(top - 2, stack.read(top - 1) + stack.read(top - 2)), top - 1
        elif c[i] == 2 and top >= 2:
            stack, top = stack.write(top - 2, stack.read(top - 1) * stack.read(top - 2)), top - 1
        else:
            stack = stack.write(top - 1, -stack.read(top - 1))
    return stack.read(top - 1)


_append = lambda array, i, x: array.write(i + 1, x[1] * array.read(0))
_change = lambda array, i, x: array.write(0, array.read(0) * x[2])
_keep = lambda array, i, x: array


def switched(x, k, c):
    array = _array(x)
    for i in tf.range(k):
        ways = [functools.partial(way, array, i, x) for way in (_append, _change, _keep)]
        array = tf.switch_case(c[i] % 3, ways)
    return array.read(0)


def loop_in_a_branch(x, k, c):
    array = _array(x)
    if x[0] > 0:
        for i in tf.range(k):
            array = array.write(i + 1, array.read(i) * x[1])
    else:
        array = array.write(2, x[3])
    return array.read(0) * 2.0


def how_many(x, k, c):
    array = _array(x)
    if x[0] > 0:
        array = array.write(k, x[1])
    return tf.cast(array.size(), tf.float64) * x[0]


def two_arrays(x, k, c):
    a, b = _array(x), _array(x)
    for i in tf.range(k):
        if c[i] > 1:
            a = a.write(i + 1, b.read(0) * x[1])
        else:
            b = b.write(0, b.read(0) + x[2])
            a = a.write(0, b.read(0))
    return a.read(0) + b.read(0)


def replaced(x, k, c):
    array = _array(x)
    array = array.write(k, x[1]) if x[0] > 0 else _array(x * 2.0)
    return array.read(0)


def nested(x, k, c):
    array = _array(x, 9)
    for i in tf.range(k):
        if c[i] > 1:
            array = array.write(i + 1, array.read(0) * x[1]) if x[1] > 0 else array.write(0, x[3])
        else:
            array = array.write(0, array.read(0) * x[2])
    return array.read(0)


PROGRAMS = [stack_machine, switched, loop_in_a_branch, how_many, two_arrays, replaced, nested]
by_row = lambda f: value_and_gradient(lambda: comparisons.by_row(f, X, K, C), X)


def with_slopes(f, where):
    """Value and gradient by x of all rows, by a tape around the map or in its body."""
    slopes = lambda run, x, *rest: value_and_gradient(lambda: run(x, *rest), x)
    mapped = lambda one: lambda *data: comparisons.mapped(one, *data)
    if where == "in":
        return mapped(functools.partial(slopes, f))
    return functools.partial(slopes, mapped(f))


@grid(f=PROGRAMS, where=["around", "in"])
def test_branches_write(f, where):
    """All rows, and none, of one trace."""
    specs = [tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in (X, K, C)]
    go = tf.function(with_slopes(f, where), input_signature=specs)
    assert_close(go(X, K, C), by_row(f))
    assert [t.shape[0] for t in go(X[:0], K[:0], C[:0])] == [0, 0]


@grid(n=[0, 1], where=["around", "in"])
def test_few_rows(n, where):
    data = [a[:n] for a in (X, K, C)]
    for found, right in zip(tf.function(with_slopes(nested, where))(*data), by_row(nested)):
        np.testing.assert_allclose(found, right[:n], 1e-9, 1e-12)


def _ends(x):
    array = tf.TensorArray(x.dtype, 3)
    return (array.write(0, x) if x > 0 else array.write(2, tf.sin(x))).stack()


def _ends_of_any_row(x):
    array = tf.TensorArray(x.dtype, 3, element_shape=[None], clear_after_read=False)
    array = array.write(0, [x]) if x > 0 else array.write(0, [x * x])
    array = array.write(2, array.read(0)) if x > 1 else array.write(1, tf.sin([x]))
    return array.stack()


def _in_a_loop_of_its_own(x):
    array = tf.TensorArray(x.dtype, 3)
    step = lambda t, array: (t + 1, array.write(t, tf.sin([x])))
    is_left = lambda t, _: tf.cast(t, x.dtype) < x
    return tf.while_loop(is_left, step, (0, array), maximum_iterations=3)[1].stack()


@pytest.mark.parametrize("jit", [False, True], ids=["", "jit"])
@pytest.mark.parametrize("f", [_ends, _ends_of_any_row, _in_a_loop_of_its_own])
def test_arrays_of_items_of_a_shape_that_is_not_declared(f, jit):
    """XLA has no such list for rows that write nothing into it in a branch."""
    x = tf.constant([0.5, -1.2, 2.7])
    one = lambda x: value_and_gradient(lambda: tf.reduce_sum(f(x) ** 2), x)

    def around(x):
        total = lambda e: tf.reduce_sum(f(e) ** 2)
        return value_and_gradient(lambda: tf_pfor.vectorized_map(total, x), x)

    for n in (3, 1):
        expected = tf.function(lambda x: tf.map_fn(one, x, (x.dtype, x.dtype)))(x[:n])
        assert_close(tf.function(around, jit_compile=jit)(x[:n]), expected, rtol=1e-5, atol=0)


def test_optionals_keep_bools_as_numbers():
    """Higher derivatives add gradients of optionals, and TensorFlow cannot add bools."""

    def total(x):
        taken = lambda: tf.reduce_sum(tf.where(x > 0.5, tf.sin(x), x * x))
        return tf.cond(x[0] > 0, taken, lambda: x[1])

    body = lambda x: gradient_of(lambda: total(x), x)
    x = tf.random.stateless_normal([5, 3], [1, 2])
    run = tf.function(lambda x: strict_map(body, x), autograph=False)
    graph = run.get_concrete_function(x).graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    kept = [n.attr["Toutput_types"].list.type for n in nodes if n.op == "OptionalFromValue"]
    assert [tf.as_dtype(t) for types in kept for t in types] == [tf.uint8]
    np.testing.assert_allclose(run(x), [body(row) for row in x], 1e-6)


def test_a_list_in_a_conditional_says_what_its_gradient_holds():
    """Else TensorFlow's sum of the gradients of lists may end the process under jit_compile."""

    def one(x, y):
        a = tf.TensorArray(x.dtype, 2, element_shape=[], clear_after_read=False).unstack(x)
        return tf.cond(y > 0, lambda: a.read(0) * y, lambda: a.read(1)) + a.read(1)

    @tf.function(autograph=False, jit_compile=True)
    def run(x, y):
        return comparisons.gradient_of(lambda: comparisons.mapped(one, x, y), x)

    ops = comparisons.all_ops(run.get_concrete_function(tf.ones([3, 2]), tf.ones([3])).graph)
    known = [op for op in ops if op.node_def.attr["_gradient_op_type"].s == b"TfPforKnownList"]
    assert [op.type for op in known] == ["Identity"]
