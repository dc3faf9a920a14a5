"""Rows whose rank is known only when it runs: ranks are aligned then."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of, mapped

C = tf.constant([1.0, 2.0, 3.0])


def gradient(x, y):
    return gradient_of(lambda: tf.reduce_sum(tf.tanh(x * y) + x * C), [x, y])


def jacobian(x, y):
    return tf_pfor.jacrev(lambda a: tf.reduce_sum(a * a * y))(x)


BODIES = {
    "product": lambda x, y: x * y,
    "closure": lambda x, y: (x + C) * y - 1.0,
    "compared": lambda x, y: tf.where(x > y, x * y, tf.zeros_like(x)),
    "gradient": gradient,
    "jacobian": jacobian,
    "filled": lambda x, y: tf.fill(tf.shape(x), tf.reduce_sum(y)),
    "broadcast": lambda x, y: tf.broadcast_to(y, tf.shape(x)),
}


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("shapes", [([2, 3], []), ([2, 3], [3]), ([3], [3]), ([4, 1, 3], [2, 3])])
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("jit", [False, True])
def test_as_the_loop(name, shapes, n, jit):
    body = BODIES[name]
    if name in ("broadcast", "compared") and shapes == ([4, 1, 3], [2, 3]):
        pytest.skip("the row itself does not broadcast")
    xs, ys = (tf.random.stateless_normal([n, *s], [1, k]) for k, s in enumerate(shapes))
    unknown = tf.TensorSpec(None)

    @tf.function(input_signature=[unknown, unknown], jit_compile=jit)
    def run(xs, ys):
        return mapped(body, xs, ys)  # fmt: skip

    found = tf.nest.flatten(run(xs, ys))
    rows = [tf.nest.flatten(body(x, y)) for x, y in zip(xs, ys)]
    for k, each in enumerate(found):
        assert each.shape[0] == n
        if n:
            np.testing.assert_allclose(each, np.stack([r[k] for r in rows]), rtol=1e-5, atol=1e-6)
