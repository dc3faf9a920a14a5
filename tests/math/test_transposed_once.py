"""A weight that several steps multiply transposed is transposed once."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import all_ops, assert_close, gradient_of, vectorized
from tests.math.test_products import emitted
from tests.ways import table_of
from tf_pfor.converters.math import _weights

N, T, K = 5, 4, 6
LENGTHS = tf.constant([2, 0, 4, 1, 3])


def normal(*shape):
    rng = np.random.default_rng(sum(shape))
    return tf.constant(rng.normal(size=shape) * 0.5, tf.float32)


W = tf.Variable(normal(K, K))


pytestmark = pytest.mark.usefixtures("weights_are_large")


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
        return gradient_of(lambda: model(k, x), [x, W], unconnected_gradients="zero")

    return one


def concrete(model, strategy="compact"):
    one, x = gradients(model), normal(N, K)
    mapped = tf.function(
        lambda *args: vectorized(one, args, while_strategy=strategy), autograph=False
    )
    return mapped.get_concrete_function(LENGTHS, x), x


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
        def one(x):
            s = x[None]
            v.assign(start)
            for t in range(T):
                s = tf.matmul(s, v, transpose_b=True)
                if t == 1:
                    v.assign(start * 2.0)
            return s[0]

        return tf_pfor.vectorized_map(one, xs)

    x = normal(N, K)
    w = start.numpy().T
    np.testing.assert_allclose(f(x), x.numpy() @ w @ w @ (2 * w) @ (2 * w), rtol=1e-4, atol=1e-5)


# Gradients of loops by a tape around the map ------------------------------


def unequal(k, x):
    """The trips differ by row."""
    return looped(k, x)


def equal(k, x):
    loop = tf.while_loop(lambda t, s: t < T, lambda t, s: (t + 1, tf.tanh(s @ W)), (0, x[None]))
    return tf.reduce_sum(loop[1] ** 2)


def joined(k, x):
    """Two tensors side by side and a bias; only one of them changes from trip to trip."""
    fixed, s = x[None, : K // 3], x[None, K // 3 :]

    def trip(t, s):
        return t + 1, tf.tanh(tf.concat([fixed, s], -1) @ W + BIAS)[:, K // 3 :]

    return tf.reduce_sum(tf.while_loop(lambda t, s: t < k, trip, (0, s))[1] ** 2)


BIAS = tf.Variable(normal(K))


def assigned(k, x):
    """The loop writes the variable: what its trips read is not what stood there before it."""

    def trip(t, s):
        s = tf.tanh(s @ CHANGING)
        CHANGING.assign(normal(K, K) / tf.cast(t + 2, tf.float32))
        return t + 1, s

    return tf.reduce_sum(tf.while_loop(lambda t, s: t < T, trip, (0, x[None]))[1] ** 2)


CHANGING = tf.Variable(normal(K, K))


def loss(one, args, strategy=None):
    if strategy is None:
        rows = tf.stack([one(*[a[i] for a in args]) for i in range(N)])
    else:
        (rows,) = vectorized(one, args, while_strategy=strategy)
    return tf.reduce_sum(tf.sin(rows))


def around(one, strategy, x, weight=W, loss=loss):
    return gradient_of(lambda: loss(one, (LENGTHS, x), strategy), [x, weight])


STRATEGIES = ("compact", "mask")
AROUND = [f"{way} {s}" for s in STRATEGIES for way in ("around", "function, around")]
TWICE = [f"function, twice around {s}" for s in STRATEGIES]
MODELS = {"unequal": unequal, "equal": equal, "joined": joined}
SLOPES = {"unrolled": gradients(unrolled), "looped": gradients(looped)}
test_table_of_models = table_of(
    {**MODELS, **SLOPES}, LENGTHS, normal(N, K),
    ways=["function compact", "function mask", *AROUND, *TWICE],
    only={"function compact": SLOPES, "function mask": SLOPES, **dict.fromkeys(TWICE, MODELS)},
    by=(W, BIAS), tolerance=(1e-5, 1e-6), slopes=(1e-4, 1e-5),
)  # fmt: skip


@pytest.mark.parametrize("one", [unequal, equal])
def test_no_product_by_a_transposed_weight(one):
    run = tf.function(around, autograph=False)
    graph = run.get_concrete_function(one, "compact", normal(N, K)).graph
    turned = [op for op in graph.get_operations() if _is_turned(op)]
    assert len([op for op in turned if "gradient" not in op.name]) == 1
    assert not [op for op in all_ops(graph) if op.type == "MatMul" and op.get_attr("transpose_b")]


@pytest.mark.parametrize("one", [unequal, equal])
@pytest.mark.parametrize("block", [2, 4, K])
def test_blocks_of_columns(one, block, monkeypatch):
    """A matrix that is larger than a cache is split before the loop, if blocks fit."""
    monkeypatch.setattr(_weights, "_BLOCK", block)
    run = tf.function(loss, autograph=False)
    x = normal(N, K)
    np.testing.assert_allclose(run(one, (LENGTHS, x), "compact"), loss(one, (LENGTHS, x)), 1e-5)
    ops = list(all_ops(run.get_concrete_function(one, (LENGTHS, x), "compact").graph))
    widths = [op.outputs[0].shape[1] for op in ops if op.type == "MatMul"]
    assert widths == ([block] * 3 if block == 2 else [K])


def test_products_of_the_part_that_somebody_asks_for():
    """The gradient of [fixed s] W by the weight needs dz W_s^T, but not dz W_fixed^T."""

    @tf.function(autograph=False)
    def by_weights(x):
        return gradient_of(lambda: loss(joined, (LENGTHS, x), "compact"), [W, BIAS])

    with tf.GradientTape() as tape:
        y = loss(joined, (LENGTHS, normal(N, K)))
    assert_close(by_weights(normal(N, K)), tape.gradient(y, [W, BIAS]), rtol=1e-5, atol=1e-6)
    ops = [op for op in all_ops(by_weights.get_concrete_function(normal(N, K)).graph)]
    read = {i.ref() for op in ops for i in op.inputs}
    products = [op.outputs[0] for op in ops if op.type == "MatMul" and "_grad" in op.name]
    widths = [product.shape[1] for product in products if product.ref() in read]
    assert sorted(widths) == [K - K // 3, K]
    assert any(op.type == "BiasAddGrad" for op in ops)


@pytest.mark.parametrize("one", [unequal, equal, joined])
def test_forward_mode_around(one):
    x = normal(N, K)

    def tangent(strategy):
        with tf.autodiff.ForwardAccumulator(x, tf.cos(x)) as forward:
            y = tf.function(loss, autograph=False)(one, (LENGTHS, x), strategy)
        return forward.jvp(y)

    np.testing.assert_allclose(tangent("compact"), tangent(None), rtol=1e-5, atol=1e-6)


def test_a_weight_that_the_loop_changes():
    """Its transpose before the loop is not the transpose of a trip's weight; rows run in order."""
    run = tf.function(around, autograph=False)
    with pytest.raises(tf_pfor.core.errors.UnsupportedStateError, match="from trip to trip"):
        run(assigned, "compact", normal(N, K), CHANGING)
