"""grad and value_and_grad: closed forms, nests, variables, contexts, errors."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.api.test_errors import call, check  # noqa: F401  (a fixture)
from tests.comparisons import close, gradient_of, strict, strict_map
from tf_pfor import ArgumentError, ArgumentTypeError, grad, value_and_grad, vmap

X = np.array([[1.0, -2.0], [3.0, 0.5], [0.25, -7.0]], np.float32)


def cubes(x):
    return tf.reduce_sum(x**3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_of_each_example(n, dtype):
    x = tf.constant(X[:n].astype(dtype))
    values, found = strict(value_and_grad(cubes))(x)
    assert found.dtype == values.dtype == x.dtype
    close(found, 3 * X[:n] ** 2)
    close(values, (X[:n] ** 3).sum(1))
    close(strict(grad(cubes))(x), found)
    close(strict_map(grad(cubes), x), found)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_function(jit_compile):
    compiled = tf.function(value_and_grad(cubes), jit_compile=jit_compile)
    value, found = compiled(X[0])
    close(value, -7)
    close(found, [3, 12])
    close(tf.function(strict(grad(cubes)), jit_compile=jit_compile)(X), 3 * X**2)


def test_argnums_nests_and_aux():
    def f(d, unused, y):
        return tf.reduce_sum(d["x"] * y), {"y": y, "none": None}

    x, y = tf.constant(X[0]), tf.constant(X[1])
    by_d, aux = grad(f, has_aux=True)({"x": x, "none": None}, x, y)
    close(by_d["x"], y)
    assert by_d["none"] is aux["none"] is None
    (value, aux), found = value_and_grad(f, (2, -2), has_aux=True)({"x": x}, x, y)
    close(value, 2)
    close(aux["y"], y)
    close(found[0], x)
    close(found[1], [0, 0])


def test_second_and_third_derivatives():
    third = grad(grad(grad(lambda x: tf.sin(x) * x)))
    x = tf.constant([0.5, 2.0])
    close(strict(third)(x), -3 * np.sin(x) - x * np.cos(x))
    close(gradient_of(lambda: vmap(grad(lambda x: x**3))(x), x), 6 * x)
    close(tf_pfor.jacrev(grad(cubes))(x), np.diag(6 * x))


def test_a_loop_with_a_number_of_trips_for_each_example():
    def f(x):
        return tf.while_loop(lambda y: y < 10.0, lambda y: [y * 2.0], [x])[0] ** 2

    x = tf.constant([1.0, 3.0, 20.0])
    scale = np.array([16.0, 4.0, 1.0])
    value, found = strict(value_and_grad(f))(x)
    close(value, (scale * x) ** 2)
    close(found, 2 * scale**2 * x)
    close(strict(grad(f))(x), found)


# -- variables -----------------------------------------------------------------------------


def test_variables():
    w, table = tf.Variable([2.0, 3.0]), tf.Variable(tf.ones([4, 2]))

    def loss(x, i):
        return tf.reduce_sum(w**2 * x * tf.gather(table, i))

    x, i = tf.constant(X), tf.constant([1, 1, 3])
    variables = {"w": w, "rest": [table]}
    value, found = value_and_grad(loss, variables=variables)(x[0], i[0])
    close(value, 4 * 1 - 9 * 2)
    close(found["w"], 2 * w * x[0])
    close(found["rest"][0], [[0, 0], [4, -18], [0, 0], [0, 0]])
    both = grad(loss, (0,), variables=variables)(x[0], i[0])
    close(both[0][0], [4, 9])
    close(both[1]["w"], found["w"])
    rows = strict(grad(loss, variables=variables))(x, i)
    expected, _ = tf_pfor.per_example_gradients(loss, variables, x, i)
    tf.nest.map_structure(close, rows, expected)
    w.assign([1.0, 1.0])  # the trace reads what the variable is now
    close(grad(loss, variables=variables)(x[0], i[0])["w"], 2 * x[0])


def test_variables_in_functions_without_arguments_and_unused():
    w, unused = tf.Variable(3.0), tf.Variable([1.0])
    square = tf.function(lambda: w**2)
    for run in (lambda f: f(), lambda f: tf.function(f)()):
        found = run(grad(square, variables=(w, unused)))
        close(found[0], 6)
        close(found[1], [0])
    second = grad(lambda x: grad(lambda: w**2 * x**2, variables=w)())
    close(second(tf.constant(2.0)), 2 * 3 * 2 * 2)


def test_variables_in_loops_and_branches():
    w = tf.Variable([2.0, 3.0])
    gradient = grad(lambda x: tf.reduce_sum(w**2 * x), variables=w)
    x = tf.constant(X)
    expected = 2 * w * x
    branch = lambda x: tf.cond(x[0] > 2.0, lambda: gradient(x), lambda: x)  # noqa: E731
    close(strict(branch)(x), tf.where(x[:, :1] > 2.0, expected, x))
    close(tf.function(branch)(x[1]), expected[1])
    close(tf.function(lambda: tf.map_fn(gradient, x))(), expected)
    close(strict(tf.function(gradient))(x), expected)


def test_a_keras_model():
    model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
    weights = model.trainable_variables

    def loss(x, y):
        return tf.reduce_mean((model(x) - y) ** 2)

    x, y = tf.constant(X), tf.ones([3, 1])
    with tf.GradientTape() as tape:
        expected = loss(x, y)
    value, found = value_and_grad(loss, variables=weights)(x, y)
    close(value, expected)
    assert isinstance(found, list)
    tf.nest.map_structure(close, found, tape.gradient(expected, [w.value for w in weights]))


def test_calls_share_a_trace():
    tf_pfor.clear_cache()
    w = tf.Variable(1.0)
    for step in range(3):
        grad(lambda x: w * x, variables=w)(tf.constant(float(step)))
    assert tf_pfor.cache_info().misses == 1


# -- errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [grad, value_and_grad])
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda form: form(lambda x: x)(X[0]), ArgumentError, "returns one scalar, found ['(2,)']"),
        (lambda form: form(lambda x: (x[0], x[1]))(X[0]), ArgumentError, "one scalar"),
        (lambda form: form(lambda x: x[0], has_aux=True)(X[0]), ArgumentError, "(outputs, aux)"),
        (lambda form: form(lambda x: None)(X[0]), ArgumentError, "found None"),
        (lambda form: form(cubes)(np.arange(2)), ArgumentError, "no derivative"),
        (lambda form: form(lambda x: tf.size(x))(X[0]), ArgumentError, "output has dtype int32"),
        (lambda form: form(cubes)(tf.complex(X, X)), ArgumentError, "expected a real one"),
        (lambda form: form(cubes, 1)(X), ArgumentError, "argnums names argument 1"),
        (lambda form: form(cubes, "0"), ArgumentError, "argnums must be"),
        (lambda form: form(3), ArgumentError, "expected a function"),
        (
            lambda form: form(cubes, variables=[])(X[0]),
            ArgumentError,
            "variables holds nothing to differentiate",
        ),
        (
            lambda form: form(cubes, variables={"w": tf.ones([])})(X[0]),
            ArgumentTypeError,
            "variables['w'] is",
        ),
        (
            lambda form: form(cubes, variables=tf.Variable(1))(X[0]),
            ArgumentError,
            "variables has dtype int32",
        ),
        (
            lambda form: form(lambda x: tf.reduce_sum(tf.numpy_function(np.sin, [x], tf.float32)))(
                X[0]
            ),
            ArgumentError,
            "would be left out",
        ),
    ],
)
def test_errors(call, form, make, error, words):  # noqa: F811
    check(call, lambda: make(form), error, words)


def test_a_part_of_the_gradient_by_variables_is_not_left_out():
    w = tf.Variable(1.0)
    loss = lambda x: x * tf.numpy_function(np.sin, [w], tf.float32)  # noqa: E731
    with pytest.raises(ArgumentError, match="would be left out"):
        grad(loss, variables=w)(tf.constant(1.0))
