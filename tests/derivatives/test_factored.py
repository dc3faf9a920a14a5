"""Norms and clipped sums of gradients that are kept as the two factors of a matrix product."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.cases import grid
from tests.comparisons import assert_close, gradient_of, needed_ops

RANDOM = np.random.default_rng(0)
weight = lambda *shape, dtype="float64": tf.Variable(RANDOM.normal(size=shape), dtype=dtype)
rows = lambda *shape: tf.constant(RANDOM.normal(size=shape))


def of_vectors():
    w, b, v = weight(20, 30), weight(30), weight(30, 9)
    return (w, b, v), lambda x: tf.reduce_sum(tf.tanh(x[None] @ w + b) @ v), rows(4, 20)


def of_sequences():
    w = weight(20, 30)
    return (w,), lambda x: tf.reduce_sum(tf.tanh(x @ w) ** 2), rows(4, 5, 20)


def of_one_product_behind_another():
    w = weight(9, 12)
    return (w,), lambda x: tf.reduce_sum(tf.tanh(tf.matmul(x, w)) ** 2), rows(4, 2, 3, 9)


def of_tensordot():
    w = weight(20, 5, 6)
    return (w,), lambda x: tf.reduce_sum(tf.tanh(tf.tensordot(x, w, 1)) ** 2), rows(4, 2, 20)


def of_the_left_side():
    w = weight(20, 30)
    return (w,), lambda x: tf.reduce_sum(tf.tanh(tf.linalg.matvec(w, x)) ** 2), rows(4, 30)


def of_tied_weights():
    w = weight(20, 30)
    return (w,), lambda x: tf.reduce_sum(tf.tanh(x[None] @ w) @ tf.transpose(w)), rows(4, 20)


def of_a_penalty():
    w = weight(20, 30)
    return (w,), lambda x: tf.reduce_sum((x[None] @ w) ** 2) + tf.nn.l2_loss(w), rows(4, 20)


def of_long_sequences():
    w = weight(3, 4)  # the factors are larger than the product
    return (w,), lambda x: tf.reduce_sum(tf.tanh(x @ w) ** 2), rows(4, 50, 3)


CASES = (
    of_vectors, of_sequences, of_one_product_behind_another, of_tensordot, of_the_left_side,
    of_tied_weights, of_a_penalty, of_long_sequences,
)  # fmt: skip


def expected_of(loss, variables, batch, clip):
    norms, sums = [], [0.0 for _ in variables]
    for row in batch:
        grads = gradient_of(lambda row=row: loss(row), variables)
        norm = float(tf.linalg.global_norm(grads))
        norms.append(norm)
        sums = [s + g * min(1.0, clip / norm) for s, g in zip(sums, grads)]
    return norms, sums


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
@grid(make=CASES, chunk_size=[None, 3])
def test_norms_and_sums(make, chunk_size, jit):
    variables, loss, batch = make()
    norms, sums = expected_of(loss, variables, batch, 2.0)

    @tf.function(jit_compile=jit)
    def both(batch):
        options = {"chunk_size": chunk_size}
        found = tf_pfor.gradient_norms(loss, variables, batch, **options)
        total, _ = tf_pfor.clipped_gradient_sum(loss, variables, batch, clip_norm=2.0, **options)
        return found, total

    found, total = both(batch)
    np.testing.assert_allclose(found, norms, rtol=1e-9)
    assert_close(total, sums)


@pytest.mark.parametrize("make", [of_vectors, of_sequences])
def test_no_gradient_of_each_example_is_made(make):
    variables, loss, batch = make()
    shapes = [(len(batch), *v.shape) for v in variables if v.shape.rank == 2]
    for function in (
        lambda x: tf_pfor.gradient_norms(loss, variables, x),
        lambda x: tf_pfor.clipped_gradient_sum(loss, variables, x, clip_norm=1.0)[0],
    ):
        graph = tf.function(function).get_concrete_function(batch).graph
        found = _read(graph)
        assert not [s for s in shapes if s in found]


def _read(graph):
    """The shapes of all that the outputs of a graph are made of."""
    seen = needed_ops(graph.outputs)
    return {tuple(t.shape.as_list()) for op in seen for t in op.outputs if t.shape.rank is not None}


@pytest.mark.parametrize("n", [0, 1])
def test_few_examples(n):
    variables, loss, batch = of_sequences()
    norms, sums = expected_of(loss, variables, batch[:n], 2.0)
    found = tf_pfor.gradient_norms(loss, variables, batch[:n])
    total, _ = tf_pfor.clipped_gradient_sum(loss, variables, batch[:n], clip_norm=2.0)
    np.testing.assert_allclose(found, norms, rtol=1e-9)
    np.testing.assert_allclose(total[0], sums[0] + tf.zeros_like(variables[0]), rtol=1e-9)


def test_no_examples_of_a_table_of_positions():
    """An empty batch, as Poisson sampling draws them: a table as large as what is looked up."""
    table = tf.Variable(tf.ones([7, 8]))
    loss = lambda x: tf.reduce_sum((x + tf.gather(table, tf.range(7))) ** 2)
    total, losses = tf_pfor.clipped_gradient_sum(loss, table, tf.ones([0, 7, 8]), clip_norm=1.0)
    assert total.shape == (7, 8)
    assert losses.shape == (0,)
    np.testing.assert_array_equal(total, np.zeros([7, 8]))


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_keras_attention(policy):
    x = keras.Input([6, 12])
    attention = keras.layers.MultiHeadAttention(2, 8, dtype=policy)
    model = keras.Model(x, keras.layers.Dense(10, dtype=policy)(attention(x, x)))
    variables = [v.value for v in model.trainable_variables]
    loss = lambda row: tf.reduce_mean(tf.cast(model(row[None]), tf.float32) ** 2) * 100.0
    batch = tf.constant(RANDOM.normal(size=[3, 6, 12]), tf.float32)
    norms, sums = expected_of(loss, variables, batch, 1.0)
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-5} if policy == "float32" else {"rtol": 0.02, "atol": 0.02}
    )
    np.testing.assert_allclose(tf_pfor.gradient_norms(loss, variables, batch), norms, **tolerance)
    total, _ = tf_pfor.clipped_gradient_sum(loss, variables, batch, clip_norm=1.0)
    for a, b in zip(total, sums):
        assert a.dtype == tf.float32
        np.testing.assert_allclose(a, b, **tolerance)
