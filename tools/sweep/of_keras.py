"""Sweep of Keras: layers on one example, activations, losses, metrics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, Rows, body, call, each, floats, integers, positive, words

K = "tf.keras"
layers = tf.keras.layers
_IMAGE, _SOUND, _VOLUME = positive(6, 6, 3), positive(8, 3), positive(4, 4, 4, 2)
_VIDEO = positive(3, 4, 4, 2)


def on_one(make: Callable[[], Any], *given: Any, **options: Any) -> Callable[..., Any]:
    """A layer, made and built once when it is first called, on a batch of one example."""

    @functools.cache
    def built() -> Any:
        with tf.init_scope():
            tf.keras.utils.set_random_seed(1)
            made = make()
            _of_one(made, [x.values[0] for x in given], options)
            return made

    return lambda *inputs: _of_one(built(), inputs, options)


def _of_one(made: Any, inputs: Any, options: dict[str, Any]) -> Any:
    batches = [x[None] for x in inputs]
    results = made(batches[0] if len(batches) == 1 else batches, **options)
    return tf.nest.map_structure(lambda y: y[0], results)


def layer(name: str, *given: Any, kwargs: Any = None, label: str = "", **made_with: Any) -> Case:
    """A layer made with options, on rows; ``kwargs``: what its call gets."""
    fn = on_one(lambda: getattr(layers, name)(**made_with), *given, **(kwargs or {}))
    is_random = bool((kwargs or {}).get("training")) or name.startswith(("Random", "Gaussian"))
    return body(f"{K}.layers.{name}", fn, *given, label=label, random=is_random)


_WORDS = Rows(["to be or", "not", "to be"])
_TOKENS = Rows([["to", "be"], ["not", "to"], ["or", "be"]])

LAYERS: list[Case] = [
    layer("Activation", _SOUND, activation="relu"),
    *[layer(k, _SOUND)
        for k in
        words("ActivityRegularization BatchNormalization ELU Flatten GlobalAveragePooling1D "
        "GlobalMaxPooling1D Identity LayerNormalization LeakyReLU Masking PReLU "
        "RMSNormalization ReLU Softmax UnitNormalization Cropping1D UpSampling1D "
        "ZeroPadding1D")],
    layer("BatchNormalization", _SOUND, kwargs={"training": True}, label="training"),
    layer("GroupNormalization", _SOUND, groups=3),
    *[layer(k, _IMAGE)
        for k in
        words("Cropping2D UpSampling2D ZeroPadding2D GlobalAveragePooling2D GlobalMaxPooling2D")],
    *[layer(k, _VOLUME)
        for k in
        words("Cropping3D UpSampling3D ZeroPadding3D GlobalAveragePooling3D GlobalMaxPooling3D")],
    *[layer(f"{k}Pooling{d}D", x, pool_size=2) for k in ("Average", "Max")
        for d, x in ((1, _SOUND), (2, _IMAGE), (3, _VOLUME))],
    *[layer(f"Adaptive{k}Pooling{d}D", x, output_size=2) for k in ("Average", "Max")
        for d, x in ((1, _SOUND), (2, _IMAGE), (3, _VOLUME))],
    *[layer(f"{k}{d}D{t}", x, filters=2, kernel_size=2)
        for k, t in (("Conv", ""), ("Conv", "Transpose"), ("SeparableConv", ""))
        for d, x in ((1, _SOUND), (2, _IMAGE), (3, _VOLUME))
        if not (k == "SeparableConv" and d == 3)],
    *[layer(f"DepthwiseConv{d}D", x, kernel_size=2) for d, x in ((1, _SOUND), (2, _IMAGE))],
    *[layer(f"ConvLSTM{d}D", x, filters=2, kernel_size=2)
        for d, x in ((1, positive(3, 4, 2)), (2, _VIDEO))],
    layer("Dense", _SOUND, units=4),
    layer("EinsumDense", _SOUND, equation="abc,cd->abd", output_shape=(None, 4)),
    layer("Embedding", integers(3), input_dim=5, output_dim=4),
    *[layer(k, _SOUND, units=4) for k in ("LSTM", "GRU", "SimpleRNN")],
    *[layer(k, _SOUND, units=4, return_sequences=True, label="sequences")
        for k in ("LSTM", "GRU", "SimpleRNN")],
    body(f"{K}.layers.Bidirectional", on_one(lambda: layers.Bidirectional(layers.LSTM(4)), _SOUND),
        _SOUND),
    body(f"{K}.layers.TimeDistributed",
        on_one(lambda: layers.TimeDistributed(layers.Dense(4)), _SOUND), _SOUND),
    body(f"{K}.layers.RNN", on_one(lambda: layers.RNN(layers.GRUCell(4)), _SOUND), _SOUND),
    body(f"{K}.layers.StackedRNNCells",
        on_one(lambda: layers.RNN(layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(4)])),
        _SOUND), _SOUND),
    body(f"{K}.layers.SpectralNormalization",
        on_one(lambda: layers.SpectralNormalization(layers.Dense(4)), _SOUND), _SOUND),
    *[layer(k, floats(4), floats(4))
        for k in words("Add Average Concatenate Maximum Minimum Multiply Subtract")],
    layer("Dot", floats(4), floats(4), axes=1),
    *[layer(k, floats(3, 4), floats(3, 4)) for k in ("Attention", "AdditiveAttention")],
    body(f"{K}.layers.MultiHeadAttention",
        on_one(lambda: _self_attention(layers.MultiHeadAttention(2, 4)), floats(3, 4)),
        floats(3, 4)),
    body(f"{K}.layers.GroupQueryAttention",
        on_one(lambda: _self_attention(layers.GroupQueryAttention(4, 2, 1)), floats(3, 4)),
        floats(3, 4)),
    *[layer(k, _SOUND, rate=0.5, kwargs={"training": True})
        for k in ("Dropout", "GaussianDropout", "AlphaDropout", "SpatialDropout1D")],
    layer("SpatialDropout2D", _IMAGE, rate=0.5, kwargs={"training": True}),
    layer("SpatialDropout3D", _VOLUME, rate=0.5, kwargs={"training": True}),
    layer("GaussianNoise", _SOUND, stddev=0.5, kwargs={"training": True}),
    layer("Permute", _SOUND, dims=(2, 1)),
    layer("RepeatVector", floats(4), n=3),
    layer("Reshape", _SOUND, target_shape=(3, 8)),
    body(f"{K}.layers.Lambda", on_one(lambda: layers.Lambda(lambda x: x * 2.0), _SOUND), _SOUND),
    # Preprocessing.
    layer("CategoryEncoding", integers(3), num_tokens=5),
    layer("CategoryEncoding", integers(3), num_tokens=5, output_mode="count", label="count"),
    layer("CenterCrop", _IMAGE, height=3, width=3),
    layer("Discretization", floats(4), bin_boundaries=[-1.0, 0.0, 1.0]),
    layer("Discretization", floats(4), bin_boundaries=[0.0], output_mode="one_hot",
        label="one hot"),
    layer("Hashing", _TOKENS, num_bins=7),
    layer("HashedCrossing", Rows(["a", "b", "c"]), Rows(["x", "y", "x"]), num_bins=7),
    layer("IntegerLookup", integers(3), vocabulary=[1, 2, 3]),
    layer("Normalization", _SOUND, mean=0.5, variance=2.0),
    layer("Rescaling", _IMAGE, scale=2.0),
    layer("Resizing", _IMAGE, height=4, width=5),
    layer("Resizing", _IMAGE, height=4, width=5, crop_to_aspect_ratio=True, label="cropped"),
    layer("STFTSpectrogram", positive(64, 1), frame_length=16, frame_step=8),
    layer("MelSpectrogram", positive(64), fft_length=16, sequence_stride=8, num_mel_bins=4),
    layer("Solarization", _IMAGE, kwargs={"training": True}, value_range=(0, 1)),
    layer("StringLookup", _TOKENS, vocabulary=["to", "be"]),
    layer("StringLookup", _TOKENS, vocabulary=["to"], output_mode="multi_hot", label="multi hot"),
    layer("TextVectorization", _WORDS, vocabulary=["to", "be"], output_sequence_length=3),
    layer("TextVectorization", _WORDS, vocabulary=["to"], output_mode="count", label="count"),
    *[layer(f"Random{k}", _IMAGE, factor=0.2, kwargs={"training": True})
        for k in words("Brightness Contrast Grayscale Rotation")],
    *[layer(f"Random{k}", _IMAGE, factor=0.2, value_range=(0, 1), kwargs={"training": True})
        for k in words("Hue Saturation Sharpness Invert")],
    layer("RandomPosterization", _IMAGE, factor=4, value_range=(0, 1), kwargs={"training": True}),
    layer("RandomErasing", _IMAGE, value_range=(0, 1), kwargs={"training": True}),
    layer("RandomCrop", _IMAGE, height=3, width=3, kwargs={"training": True}),
    *[layer(f"Random{k}", _IMAGE, kwargs={"training": True})
        for k in words("Flip Shear Perspective GaussianBlur")],
    layer("RandomTranslation", _IMAGE, height_factor=0.2, width_factor=0.2,
        kwargs={"training": True}),
    layer("RandomZoom", _IMAGE, height_factor=0.2, kwargs={"training": True}),
    layer("AutoContrast", _IMAGE, kwargs={"training": True}, value_range=(0, 1)),
    layer("Equalization", _IMAGE, value_range=(0, 1)),
]  # fmt: skip


def _self_attention(attention: Any) -> Callable[[Any], Any]:
    return lambda x: attention(x, x)


_LOSSES = (
    "binary_crossentropy binary_focal_crossentropy categorical_crossentropy "
    "categorical_focal_crossentropy categorical_hinge cosine_similarity dice hinge huber "
    "kl_divergence log_cosh mean_absolute_error mean_absolute_percentage_error mean_squared_error "
    "mean_squared_logarithmic_error poisson squared_hinge tversky"
)
_LOSS_CLASSES = (
    "BinaryCrossentropy BinaryFocalCrossentropy CategoricalCrossentropy "
    "CategoricalFocalCrossentropy "
    "CategoricalHinge CosineSimilarity Dice Hinge Huber KLDivergence LogCosh MeanAbsoluteError "
    "MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson SquaredHinge "
    "Tversky"
)


def _aliased(names: str) -> list[str]:
    """Keras has the losses' functions by different names in its versions."""
    return [n for n in names.split() if hasattr(tf.keras.losses, n)]


