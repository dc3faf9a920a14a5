"""Eager calls with another number of rows: from the second number on one trace takes any number."""

# ruff: noqa: B023

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import case
from tests.comparisons import close, value_and_gradient

each = tf_pfor.vectorized_map
NUMBERS = (5, 3, 7, 5, 2, 4, 1)


def rows(n, *shape):
    return tf.constant(np.random.default_rng(n).normal(size=(n, *shape)), tf.float32)


def is_traced(call, times, numbers=NUMBERS):
    """The function is traced in so many of the calls."""
    assert traced(call, numbers) == times


def traced(call, numbers=NUMBERS):
    """In how many calls the function was traced."""
    for n in numbers:
        call(n)
    return tf_pfor.cache_info().misses


def test_one_number_has_static_shapes():
    mapped = tf_pfor.vmap(lambda x: x * tf.cast(tf_pfor.axis_size(), tf.float32))

    def call(n):
        close(mapped(rows(n, 2)), rows(n, 2) * n)

    assert traced(call, (4, 4, 4)) == 1
    assert traced(call) == 2


@case(is_traced, 2)
def test_vectorized_map(n):
    w, xs = tf.constant(rows(3, 2)), rows(n, 4, 3)
    close(each(lambda x: tf.tanh(x @ w), xs), [tf.tanh(x @ w) for x in xs])


@case(is_traced, 2, (5, 3, 7, 5, 2))
def test_nests_and_shared_rows(n):
    a, b, c = rows(n, 3), rows(n + 100, 2)[:n].numpy(), rows(1, 3)
    found = each(lambda e: (e["a"] * e["c"], e["b"]), {"a": a, "b": b, "c": c, "d": None})
    close(found[0], a * c)
    close(found[1], b)


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_ragged_rows(chunk_size):
    fn = lambda x: (x[1:] * 2.0, tf.reduce_sum(x))

    def call(n):
        lengths = [k % 3 + 1 for k in range(n)]
        ragged = tf.RaggedTensor.from_row_lengths(rows(sum(lengths)), lengths)
        rest, sums = each(fn, ragged, chunk_size=chunk_size)
        assert rest.shape.as_list() == [n, None]
        assert rest.row_lengths().numpy().tolist() == [k - 1 for k in lengths]
        for i in range(n):
            close(rest[i], ragged[i][1:] * 2.0)
            close(sums[i], tf.reduce_sum(ragged[i]))

    assert traced(call) == 2


def test_vmap_over_axes():
    mapped = tf_pfor.vmap(
        lambda x, y, w: (x + y["y"]) * w, in_axes=(1, {"y": -1}, None), out_axes=1
    )

    def call(n):
        x, y, w = rows(n, 3), rows(n, 3), rows(3)
        close(mapped(tf.transpose(x), {"y": tf.transpose(y)}, w), tf.transpose((x + y) * w))

    assert traced(call) == 2
    with pytest.raises(tf_pfor.ArgumentError, match="disagree in the size"):
        mapped(rows(3, 4), {"y": rows(3, 5)}, rows(3))


def test_a_function_that_keeps_its_own_traces():
    traces = []
    mapped = tf_pfor.vmap(lambda x: (traces.append(1), x * 2.0)[1])
    for n in NUMBERS:
        close(mapped(rows(n)), rows(n) * 2.0)
    assert len(traces) == 2


def test_per_example_gradients():
    w = tf.Variable(rows(4))

    def loss(x):
        return tf.reduce_sum(w * x) ** 2

    def call(n):
        grads, losses = tf_pfor.per_example_gradients(loss, w, rows(n, 4))
        products = tf.reduce_sum(w * rows(n, 4), 1)
        close(losses, products**2)
        close(grads, 2 * products[:, None] * rows(n, 4))
        close(tf_pfor.gradient_norms(loss, w, rows(n, 4)), tf.norm(grads, axis=1))
        total, _ = tf_pfor.clipped_gradient_sum(loss, w, rows(n, 4), clip_norm=1.0)
        close(total, tf.reduce_sum(tf.clip_by_norm(grads, 1.0, 1), 0))

    assert traced(call) == 3 * 2


def test_jacobians():
    jacobian = tf_pfor.jacrev(lambda x: tf.reduce_sum(x**2, 1))
    hessian = tf_pfor.vmap(tf_pfor.hessian(lambda x: tf.reduce_sum(x**3)))

    def call(n):
        x = rows(n, 3)
        close(jacobian(x), np.einsum("ab,ac->abc", np.eye(n), 2 * x))
        close(hessian(x), np.einsum("nb,bc->nbc", 6 * x, np.eye(3)))

    assert traced(call, (5, 3, 7, 5, 2)) == 2 * 2


def test_a_function_that_asks_for_the_static_shape():
    """A jacobian's function sees all rows. It gets the number that it would get by itself."""
    functions = [
        lambda x: x * (2.0 if x.shape[0] == 3 else 1.0),
        lambda x: x * (2.0 if len(x) == 3 else 1.0),
        lambda x: x * (2.0 if tf.get_static_value(tf.size(x)) == 3 else 1.0),
    ]
    for fn in functions:
        for n in (5, 4, 3):
            close(tf_pfor.jacrev(fn)(rows(n)), np.eye(n) * (2.0 if n == 3 else 1.0))


def test_what_needs_the_number_has_a_trace_for_each():
    unstacked = tf_pfor.jacrev(lambda x: tf.add_n(tf.unstack(x)))
    sized = tf_pfor.vmap(lambda x: x, axis_size=3)

    def call(n):
        close(unstacked(rows(n)), np.ones(n))

    assert traced(call, (5, 3, 7)) == 3
    sized(rows(3))
    with pytest.raises(tf_pfor.ArgumentError, match="axis_size: 3"):
        sized(rows(4))


def test_rows_that_the_function_also_closes_over():
    def call(n):
        x = rows(n, 2)
        scale = lambda row: row * x.shape[0] + x[0]
        close(each(scale, x), x * n + x[:1])
        close(tf_pfor.vmap(lambda a, b: a * b.shape[0], (0, None))(x, x), x * n)
        close(tf_pfor.vmap(lambda a, b: a * b.shape[0], (0, 1))(x, rows(3, n)), x * 3)

    call(5), call(3), call(4)


@case(is_traced, 3, (5, 3, 1, 0, 6))
def test_no_rows_and_one_row(n):
    assert each(lambda x: tf.reduce_sum(x) * 2.0, rows(n, 3)).shape == [n]


def test_gradients_around_and_another_dtype():
    for n in NUMBERS:
        x = rows(n, 3)
        y, slopes = value_and_gradient(lambda: each(lambda row: tf.reduce_sum(row**3), x), x)
        close(slopes, 3 * x**2)
        close(each(lambda row: tf.reduce_sum(row**3), tf.cast(x, tf.float64)), y)


def test_functions_of_a_batch_of_a_dataset():
    features = tf_pfor.data.vectorize(lambda x: {"sum": tf.reduce_sum(x)})
    batches = tf.data.Dataset.from_tensor_slices(rows(10, 2)).batch(4).repeat(2)
    for batch in batches:
        close(features(batch)["sum"], tf.reduce_sum(batch, 1))
    assert tf_pfor.cache_info().misses == 2


def test_what_is_not_kept_happens_once_in_each_call():
    calls = []

    def fn(x):
        calls.append(1)
        return x * 2.0

    for n in (3, 4, 5):
        close(each(fn, rows(n)), rows(n) * 2.0)
    assert len(calls) == 3
