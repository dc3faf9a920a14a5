"""Members of an ensemble at once: ``stack`` and ``functional_call``, against the same by hand.

Each member of a stack has weights of its own and sees the same batch. By hand the dense members are
one product for each layer, and the convolutions are one with the filters of all members. ``one`` is
a single member. Times are CPU times of all cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

MEMBERS, BATCH = 8, 64
RNG = np.random.default_rng(0)


def dense() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [keras.Input([128]), layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10)]
    )


def conv() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [keras.Input([28, 28, 1]), layers.Conv2D(16, 3, activation="relu"), layers.Flatten()]
    )


def cnn() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([28, 28, 1]),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def dense_by_hand(weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """[k, b, 10], of kernels [k, i, o] and biases [k, o]."""
    x = tf.einsum("bi,kio->kbo", x, weights[0]) + weights[1][:, None]
    for kernel, bias in zip(weights[2::2], weights[3::2]):
        x = tf.matmul(tf.nn.relu(x), kernel) + bias[:, None]
    return x


def wide(kernel: tf.Tensor) -> tf.Tensor:
    """The filters [k, h, w, c, o] of all members as channels of one convolution."""
    h, w, inner = kernel.shape[1:4]
    return tf.reshape(tf.transpose(kernel, [1, 2, 3, 0, 4]), [h, w, inner, -1])


def members(y: tf.Tensor, k: int) -> tf.Tensor:
    """[k, b, size], of images [b, h, w, k * c]."""
    y = tf.reshape(y, [*y.shape[:3], k, -1])
    return tf.reshape(tf.transpose(y, [3, 0, 1, 2, 4]), [k, y.shape[0], -1])


def layer_by_hand(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """A convolution of all members; it has groups where ``x`` has the channels of members."""
    return tf.nn.relu(tf.nn.conv2d(x, wide(kernel), 1, "VALID") + tf.reshape(bias, [-1]))


def conv_by_hand(weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """[k, b, size]."""
    return members(layer_by_hand(x, *weights), weights[0].shape[0])


def cnn_by_hand(weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """[k, b, 10]; TensorFlow has the gradients of groups with oneDNN only."""
    for layer in (0, 2):
        x = layer_by_hand(x, *weights[layer : layer + 2])
        x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return tf.matmul(members(x, weights[0].shape[0]), weights[4]) + weights[5][:, None]


CASES: dict[str, tuple[Callable[[], Any], Callable[..., tf.Tensor], list[int]]] = {
    "dense": (dense, dense_by_hand, [BATCH, 128]),
    "conv": (conv, conv_by_hand, [BATCH, 28, 28, 1]),
    "cnn": (cnn, cnn_by_hand, [BATCH, 28, 28, 1]),
}


def measured(name: str, *, trains: bool) -> list[timing.Record]:
    """The time of a stack, of the stack by hand, and of one member."""
    build, by_hand, shape = CASES[name]
    models = [build() for _ in range(MEMBERS)]
    variables = tf_pfor.keras.stack(models)
    values = [tf.convert_to_tensor(v) for v in tf.nest.flatten(variables)]
    x = tf.constant(RNG.normal(size=shape), tf.float32)

    def of_stack(given: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        packed = tf.nest.pack_sequence_as(variables, given)
        member = lambda v, x: tf_pfor.keras.functional_call(models[0], v, x)  # noqa: E731
        return tf_pfor.vmap(member, in_axes=(0, None))(packed, x)

    def run(fn: Callable[..., tf.Tensor]) -> Callable[..., Any]:
        def step(given: list[tf.Tensor], x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(given)
                made = fn(given, x)
                loss = tf.reduce_sum(made**2)
            return tape.gradient(loss, given) if trains else made

        return tf.function(step)

    def of_one(given: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        return by_hand([v[:1] for v in given], x)

    stacked, hand, one = run(of_stack), run(by_hand), run(of_one)
    for a, b in zip(tf.nest.flatten(stacked(values, x)), tf.nest.flatten(hand(values, x))):
        np.testing.assert_allclose(a, b, 1e-3, 1e-3)
    contenders = {
        "stack": lambda: stacked(values, x),
        "by hand": lambda: hand(values, x),
        "one member": lambda: one([v[:1] for v in values], x),
    }
    times = timing.interleaved(contenders, clock=timing.time.process_time)
    workload = f"{name}, {'gradients' if trains else 'forward'}"
    return timing.records(workload, times, ours="stack", clock="CPU ")


def main() -> None:
    """Prints a table, and saves it."""
    found: list[timing.Record] = []
    for name in CASES:
        for trains in (False, True):
            found += measured(name, trains=trains)
    print(timing.overview(found))
    timing.save("ensembles", found)


if __name__ == "__main__":
    main()
