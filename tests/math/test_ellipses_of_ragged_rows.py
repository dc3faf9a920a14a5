"""Einsum with an ellipsis, over rows of different shapes."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map

N = 4
X = tf.random.stateless_normal([N, 5, 3], [1, 2])
K = tf.constant([2, 5, 1, 3])
W = tf.random.stateless_normal([3, 4], [1, 3])
BODIES = {
    "layer": lambda r: tf.einsum("...i,ij->...j", r, W),
    "norms": lambda r: tf.einsum("...i,...i->...", r, r),
    "in front": lambda r: tf.einsum("i...,j...->ij...", r, W[:3, :3]),
    "batch of products": lambda r: tf.einsum("...ij,...kj->...ik", r[None], r[None] * 2.0),
    "spread": lambda r: tf.einsum("...i,...j->...ij", r, r[:, :1]),
}


@pytest.mark.parametrize("n", [0, 1, N])
@pytest.mark.parametrize("name", sorted(BODIES))
def test_as_the_loop(name, n):
    body = BODIES[name]

    @tf.function(input_signature=[tf.TensorSpec([None, 5, 3]), tf.TensorSpec([None], tf.int32)])
    def run(x, k):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = strict_map(lambda e: body(e[0][: e[1]]), (x, k))
            total = tf.reduce_sum(y.flat_values**2)
        return y, tape.gradient(total, x)

    found, gradient = run(X[:n], K[:n])
    for i in range(n):
        with tf.GradientTape() as tape:
            tape.watch(X)
            want = body(X[i, : K[i]])
            total = tf.reduce_sum(want**2)
        got = found[i].to_tensor() if isinstance(found[i], tf.RaggedTensor) else found[i]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        wanted = tf.convert_to_tensor(tape.gradient(total, X))[i]
        np.testing.assert_allclose(gradient[i], wanted, rtol=1e-4, atol=1e-4)
