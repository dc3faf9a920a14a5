"""Differentially private training (DP-SGD, Abadi et al., 2016) of a Keras model.

Each example's gradient is clipped to a norm of ``clip_norm``, then Gaussian noise of that size
times ``noise_multiplier`` is added to their sum: no single example moves the weights by more than
the noise hides. ``tf_pfor.clipped_gradient_sum`` takes the loss of ONE example; the model may be
any Keras model whose examples do not see each other.

``python -m examples.dp_sgd`` trains the CNN of ``demo_digits`` on handwritten digits.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import tf_pfor
from examples import demo_digits


class DPModel(keras.Model):
    """A Keras model that is trained by DP-SGD.

    Args:
      model: maps a batch to outputs; examples must not see each other (no batch normalization).
      clip_norm: the largest norm of one example's gradient.
      noise_multiplier: the standard deviation of the noise, in units of ``clip_norm``.
      chunk_size: how many gradients are held at once.
    """

    def __init__(
        self,
        model: keras.Model,
        clip_norm: float = 1.0,
        noise_multiplier: float = 0.5,
        chunk_size: int | None = None,
    ):
        super().__init__()
        self.model = model
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.chunk_size = chunk_size
        self.loss_of_batch = keras.metrics.Mean("loss")

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The outputs of a batch."""
        return self.model(inputs, training=training)

    def clipped_sum(self, x: tf.Tensor, y: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        """The sum of the clipped gradients of a batch, and each example's loss [n]."""

        def loss_of_one(image: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
            return self.compute_loss(y=label[None], y_pred=self(image[None], training=True))

        return tf_pfor.clipped_gradient_sum(
            loss_of_one,
            self.trainable_variables,
            x,
            y,
            clip_norm=self.clip_norm,
            chunk_size=self.chunk_size,
        )

    def train_step(self, data: Any) -> dict[str, Any]:
        """One step of DP-SGD; Keras calls it in ``fit``."""
        x, y = data
        sums, losses = self.clipped_sum(x, y)
        deviation = self.clip_norm * self.noise_multiplier
        count = tf.cast(tf.shape(losses)[0], tf.float32)
        noisy = [(s + tf.random.normal(tf.shape(s), stddev=deviation)) / count for s in sums]
        self.optimizer.apply(noisy, self.trainable_variables)
        self.loss_of_batch.update_state(losses)
        return {"loss": self.loss_of_batch.result()}

    @property
    def metrics(self) -> list[Any]:
        """Reset at the start of each epoch."""
        return [self.loss_of_batch]


def main(
    count: int | None = None, epochs: int = 6, batch: int = 64, noise_multiplier: float = 0.5
) -> tuple[list[float], float]:
    """Trains on all digits but 360; returns each epoch's loss, and the accuracy on the 360."""
    keras.utils.set_random_seed(0)
    images, labels = demo_digits.load()
    held = images[-360:], labels[-360:]
    images, labels = images[:-360][:count], labels[:-360][:count]
    model = DPModel(demo_digits.make_model(), noise_multiplier=noise_multiplier, chunk_size=32)
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
