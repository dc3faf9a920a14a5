"""Bodies of many kinds: the batched function gives what a call for each example gives."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

ROWS = [tf.random.stateless_normal([4], [i, 2]) for i in range(3)]
TABLES = [tf.random.stateless_normal([3 + i, 4], [i, 1]) for i in range(3)]
W = tf.random.stateless_normal([4, 4], [9, 9])
V = tf.Variable(2.0)


def by_layer(make, *sizes):
    """A body that calls a layer, which is made when it is first called."""
    made = []

    def body(x):
        if not made:
            made.append(make())
        y = made[0](*[x[None]] * len(sizes)) if sizes else made[0](x)
        return y[0] if sizes else y

    return body


layers = tf.keras.layers

BODIES = {
    "cond": (lambda a: tf.cond(tf.reduce_sum(a) > 0, lambda: a * 2, lambda: -a), ROWS),
    "while_loop": (
        lambda a: tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 1.1), (0, a))[1],
        ROWS,
    ),
    "map_fn": (lambda a: tf.map_fn(lambda r: tf.reduce_sum(r * r), a), TABLES),
    "scan": (lambda a: tf.scan(lambda s, r: s * 0.5 + r, a), TABLES),
    "einsum": (lambda a: tf.einsum("ij,jk->ik", a, W), TABLES),
    "top_k": (lambda a: tuple(tf.math.top_k(a, 2)), ROWS),
    "sort": (lambda a: tf.sort(a)[::-1], ROWS),
    "one_hot": (lambda a: tf.one_hot(tf.argmax(a), 4) * a, ROWS),
    "scatter": (lambda a: tf.tensor_scatter_nd_update(a, [[1]], [5.0]), ROWS),
    "conv": (lambda a: tf.nn.conv1d(a[None], tf.ones([2, 4, 3]), 1, "SAME")[0], TABLES),
    "cross entropy": (lambda a: tf.nn.sparse_softmax_cross_entropy_with_logits(2, a), ROWS),
    "numpy": (lambda a: tf.tanh(a) @ np.ones([4, 2], np.float32), TABLES),
    "python loop": (lambda k: sum(tf.constant([1.0, 2.0]) * i for i in range(k)), [1, 3, 2]),
    "enumerate": (lambda a: tf.stack([r * i for i, r in enumerate(a)]), TABLES),
    "strings": (lambda a: tf.strings.to_number(tf.strings.as_string(a)), ROWS),
    "vectorized_map": (lambda a: tf_pfor.vectorized_map(lambda r: r * 2.0, a), TABLES),
    "vmap": (lambda a: tf_pfor.vmap(tf.reduce_sum)(a), TABLES),
    "ragged": (lambda a: tf.RaggedTensor.from_row_lengths(a, [1, 3]).to_tensor(), ROWS),
    "sparse": (lambda a: tf.sparse.to_dense(tf.sparse.from_dense(a)), ROWS),
    "TensorArray": (lambda a: tf.TensorArray(tf.float32, 2).write(0, a).write(1, a * 2).stack(),
        ROWS),
    "keras.ops": (lambda a: tf.keras.ops.relu(tf.keras.ops.matmul(a, W)), TABLES),
    "gelu": (tf.keras.activations.gelu, ROWS),
    "Dense": (by_layer(lambda: layers.Dense(3, "tanh")), TABLES),
    "Embedding": (by_layer(lambda: layers.Embedding(10, 3)), [tf.constant([k]) for k in (1, 5)]),
    "LSTM": (by_layer(lambda: layers.LSTM(3), "x"), TABLES),
    "attention": (by_layer(lambda: layers.MultiHeadAttention(2, 4), "q", "v"), TABLES),
    "Sequential": (by_layer(lambda: tf.keras.Sequential([layers.Dense(3), layers.ReLU()])), TABLES),
    "assert": (lambda a: (tf.debugging.assert_less(a, 100.0), a * 2)[1], ROWS),
    "shapes": (lambda a: {"a": a * 2, "b": (tf.shape(a)[0], a.shape[0])}, TABLES),
    "labels": (lambda k: tf.constant(1.0 if tf.equal(k, 2) else 3.0), list(tf.range(3))),
    "bfloat16": (lambda a: tf.cast(tf.cast(a, tf.bfloat16) * 2, tf.float32), ROWS),
    "solve": (lambda a: tf.linalg.solve(W, a[:, None])[:, 0], ROWS),
    "fft": (lambda a: tf.math.real(tf.signal.fft(tf.cast(a, tf.complex64))), ROWS),
    "variable": (lambda a: a * V + V, ROWS),
    "py_function": (lambda a: tf.py_function(lambda t: t * 2, [a], tf.float32) + 0 * a, ROWS),
    "dataset": (lambda a: sum(r * 1.0 for r in tf.data.Dataset.from_tensor_slices([1.0, 2.0])) * a,
        ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_body(name):
    fn, examples = BODIES[name]
    expected = [fn(e) for e in examples]
    columns = zip(*map(tf.nest.flatten, expected))
    for found, column in zip(tf.nest.flatten(tf_pfor.batched(fn)(examples)), columns, strict=True):
        assert len(column) == len(examples)
        for i, one in enumerate(column):
            row = found[i].to_tensor() if isinstance(found[i], tf.RaggedTensor) else found[i]
            np.testing.assert_allclose(row, one, rtol=1e-5, atol=1e-6)
