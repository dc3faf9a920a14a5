"""Products along an axis whose size differs per row in one input, and not in the other."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

LENGTHS = [3, 1, 4]
X = tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([8, 3], [1, 2]), LENGTHS)
W = tf.random.stateless_normal([3, 2], [3, 4])


@pytest.mark.parametrize("is_stacked", [False, True])
@pytest.mark.parametrize("is_flipped", [False, True])
def test_sizes_that_turn_out_equal(is_flipped, is_stacked):
    w = tf.stack([W, W * 2.0, W - 1.0]) if is_stacked else W

    def body(x, k, w):
        part = x[:, :k]  # its width is known in each row when it runs
        return tf.matmul(w, part, True, True) if is_flipped else part @ w

    mapped = tf_pfor.vmap(body, in_axes=(0, 0, 0 if is_stacked else None), fallback="error")
    ks = tf.constant([3, 3, 3])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([X.flat_values, w])
        found = mapped(X, ks, w)
        rows = [body(x, 3, w[i] if is_stacked else w) for i, x in enumerate(X)]
        losses = [tf.reduce_sum(found.flat_values**2), sum(tf.reduce_sum(r**2) for r in rows)]
    for got, want in zip(found, rows, strict=True):
        got = got.to_tensor() if isinstance(got, tf.RaggedTensor) else got
        np.testing.assert_allclose(got, want, rtol=1e-5)
    (got_x, got_w), (want_x, want_w) = (tape.gradient(x, [X.flat_values, w]) for x in losses)
    np.testing.assert_allclose(got_x, want_x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got_w, want_w, rtol=1e-4, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in some iterations"):
        mapped(X, tf.constant([3, 2, 3]), w)


def test_no_rows():
    mapped = tf_pfor.vmap(lambda x, k: x[:, :k] @ W, fallback="error")
    assert mapped(X[:0], tf.zeros([0], tf.int32)).nrows() == 0


def test_gradients_of_a_force():
    """The gradient of a Slice, behind a concatenation, has a width that no one knows before."""
    z = tf.RaggedTensor.from_row_lengths(tf.constant([0, 1, 2, 3, 1, 2, 0, 1]), LENGTHS)
    table = tf.Variable(tf.random.stateless_normal([4, 5], [3, 4]))
    w = tf.Variable(tf.random.stateless_normal([10, 1], [5, 6]))

    def loss(x, z):
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = tf.gather(table, z)
            a = tf.nn.softmax(-tf.reduce_sum((x[:, None] - x[None]) ** 2, -1))
            energy = tf.reduce_sum(tf.tanh(tf.concat([h, a @ h], -1) @ w))
        return energy + tf.reduce_sum(tape.gradient(energy, x) ** 2)

    found, losses = tf_pfor.per_example_gradients(loss, [table, w], X, z)  # a warning if it loops
    for i in range(3):
        with tf.GradientTape() as tape:
            one = loss(X[i], z[i])
        np.testing.assert_allclose(losses[i], one, rtol=1e-4)
        for got, want in zip(found, tape.gradient(one, [table, w]), strict=True):
            np.testing.assert_allclose(got[i], tf.convert_to_tensor(want), rtol=1e-3, atol=1e-4)
