"""Elementwise ops whose other operand is shared."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import gradient_of

ODD = [np.inf, -np.inf, np.nan, 0.0, 1.5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("xla", [False, True])
def test_relu_grad_of_gradients_that_are_not_finite(dtype, xla):
    """The results are the results of the op itself, by a mask that all rows share."""
    features = tf.constant([-1.0, 0.0, 2.0, np.nan, np.inf], dtype)
    gradients = tf.constant([np.roll(ODD, k) for k in range(5)], dtype)

    def one(g):
        return tf.raw_ops.ReluGrad(gradients=g, features=features)

    found = tf.function(tf_pfor.vmap(one), jit_compile=xla)(gradients)
    rows = [tf.function(one, jit_compile=xla)(g) for g in gradients]
    np.testing.assert_array_equal(tf.cast(found, tf.float64), tf.cast(tf.stack(rows), tf.float64))


@pytest.mark.parametrize("per_row", [False, True])
def test_select_of_different_shapes_is_refused_and_never_broadcasts(per_row):
    def one(c, x, y):
        return tf.raw_ops.Select(condition=c, x=x, y=y)

    specs = [tf.TensorSpec([None] * (2 if per_row else 1), tf.bool)]
    specs += [tf.TensorSpec([None, None, None])] * 2
    run = tf.function(tf_pfor.vmap(one), input_signature=specs)
    c = tf.constant([[True, False], [False, True]] if per_row else [True, False])
    x, y = tf.reshape(tf.range(12.0), [2, 2, 3]), -tf.ones([2, 2, 3])
    expected = [one(*row) for row in zip(c, x, y)]
    np.testing.assert_array_equal(run(c, x, y), expected)
    for other in (y[:, :, :1], y[:, :1], y[:, :0]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(c, x, other)


def _gate(x):
    """Two slopes in a row, with a product by something shared before each."""
    y = tf.tanh(tf.sigmoid(x) * tf.constant([2.0, -1.0, 0.5], x.dtype)) * tf.constant(3.0, x.dtype)
    return tf.nn.relu(y * tf.constant([1.0, 2.0, 3.0], x.dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("xla", [False, True])
def test_slopes_and_shared_factors_are_multiplied_first(dtype, xla):
    """One pass over what differs between iterations for both."""
    if dtype == "complex128" and xla:
        pytest.skip("one dtype that is not changed is enough")

    def backward(seed):
        x = tf.cast(tf.constant([0.3, -0.4, 2.0]), dtype)
        model = _gate if dtype != "complex128" else lambda x: tf.tanh(tf.sigmoid(x) * x)
        return gradient_of(lambda: model(x), x, output_gradients=seed)

    seeds = tf.cast(tf.constant(np.random.default_rng(0).normal(size=[5, 3])), dtype)
    run = tf.function(tf_pfor.vmap(backward), jit_compile=xla)
    rtol = {"float16": 3e-3, "bfloat16": 3e-2, "float32": 1e-6}.get(dtype, 1e-14)
    expected = [backward(seed).numpy().astype(complex) for seed in seeds]
    np.testing.assert_allclose(run(seeds).numpy().astype(complex), expected, rtol)
    if dtype != "complex128" and not xla:  # small floats could not hold the products of small ones
        passes = _passes(run.get_concrete_function(seeds).structured_outputs)
        assert passes == (4 if dtype in ("float32", "float64") else 5)  # and a ReluGrad


def _passes(result):
    """The number of products as large as the result."""
    todo, seen = [result.op], set()
    for op in todo:  # grows
        todo += [t.op for t in op.inputs if t.op not in seen and not seen.add(t.op)]
    return sum(
        op.type == "Mul" and op.outputs[0].shape == result.shape for op in seen | {result.op}
    )


def test_slopes_in_a_loop_of_unknown_length():
    """In the loop that goes back, where the shared ones are taken off lists."""
    x = tf.constant(np.random.default_rng(1).normal(size=[6]))

    @tf.function
    def model(x, trips):
        return tf.while_loop(
            lambda t, _: t < trips, lambda t, y: (t + 1, tf.tanh(y) * x), (tf.constant(0), x)
        )[1]

    jacobian = tf.function(lambda x, trips: tf_pfor.jacrev(model)(x, trips))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = model(x, tf.constant(4))
    expected = tape.jacobian(y, x, experimental_use_pfor=False)
    np.testing.assert_allclose(jacobian(x, tf.constant(4)), expected, 1e-12)
