"""``tf.searchsorted`` of sorted numbers, or of what is searched for, of lengths of the row."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map

X = tf.random.stateless_normal([4, 6], [1, 2])
SORTED = tf.sort(tf.random.stateless_normal([4, 5], [1, 3]), -1)
KEPT, LENGTHS = tf.constant([2, 0, 6, 1]), tf.constant([5, 3, 0, 1])
EDGES = tf.constant([-1.0, 0.0, 0.5])

BODIES = {
    "shared": lambda x, s, k, m, side: tf.searchsorted(EDGES, x[:k], side),
    "of the row": lambda x, s, k, m, side: tf.searchsorted(s, x[:k], side),
    "own lengths": lambda x, s, k, m, side: tf.searchsorted(s[:m], x, side),
    "both": lambda x, s, k, m, side: tf.searchsorted(s[:m], tf.concat([x[:k], s[:k]], 0), side),
    "integers": lambda x, s, k, m, side: tf.searchsorted(tf.range(m), tf.range(k), side),
}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", BODIES)
def test_places(name, side):
    rows = (X, SORTED, KEPT, LENGTHS)
    found = strict_map(lambda r: BODIES[name](*r, side), rows)
    for i in range(4):
        expected = BODIES[name](*[r[i] for r in rows], side)
        np.testing.assert_array_equal(found[i], expected)


def test_without_rows():
    rows = (X[:0], SORTED[:0], KEPT[:0], LENGTHS[:0])
    for body in BODIES.values():
        found = strict_map(lambda r, f=body: f(*r, "left"), rows)
        assert found.shape[0] == 0


def test_infinite_numbers():
    x = tf.constant([[np.inf, -np.inf], [np.inf, 0.0]])

    def body(r):
        return tf.searchsorted(r[1][: r[2]], r[0], "right")

    rows = (x, SORTED[:2], LENGTHS[:2])
    found = strict_map(body, rows)
    for i in range(2):
        np.testing.assert_array_equal(found[i], body([r[i] for r in rows]))


def test_histogram_of_own_range():
    import keras

    found = strict_map(lambda x: keras.ops.histogram(x, 4), X)
    for i in range(4):
        for f, e in zip(found, keras.ops.histogram(X[i], 4)):
            np.testing.assert_allclose(f[i], e, 1e-6)
