"""Lists that branches write or make, and lists that change places in a loop."""

import numpy as np
import tensorflow as tf

from tests.cases import refuse, table
from tests.comparisons import compare, gradient_in_body, mapped

RNG = np.random.default_rng(0)
K = tf.constant([1, 3, 2])
X = tf.constant(RNG.normal(size=[3, 3]))


def array(values):
    return tf.TensorArray(tf.float64, len(values), element_shape=[3]).unstack(tf.stack(values))


def written_in_a_branch(k, x):
    zero = tf.zeros([3], tf.float64)
    before = array([x * 2.0, zero, x, zero])

    def looped():
        s = tf.while_loop(lambda t, _: t < k, lambda t, s: (t + 1, tf.sin(s) * x), (0, x))[1]
        return before.write(0, s)

    after = tf.cond(k > 1, looped, lambda: before.write(1, x**3))
    return tf.reduce_sum(after.stack() ** 2, 0)


def made_in_a_branch(k, x):
    made = tf.cond(k > 1, lambda: array([x, x**2]), lambda: array([tf.sin(x), x]))
    return made.read(0) * made.read(1)


def swapped(k, x):
    body = lambda t, a, b: (t + 1, b, a.write(0, a.read(0) * b.read(1)))
    start = (0, array([x, x * 2.0]), array([x**2, x * 3.0]))
    _, a, b = tf.while_loop(lambda t, *_: t < k, body, start, maximum_iterations=4)
    return tf.reduce_sum(a.stack(), 0) + 2.0 * tf.reduce_sum(b.stack() ** 2, 0)


def swapped_of_other_lengths(k, x):
    start = (0, array([x, x * 2.0]), array([x, x**2, x * 3.0]))
    _, a, b = tf.while_loop(lambda t, *_: t < k, lambda t, a, b: (t + 1, b, a), start)
    return a.read(1) * tf.cast(a.size(), x.dtype) + b.read(1)


MODELS = [written_in_a_branch, made_in_a_branch, swapped, swapped_of_other_lengths]


def few_rows(model):
    one = gradient_in_body(model)
    compare(one, K[1:2], X[1:2], atol=0)
    assert mapped(one, K[:0], X[:0]).shape == (0, 3)


SOME = [written_in_a_branch, swapped]
test_table_of_modes = table({
    "values": (lambda model: compare(model, K, X, atol=0), MODELS),
    "gradients": (lambda model: compare(gradient_in_body(model), K, X, atol=0), MODELS),
    "second gradients": (
        lambda model: compare(gradient_in_body(gradient_in_body(model)), K, X, atol=0), MODELS
    ),
    "few rows": (few_rows, SOME),
    "two maps": (
        lambda model: compare(
            model, tf.stack([K, K[::-1]]), tf.stack([X, X + 0.1]), maps=2, atol=0
        ), SOME,
    ),
    "compiled": (lambda model: compare(model, K, X, function={"jit_compile": True}, atol=0), SOME),
    "other lengths, compiled": (
        lambda model: refuse(
            model, K, X, function={"jit_compile": True}, match="may differ in length between rows"
        ), [swapped_of_other_lengths],
    ),
})  # fmt: skip
