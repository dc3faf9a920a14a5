"""Keras layers with state or randomness in a map: masks differ, state is as the loop leaves it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_pfor

N = 4
ROWS = tf.random.stateless_uniform([N, 2, 8], [1, 2]) + 1.0
IMAGES = tf.random.stateless_uniform([N, 1, 8, 8, 3], [1, 2])
L = keras.layers

RANDOM = {
    "AlphaDropout": lambda: L.AlphaDropout(0.5, seed=1),
    "Dropout": lambda: L.Dropout(0.5, seed=1),
    "GaussianDropout": lambda: L.GaussianDropout(0.5, seed=1),
    "GaussianNoise": lambda: L.GaussianNoise(0.5, seed=1),
    "SpatialDropout1D": lambda: L.SpatialDropout1D(0.5, seed=1),
}
AUGMENT = {
    "RandomBrightness": lambda: L.RandomBrightness(0.5, value_range=(0.0, 1.0), seed=1),
    "RandomContrast": lambda: L.RandomContrast(0.5, value_range=(0.0, 1.0), seed=1),
    "RandomCrop": lambda: L.RandomCrop(4, 4, seed=1),
    "RandomErasing": lambda: L.RandomErasing(seed=1),
    "RandomFlip": lambda: L.RandomFlip(seed=1),
    "RandomHue": lambda: L.RandomHue(0.3, value_range=(0.0, 1.0), seed=1),
    "RandomPerspective": lambda: L.RandomPerspective(seed=1),
    "RandomRotation": lambda: L.RandomRotation(0.5, seed=1),
    "RandomShear": lambda: L.RandomShear(0.2, 0.2, seed=1),
    "RandomTranslation": lambda: L.RandomTranslation(0.3, 0.3, seed=1),
    "RandomZoom": lambda: L.RandomZoom(0.5, seed=1),
}


def _as_the_loop(make, rows):
    """Values and state of a map equal a loop over the rows."""
    a, b = make(), make()
    for layer in (a, b):
        layer.build(rows.shape[1:])
    for p, q in zip(a.variables, b.variables):
        q.assign(p)
    found = tf_pfor.vectorized_map(lambda x: a(x, training=True), rows)
    one = tf.function(lambda x: b(x, training=True))
    expected = np.stack([one(x) for x in rows])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for p, q in zip(a.variables, b.variables):
        np.testing.assert_allclose(p.value, q.value, rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_layers(name):
    rows = ROWS[:, None] if name.startswith("Spatial") else ROWS
    found = _as_the_loop(RANDOM[name], rows)
    masks = (found.numpy() - rows.numpy()).reshape(N, -1)
    assert len({m.tobytes() for m in masks}) == N


@pytest.mark.parametrize("name", sorted(AUGMENT))
def test_augmentation(name):
    _as_the_loop(AUGMENT[name], IMAGES)


def test_batch_normalization_in_training():
    _as_the_loop(L.BatchNormalization, ROWS)


SEQUENCES = tf.random.stateless_uniform([N, 1, 5, 3], [1, 2])


@pytest.mark.parametrize("layer", [L.GRU, L.SimpleRNN])
def test_stateful_rnns_run_in_order(layer):
    """An example begins with the state that the one before has left."""
    with pytest.warns(tf_pfor.FallbackWarning, match="stands between the read of a variable"):
        _as_the_loop(lambda: layer(4, stateful=True, seed=1), SEQUENCES)


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
def test_gradients_of_stateful_rnns():
    """Each example's gradient is by its own steps: none flows through the state."""
    mine, theirs = (L.GRU(4, stateful=True) for _ in range(2))
    for layer in (mine, theirs):
        layer.build([1, 5, 3])
    theirs.set_weights(mine.get_weights())
    found, _ = tf_pfor.per_example_gradients(
        lambda x: tf.reduce_sum(mine(x)), mine.trainable_variables, SEQUENCES
    )

    @tf.function
    def one(x):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(theirs(x))
        return tape.gradient(total, [v.value for v in theirs.trainable_variables])

    for got, want in zip(found, zip(*[one(x) for x in SEQUENCES])):
        np.testing.assert_allclose(got, np.stack(want), rtol=1e-5, atol=1e-6)
