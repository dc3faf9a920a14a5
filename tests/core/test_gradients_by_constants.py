"""Gradients by a constant of the graph that the body captures."""

import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

X = tf.constant([1.0, -2.0, 3.0])


def product(x, c):
    return x * c


def loop(x, c):
    def body(t, s):
        return t + 1, s * c

    return tf.while_loop(lambda t, _: t < 2, body, (0, x), maximum_iterations=2)[1]


def branch(x, c):
    return tf.cond(x > 0.0, lambda: x * c, lambda: -x * c)


FOUND = {product: 2.0, loop: 12.0, branch: 6.0}


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "xla"])
@pytest.mark.parametrize("block", [None, 1, 2])
@pytest.mark.parametrize("model", FOUND)
def test_gradient_by_a_constant(model, block, jit):
    def by_tape():
        c = tf.constant(3.0)
        return gradient_of(lambda: tf_pfor.vmap(lambda x: model(x, c), chunk_size=block)(X), c)

    def by_ops():
        c = tf.constant(3.0)
        y = tf_pfor.vmap(lambda x: model(x, c), chunk_size=block)(X)
        return tf.gradients(y, c)[0]

    for derivative in (by_tape, by_ops):
        found = tf.function(derivative, jit_compile=jit, autograph=False)()
        assert found.numpy() == pytest.approx(FOUND[model])
