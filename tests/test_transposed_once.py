"""A weight that several steps multiply transposed is transposed once."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.control_flow import vectorized
from tests.test_products import emitted
from tf_pfor.converters import _matmul

N, T, K = 5, 4, 6
LENGTHS = tf.constant([2, 0, 4, 1, 3])


def normal(*shape):
    rng = np.random.default_rng(sum(shape))
    return tf.constant(rng.normal(size=shape) * 0.5, tf.float32)


W = tf.Variable(normal(K, K))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(_matmul, "_ROWS", range(513))
    monkeypatch.setattr(_matmul, "_LEAST", 1)


def unrolled(k, x):
    s = x[None]
    for _ in range(T):
        s = tf.tanh(s @ W)
    return tf.reduce_sum(s**2)


def looped(k, x):
    loop = tf.while_loop(lambda t, s: t < k, lambda t, s: (t + 1, tf.tanh(s @ W)), (0, x[None]))
    return tf.reduce_sum(loop[1] ** 2)


def gradients(model):
    def one(k, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(k, x)
        return tape.gradient(y, [x, W], unconnected_gradients="zero")

    return one


def concrete(model, strategy="compact"):
    one, x = gradients(model), normal(N, K)
    mapped = tf.function(
        lambda *args: vectorized(one, args, while_strategy=strategy), autograph=False
    )
    return mapped.get_concrete_function(LENGTHS, x), x


@pytest.mark.parametrize("strategy", ["compact", "mask"])
@pytest.mark.parametrize("model", [unrolled, looped])
def test_per_example_gradients(model, strategy):
    fn, x = concrete(model, strategy)
    found = fn(LENGTHS, x)
    for i in range(N):
        for f, e in zip(found, gradients(model)(LENGTHS[i], x[i])):
            np.testing.assert_allclose(f[i], e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", [unrolled, looped])
def test_one_transpose(model):
    """It stands before the loop."""
    fn, _ = concrete(model)
    turned = [op for op in fn.graph.get_operations() if op.outputs and _is_turned(op)]
    assert len(turned) == 1
    assert emitted(fn.graph)["Transpose"] == len(_transposes(fn.graph))


def _is_turned(op):
    return op.type == "Transpose" and op.outputs[0].shape == [K, K, 1]


def _transposes(graph):
    return [op for op in graph.get_operations() if op.type == "Transpose"]


@pytest.mark.parametrize("model", [unrolled, looped])
@pytest.mark.parametrize("how", ["tape", "graph"])
def test_gradients_around(model, how):
    """Nothing of the weight's gradient is lost."""
    x = normal(N, K)
    one = gradients(model)

    def mapped():
        return vectorized(one, (LENGTHS, x), while_strategy="compact")

    def by_hand():
        return [tf.stack(c) for c in zip(*[one(LENGTHS[i], x[i]) for i in range(N)])]

    def total(fn):
        return tf.add_n([tf.reduce_sum(tf.sin(g)) for g in fn()])

    @tf.function
    def second(fn):
        if how == "graph":
            return tf.gradients(total(fn), W)[0]
        with tf.GradientTape() as tape:
            y = total(fn)
        return tape.gradient(y, W)

    np.testing.assert_allclose(second(mapped), second(by_hand), rtol=1e-4, atol=1e-5)


def test_a_jacobian():
    x = normal(K)

    @tf.function
    def rows(ours):
        with tf.GradientTape() as tape:
            tape.watch(x)
            s = x[None]
            for _ in range(T):
                s = tf.tanh(s @ W)
            y = s[0]
        if ours:
            return tf_pfor.tape_jacobian(tape, y, x)
        return tape.jacobian(y, x, experimental_use_pfor=False)

    np.testing.assert_allclose(rows(True), rows(False), rtol=1e-5, atol=1e-6)
    fn = rows.get_concrete_function(True)
    assert sum(_is_turned(op) for op in fn.graph.get_operations()) == 1


def test_a_variable_that_changes_between_steps():
    v, start = tf.Variable(normal(K, K)), normal(K, K)

    @tf.function
    def f(xs):
        v.assign(start)

        def one(x):
            s = x[None]
            for t in range(T):
                s = tf.matmul(s, v, transpose_b=True)
                if t == 1:
                    v.assign(start * 2.0)
            return s[0]

        return tf_pfor.vectorized_map(one, xs)

    x = normal(N, K)
    w = start.numpy().T
    np.testing.assert_allclose(f(x), x.numpy() @ w @ w @ (2 * w) @ (2 * w), rtol=1e-4, atol=1e-5)
