"""Gradients by variables and captured tensors that a loop over rows reads in functions."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of
from tf_pfor.core.regions import Region

X = tf.constant([[0.5, -0.3], [-0.7, 0.4], [0.9, 0.2]])
K = tf.constant([1, 2, 2])
LARGE = tf.fill([200], 0.8)  # TensorFlow makes constants of smaller ones where it captures them
SOURCES = {"variable": tf.Variable(0.8), "small": tf.constant(0.8), "large": LARGE}
READS = {name: lambda x: x for name in SOURCES} | {"large": lambda x: x[3]}


def growing_items(w, x, k):
    """The items of a list grow from trip to trip: a loop over rows runs the while loop."""
    empty = tf.TensorArray(tf.float32, 2, element_shape=[None], infer_shape=False)
    write = lambda i, a: (i + 1, a.write(i, tf.ones([k + i]) * w() * x[0]))
    _, array = tf.while_loop(lambda i, _: i < 2, write, (0, empty))
    return tf.reduce_sum(array.concat() ** 2)


def growing_row(w, x, k):
    """The loop variable is longer after each trip."""
    step = lambda i, y: (i + 1, tf.concat([tf.sin(y * w()), y[:1]], 0))
    shapes = tf.TensorShape([]), tf.TensorShape([None])
    _, y = tf.while_loop(lambda i, _: i < 2, step, (0, x[:k]), shape_invariants=shapes)
    return tf.reduce_sum(y**2)


def branch_in_loop(w, x, k):
    """A branch in the loop reads it."""
    grown = lambda y: tf.cond(
        x[0] > 0, lambda: tf.concat([tf.sin(y * w()), y[:1]], 0), lambda: y * 2 * w()
    )
    shapes = tf.TensorShape([]), tf.TensorShape([None])
    step = lambda i, y: (i + 1, grown(y))
    _, y = tf.while_loop(lambda i, _: i < 2, step, (0, x[:k]), shape_invariants=shapes)
    return tf.reduce_sum(y**2)


def called(body):
    """The body in a function that it calls."""
    function = tf.function(lambda *row: body(*row), autograph=False)
    return lambda *row: function(*row)


def taped(body):
    """The gradient by the row, taken in the body."""
    return lambda x, k: gradient_of(lambda: body(x, k), x)


BODIES = {f.__name__: f for f in (growing_items, growing_row, branch_in_loop)}
FORMS = {
    "plain": lambda f: f,
    "called": called,
    "taped": taped,
    "taped and called": lambda f: taped(called(f)),
}


def _slope(run, x):
    return gradient_of(lambda: tf.reduce_sum(tf.sin(run())), x)


def _both(name, source, form):
    body, x = BODIES[name], SOURCES[source]
    one = FORMS[form](lambda *row: body(lambda: READS[source](tf.convert_to_tensor(x)), *row))
    by_row = tf.function(one, autograph=False)
    rows = lambda: tf.stack([by_row(X[i], K[i]) for i in range(3)])
    mapped = lambda: tf_pfor.vmap(one, warn=False)(X, K)
    return rows, mapped, x


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("case", [f"{source}, {form}" for source in SOURCES for form in FORMS])
def test_table_of_gradients(case, name):
    rows, mapped, x = _both(name, *case.split(", "))
    found, expected = tf.convert_to_tensor(_slope(mapped, x)), tf.convert_to_tensor(_slope(rows, x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0.01


@pytest.mark.parametrize("source", SOURCES)
def test_in_a_function_and_in_two_maps(source):
    rows, mapped, x = _both("growing_items", source, "called")
    expected = tf.convert_to_tensor(_slope(rows, x))
    one = tf.function(lambda: tf.convert_to_tensor(_slope(mapped, x)), autograph=False)()
    np.testing.assert_allclose(one, expected, rtol=1e-4)
    body = lambda *row: growing_items(lambda: READS[source](tf.convert_to_tensor(x)), *row)
    inner = lambda *each: tf_pfor.vmap(body, warn=False)(*each)
    two = _slope(lambda: tf_pfor.vmap(inner, warn=False)(X[None], K[None]), x)
    np.testing.assert_allclose(tf.convert_to_tensor(two), expected, rtol=1e-4)


def test_branches_that_do_not_read_the_variable_in_two_maps():
    """Zeros of a variable that TensorFlow knows nothing of were a raw error."""
    v, x = tf.Variable(0.5), tf.constant([[1.0, -2.0, 3.0], [2.0, 1.0, -1.0]])

    def positive(row):
        def step(i, a):
            item = lambda: a.write(a.size(), row[i] * v)
            return i + 1, tf.cond(row[i] > 0, item, lambda: a)

        empty = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
        return tf.while_loop(lambda i, _: i < 3, step, (0, empty))[1].stack()

    inner = lambda rows: tf_pfor.vmap(positive, warn=False)(rows)
    mapped = lambda: tf_pfor.vmap(inner, warn=False)(x[None]).flat_values
    rows = lambda: tf.concat([tf.function(positive)(r) for r in x], 0)
    np.testing.assert_allclose(_slope(mapped, v), _slope(rows, v), rtol=1e-5)


def test_copies_of_functions_read_their_inputs():
    """A small captured tensor is an input of the function, and a constant in it."""
    w = tf.constant(2.0)
    function = tf.function(lambda x: x * w).get_concrete_function(tf.TensorSpec([]))
    assert [t.op.type for t in function.graph.inputs] == ["Placeholder", "Const"]
    with tf.Graph().as_default():
        x, y = tf.compat.v1.placeholder(tf.float32, []), tf.compat.v1.placeholder(tf.float32, [])
        (made,) = Region.of_graph(function.graph).copy(x, y)
        assert tf.gradients(made, y) != [None]


def test_hessians_of_a_branch_in_a_loop_by_a_small_tensor():
    w = tf.constant([[0.8, 0.5], [-0.6, 1.2]])

    def loss(x):
        other = lambda y: tf.linalg.matvec(w, tf.sin(y))
        step = lambda i, y: (i + 1, tf.cond(y[0] > y[1], lambda: tf.sin(y), lambda: other(y)))
        return tf.reduce_sum(tf.while_loop(lambda i, _: i < 2, step, (0, x))[1] ** 2)

    hessian = tf.function(tf_pfor.hessian(loss), autograph=False)
    rows = lambda: tf.stack([hessian(x) for x in X])
    mapped = tf.function(lambda: tf_pfor.vmap(tf_pfor.hessian(loss), warn=False)(X))
    np.testing.assert_allclose(_slope(mapped, w), _slope(rows, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["eager", "function"])
def test_variable_assigned_before_the_gradient(where):
    """The gradient would read the new value: an error, not another number."""
    w = tf.Variable(0.8)
    body = lambda *row: growing_items(lambda: w, *row)

    def gradient(step):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf_pfor.vmap(body, warn=False)(X, K))
            w.assign_add(step)
        return tape.gradient(loss, w)

    if where == "function":
        gradient = tf.function(gradient)
    expected = gradient_of(lambda: tf.add_n([body(x, k) for x, k in zip(X, K)]), w)
    np.testing.assert_allclose(gradient(tf.constant(0.0)), expected, rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="gradient before you assign"):
        gradient(tf.constant(1.0))


def test_python_that_returns_rows_of_different_shapes_has_no_gradient():
    """TensorFlow's loop has lost the tape of each call: its raw KeyError, before."""
    large = lambda x: tf.ensure_shape(
        tf.py_function(lambda v: v[v > 0] ** 2, [x], tf.float32), [None]
    )

    @tf.custom_gradient
    def own(x):
        place = tf.where(x > 0)
        slope = lambda g: tf.scatter_nd(place, g * 2 * tf.gather_nd(x, place), [2])
        return large(tf.stop_gradient(x)), lambda g: tf.ensure_shape(slope(g), [2])

    total = lambda body: tf.reduce_sum(tf_pfor.vectorized_map(body, X))
    with pytest.raises(tf_pfor.NotVectorizableError, match="returns rows of different shapes"):
        gradient_of(lambda: total(large), X)
    expected = gradient_of(lambda: tf.reduce_sum(tf.maximum(X, 0.0) ** 2), X)
    np.testing.assert_allclose(gradient_of(lambda: total(own), X), expected)
