"""Elementwise ops whose other operand is shared."""

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

ODD = [np.inf, -np.inf, np.nan, 0.0, 1.5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("xla", [False, True])
def test_relu_grad_of_gradients_that_are_not_finite(dtype, xla):
    """What the op itself makes of them, by a mask that all rows share."""
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
