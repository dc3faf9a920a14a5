"""Jacobians, hessians and laplacians of variable-length rows: as many units as elements."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import compare_rows, gradient_of, strict_map

LENGTHS = [3, 1, 4, 0, 2]
RANDOM = np.random.default_rng(0)
VECTORS = tf.RaggedTensor.from_row_lengths(RANDOM.normal(size=[sum(LENGTHS)]), LENGTHS)
MATRICES = tf.RaggedTensor.from_row_lengths(RANDOM.normal(size=[sum(LENGTHS), 2]), LENGTHS)
W = tf.constant(RANDOM.normal(size=[2, 3]))
energy = lambda x: tf.reduce_sum(tf.sin(x) * tf.cumsum(x))


def attention(x):
    """Attention of a row of steps to itself, and a mean."""
    scores = tf.nn.softmax(tf.matmul(x, x, transpose_b=True))
    return tf.reduce_mean(scores @ x @ W, 0)


# Differences of neighbours, whose number differs per row: slices of its hessian.
differences = lambda x: tf.reduce_sum((x[1:] - x[:-1]) ** 4)
spread = lambda x: tf.reduce_sum(tf.broadcast_to(x[:, None], [tf.size(x), 3]) ** 3)
chosen = lambda x: tf.reduce_sum(tf.gather(x, tf.where(x > 0.0)[:, 0]) ** 3)


def with_tape(function):
    def jacobian(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = function(x)
        return tf_pfor.tape_jacobian(tape, y, x)

    return jacobian


running = lambda x: tf.cumsum(tf.sin(x))
pooled = lambda x: tf.reduce_sum(tf.tanh(x @ W), 0)
PROGRAMS = {
    "jacrev": (tf_pfor.jacrev(running), VECTORS),
    "jacfwd": (tf_pfor.jacfwd(running), VECTORS),
    "jacrev to a vector": (tf_pfor.jacrev(pooled), MATRICES),
    "jacfwd to a vector": (tf_pfor.jacfwd(pooled), MATRICES),
    "jacrev of attention": (tf_pfor.jacrev(attention), MATRICES),
    "tape_jacobian": (with_tape(running), VECTORS),
    "tape_jacobian to a vector": (with_tape(pooled), MATRICES),
    "hessian": (tf_pfor.hessian(energy), VECTORS),
    "laplacian": (tf_pfor.laplacian(energy), VECTORS),
    "hessian of differences": (tf_pfor.hessian(differences), VECTORS),
    "laplacian of differences": (tf_pfor.laplacian(differences), VECTORS),
    "hessian of what is broadcast": (tf_pfor.hessian(spread), VECTORS),
    "laplacian of what is broadcast": (tf_pfor.laplacian(spread), VECTORS),
    "hessian of what is chosen": (tf_pfor.hessian(chosen), VECTORS),
}


@pytest.mark.parametrize("unknown", [False, True], ids=["known n", "unknown n"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, unknown):
    compare_rows(*PROGRAMS[name], unknown=unknown, rtol=1e-8, atol=1e-10)


def test_a_gradient_of_jacobians():
    """A penalty on the jacobian of each row, as regularizers have it."""

    def penalty(values, mapped):
        return gradient_of(lambda: mapped(MATRICES.with_values(values)), values)

    one = lambda x: tf.reduce_sum(tf_pfor.jacrev(pooled)(x) ** 2)
    found = penalty(MATRICES.values, lambda rows: tf.reduce_sum(strict_map(one, rows)))
    rows = [tf.shape(MATRICES[i])[0] for i in range(len(LENGTHS))]
    expected = penalty(MATRICES.values, lambda r: sum(one(x) for x in tf.split(r.values, rows)))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
