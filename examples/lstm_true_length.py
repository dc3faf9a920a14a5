"""An LSTM that runs over each sequence's true length.

The model is the LSTM of Agarwal (2019): one unidirectional layer with the cell of Hochreiter and
Schmidhuber. It is written for ONE sequence, with a while loop that ends where the sequence ends; no
mask, no sorting by length. ``tf_pfor.vectorized_map`` runs it on all sequences at once,
each trip on the rows that still have steps to do.

``python -m examples.lstm_true_length`` maps the model over random sequences and compares states
and gradients with a Python loop over the sequences. The paper has 128 inputs, a state of 256 and
lengths from 1 to 100; the defaults here are small enough to finish in seconds.
"""

from __future__ import annotations

import os
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from examples.compare import compare


class Weights(NamedTuple):
    """The four gates side by side: input, forget, output, candidate."""

    kernel: tf.Variable  # [inputs + state, 4 * state]
    bias: tf.Variable  # [4 * state]


def make_weights(inputs: int, state: int, seed: int = 0) -> Weights:
    """Random weights that keep the size of what they multiply."""
    rng = np.random.default_rng(seed)
    rows = inputs + state
    kernel = rng.normal(size=[rows, 4 * state]) / np.sqrt(rows)
    return Weights(
        tf.Variable(kernel, dtype=tf.float32),
        tf.Variable(rng.normal(size=[4 * state]) * 0.1, dtype=tf.float32),
    )


def make_sequences(
    count: int, longest: int, inputs: int, seed: int = 1
) -> tuple[tf.Tensor, tf.Tensor]:
    """Random sequences [count, longest, inputs] and how many steps of each are real [count]."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[count, longest, inputs])
    return tf.constant(x, tf.float32), tf.constant(rng.integers(1, longest + 1, count), tf.int32)


def lstm_of_one(weights: Weights, x: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """The last state [state] of one sequence ``x`` [longest, inputs] of ``length`` steps."""
    state = weights.bias.shape[0] // 4

    def step(t: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, ...]:
        gates = tf.linalg.matvec(weights.kernel, tf.concat([x[t], h], 0), transpose_a=True)
        i, f, o, g = tf.split(gates + weights.bias, 4)
        c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
        return t + 1, tf.sigmoid(o) * tf.tanh(c), c

    zero = tf.zeros([state])
    _, h, _ = tf.while_loop(lambda t, *_: t < length, step, (0, zero, zero))
    return h


def mapped(weights: Weights, x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """The last states [count, state] of all sequences, at once."""
    return tf_pfor.vectorized_map(
        lambda e: lstm_of_one(weights, *e), (x, lengths), fallback_to_while_loop=False
    )


one_sequence = tf.function(lstm_of_one)


def looped(weights: Weights, x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """The same, one sequence after the other."""
    return tf.stack([one_sequence(weights, x[i], lengths[i]) for i in range(x.shape[0])])


def main(count: int = 16, longest: int = 12, inputs: int = 16, state: int = 32) -> float:
    """Runs the example; returns the largest difference to a loop over the sequences."""
    weights = make_weights(inputs, state)
    given = make_sequences(count, longest, inputs)
    print(f"LSTM, {inputs} inputs, state {state}, over {count} sequences of lengths")
    print(f"  {given[1].numpy().tolist()}")
    return compare(mapped, looped, weights, *given)


if __name__ == "__main__":
    main()
