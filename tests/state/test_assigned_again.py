"""A variable that the body assigns, reads and assigns again: the state of a seed with two draws."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import strict_map, value_and_gradient

XS = tf.constant([3, 1, 4, 1, 5])


def two_steps(v, x):
    first = v.read_value()
    v.assign(first + 1)
    second = v.read_value()
    v.assign(second + x)
    return first * 10 + second


def three_steps(v, x):
    a = v.read_value()
    v.assign(a * 2)
    b = v.read_value()
    v.assign(b - x)
    c = v.read_value()
    v.assign(c + b)
    return tf.stack([a, b, c])


def own_value(v, x):
    v.assign(x * 2)
    y = v.read_value()
    v.assign(7)
    return y + x


def not_linear(v, x):
    a = v.read_value()
    v.assign(a % 5)
    b = v.read_value()
    v.assign(b + x * b)
    return a - b


def read_twice(v, x):
    v.assign(v + 1)
    y = v * v
    v.assign(v + x)
    v.assign(v + 2)
    return y


BODIES = [two_steps, three_steps, own_value, not_linear, read_twice]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("dtype", [tf.int32, tf.uint32, tf.float32])
@pytest.mark.parametrize("site", ["eager", "function", "unknown", "inner function", "jit_compile"])
def test_as_the_loop(body, n, dtype, site):
    xs = tf.cast(XS[:n], dtype)
    v, w = tf.Variable(tf.constant(2, dtype)), tf.Variable(tf.constant(2, dtype))
    row = tf.function(lambda x: body(w, x))
    expected = [row(x).numpy() for x in xs]
    inner = tf.function(lambda x: body(v, x)) if site == "inner function" else lambda x: body(v, x)
    run = lambda rows: strict_map(inner, rows)
    if site == "unknown":
        run = tf.function(run, input_signature=[tf.TensorSpec([None], dtype)])
    elif site in ("function", "jit_compile"):
        run = tf.function(run, jit_compile=site == "jit_compile")
    found = run(xs)
    if n:
        np.testing.assert_array_equal(found, np.stack(expected))
    assert found.shape[0] == n
    assert v.numpy() == w.numpy()


def test_a_branch_between_is_not_passed_over():
    v, w = tf.Variable(2), tf.Variable(2)

    def body(variable, x):
        variable.assign(variable + 1)
        y = tf.cond(x > 2, lambda: variable.read_value(), lambda: x)
        variable.assign(variable + x)
        return y

    row = tf.function(lambda x: body(w, x))
    expected = [row(x).numpy() for x in XS]
    with pytest.warns(tf_pfor.FallbackWarning):
        found = tf_pfor.vectorized_map(lambda x: body(v, x), XS)
    np.testing.assert_array_equal(found, expected)
    assert v.numpy() == w.numpy()


def test_the_same_variable_under_two_names():
    v, w = tf.Variable(2), tf.Variable(2)

    @tf.function
    def body(a, b, x):
        a.assign(x)
        y = b.read_value()
        a.assign(x + 1)
        return y

    expected = [tf.function(lambda x: body(w, w, x))(x).numpy() for x in XS]
    try:
        found = tf_pfor.vectorized_map(lambda x: body(v, v, x), XS)
    except tf_pfor.NotVectorizableError:
        return
    np.testing.assert_array_equal(found, expected)


def test_float_reads_keep_their_gradient():
    v = tf.Variable(2.0)

    def body(x):
        v.assign(v * 2.0)
        y = v * x
        v.assign(v + x)
        return y

    run = lambda: tf_pfor.vectorized_map(body, tf.constant([1.0, 2.0]))
    found, slope = value_and_gradient(run, v)
    np.testing.assert_allclose(found, [4.0, 20.0])
    np.testing.assert_allclose(slope, 3.0)
