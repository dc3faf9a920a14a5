"""Gradients in the body of slices that cut rows and do other things as well."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

X = tf.random.stateless_normal([4, 6, 5, 3], [1, 2])
B, K = tf.constant([1, 0, 2, 4]), tf.constant([3, 6, 1, 0])

CUTS = {
    "a column": lambda x, b, k: x[:k, 0],
    "an element of columns": lambda x, b, k: x[:k, -1, 1],
    "columns": lambda x, b, k: x[:k, 1:3],
    "every second": lambda x, b, k: x[b:k:2, ::2],
    "the last axis": lambda x, b, k: x[:k, ..., 0],
    "behind an index": lambda x, b, k: x[0, b:k, None, : k // 2],
    "backwards": lambda x, b, k: x[::-1, :k],
    "a new axis": lambda x, b, k: x[None, :k],
}
SPECS = {
    "known": [None, 6, 5, 3],
    "unknown": [None, None, None, None],
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("sizes", SPECS)
@pytest.mark.parametrize("name", CUTS)
def test_gradients_inside(name, sizes, jit):
    def gradient(row):
        with tf.GradientTape() as tape:
            tape.watch(row[0])
            total = tf.reduce_sum(tf.sin(CUTS[name](*row)))
        return tape.gradient(total, row[0])

    numbers = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[tf.TensorSpec(SPECS[sizes]), numbers, numbers])
    def run(*rows):
        return tf_pfor.vmap(gradient, jit_compile=jit, fallback="error")(rows)

    wanted = tf.stack([gradient(row) for row in zip(*map(tf.unstack, (X, B, K)))])
    np.testing.assert_allclose(run(X, B, K), wanted, rtol=1e-5, atol=1e-6)
    assert run(X[:0], B[:0], K[:0]).shape == [0, 6, 5, 3]