def _loss(loss: Any) -> Callable[[Any, Any], Any]:
    return lambda y, p: loss(y, p)


FUNCTIONS: list[Case] = [
    *each(f"{K}.activations",
        "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_tanh leaky_relu "
        "linear log_sigmoid mish relu relu6 selu sigmoid silu soft_shrink softplus softsign "
        "sparse_plus sparse_sigmoid squareplus tanh tanh_shrink", floats(4)),
    call(f"{K}.activations.threshold", floats(4), 0.5, 0.0),
    *each(f"{K}.activations", "softmax log_softmax sparsemax", floats(2, 4)),
    *[call(f"{K}.losses.{k}", positive(2, 4), positive(2, 4)) for k in _aliased(_LOSSES)],
    call(f"{K}.losses.categorical_generalized_cross_entropy", integers(2, high=4), positive(2, 4),
        0.5),
    call(f"{K}.losses.sparse_categorical_crossentropy", integers(2, high=4), positive(2, 4)),
    *[body(f"{K}.losses.{k}", _loss(getattr(tf.keras.losses, k)()), positive(2, 4), positive(2, 4))
        for k in words(_LOSS_CLASSES)],
    body(f"{K}.losses.SparseCategoricalCrossentropy",
        _loss(tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)), integers(2, high=4),
        floats(2, 4)),
    *[call(f"{K}.metrics.{k}", positive(2, 4), positive(2, 4))
        for k in ("binary_accuracy", "categorical_accuracy", "top_k_categorical_accuracy",
        "pearson_correlation", "concordance_correlation")],
    *[call(f"{K}.metrics.{k}", integers(2, high=4), positive(2, 4))
        for k in ("sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy")],
    call(f"{K}.utils.to_categorical", [0, 2], label="shared"),
    call(f"{K}.utils.normalize", np.ones([2, 3], np.float32), label="shared"),
    call(f"{K}.preprocessing.image.smart_resize", _IMAGE, (4, 4)),
    *[call(f"{K}.random.{k}", [3], seed=3) for k in ("normal", "uniform", "truncated_normal")],
    call(f"{K}.random.randint", [3], 0, 7, seed=3),
    call(f"{K}.random.gamma", [3], 2.0, seed=3),
    call(f"{K}.random.beta", [3], 2.0, 3.0, seed=3),
    call(f"{K}.random.binomial", [3], 5.0, 0.5, seed=3),
    call(f"{K}.random.categorical", floats(1, 4), 3, seed=3),
    call(f"{K}.random.dropout", floats(4), 0.5, seed=3),
    call(f"{K}.random.shuffle", floats(4), seed=3),
]  # fmt: skip
KERAS = LAYERS + FUNCTIONS
