"""Keras layers with a loop over time, one sequence each: outputs, and gradients in the body."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.nn.test_keras_layers import assert_same, body_of, made

layers = keras.layers


class _Cell(keras.layers.Layer):
    """A cell with two states, one of which counts."""

    def __init__(self, units):
        super().__init__()
        self.state_size = [units, 1]
        self.output_size = units

    def build(self, input_shape):
        units = self.output_size
        self.kernel = self.add_weight(shape=(input_shape[-1], units), name="kernel")
        self.recurrent = self.add_weight(shape=(units, units), name="recurrent")

    def call(self, inputs, states, training=None):
        h, count = states
        h = tf.tanh(inputs @ self.kernel + h @ self.recurrent) / (1.0 + 0.1 * count)
        return h, [h, count + 1.0]

    def get_initial_state(self, batch_size=None):
        return [tf.zeros([batch_size, self.output_size]), tf.zeros([batch_size, 1])]


LAYERS = {
    "Bidirectional": (lambda: layers.Bidirectional(layers.LSTM(2)), (4, 3)),
    "Bidirectional-sequences": (
        lambda: layers.Bidirectional(layers.GRU(2, return_sequences=True), merge_mode="sum"),
        (4, 3),
    ),
    "ConvLSTM2D": (lambda: layers.ConvLSTM2D(2, 2, padding="same"), (3, 4, 4, 1)),
    "GRU": (lambda: layers.GRU(3), (4, 2)),
    "GRU-reset-before": (lambda: layers.GRU(3, reset_after=False), (4, 2)),
    "GRU-sequences": (lambda: layers.GRU(3, return_sequences=True), (4, 2)),
    "LSTM": (lambda: layers.LSTM(3), (4, 2)),
    "LSTM-backwards": (lambda: layers.LSTM(3, go_backwards=True), (4, 2)),
    "LSTM-sequences": (lambda: layers.LSTM(3, return_sequences=True), (4, 2)),
    "LSTM-unrolled": (lambda: layers.LSTM(3, unroll=True), (4, 2)),
    "RNN-custom": (lambda: layers.RNN(_Cell(3)), (4, 2)),
    "RNN-custom-sequences": (lambda: layers.RNN(_Cell(3), return_sequences=True), (4, 2)),
    "RNN-stacked": (lambda: layers.RNN([layers.LSTMCell(2), layers.GRUCell(3)]), (4, 2)),
    "SimpleRNN": (lambda: layers.SimpleRNN(3), (4, 2)),
    "SimpleRNN-sequences": (lambda: layers.SimpleRNN(3, return_sequences=True), (4, 2)),
}
MASKED = {
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(2)),
    "GRU": lambda: layers.GRU(3, return_sequences=True),
    "LSTM": lambda: layers.LSTM(3),
    "LSTM-zero-output": lambda: layers.LSTM(3, return_sequences=True, zero_output_for_mask=True),
    "RNN-custom": lambda: layers.RNN(_Cell(3)),
    "SimpleRNN": lambda: layers.SimpleRNN(3),
}


def _made(make, shape):
    """A layer with random weights, and three examples."""
    return made(make, shape, lambda rng, shape: rng.normal(size=shape) * 0.5)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layer(name):
    layer, rows = _made(*LAYERS[name])
    assert_same(body_of(layer), rows)


@pytest.mark.parametrize("name", sorted(MASKED))
def test_masked(name):
    layer, rows = _made(MASKED[name], (4, 2))
    lengths = np.array([4, 1, 2])
    assert_same(body_of(layer), rows, tf.constant(np.arange(4) < lengths[:, None]))


def test_masking_layer():
    model = keras.Sequential([keras.Input([4, 2]), layers.Masking(), layers.LSTM(3)])
    rows = np.random.default_rng(0).normal(size=[3, 4, 2]).astype(np.float32)
    rows[1, 2:] = 0.0
    rows[2, 1:] = 0.0
    assert_same(body_of(model), tf.constant(rows))


def test_gaps_in_the_mask():
    layer, rows = _made(MASKED["LSTM"], (4, 2))
    mask = tf.constant([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0]]) > 0
    assert_same(body_of(layer), rows, mask)
