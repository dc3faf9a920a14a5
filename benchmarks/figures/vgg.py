"""The jacobian of VGG16 with a dense layer by its image, 48x48 or 224x224."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

POOL = 0
LAYERS = (64, 64, POOL, 128, 128, POOL, *(256,) * 3, POOL, *(512,) * 3, POOL, *(512,) * 3, POOL)


def data(side: int, outputs: int) -> tuple[Arrays, Arrays]:
    """Kernels and biases, the matrix of the head, and an image."""
    rng, width = np.random.default_rng(0), 3
    weights: Arrays = []
    for layer in filter(None, LAYERS):
        weights.append(normal(rng, 3, 3, width, layer, fan=9 * width // 2))
        weights.append(normal(rng, layer, fan=100))
        width = layer
    flat = (side // 32) ** 2 * width
    return [*weights, normal(rng, flat, outputs, fan=flat)], [normal(rng, side, side, 3)]


def tensorflow() -> tuple[Fn, Fn]:
    """By hand: one forward pass, then all cotangents go back at once."""
    import tensorflow as tf

    def forward(w: Any, image: Any) -> list[Any]:
        kept, k = [image[None]], 0
        for layer in LAYERS:
            x = kept[-1]
            if layer == POOL:
                kept.append(tf.nn.max_pool2d(x, 2, 2, "VALID"))
            else:
                kept.append(tf.nn.relu(tf.nn.conv2d(x, w[k], 1, "SAME") + w[k + 1]))
                k += 2
        return kept

    def by_hand(w: Any, image: Any) -> Any:
        kept, k, outputs = forward(w, image), len(w) - 1, w[-1].shape[1]
        back = tf.reshape(tf.transpose(w[-1]), [outputs, *kept[-1].shape[1:]])
        for layer, before, after in reversed([*zip(LAYERS, kept, kept[1:])]):
            if layer == POOL:
                before, after = tf.repeat(before, outputs, 0), tf.repeat(after, outputs, 0)
                back = tf.raw_ops.MaxPoolGrad(
                    orig_input=before, orig_output=after, grad=back, ksize=[1, 2, 2, 1],
                    strides=[1, 2, 2, 1], padding="VALID",
                )  # fmt: skip
                continue
            k -= 2
            back = tf.raw_ops.Conv2DBackpropInput(
                input_sizes=[outputs, *before.shape[1:]], filter=w[k].value(),
                out_backprop=tf.where(after > 0, back, 0.0), strides=[1] * 4, padding="SAME",
            )  # fmt: skip
        return back

    return lambda w, x: (tf.reshape(forward(w, x)[-1], [1, -1]) @ w[-1])[0], by_hand


def jax() -> Fn:
    """The outputs of an image."""
    import jax as library
    import jax.numpy as jnp

    def one(w: Any, image: Any) -> Any:
        x, k, pool = image[None], 0, (1, 2, 2, 1)
        for layer in LAYERS:
            if layer == POOL:
                x = library.lax.reduce_window(x, -jnp.inf, library.lax.max, pool, pool, "VALID")
                continue
            names = ("NHWC", "HWIO", "NHWC")
            x = library.lax.conv_general_dilated(x, w[k], (1, 1), "SAME", dimension_numbers=names)
            x = library.nn.relu(x + w[k + 1])
            k += 2
        return x.reshape(-1) @ w[-1]

    return one


def torch() -> tuple[Fn, dict[str, Fn]]:
    """The outputs of an image, channels first."""
    import torch.nn.functional as of

    def one(w: Any, image: Any) -> Any:
        x, k = image[None], 0
        for layer in LAYERS:
            if layer == POOL:
                x = of.max_pool2d(x, 2)
                continue
            x = of.relu(of.conv2d(x, w[k], w[k + 1], padding=1))
            k += 2
        return x.reshape(-1) @ w[-1]

    return one, {}


def to_torch(weights: Arrays, rows: Arrays) -> tuple[Arrays, Arrays]:
    """Channels first, also before the dense layer."""
    made = [w.transpose(3, 2, 0, 1) if w.ndim == 4 else w for w in weights[:-1]]
    head, side = weights[-1], rows[0].shape[0] // 32
    head = head.reshape(side, side, -1, head.shape[1]).transpose(2, 0, 1, 3)
    return [*made, head.reshape(-1, head.shape[-1])], [rows[0].transpose(2, 0, 1)]


SMALL, LARGE = (
    Work(
        f"VGG16 at {side}x{side}, jacobian", "outputs", "rows", (8,) if side < 224 else (),
        (1, 8, 32, 128) if side < 224 else (1, 8), functools.partial(data, side),
        tensorflow, jax, torch, kind="jacobian", torch_compiles=False, to_torch=to_torch,
        from_torch=lambda found: [x.transpose(0, 2, 3, 1) for x in found],
    )
    for side in (48, 224)
)  # fmt: skip
