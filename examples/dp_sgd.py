"""Differentially private training (DP-SGD, Abadi et al., 2016) of a Keras model.

Each example's gradient is clipped to a norm of ``clip_norm``. Then Gaussian noise of that size
times ``noise_multiplier`` is added to their sum. So no single example moves the weights by more
than the noise hides. ``tf_pfor.keras.PerExampleGradientModel`` does so under ``fit``; the model may
be any Keras model whose examples do not see each other.

``python -m examples.dp_sgd`` trains the CNN of ``demo_digits`` on handwritten digits.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import tf_pfor
from examples import demo_digits


def main(
    count: int | None = None, epochs: int = 6, batch: int = 64, noise_multiplier: float = 0.5
) -> tuple[list[float], float]:
    """Trains on all digits but 360; returns each epoch's loss, and the accuracy on the 360."""
    keras.utils.set_random_seed(0)
    images, labels = demo_digits.load()
    held = images[-360:], labels[-360:]
    images, labels = images[:-360][:count], labels[:-360][:count]
    model = tf_pfor.keras.PerExampleGradientModel(
        demo_digits.make_model(), noise_multiplier=noise_multiplier, chunk_size=32
    )
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(images, labels, batch_size=batch, epochs=epochs, verbose=0)
    predicted = tf.argmax(model(held[0]), 1).numpy()
    accuracy = float((predicted == held[1]).mean())
    losses = [float(x) for x in history.history["loss"]]
    print("loss of each epoch: " + " ".join(f"{x:.3f}" for x in losses))
    print(f"{accuracy:.1%} of the digits held out are right")
    return losses, accuracy


if __name__ == "__main__":
    main()
