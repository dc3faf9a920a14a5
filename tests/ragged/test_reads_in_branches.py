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


_C, _M = tf.constant([1.0, 2.0, 3.0]), tf.ones([3, 2])
GUARDED = {  # a length, what is right for rows of that length alone, what other rows give
    "arg max": (2, lambda x: (tf.argmax(x), tf.argmin(x))),
    "sum with a constant": (3, lambda x: x + _C),
    "smaller of both": (3, lambda x: tf.minimum(x, _C + 1.0)),
    "selected": (3, lambda x: tf.where(_C > 1.0, x, _C)),
    "selected beside a number": (3, lambda x: tf.where(x > 2.0, 0.0, _C)),
    "arg max of a sum": (3, lambda x: tf.argmax(_C - x)),
    "squeezed": (1, lambda x: tf.squeeze(x, 0)),
    "unstacked": (2, lambda x: tf.unstack(x, 2)[1]),
    "stacked": (3, lambda x: tf.stack([x, _C])),
    "joined": (3, lambda x: tf.concat([x[None], _C[None]], 0)),
    "halves": (2, lambda x: x[:1] + x[1:2]),
    "all but one": (2, lambda x: x[:-1] * x[1:]),
}


@pytest.mark.parametrize("is_cut", [False, True], ids=["ragged", "cut"])
@pytest.mark.parametrize("name", GUARDED)
def test_table_of_guarded(name, is_cut):
    """A branch of a few ops, which fail for rows that do not take it; they ran for all rows."""
    length, right = GUARDED[name]

    def body(x):
        like = tf.nest.map_structure(tf.zeros_like, right(tf.ones([length])))
        return tf.cond(tf.equal(tf.size(x), length), lambda: right(x), lambda: like)

    rows = tf.ragged.constant([[3.0, 1.0, 7.0], [], [5.0], [1.0, 9.0]])
    expected = [body(x) for x in rows]
    if is_cut:
        given = (rows.to_tensor(), tf.constant([3, 0, 1, 2]))
        found = tf_pfor.vmap(lambda x, k: body(x[:k]), warn=False)(*given)
    else:
        found = tf_pfor.vmap(body, warn=False)(rows)
    for i, row in enumerate(expected):
        of_row = tf.nest.map_structure(lambda t: t[i], found)  # noqa: B023
        tf.nest.map_structure(np.testing.assert_array_equal, of_row, row)
