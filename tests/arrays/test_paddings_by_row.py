"""Paddings that differ between rows: together they are one size, or the rows are refused."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped

K = tf.constant([0, 1, 3, 2])
X = tf.random.stateless_normal([4, 5], [1, 2])
IMAGES = tf.random.stateless_normal([4, 3, 2, 1], [1, 3])


def gradient_of_pad(x, k):
    return gradient_of(lambda: tf.reduce_sum(tf.pad(x, [[k, 3 - k]]) ** 3 * tf.range(8.0)), x)


BODIES = {
    "vector": (X, lambda x, k: tf.pad(x, [[k, 3 - k]])),
    "shared": (X, lambda x, k: tf.pad(X[0], [[k + 1, 3 - k]])),
    "values": (X, lambda x, k: tf.pad(x, [[k, 3 - k]], constant_values=7.0)),
    "values by row": (X, lambda x, k: tf.pad(x, [[k, 3 - k]], constant_values=x[0])),
    "shared, values by row": (X, lambda x, k: tf.pad(X[0], [[k, 3 - k]], constant_values=x[0])),
    "two axes": (IMAGES, lambda x, k: tf.pad(x, [[k, 3 - k], [4 - k, k], [0, 0]])),
    "one fixed": (IMAGES, lambda x, k: tf.pad(x, [[1, 2], [3 - k, k], [0, 1]])),
    "bounding box": (IMAGES, lambda x, k: tf.image.pad_to_bounding_box(x, k, 1, 7, 4)),
    "gradient": (X, gradient_of_pad),
    "bools": (X, lambda x, k: tf.pad(x > 0, [[k, 3 - k]], constant_values=True)),
    "int64": (X, lambda x, k: tf.pad(x, [[tf.cast(k, tf.int64), 3 - tf.cast(k, tf.int64)]])),
}


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("site", ["eager", "unknown", "jit_compile", "nested"])
def test_as_the_loop(name, n, site):
    xs, body = BODIES[name]
    xs, ks = xs[:n], K[:n]

    def run(xs, ks):
        return mapped(body, xs, ks)

    if site == "unknown":
        specs = [tf.TensorSpec([None, *xs.shape[1:]]), tf.TensorSpec([None], tf.int32)]
        run = tf.function(run, input_signature=specs)
    elif site == "jit_compile":
        run = tf.function(run, jit_compile=True)
    found = run(xs, ks)
    if site == "nested":
        both = tf_pfor.vmap(lambda x: run(x, ks))(tf.stack([xs, xs + 1.0]))
        np.testing.assert_allclose(both[0], found)
    rows = [body(x, k) for x, k in zip(X[:1] if xs is X else [BODIES[name][0][0]], K[:1])]
    assert found.shape == [n, *rows[0].shape]
    if n:
        expected = np.stack([body(x, k) for x, k in zip(xs, ks)])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_negative_paddings_are_an_error_as_in_a_row():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"test_paddings_by_row.py:\d+"):
        tf_pfor.vectorized_map(lambda k: tf.pad(X[0], [[k, 2 - k]]), K)


@pytest.mark.parametrize("row", [
    lambda k: tf.pad(X[0], [[k, k]]),
    lambda k: tf_pfor.jacrev(lambda v: tf.reduce_sum(tf.slice(v, [k], [-1]) ** 2))(X[0]),
])  # fmt: skip
def test_what_xla_would_get_wrong_is_refused(row):
    """TensorFlow's own map_fn returns gradients of another shape there."""
    with pytest.raises(tf_pfor.NotVectorizableError, match="under jit_compile"):
        tf.function(lambda: tf_pfor.vectorized_map(row, K), jit_compile=True)()
