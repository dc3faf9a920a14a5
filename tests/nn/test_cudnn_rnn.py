"""cuDNN's recurrent layers: what they become; and numbers, where there is a GPU."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tests.comparisons import assert_close, gradient_of, strict_map
from tests.devices import HAS_GPU

N, T, B, F, H = 5, 3, 2, 4, 6


def normal(*shape):
    return tf.constant(np.random.default_rng(len(shape)).normal(size=shape), tf.float32)


def lstm(x, params, lengths=None):
    """[T, B, F] -> the outputs [T, B, H] of a layer of cuDNN."""
    lengths = tf.fill([x.shape[1]], T) if lengths is None else lengths
    state = tf.zeros([1, x.shape[1], H])
    return tf.raw_ops.CudnnRNNV3(
        input=x, input_h=state, input_c=state, params=params, sequence_lengths=lengths,
        rnn_mode="lstm", input_mode="linear_input", direction="unidirectional",
    )  # fmt: skip


PARAMS = normal(4 * H * (F + H + 2)) * 0.3


def loss(x):
    return tf.reduce_sum(tf.sin(lstm(x, PARAMS)[0]))


def gradient(x):
    return tf.gradients(loss(x), x)[0]


def gradient_of_weights(x):
    params = tf.identity(PARAMS)
    return tf.gradients(tf.reduce_sum(lstm(x, params)[0]), params)[0]


BODIES = {
    "outputs": lambda x: lstm(x, PARAMS)[0],
    "states": lambda x: lstm(x, PARAMS)[1:3],
    "gradient": gradient,
}


def cudnn_ops(function, *specs):
    graph = tf.function(function).get_concrete_function(*specs).graph
    return [op.type for op in graph.get_operations() if "Cudnn" in op.type]


@pytest.mark.parametrize("name", BODIES)
def test_one_layer_for_all_rows(name):
    ops = cudnn_ops(lambda x: strict_map(BODIES[name], x), tf.TensorSpec([N, T, B, F]))
    runs = ["CudnnRNNV3", "CudnnRNNV3", "CudnnRNNBackpropV3"] if name == "gradient" else []
    assert ops == (runs or ["CudnnRNNV3"])


def test_gradients_of_weights_are_looped():
    def mapped(x):
        return tf_pfor.vectorized_map(gradient_of_weights, x, warn=False)

    assert cudnn_ops(mapped, tf.TensorSpec([N, T, B, F])) == []
    with pytest.raises(tf_pfor.NotVectorizableError, match="reads what it keeps"):
        strict_map(gradient_of_weights, tf.zeros([N, T, B, F]))


@pytest.mark.skipif(not HAS_GPU, reason="cuDNN needs a GPU")
@pytest.mark.parametrize("name", [*BODIES, "gradient of weights"])
def test_values(name):
    body, x = {**BODIES, "gradient of weights": gradient_of_weights}[name], normal(N, T, B, F)
    found = tf_pfor.vectorized_map(body, x, warn=False)
    rows = [tf.function(body)(row) for row in tf.unstack(x)]
    for f, e in zip(tf.nest.flatten(found), zip(*map(tf.nest.flatten, rows))):
        np.testing.assert_allclose(f, tf.stack(e), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not HAS_GPU, reason="cuDNN needs a GPU")
def test_own_lengths_and_a_tape_around():
    x, lengths = normal(N, T, B, F), tf.constant([[3, 1], [2, 2], [1, 3], [3, 3], [2, 1]])

    def run(way):
        return gradient_of(lambda: tf.reduce_sum(tf.sin(way())), [x, PARAMS])

    body = tf.function(lambda e: lstm(e[0], PARAMS, e[1])[0])
    found = run(lambda: strict_map(body, (x, lengths)))
    rows = run(lambda: tf.stack([body(e) for e in zip(tf.unstack(x), tf.unstack(lengths))]))
    assert_close(found, rows, rtol=1e-4, atol=0.0001)


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_jacobians_of_keras_layers(layer):
    """TensorFlow's own loop reads what cuDNN's backward pass has written over."""
    keras.utils.set_random_seed(0)
    made = getattr(keras.layers, layer)(2)
    plain = getattr(keras.layers, layer)(2, use_cudnn=False)
    x = normal(2, 3, 2)
    for each in (made, plain):
        each(x)
    plain.set_weights(made.get_weights())
    found = []
    for each in (made, plain):
        weights = [v.value for v in each.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = tf.function(each)(x)
        found.append([tf_pfor.tape_jacobian(tape, y, s) for s in [x, *weights]])
    for f, e in zip(*found):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-5)
