"""``tf.searchsorted`` of sorted numbers, or of what is searched for, of lengths of the row."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
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


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_inverse_permutations(dtype):
    def body(row):
        order = tf.argsort(row[0][: row[1]])
        return tf.math.invert_permutation(tf.cast(order, dtype))

    for n in (0, 1, 4):
        found = tf_pfor.vectorized_map(body, (X[:n], KEPT[:n]), fallback="error")
        assert found.dtype == dtype
        wanted = [body(row) for row in zip(tf.unstack(X[:n], n), KEPT[:n])]
        assert found.to_list() == [w.numpy().tolist() for w in wanted]


@pytest.mark.parametrize("wrong", [[1, 0, 3, 2], [0, 0, 0, 1], [-1, 0, 0, 1], [2, 1, 0, 1]])
def test_no_permutations(wrong):
    """Each row is checked: all rows together may be one permutation."""
    rows = tf.RaggedTensor.from_row_lengths(tf.constant(wrong), [2, 0, 2])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_pfor.vectorized_map(tf.math.invert_permutation, rows, fallback="error")
