"""Gradients that a body takes of loops whose trips cut rows, or choose a branch that reads rows.

TensorFlow keeps what a trip reads in lists. All rows of a batch have one list, whose items have the
sizes that were known before the loop.
"""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import compare_around, compare_rows, value_and_gradient

ROWS = tf.ragged.constant([[1.0, 2.0], [3.0], [0.5, -0.6, 0.7], [0.8, -0.9]])
DENSE = tf.random.stateless_normal([4, 4], [1, 2])
COUNTS = tf.constant([0, 3, 1, 2])
S = tf.reduce_sum


def trips(body, count=None):
    """A loop over ``body(row, dense row, count, trip, number)``, which gives the next number."""

    def run(r, d, k):
        return tf.while_loop(
            lambda t, s: t < (k if count is None else count),
            lambda t, s: (t + 1, tf.tanh(body(r, d, k, t, s))),
            (0, tf.constant(0.3)),
        )[1]

    return run


def twice(body):
    """A loop in the loop over ``body(number)``."""
    return lambda s: tf.while_loop(lambda u, v: u < 2, lambda u, v: (u + 1, body(v)), (0, s))[1]


def carried(r, d, k, t, s):
    v = tf.while_loop(
        lambda u, v: u < 2, lambda u, v: (u + 1, tf.sin(v) * s + v * d[:k]), (0, d[:k]),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )[1]  # fmt: skip
    return S(v)


def of_both(r, d, k, t, s):
    return tf.cond(s > 0.4, lambda: S(tf.sin(r * s)), lambda: S(tf.cos(d[:k] * s)))


def of_three(r, d, k, t, s):
    branches = [lambda: s * 1.1, lambda: S(tf.sin(r * s)), lambda: S(tf.cos(d[:k] * s))]
    return tf.switch_case((k + t) % 3, branches)


PROGRAMS = {
    "cut": trips(lambda r, d, k, t, s: s + S(tf.sin(d[:k] * s))),
    "as many trips": trips(lambda r, d, k, t, s: s + S(tf.sin(d[:k] * s)), 3),
    "rest": trips(lambda r, d, k, t, s: s + S(tf.sin(r[1:] * s))),
    "cut of a cut": trips(lambda r, d, k, t, s: s * S(d[:k][1:])),
    "places": trips(lambda r, d, k, t, s: s + S(r * tf.cast(tf.range(tf.size(r)), r.dtype))),
    "in an inner loop": trips(lambda r, d, k, t, s: twice(lambda v: S(tf.sin(d[:k] * v)))(s)),
    "carried": trips(carried),
    "over elements": trips(lambda r, d, k, t, s: S(tf.map_fn(lambda e: tf.sin(e * s), d[:k]))),
    "branch": trips(
        lambda r, d, k, t, s: tf.cond(s > 0.3, lambda: S(tf.sin(r * s)), lambda: s * 1.1)
    ),
    "branches": trips(of_both),
    "case": trips(of_three),
    "matrix in a branch": trips(
        lambda r, d, k, t, s: tf.cond(
            s > 0.3, lambda: S(tf.linalg.matvec(r[:, None] * r, r * s)), lambda: S(r[:, None] * s)
        )
    ),
    "branch in a branch": trips(
        lambda r, d, k, t, s: tf.cond(k > 1, lambda: of_both(r, d, k, t, s), lambda: s + S(r))
    ),
    "loop in a branch": trips(
        lambda r, d, k, t, s: tf.cond(
            s > 0.2, lambda: twice(lambda v: S(tf.sin(d[:k] * v)))(s), lambda: s + 0.1
        )
    ),
    "branch in an inner loop": trips(
        lambda r, d, k, t, s: twice(lambda v: of_both(r, d, k, t, v))(s)
    ),
    "function": trips(lambda r, d, k, t, s: tf.function(lambda s: of_both(r, d, k, t, s))(s)),
}


def with_slopes(name):
    @tf.autograph.experimental.do_not_convert
    def body(r, d, k):
        y, slopes = value_and_gradient(
            lambda: PROGRAMS[name](r, d, k), [r, d], unconnected_gradients="zero"
        )
        return y + tf.add_n([S(tf.sin(tf.convert_to_tensor(g))) for g in slopes])

    return body


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    compare_rows(with_slopes(name), ROWS, DENSE, COUNTS, rtol=1e-4, atol=1e-5)


@grid(n=[0, 1, None], name=["carried", "case", "branch in a branch"])
def test_few_rows_and_an_unknown_number(name, n):
    rows = [x[:n] for x in (ROWS, DENSE, COUNTS)]
    compare_rows(with_slopes(name), *rows, unknown=n is None, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cut", "rest", "carried", "branches", "branch in a branch"])
def test_gradients_around(name):
    options = {"rtol": 1e-3, "atol": 1e-4, "fallback": "loop", "warn": False}
    compare_around(with_slopes(name), ROWS, DENSE, COUNTS, **options)


def test_a_slice_of_a_trip_that_no_row_makes_may_be_out_of_range():
    """A window that reaches past the edge is an error, but not of rows without trips."""
    counts, begins = tf.constant([2, 0, 1, 0]), tf.constant([1, 10, 2, -20])

    def body(row):
        d, count, begin = row
        with tf.GradientTape() as tape:
            tape.watch(d)
            total = tf.constant(0.0)
            for _ in tf.range(count):
                total += S(d[begin : begin + 2] ** 2)
        return tape.gradient(total, d)

    elems = (DENSE, counts, begins)
    found = tf_pfor.vectorized_map(body, elems, warn=False)
    want = np.zeros([4, 4], np.float32)
    want[0, 1:3], want[2, 2:4] = 4.0 * DENSE[0, 1:3], 2.0 * DENSE[2, 2:4]
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_a_slice_in_an_inner_map_stays_there():
    """An inner map over a row is one map over all pairs: what it cuts is of a pair."""

    def body(map_):
        def run(row):
            r, d, k = row
            return trips(
                lambda r, d, k, t, s: s + S(map_(lambda e: S(tf.sin(r[1:] * e * s)), r)), 2
            )(r, d, k)

        return run

    elems = (ROWS, DENSE, COUNTS)
    found = tf_pfor.vectorized_map(body(tf_pfor.vectorized_map), elems, warn=False)
    want = [body(tf.map_fn)((ROWS[i], DENSE[i], COUNTS[i])) for i in range(4)]
    np.testing.assert_allclose(found, want, rtol=1e-5)
