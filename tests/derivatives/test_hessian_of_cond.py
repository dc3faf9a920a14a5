"""Second derivatives of conditionals outside of the map, of one level without a loop over rows."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, strict_map

cond = lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * x, lambda: x**3)


def switch(x):
    index = tf.cast(tf.reduce_sum(x) > 0, tf.int32)
    return tf.switch_case(index, [lambda: x**3, lambda: tf.sin(x) * x])


def nested(x):
    inner = lambda: tf.cond(x[0] > 0.2, lambda: tf.exp(x) * x, lambda: x**2 * x[::-1])
    return tf.cond(tf.reduce_sum(x) > 0, inner, lambda: x**3)


def filled(x):
    """A branch with an op that TensorFlow differentiates by values and default."""

    def dense():
        return tf.raw_ops.SparseToDense(
            sparse_indices=[[0], [2]], output_shape=[3], sparse_values=x, default_value=x[1]
        )

    return tf.cond(tf.reduce_sum(x) > 0, lambda: dense()[1:] * x, lambda: x**3)


def in_loop(x):
    """A conditional in a loop."""

    def trip(t, y):
        return t + 1, tf.cond(y[0] > 0.35, lambda: tf.sin(y) * x, lambda: tf.exp(y) * y[::-1])

    return tf.while_loop(lambda t, _: t < 3, trip, (0, x))[1]


POINTS = [[0.3, 0.4], [-0.5, -0.2], [0.1, 0.2]]
models = pytest.mark.parametrize("model", [cond, switch, nested, in_loop, filled])


@pytest.fixture(autouse=True)
def _no_loops(request):
    """A loop repeats the tensors that conditionals in conditionals and in loops keep."""
    with warnings.catch_warnings():
        is_inside = any(name in request.node.name for name in ("nested", "in_loop"))
        how = "ignore" if is_inside else "error"
        warnings.simplefilter(how, tf_pfor.FallbackWarning)
        yield


total = lambda model: lambda x: tf.reduce_sum(model(x) * tf.constant([1.0, 2.0], tf.float64))


def numerical(gradient, x, step=1e-6):
    columns = [(gradient(x + e) - gradient(x - e)) / (2 * step) for e in np.eye(2) * step]
    return np.stack(columns, 1)


def gradient_at(model):
    gradient = tf.function(lambda x: gradient_of(lambda: total(model)(x), x))
    return lambda x: gradient(tf.constant(x)).numpy()


@models
@pytest.mark.parametrize("point", POINTS)
def test_second_derivatives(model, point):
    x = np.array(point)
    expected = numerical(gradient_at(model), x)
    found = tf_pfor.hessian(total(model))(tf.constant(x))
    np.testing.assert_allclose(found, expected, 1e-6, 1e-8)
    found = tf.function(tf_pfor.hessian_diag(total(model)))(tf.constant(x))
    np.testing.assert_allclose(found, np.diag(expected), 1e-6, 1e-8)


@models
@pytest.mark.parametrize("point", POINTS)
def test_forward_mode(model, point):
    x = tf.constant(point, tf.float64)
    found = tf_pfor.jacfwd(model)(x)
    np.testing.assert_allclose(found, tf_pfor.jacrev(model)(x), 1e-12, 1e-12)


@pytest.mark.parametrize("model", [cond, switch, nested])
def test_rows_that_choose_each_for_itself(model):
    x = tf.constant(POINTS, tf.float64)
    found = strict_map(tf_pfor.hessian(total(model)), x)
    expected = [numerical(gradient_at(model), row) for row in np.array(POINTS)]
    np.testing.assert_allclose(found, expected, 1e-6, 1e-8)


def test_rows_that_choose_in_a_loop():
    """The map loops: values that conditionals keep stand in lists that the trips fill."""
    x = tf.constant(POINTS, tf.float64)
    with pytest.warns(tf_pfor.FallbackWarning, match="run in a sequential loop"):
        found = tf_pfor.vectorized_map(tf_pfor.hessian(total(in_loop)), x)
    expected = [numerical(gradient_at(in_loop), row) for row in np.array(POINTS)]
    np.testing.assert_allclose(found, expected, 1e-6, 1e-8)


def test_forward_mode_of_rows_that_choose():
    x = tf.constant(POINTS, tf.float64)
    found = strict_map(tf_pfor.jacfwd(cond), x)
    np.testing.assert_allclose(found, tf.stack([tf_pfor.jacfwd(cond)(row) for row in x]), 1e-12)


@pytest.mark.parametrize("size", [len(POINTS), None])
def test_the_gradient_of_a_tape_around_a_map_is_dense_under_jit_compile(size):
    """Rows that stand in for others are gathered, of which the gradient is IndexedSlices."""
    doubled = lambda x: 2.0 * gradient_of(lambda: tf_pfor.vectorized_map(total(cond), x), x)
    x = tf.constant(POINTS, tf.float64)
    signature = [tf.TensorSpec([size, x.shape[1]], tf.float64)]
    found = tf.function(doubled, jit_compile=True, input_signature=signature)(x)
    expected = [2.0 * tf_pfor.jacrev(total(cond))(row) for row in x]
    np.testing.assert_allclose(found, tf.stack(expected), 1e-12)
