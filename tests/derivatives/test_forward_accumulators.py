"""``tf.autodiff.ForwardAccumulator`` around a map, both in one tf.function."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import gradient_of, strict_map

X = tf.constant([[1.0, 2.0], [-1.0, 0.5], [0.3, -0.2]])
BODIES = {
    "cond": lambda e: tf.cond(tf.reduce_sum(e) > 0, lambda: tf.sin(e), lambda: e**2),
    "while": lambda e: tf.while_loop(
        lambda h: tf.norm(h) > 0.4, lambda h: [tf.tanh(h * 0.8)], [e], maximum_iterations=20
    )[0],
    "plain": lambda e: tf.sin(e) * e,
}
MAPS = {
    "map": lambda fn, x: strict_map(fn, x),
    "closure": lambda fn, x: tf_pfor.pfor(lambda i: fn(x[i]), 3),
    "in a map": lambda fn, x: tf_pfor.vectorized_map(
        lambda rows: tf_pfor.vectorized_map(fn, rows), x[None]
    )[0],
}


def derivative(mapped, fn):
    def run(x):
        with tf.autodiff.ForwardAccumulator(x, tf.cos(x)) as forward:
            y = mapped(fn, x)
        return forward.jvp(y)

    return run


one_by_one = lambda fn, x: tf.stack([fn(row) for row in x])


@grid(body=BODIES, how=MAPS)
def test_values(body, how):
    run = tf.function(derivative(MAPS[how], BODIES[body]))
    np.testing.assert_allclose(run(X), derivative(one_by_one, BODIES[body])(X), 1e-4, 1e-5)


LENGTHS = tf.constant([2, 0, 1])
OF_ROWS = {
    "padded": lambda r: tf.nn.softmax(r, 0),
    "window": lambda r: r[tf.minimum(tf.size(r), 1) :],
    "gathered": lambda r: tf.gather(r, tf.range(tf.size(r)) // 2),
    "product": lambda r: r[:, None] * tf.sin(r),
}


@grid(is_cut=[True, False], body=OF_ROWS)
def test_variable_length_rows(body, is_cut):
    def total(fn, x):
        if is_cut:
            rows = (x, LENGTHS)
            each = lambda e: tf.reduce_sum(tf.sin(fn(e[0][: e[1]])))
        else:
            rows = tf.RaggedTensor.from_tensor(x, lengths=LENGTHS)
            each = lambda e: tf.reduce_sum(tf.sin(fn(e)))
        return strict_map(each, rows)

    def alone(fn, x):
        cut = [x[i, :k] for i, k in enumerate(LENGTHS)]
        return tf.stack([tf.reduce_sum(tf.sin(fn(r))) for r in cut])

    found = tf.function(derivative(total, OF_ROWS[body]))(X)
    wanted = tf.reduce_sum(gradient_of(lambda: alone(OF_ROWS[body], X), X) * tf.cos(X), 1)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


def of_branches_in_a_loop(row):
    total = tf.constant(0.0)
    for x in row:
        if x > 0.5:
            total += x * x
        elif x > -0.5:
            total = total * x
        else:
            total = tf.sin(total) + x
    return total


def of_rows_in_a_loop(row):
    for _ in tf.range(3):
        if tf.reduce_sum(row) > 0.5:
            row = row * row
        elif tf.reduce_sum(row) > -0.5:
            row = tf.sin(row)
    return tf.reduce_sum(row)


RAGGED = tf.RaggedTensor.from_row_lengths(
    tf.random.stateless_normal([9], [1, 4]), tf.constant([2, 0, 7])
)


@pytest.mark.parametrize("in_function", [True, False])
@pytest.mark.parametrize("one", [of_branches_in_a_loop, of_rows_in_a_loop])
@pytest.mark.parametrize(
    "each", [tf_pfor.vectorized_map, lambda one, x, warn: tf_pfor.vmap(one, fallback="loop")(x)]
)
def test_variable_length_elements(each, one, in_function):
    """AutoGraph's branches in a loop: TensorFlow fails if it pushes tangents through their ops."""
    flat, tangent = RAGGED.values, tf.cos(RAGGED.values)

    def pushed(flat, tangent):
        with tf.autodiff.ForwardAccumulator(flat, tangent) as forward:
            y = each(one, RAGGED.with_values(flat), warn=False)
        return y, forward.jvp(y)

    found = (tf.function(pushed) if in_function else pushed)(flat, tangent)
    alone = tf.function(one, input_signature=[tf.TensorSpec([None])])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(flat)
        y = tf.stack([alone(row) for row in RAGGED.with_values(flat)])
    wanted = tf.linalg.matvec(tape.jacobian(y, flat, experimental_use_pfor=False), tangent)
    np.testing.assert_allclose(found[0], y, 1e-4, 1e-5)
    np.testing.assert_allclose(found[1], wanted, 1e-4, 1e-5)


SUMS = {
    "a gradient of a gather": lambda e: tf_pfor.jacrev(lambda u: tf.gather(u, [1, 1]) ** 3)(e)[0],
    "segments": lambda e: tf.math.unsorted_segment_sum(e**2, [1, 0], 3),
    "scatter": lambda e: tf.scatter_nd([[1], [0]], tf.sin(e), [2]),
    "stitch": lambda e: tf.dynamic_stitch([[1], [0]], [e[:1] ** 2, e[1:]]),
}


@pytest.mark.parametrize("body", SUMS)
def test_eager_maps_that_end_with_sums_at_places(body):
    mapped = lambda fn, x: strict_map(fn, x)
    expected = derivative(one_by_one, SUMS[body])(X)
    np.testing.assert_allclose(derivative(mapped, SUMS[body])(X), expected, 1e-5)
