"""Derivatives that TensorFlow would leave out: refused wherever a function is differentiated."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor.core.errors import ArgumentError

X = tf.constant([[1.0, 2.0], [0.5, -1.0]])


def clipped(loss, variables, *batch):
    return tf_pfor.clipped_gradient_sum(loss, variables, *batch, clip_norm=1e9)


FORMS = [tf_pfor.per_example_gradients, tf_pfor.gradient_norms, clipped]
of_forms = pytest.mark.parametrize("form", FORMS)
python_sin = lambda x: tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), x.shape)
LOST = {
    "PyFunc": python_sin,
    "OneHot": lambda z: tf.one_hot(1, 2, on_value=z[0]),
    "HSVToRGB": lambda z: tf.image.hsv_to_rgb(tf.stack([z, z, z], 1)),
}


@of_forms
@pytest.mark.parametrize("op", LOST)
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["plain", "function"])
@pytest.mark.parametrize("make", [tf.Variable, tf.constant], ids=["variable", "tensor"])
def test_refused(form, op, wrap, make):
    w = make([1.0, 2.0])

    @wrap
    def loss(x):  # what passes beside is no excuse
        return tf.reduce_sum(LOST[op](w * x)) + tf.reduce_sum(w * x)

    with pytest.raises(
        ArgumentError, match=f"through {op} .*tests/derivatives/test_missing_gradients.py"
    ):
        form(loss, w, X)


@of_forms
def test_refused_in_loops_and_branches(form):
    w = tf.Variable([1.0, 2.0])

    def loop(x):
        body = lambda t, h, z: (t + 1, z, python_sin(h) * 2.0)
        return tf.reduce_sum(tf.while_loop(lambda t, *_: t < 3, body, (0, x * w, x))[1])

    branch = lambda x: tf.cond(x[0] > 0, lambda: tf.reduce_sum(python_sin(w)), lambda: x[0])
    for loss in (loop, branch):
        with pytest.raises(ArgumentError, match="through (Eager)?PyFunc "):
            form(loss, w, X)


def augmented(x):
    """Python code that sees the data only."""
    x = python_sin(x)

    return tf.while_loop(lambda t, _: t < 2, lambda t, h: (t + 1, python_sin(h)), (0, x))[1]


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")  # Python code
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["plain", "function"])
def test_data_and_metrics_may_pass_through_python(wrap):
    w = tf.Variable([1.0, 2.0])

    @wrap
    def loss(x):
        z = augmented(x)

        def body(t, h, total):  # data and weights in one loop
            return t + 1, python_sin(h), total + h * w

        total = tf.while_loop(lambda t, *_: t < 2, body, (0, z, tf.zeros([2])))[2]
        return tf.reduce_sum(total), python_sin(w * x)

    gradients, _, metrics = tf_pfor.per_example_gradients(loss, w, X, has_aux=True)
    z = np.sin(np.sin(np.sin(X)))
    np.testing.assert_allclose(gradients, z + np.sin(z), rtol=1e-5)
    np.testing.assert_allclose(metrics, np.sin(np.asarray(X) * [1, 2]), rtol=1e-5)


def test_data_may_pass_through_python_beside_the_argument():
    data = tf.constant([0.3, 0.4])
    f = tf.function(lambda w: w**2 * python_sin(data))
    found = tf_pfor.jacrev(f)(X[0])
    np.testing.assert_allclose(found, np.diag(2 * X[0] * np.sin(data)), rtol=1e-5)


def test_what_is_not_connected_is_zero():
    w, v = tf.Variable(2.0), tf.Variable(3.0)
    for loss in (
        lambda x: w * tf.reduce_sum(x),
        lambda x: w * tf.reduce_sum(x) + tf.reduce_sum(tf.one_hot(tf.cast(v * x[0], tf.int32), 3)),
        lambda x: w * tf.reduce_sum(x) + tf.reduce_sum(python_sin(tf.stop_gradient(v))),
    ):
        (of_w, of_v), _ = tf_pfor.per_example_gradients(loss, [w, v], X)
        np.testing.assert_allclose(of_w, [3.0, -0.5])
        np.testing.assert_allclose(of_v, [0.0, 0.0])


def test_reverse_modes_do_not_need_the_logarithm_of_a_cotangent():
    """TensorFlow's gradient of this op takes it, so forward mode is NaN: docs/derivatives.md."""
    x = tf.constant([0.3, 0.1, 0.7], tf.float64)
    f = lambda x: tf.reduce_sum(tf.math.cumulative_logsumexp(x) * tf.constant([1, 0, 3], x.dtype))
    gradient, step = tf_pfor.jacrev(f), 1e-6
    columns = [gradient(x + e) - gradient(x - e) for e in step * np.eye(3)]
    expected = np.stack([np.asarray(c) for c in columns], 1) / (2 * step)
    np.testing.assert_allclose(tf_pfor.jacrev(gradient)(x), expected, rtol=1e-7)
    np.testing.assert_allclose(tf_pfor.hessian_diag(f)(x), np.diag(expected), rtol=1e-7)
    np.testing.assert_allclose(tf_pfor.hvp(f)(x, x), expected @ x.numpy(), rtol=1e-6)


