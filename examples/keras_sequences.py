"""A Keras model with a layer that is written for one sequence of any length.

``Pooled`` gets one sequence [length, width]. It attends over all pairs of steps and adds them up,
with no mask, no padding and no batch in its code. ``tf_pfor.keras.Vectorized`` makes a layer of
batches of it, which a Keras mask cuts to length. ``PooledByHand`` is the same layer for batches,
written by hand: the softmax and the sum must use the mask.

``python -m examples.keras_sequences`` trains both and prints the loss of each epoch.
"""

from __future__ import annotations

import os
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_pfor


@keras.saving.register_keras_serializable("examples")
class Pooled(keras.layers.Layer):
    """One sequence [length, width] -> [units]: attention, then the sum over the steps."""

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape: Any) -> None:
        """Makes queries, keys and values of the steps."""
        size = (3, shape[-1], self.units)
        self.kernels = self.add_weight(shape=size, initializer="glorot_uniform", name="kernels")

    def call(self, x: Any) -> Any:
        """The sum for one sequence."""
        query, key, value = (x @ kernel for kernel in tf.unstack(self.kernels.value))
        scores = query @ tf.transpose(key) / self.units**0.5
        return tf.reduce_sum(tf.nn.softmax(scores) @ value, 0)

    def get_config(self) -> dict[str, Any]:
        """For saving."""
        return {**super().get_config(), "units": self.units}


class PooledByHand(Pooled):
    """The same for a batch [n, time, width], with a mask."""

    def call(self, x: Any, mask: Any = None) -> Any:
        """The sums for a batch of padded sequences."""
        assert mask is not None
        query, key, value = (
            tf.einsum("ntw,wu->ntu", x, kernel) for kernel in tf.unstack(self.kernels.value)
        )
        scores = tf.einsum("nsu,ntu->nst", query, key) / self.units**0.5
        scores = tf.where(mask[:, None, :], scores, -1e9)
        steps = tf.einsum("nst,ntu->nsu", tf.nn.softmax(scores), value)
        return tf.reduce_sum(tf.where(mask[:, :, None], steps, 0.0), 1)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """The steps are gone."""


def make_data(count: int, longest: int, kinds: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of 1 to ``longest`` numbers, 0 behind their ends; whether they hold a pair i, i."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest + 1, count)
    ids = rng.integers(1, kinds, [count, longest]) * (np.arange(longest) < lengths[:, None])
    labels = [len(set(row[:n])) < n for row, n in zip(ids.tolist(), lengths)]
    return ids, np.array(labels, np.float32)


def make_model(pooled: Any, kinds: int = 8, width: int = 16) -> keras.Model:
    """Numbers [n, time] -> a logit for each sequence."""
    inputs = keras.Input([None], dtype="int32")
    steps = keras.layers.Embedding(kinds, width, mask_zero=True)(inputs)
    return keras.Model(inputs, keras.layers.Dense(1)(pooled(steps)))


def main(
    count: int = 2048, longest: int = 12, epochs: int = 5, batch: int = 64, units: int = 16
) -> tuple[list[float], list[float]]:
    """Trains both models from the same weights; returns the losses of the epochs of each."""
    ids, labels = make_data(count, longest)
    found: list[list[float]] = []
    first: list[np.ndarray] = []
    for name, pooled in (
        ("one sequence at a time", tf_pfor.keras.Vectorized(Pooled(units))),
        ("by hand, with masks", PooledByHand(units)),
    ):
        keras.utils.set_random_seed(1)
        model = make_model(pooled)
        first = first or model.get_weights()
        model.set_weights(first)
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
        began = time.perf_counter()
        history = model.fit(ids, labels, batch, epochs=epochs, shuffle=False, verbose=0)
        found.append(history.history["loss"])
        losses = " ".join(f"{x:.4f}" for x in found[-1])
        print(f"{name}: {losses} ({time.perf_counter() - began:.1f} s)")
    return found[0], found[1]


if __name__ == "__main__":
    main()
