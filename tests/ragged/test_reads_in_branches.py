"""Ops right on a slice of the row that a branch of some rows makes, against a loop over rows."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

X = tf.constant(np.random.default_rng(0).normal(size=[4, 5]))
K, CODE = tf.constant([3, 1, 5, 2]), tf.constant([0, 1, 2, 0])

READS = {
    "sum": tf.reduce_sum,
    "largest": tf.reduce_max,
    "arg max": lambda y: tf.cast(tf.argmax(y), y.dtype),
    "norm": tf.norm,
    "sorted": lambda y: tf.sort(y)[0],
    "scan": lambda y: tf.cumsum(y)[-1],
    "softmax": lambda y: tf.nn.softmax(y)[0],
    "joined": lambda y: tf.reduce_sum(tf.concat([y, y[:1]], 0) ** 2),
    "product": lambda y: tf.tensordot(y, y, 1),
    "reversed": lambda y: y[::-1][0],
}
SLICES = {
    "x[:k]": lambda x, k: x[:k],
    "x[k - 1:]": lambda x, k: x[k - 1 :],
    "tf.slice": lambda x, k: tf.slice(x, [0], k[None]),
    "x[:, :k]": lambda x, k: tf.reshape(x, [1, 5])[:, :k][0],
}
PLACES = {
    "branch": lambda f, x, k, code: tf.cond(code > 0, lambda: f(x, k), lambda: x[0]),
    "branch in a branch": lambda f, x, k, code: tf.cond(
        code > 0, lambda: tf.cond(k > 2, lambda: f(x, k), lambda: x[1]), lambda: f(x * 2, k)
    ),
    "three": lambda f, x, k, code: tf.switch_case(
        code, [lambda: f(x, k), lambda: x[1], lambda: f(x + 1, k)]
    ),
    "loop": lambda f, x, k, code: tf.while_loop(
        lambda t, _: t < code, lambda t, s: (t + 1, s + f(x, k)), (0, x[0] * 0)
    )[1],
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("place", [f"{place}, {cut}" for place in PLACES for cut in SLICES])
def test_table_of_reads(place, read):
    at, cut = place.split(", ", 1)
    one = lambda x, k: READS[read](SLICES[cut](x, k))
    body = lambda x, k, code: PLACES[at](one, x, k, code)
    rows = lambda x: tf.stack([body(x[i], K[i], CODE[i]) for i in range(4)])
    mapped = lambda x: tf_pfor.vmap(body, fallback="error")(x, K, CODE)
    np.testing.assert_allclose(mapped(X), rows(X), rtol=1e-10)
    slope = lambda f: gradient_of(lambda: tf.reduce_sum(tf.sin(f(X))), X)
    if read != "arg max":
        found, expected = slope(mapped), slope(rows)
        np.testing.assert_allclose(found, tf.convert_to_tensor(expected), rtol=1e-9, atol=1e-12)


def test_rows_of_other_lengths_by_updates_in_order():
    """The loop that keeps the order of a variable's updates took rows of one length only."""
    v, w = tf.Variable(0.0, dtype=tf.float64), tf.Variable(0.0, dtype=tf.float64)

    def body(variable):
        def update(y):
            variable.assign(0.5 * variable + tf.reduce_sum(y))
            variable.assign(variable * 2.0)
            return y + variable

        return lambda x, k: tf.cond(k > 2, lambda: update(x[:k]), lambda: update(-x[:k]))

    found = tf_pfor.vmap(body(v), warn=False)(X, K)
    expected = [tf.function(body(w))(X[i], K[i]) for i in range(4)]
    for i, row in enumerate(expected):
        np.testing.assert_allclose(found[i], row, rtol=1e-10)
    np.testing.assert_allclose(v, w)