clipping = tf.custom_gradient(lambda x: (x * x, lambda d: tf.clip_by_value(2.0 * x * d, -1.0, 1.0)))
weighted = tf.custom_gradient(lambda x: (x * x, lambda d: 3.0 * x * d))


def test_forward_mode_of_gradients_that_are_not_linear():
    x = tf.constant([2.0, 0.2])
    np.testing.assert_allclose(tf_pfor.jacrev(clipping)(x), [[1.0, 0.0], [0.0, 0.4]])
    for form in (tf_pfor.jacfwd, tf_pfor.laplacian):
        with pytest.raises(ArgumentError, match=r"not linear .* Minimum .*Use jacrev"):
            form(clipping)(x)
        with pytest.raises(ArgumentError, match="not linear"):
            form(lambda x: tf.map_fn(clipping, x))(x)
    np.testing.assert_allclose(tf_pfor.jacfwd(weighted)(x), [[6.0, 0.0], [0.0, 0.6]], 1e-6)
    np.testing.assert_allclose(tf_pfor.hvp(lambda x: tf.reduce_sum(clipping(x)))(x, x), [0.0, 0.4])


shifted = tf.custom_gradient(lambda x: (x * x, lambda d: 2.0 * x * d + 1.0))
of_two_terms = tf.custom_gradient(lambda x: (x * x, lambda d: d * x + (tf.zeros_like(x) + x * d)))


def test_forward_mode_of_gradients_that_add_something_to_a_cotangent():
    x = tf.constant([2.0, 0.2])
    with pytest.raises(ArgumentError, match="not linear .* AddV2"):
        tf_pfor.jacfwd(shifted)(x)
    np.testing.assert_allclose(tf_pfor.jacrev(shifted)(x), [[5.0, 1.0], [1.0, 1.4]], 1e-6)
    np.testing.assert_allclose(tf_pfor.jacfwd(of_two_terms)(x), [[4.0, 0.0], [0.0, 0.4]], 1e-6)


@pytest.mark.parametrize("gradient", [
    lambda d: 2.0 * tf.atan(d),
    lambda d: d * tf.reduce_prod(tf.stop_gradient(d) * 0.0 + 1.0) + tf.math.cumprod(d),
    lambda d: tf.where([True, False], d, 5.0),
    lambda d: tf.pad(d[1:], [[0, 1]], constant_values=1.0),
], ids=["arc tangent", "products", "choice of a constant", "padded with a constant"])  # fmt: skip
def test_forward_mode_refuses_each_op_that_is_not_linear(gradient):
    f = tf.custom_gradient(lambda x: (x * 2.0, gradient))
    with pytest.raises(ArgumentError, match="not linear"):
        tf_pfor.jacfwd(f)(tf.constant([2.0, 0.2]))


def test_forward_mode_takes_a_choice_of_zero():
    f = tf.custom_gradient(
        lambda x: (x * 2.0, lambda d: tf.where([True, False], 3.0 * d, tf.zeros_like(d)))
    )
    np.testing.assert_allclose(tf_pfor.jacfwd(f)(tf.constant([2.0, 0.2])), [[3.0, 0.0], [0.0, 0.0]])
