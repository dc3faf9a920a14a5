"""Products of the same rows by several weights that steps share are one product."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import all_ops, assert_close, gradient_of
from tests.devices import of_cpus
from tests.math.test_products import emitted
from tests.ways import table_of
from tf_pfor.converters.math import _weights

T, K, INPUTS = 3, 6, 4


def normal(*shape):
    rng = np.random.default_rng(sum(shape))
    return tf.constant(rng.normal(size=shape) * 0.5, tf.float32)


W, U, V = tf.Variable(normal(INPUTS, K)), tf.Variable(normal(K, K)), tf.Variable(normal(3, K))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(_weights, "_ROWS", range(513))
    monkeypatch.setattr(_weights, "_LEAST", 1)


def unrolled(x, s, y):
    for t in range(T):
        s = tf.tanh(x[t][None] @ W + s @ U + y @ V)
    return s[0]


def looped(x, s, y):
    def body(t, s):
        return t + 1, tf.tanh(x[t][None] @ W + s @ U + y @ V)

    return tf.while_loop(lambda t, _: t < T, body, (0, s))[1][0]


def jacobians(model, jacobian, which):
    @tf.function
    def run(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            y = model(*args)
        return jacobian(tape, y, [args[i] for i in which])

    return run


def by_loop(tape, y, sources):
    return tape.jacobian(y, sources, experimental_use_pfor=False)


ARGS = (normal(T, INPUTS), normal(1, K), normal(1, 3))


@pytest.mark.parametrize("which", [(0,), (0, 1), (0, 1, 2), (2, 1)])
@pytest.mark.parametrize("model", [unrolled, looped])
def test_jacobians(model, which):
    found = jacobians(model, tf_pfor.tape_jacobian, which)
    expected = jacobians(model, by_loop, which)
    assert_close(found(*ARGS), expected(*ARGS), rtol=1e-5, atol=1e-6)


def _products(fn):
    return emitted(fn.get_concrete_function(*ARGS).graph)["MatMul"]


@of_cpus
def test_one_product_in_a_step():
    """Forward three in a step, back one; the first step needs no product by U when only x asks."""
    assert _products(jacobians(unrolled, tf_pfor.tape_jacobian, (0, 1, 2))) == 3 * T + T
    assert _products(jacobians(unrolled, tf_pfor.tape_jacobian, (0,))) == 3 * T + T
    fn = jacobians(looped, tf_pfor.tape_jacobian, (0, 1, 2)).get_concrete_function(*ARGS)
    loops = [op for op in fn.graph.get_operations() if op.type in ("While", "StatelessWhile")]
    bodies = [fn.graph._get_function(op.get_attr("body").name).graph for op in loops]
    assert [emitted(body)["MatMul"] for body in bodies] == [3, 1]


def slopes(*args):
    return gradient_of(lambda: tf.reduce_sum(unrolled(*args) ** 2), args)


FACTOR = tf.Variable(normal(K, K))


def read_by_another(x):
    """x @ A, and x @ f(x @ A): the second cannot be made beside the first."""
    y = x
    for _ in range(3):
        first = tf.matmul(x, FACTOR, transpose_b=True)
        y = y + first + tf.matmul(x, tf.tanh(first), transpose_b=True)
    return y


test_table_of_products = table_of(
    {
        "slopes": (slopes, tuple(tf.stack([a * (1.0 + 0.1 * i) for i in range(4)]) for a in ARGS)),
        "read by another": (read_by_another, normal(5, K, K)),
    },
    ways=["eager", "function, around"], by=(W, U), tolerance=(1e-4, 1e-5),
)  # fmt: skip


A, B = tf.Variable(normal(INPUTS, 15)), tf.Variable(normal(3, 15))


def gated(x, s, y):
    """The gradient of a step joins the gradients of five gates of 3."""

    def step(x, s):
        i, f, g, o, p = tf.split(x[None] @ A + s @ B, 5, -1)
        return tf.sigmoid(i) * tf.tanh(g) + tf.sigmoid(f) * s + o * p

    return tf.while_loop(lambda t, _: t < T, lambda t, s: (t + 1, step(x[t], s)), (0, y))[1][0]


def gated_unrolled(x, s, y):
    for t in range(T):
        i, f, g, o, p = tf.split(x[t][None] @ A + y @ B, 5, -1)
        y = tf.sigmoid(i) * tf.tanh(g) + tf.sigmoid(f) * y + o * p
    return y[0]


@pytest.mark.parametrize("which", [(0,), (2,), (0, 2)])
@pytest.mark.parametrize("model", [gated, gated_unrolled])
@of_cpus
def test_rows_that_are_joined_of_parts_stay_apart(model, which, weights_are_large):
    found = jacobians(model, tf_pfor.tape_jacobian, which)
    assert_close(found(*ARGS), jacobians(model, by_loop, which)(*ARGS), rtol=1e-5, atol=1e-6)
    ops = list(all_ops(found.get_concrete_function(*ARGS).graph))
    products = [op for op in ops if op.type == "MatMul"]
    assert not [op for op in products if op.inputs[0].op.type == "ConcatV2"]
    assert [op for op in ops if op.type == "AddN" and len(op.inputs) == 5]


def test_blocks_of_different_widths(weights_are_large):
    """Rows in blocks of 4, 2 and 3 columns, by blocks of as many rows of a weight."""
    weight, x = tf.Variable(normal(INPUTS, 9)), normal(5, 3, INPUTS)

    def one(s):
        for _ in range(3):
            both = tf.concat([tf.sin(s), tf.tanh(s[:, :2]), tf.cos(s[:, :3])], 1)
            s = tf.matmul(both, weight, transpose_b=True)
        return s

    run = tf.function(tf_pfor.vmap(one), autograph=False)
    sums = [op for op in run.get_concrete_function(x).graph.get_operations() if op.type == "AddN"]
    assert [len(op.inputs) for op in sums] == [3, 3, 3]
    np.testing.assert_allclose(run(x), tf.stack([one(row) for row in x]), 1e-4, 1e-5)
