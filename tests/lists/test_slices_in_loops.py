"""Gradients of x[t] in loops: the slices are collected, and added up by place after the loop."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case, grid
from tests.comparisons import check, compare, gradient_of, jacobian_of, notes, strict_map

RNG = np.random.default_rng(0)
LENGTHS = np.array([2, 0, 4, 1, 4], np.int32)
each = lambda t, x: x[t]
from_the_end = lambda t, x: x[-1 - t]
two_of_them = lambda t, x: x[t] * x[tf.maximum(t - 1, 0)] ** 2
again_and_again = lambda t, x: tf.sin(x[t % 2])
as_int64 = lambda t, x: x[tf.cast(t, tf.int64)]
whole_too = lambda t, x: x[t] * tf.reduce_sum(x, 0)
one_column = lambda t, x: x[t, 1]
READS = [each, from_the_end, two_of_them, again_and_again, as_int64, whole_too, one_column]


def loop(read, trips, x):
    body = lambda t, s: (t + 1, tf.tanh(s + read(t, x)))
    zero = tf.zeros(x.shape[1:], x.dtype)
    return tf.while_loop(lambda t, _: t < trips, body, (0, zero))[1]


@grid(read=READS, inner=[(2,), (2, 3), ()])
def test_jacobian(read, inner):
    if read is one_column and inner != (2,):
        pytest.skip("has no columns of this shape")
    x = tf.constant(RNG.normal(size=(4, *inner)))

    def by_tape(jacobian):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(read, 4, x)
        return jacobian(tape, y, x)

    found = tf.function(lambda: by_tape(tf_pfor.tape_jacobian))()
    truth = tf.function(
        lambda: by_tape(lambda t, y, x: t.jacobian(y, x, experimental_use_pfor=False))
    )()
    np.testing.assert_allclose(found, truth, 1e-12, 1e-12)


def gradient_inside(read):
    """The gradient of a loop in the body; the rows differ in trips."""

    def f(k, x):
        return tf.convert_to_tensor(gradient_of(lambda: tf.reduce_sum(loop(read, k, x) ** 2), x))

    return f


@grid(read=READS, strategy=["compact", "mask"])
def test_rows_that_differ_in_trips(read, strategy):
    x = RNG.normal(size=(5, 4, 2))
    check(gradient_inside(read), LENGTHS, x, xla=False, unknown=True, while_strategy=strategy)


@pytest.mark.parametrize("strategy", ["compact", "mask"])
def test_places_that_differ_by_row(strategy):
    def f(k, at, x):
        return tf.convert_to_tensor(
            gradient_of(lambda: tf.reduce_sum(loop(lambda t, x: x[(at + t) % 4 - 4], k, x) ** 2), x)
        )

    at = np.array([3, 1, 0, 2, 5], np.int32)
    x = RNG.normal(size=(5, 4, 2))
    check(f, LENGTHS, at, x, xla=False, unknown=True, while_strategy=strategy)
    assert any("sums over the trips" in n for n in notes(f, LENGTHS, at, x))


@grid(n=[0, 1, 3], dtype=[tf.float16, tf.bfloat16, tf.complex64])
def test_dtypes_and_sizes(dtype, n):
    x = tf.cast(RNG.normal(size=(n, 4, 2)), dtype)
    one = lambda x: gradient_of(lambda: tf.reduce_sum(tf.abs(loop(each, 3, x))), x)
    found = strict_map(one, x)
    assert found.shape == x.shape
    assert found.dtype == dtype
    for i in range(n):
        a, b = (tf.cast(t, tf.complex64).numpy() for t in (found[i], one(x[i])))
        np.testing.assert_allclose(a, b, 5e-2, 5e-2)


@case(compare, tf.constant(RNG.normal(size=(5, 4, 2))), function={"jit_compile": True})
def test_bounded_loop_under_jit_compile(x):
    body = lambda t, s: (t + 1, tf.tanh(s + x[t]))
    start = (0, tf.zeros([2], x.dtype))
    run = lambda: tf.while_loop(lambda t, _: t < 3, body, start, maximum_iterations=3)[1]
    return gradient_of(run, x)


def test_nothing_of_full_size_is_added_in_a_trip():
    def jacobian(x):
        return jacobian_of(lambda: loop(each, 4, x), x)

    graph = tf.function(jacobian).get_concrete_function(tf.TensorSpec([4, 2])).graph
    library = graph.as_graph_def().library.function
    loops = [f for f in library if any(n.op == "TensorListPopBack" for n in f.node_def)]
    assert loops
    assert not any(n.op == "StridedSliceGrad" for f in loops for n in f.node_def)
    assert any(op.type == "UnsortedSegmentSum" for op in graph.get_operations())
