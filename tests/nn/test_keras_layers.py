"""Keras layers, one example at a time: forward passes and per-example gradients.

Every layer is mapped over a batch of single examples, and compared with a Python loop. Compared are
its output, and the gradients of a loss with respect to its weights and its input.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.comparisons import compare

layers = keras.layers
LAYERS = {
    "AveragePooling1D": (lambda: layers.AveragePooling1D(2), (6, 3)),
    "AveragePooling2D": (lambda: layers.AveragePooling2D(2, padding="same"), (5, 5, 2)),
    "AveragePooling3D": (lambda: layers.AveragePooling3D(2), (4, 4, 4, 2)),
    "BatchNormalization": (lambda: layers.BatchNormalization(), (4, 4, 3)),
    "Conv1D": (lambda: layers.Conv1D(4, 3, strides=2, activation="relu"), (8, 3)),
    "Conv1D-dilated": (lambda: layers.Conv1D(4, 3, dilation_rate=2, padding="causal"), (8, 3)),
    "Conv1DTranspose": (lambda: layers.Conv1DTranspose(3, 3, strides=2), (4, 2)),
    "Conv2D": (lambda: layers.Conv2D(4, 3, padding="same", activation="relu"), (6, 6, 2)),
    "Conv1D-groups": (lambda: layers.Conv1D(4, 3, groups=2, activation="relu"), (8, 4)),
    "Conv2D-groups": (lambda: layers.Conv2D(4, 3, groups=2, padding="same"), (6, 6, 4)),
    "Conv2D-strides": (lambda: layers.Conv2D(4, (3, 2), strides=2), (7, 6, 2)),
    "Conv2DTranspose": (lambda: layers.Conv2DTranspose(3, 3, strides=2, padding="same"), (4, 4, 2)),
    "Conv3D": (lambda: layers.Conv3D(3, 2, activation="tanh"), (4, 4, 4, 2)),
    "Dense": (lambda: layers.Dense(4, activation="relu"), (5,)),
    "DepthwiseConv2D": (lambda: layers.DepthwiseConv2D(3, depth_multiplier=2), (5, 5, 2)),
    "GlobalAveragePooling2D": (lambda: layers.GlobalAveragePooling2D(), (4, 4, 3)),
    "GlobalMaxPooling2D": (lambda: layers.GlobalMaxPooling2D(), (4, 4, 3)),
    "GroupNormalization": (lambda: layers.GroupNormalization(2), (4, 4, 4)),
    "LayerNormalization": (lambda: layers.LayerNormalization(), (4, 6)),
    "MaxPooling1D": (lambda: layers.MaxPooling1D(2), (6, 3)),
    "MaxPooling2D": (lambda: layers.MaxPooling2D(2), (6, 6, 2)),
    "MaxPooling3D": (lambda: layers.MaxPooling3D(2), (4, 4, 4, 2)),
    "SeparableConv2D": (lambda: layers.SeparableConv2D(4, 3, padding="same"), (5, 5, 2)),
}
ACTIVATIONS = (
    "elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "log_softmax", "mish",
    "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "tanh",
)  # fmt: skip
LOSSES = {
    "binary_crossentropy": ("probabilities", "binary"),
    "categorical_crossentropy": ("probabilities", "probabilities"),
    "cosine_similarity": ("real", "real"),
    "huber": ("real", "real"),
    "kl_divergence": ("probabilities", "probabilities"),
    "log_cosh": ("real", "real"),
    "mean_absolute_error": ("real", "real"),
    "mean_squared_error": ("real", "real"),
    "poisson": ("probabilities", "binary"),
    "sparse_categorical_crossentropy": ("probabilities", "label"),
}


def assert_same(body, *rows):
    """The map of ``body`` over rows gives what a Python loop gives, without a sequential loop.

    Sums over positions are in another order than in the kernels of one example.
    """
    compare(body, *rows, rtol=1e-4, atol=1e-4)


def with_slopes(function, variables=()):
    """The results of a function, and their gradients by its floats and by variables."""

    def body(*row):
        sources = [*(x for x in row if x.dtype.is_floating), *variables]

        with tf.GradientTape() as tape:
            tape.watch([x for x in sources if isinstance(x, tf.Tensor)])
            y = function(*row)
            loss = tf.reduce_sum(y * tf.cos(y))
        slopes = tape.gradient(loss, sources, unconnected_gradients="zero")
        return [y, *map(tf.convert_to_tensor, slopes)]

    return body


def body_of(layer):
    """One example and its mask: the output, the gradients of the weights and of the input."""

    def one(e, *mask):
        return layer(e[None], **({"mask": mask[0][None]} if mask else {}))[0]

    return with_slopes(one, [v.value for v in layer.trainable_variables])


def made(make, shape, draw=lambda rng, shape: rng.uniform(0.2, 0.9, shape)):
    """A layer with weights that are not all zeros and ones, and rows of examples."""
    keras.utils.set_random_seed(3)
    layer = make()
    layer.build((None, *shape))
    rng = np.random.default_rng(5)
    for v in layer.weights:
        if v.dtype == "float32":
            v.assign(draw(rng, v.shape))
    return layer, tf.constant(rng.normal(size=[3, *shape]), tf.float32)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layer(name):
    layer, rows = made(*LAYERS[name])
    assert_same(body_of(layer), rows)


def test_embedding():
    layer = layers.Embedding(7, 4)
    layer.build((None, 5))
    rows = tf.constant(np.random.default_rng(0).integers(0, 7, [3, 5]), tf.int32)
    assert_same(body_of(layer), rows)


def test_multi_head_attention_does_not_crash():
    layer = layers.MultiHeadAttention(2, 4)
    rows = tf.constant(np.random.default_rng(0).normal(size=[3, 5, 8]), tf.float32)
    layer.build((None, 5, 8), (None, 5, 8))
    variables = [v.value for v in layer.trainable_variables]
    assert_same(with_slopes(lambda e: layer(e[None], e[None])[0], variables), rows)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    rows = tf.constant(np.random.default_rng(0).normal(size=[3, 2, 4]), tf.float32)
    assert_same(with_slopes(keras.activations.get(name)), rows)


def _draw(kind, rng):
    if kind == "label":
        return tf.constant(rng.integers(0, 5, [3]), tf.int32)
    if kind == "binary":
        return tf.constant(rng.integers(0, 2, [3, 5]), tf.float32)
    x = rng.normal(size=[3, 5])
    if kind == "probabilities":
        x = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    return tf.constant(x, tf.float32)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_loss(name):
    rng, function = np.random.default_rng(0), getattr(keras.losses, name)
    predicted, true = (_draw(kind, rng) for kind in LOSSES[name])
    loss = lambda p, t: tf.reduce_sum(function(tf.stop_gradient(t)[None], p[None]))  # noqa: E731
    assert_same(with_slopes(loss), predicted, true)
