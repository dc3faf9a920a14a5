"""Derivatives of one number for each row of a loop: as the gradient of the sum of a map."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

N, D = 5, 3
X = tf.constant(np.random.default_rng(0).uniform(0.2, 1.0, [N, D]))
TRIPS, SCALE = tf.constant([1, 4, 0, 2, 3]), tf.constant([0.5, 1.5, 1.0], tf.float64)


def decay(x, k, scale):
    """A loop whose number of trips differs per row; it ends with one number."""
    y, t = x, tf.constant(0)
    while t < tf.minimum(k, 4):
        y = tf.sin(y * scale) + 0.5 * y
        t += 1
    return tf.reduce_sum(y**2)


def expected(argnum=0, fn=decay):
    found = []
    one = tf.function(fn)
    for x, k in zip(X, TRIPS):
        given = [x, k, SCALE]
        found.append(gradient_of(lambda given=given: one(*given), given[argnum]))
    return tf.stack(found)


AXES = (0, 0, None)


@pytest.mark.parametrize("derivative", [tf_pfor.jacrev, tf_pfor.jacfwd])
@pytest.mark.parametrize("place", ["eager", "function", "unknown", "dataset"])
def test_values(derivative, place):
    each = tf_pfor.vmap(derivative(decay), AXES)
    if place == "unknown":
        specs = [tf.TensorSpec([None, D], tf.float64), tf.TensorSpec([None], tf.int32)]
        found = tf.function(lambda x, k: each(x, k, SCALE), input_signature=specs)(X, TRIPS)
    elif place == "dataset":
        data = tf.data.Dataset.from_tensors((X, TRIPS)).map(lambda x, k: each(x, k, SCALE))
        found = next(iter(data))
    elif place == "function":
        found = tf.function(lambda: each(X, TRIPS, SCALE))()
    else:
        found = each(X, TRIPS, SCALE)
    np.testing.assert_allclose(found, expected())


@pytest.mark.parametrize("derivative", [tf_pfor.jacrev, tf_pfor.jacfwd])
def test_an_argument_that_all_rows_share(derivative):
    found = tf_pfor.vmap(derivative(decay, argnums=2), AXES)(X, TRIPS, SCALE)
    np.testing.assert_allclose(found, expected(2))
    both = tf_pfor.vmap(derivative(decay, argnums=(0, 2)), AXES)(X, TRIPS, SCALE)
    np.testing.assert_allclose(both[0], expected(0))
    np.testing.assert_allclose(both[1], expected(2))


def test_nests_and_several_arguments():
    fn = lambda state, k: decay(state["x"] * state["y"], k, SCALE)
    state = {"x": X, "y": X + 1.0}
    found = tf_pfor.vmap(tf_pfor.jacrev(fn))(state, TRIPS)
    for i in range(N):
        with tf.GradientTape() as tape:
            row = {name: x[i] for name, x in state.items()}
            tape.watch(row)
            out = tf.function(fn)(row, TRIPS[i])
        want = tape.gradient(out, row)
        for name in state:
            np.testing.assert_allclose(found[name][i], want[name])


def test_a_row_that_reads_its_argument_beside():
    """Only the way through the argument counts."""
    each = tf_pfor.vmap(lambda x, k: tf_pfor.jacrev(lambda a: decay(a * x, k, SCALE))(x))
    direct = tf_pfor.vmap(tf_pfor.jacrev(lambda a, x, k: decay(a * x, k, SCALE)))
    np.testing.assert_allclose(direct(X, X, TRIPS), each(X, TRIPS))


@pytest.mark.parametrize("options", [{"chunk_size": 2}, {"axis_name": "rows"}])
def test_options(options):
    found = tf_pfor.vmap(tf_pfor.jacrev(decay), AXES, **options)(X, TRIPS, SCALE)
    np.testing.assert_allclose(found, expected())


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n):
    found = tf_pfor.vmap(tf_pfor.jacrev(decay), AXES)(X[:n], TRIPS[:n], SCALE)
    assert found.shape == (n, D)
    np.testing.assert_allclose(found, expected()[:n])


def test_what_does_not_depend_on_the_argument():
    found = tf_pfor.vmap(tf_pfor.jacrev(lambda x, k: decay(X[0], k, SCALE)))(X, TRIPS)
    np.testing.assert_array_equal(found, np.zeros([N, D]))


def test_more_than_one_number():
    fn = lambda x, k: decay(x, k, SCALE) * x
    found = tf_pfor.vmap(tf_pfor.jacrev(fn))(X, TRIPS)
    rows = [tf_pfor.jacrev(tf.function(fn))(x, k) for x, k in zip(X, TRIPS)]
    np.testing.assert_allclose(found, tf.stack(rows))


def test_derivatives_of_it():
    """A tape around, and the derivative of the derivative."""
    found = gradient_of(
        lambda: tf.reduce_sum(tf_pfor.vmap(tf_pfor.jacrev(decay), AXES)(X, TRIPS, SCALE)), X
    )
    second = tf_pfor.vmap(tf_pfor.hessian(decay), AXES)(X, TRIPS, SCALE)
    np.testing.assert_allclose(found, tf.reduce_sum(second, 2))

    @tf.function
    def inside():
        return gradient_of(
            lambda: tf.reduce_sum(tf_pfor.vmap(tf_pfor.jacrev(decay), AXES)(X, TRIPS, SCALE)), X
        )

    np.testing.assert_allclose(inside(), found)


def test_a_map_of_maps():
    pairs, trips = tf.stack([X, X * 0.5]), tf.stack([TRIPS, TRIPS])
    each = tf_pfor.vmap(tf_pfor.jacrev(decay), AXES)
    found = tf_pfor.vmap(each, AXES)(pairs, trips, SCALE)
    np.testing.assert_allclose(found[0], expected())


def test_errors_are_those_of_the_map():
    with pytest.raises(tf_pfor.ArgumentError, match="which has no derivative"):
        tf_pfor.vmap(tf_pfor.jacrev(decay, argnums=1), AXES)(X, TRIPS, SCALE)


def test_no_lists_of_rows():
    """The loop of the map keeps what its gradient needs, not each row for itself."""
    run = tf.function(lambda: tf_pfor.vmap(tf_pfor.jacrev(decay), AXES)(X, TRIPS, SCALE))
    outside = tf.function(lambda: tf_pfor.vmap(decay, AXES)(X, TRIPS, SCALE))
    whiles = [
        sum("While" in op.type for op in f.get_concrete_function().graph.get_operations())
        for f in (run, outside)
    ]
    assert whiles[0] <= 2 * whiles[1]
