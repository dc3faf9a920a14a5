"""ConvMNIST: two convolutions with max pools and two dense layers; forward and gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

KERNEL, FIRST, SECOND, HIDDEN, CLASSES = 5, 32, 64, 512, 10


def data(batch: int) -> tuple[Arrays, Arrays]:
    """Kernels [5, 5, in, out], matrices and biases, and images [28, 28, 1]."""
    rng = np.random.default_rng(0)
    k = KERNEL
    shapes = ([k, k, 1, FIRST], [k, k, FIRST, SECOND], [49 * SECOND, HIDDEN], [HIDDEN, CLASSES])
    weights: Arrays = []
    for shape in shapes:
        weights.append(normal(rng, *shape, fan=int(np.prod(shape[:-1]))))
        weights.append(normal(rng, shape[-1], fan=100))
    return weights, [normal(rng, batch, 28, 28, 1)]


def tensorflow(gradients: bool) -> tuple[Fn, Fn]:
    """Outputs, or the loss of an image and per-example gradients by im2col."""
    import tensorflow as tf

    def layers(w: Any, x: Any) -> tuple[list[Any], list[Any]]:
        """The inputs of the four layers and their sums."""
        inputs, sums = [x], []
        for k in range(2):
            sums.append(tf.nn.conv2d(inputs[k], w[2 * k], 1, "SAME") + w[2 * k + 1])
            inputs.append(tf.nn.max_pool2d(tf.nn.relu(sums[k]), 2, 2, "VALID"))
        inputs[2] = tf.reshape(inputs[2], [-1, w[4].shape[0]])
        sums.append(inputs[2] @ w[4] + w[5])
        inputs.append(tf.nn.relu(sums[2]))
        sums.append(inputs[3] @ w[6] + w[7])
        return inputs, sums

    def model(w: Any, x: Any) -> Any:
        return layers(w, x)[1][-1]

    def by_hand(w: Any, x: Any) -> list[Any]:
        batch = x.shape[0]
        with tf.GradientTape() as tape:
            inputs, sums = layers(w, x)
            loss = tf.reduce_sum(sums[3] ** 2)
        found: list[Any] = []
        for a, dz in zip(inputs, tape.gradient(loss, sums)):
            if dz.shape.rank == 2:
                found += [a[:, :, None] * dz[:, None, :], dz]
                continue
            sizes = [1, KERNEL, KERNEL, 1]
            patches = tf.image.extract_patches(a, sizes, [1] * 4, [1] * 4, "SAME")
            flat = tf.reshape(patches, [batch, -1, patches.shape[-1]])
            dz = tf.reshape(dz, [batch, -1, dz.shape[-1]])
            product = tf.matmul(flat, dz, transpose_a=True)
            shape = [batch, KERNEL, KERNEL, a.shape[-1], -1]
            found += [tf.reshape(product, shape), tf.reduce_sum(dz, 1)]
        return found

    if gradients:
        return lambda w, x: tf.reduce_sum(model(w, x[None]) ** 2), by_hand
    return lambda w, x: model(w, x[None])[0], model


def jax(gradients: bool) -> Fn:
    """The output or the loss of an image."""
    import jax as library
    import jax.numpy as jnp

    def model(w: Any, x: Any) -> Any:
        x = x[None]
        for k in range(2):
            names = ("NHWC", "HWIO", "NHWC")
            x = library.lax.conv_general_dilated(
                x, w[2 * k], (1, 1), "SAME", dimension_numbers=names
            )
            x, pool = library.nn.relu(x + w[2 * k + 1]), (1, 2, 2, 1)
            x = library.lax.reduce_window(x, -jnp.inf, library.lax.max, pool, pool, "VALID")
        x = library.nn.relu(x.reshape(-1) @ w[4] + w[5])
        return x @ w[6] + w[7]

    return (lambda w, x: (model(w, x) ** 2).sum()) if gradients else model


def torch(gradients: bool) -> tuple[Fn, dict[str, Fn]]:
    """The output or the loss of an image [1, 28, 28]."""
    import torch.nn.functional as of

    def model(w: Any, x: Any) -> Any:
        x = x[None]
        for k in range(2):
            x = of.max_pool2d(of.relu(of.conv2d(x, w[2 * k], w[2 * k + 1], padding=2)), 2)
        return of.relu(x.reshape(-1) @ w[4] + w[5]) @ w[6] + w[7]

    return (lambda w, x: (model(w, x) ** 2).sum()) if gradients else model, {}


def to_torch(weights: Arrays, rows: Arrays) -> tuple[Arrays, Arrays]:
    """Channels first, also before the dense layer."""
    k1, b1, k2, b2, w3, *rest = weights
    w3 = w3.reshape(7, 7, SECOND, HIDDEN).transpose(2, 0, 1, 3).reshape(-1, HIDDEN)
    first = [k1.transpose(3, 2, 0, 1), b1, k2.transpose(3, 2, 0, 1), b2, w3]
    return [*first, *rest], [rows[0].transpose(0, 3, 1, 2)]


def from_torch(found: Arrays) -> Arrays:
    """Gradients with channels last."""
    k1, b1, k2, b2, w3, *rest = found
    w3 = w3.reshape(-1, SECOND, 7, 7, HIDDEN).transpose(0, 2, 3, 1, 4)
    axes = (0, 3, 4, 2, 1)
    last = w3.reshape(-1, 49 * SECOND, HIDDEN)
    return [k1.transpose(axes), b1, k2.transpose(axes), b2, last, *rest]


FORWARD, GRADIENTS = (
    Work(
        "ConvMNIST, gradients" if wanted else "ConvMNIST", "batch",
        "gradients" if wanted else "images",
        (16,) if wanted else (1, 64), (1, 4, 16, 64, 256), data,
        *(functools.partial(make, wanted) for make in (tensorflow, jax, torch)),
        kind="gradients" if wanted else "map", to_torch=to_torch,
        **({"from_torch": from_torch} if wanted else {}),
    )
    for wanted in (False, True)
)  # fmt: skip
