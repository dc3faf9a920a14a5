"""XLA contexts of graphs other than jit_compile: what must be a constant there is one."""

import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import strict_map

X = np.arange(12.0, dtype=np.float32).reshape(4, 3)
W = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(3, 2)


def fixed_loop(x):
    return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.0), (0, x[0]))[1]


def own_trips(x):
    limit = tf.cast(x[0], tf.int32) // 3
    return tf.while_loop(lambda i, s: i < limit, lambda i, s: (i + 1, s + 1.0), (0, x[0]))[1]


BODIES = {
    "mean": tf.reduce_mean,
    "fixed loop": fixed_loop,
    "own trips": own_trips,
    "layer": lambda x: tf.nn.softmax(tf.linalg.matvec(W, x, transpose_a=True)),
    "moves": lambda x: tf.transpose(tf.reshape(tf.tile(x, [2]), [2, 3])),
    "slices": lambda x: tf.concat([x[1:], x[:1], tf.reverse(x, [0])], 0),
    "gather": lambda x: tf.gather(x, tf.argsort(x)[:2]),
    "pad": lambda x: tf.pad(x, [[1, 2]]),
    "one hot": lambda x: tf.one_hot(tf.cast(x, tf.int32), 5),
    "branch": lambda x: tf.cond(x[0] > 4.0, lambda: x * 2.0, lambda: tf.cumsum(x)),
    "gradient": lambda x: tf.gradients(tf.reduce_logsumexp(x[None] @ W), x)[0],
    "convolution": lambda x: tf.nn.conv1d(x[None, :, None], W[:, :1, None], 1, "SAME")[0],
}


@pytest.mark.parametrize("name", BODIES)
def test_values(name):
    body = BODIES[name]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        (compiled,) = tf.xla.experimental.compile(lambda x: strict_map(body, x), [tf.constant(X)])
        rows = tf.stack([body(row) for row in tf.unstack(tf.constant(X))])
        found, expected = session.run([compiled, rows])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
