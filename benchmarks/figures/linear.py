"""A linear projection [768] -> [768], and a function of a row of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

WIDTH, NUMBERS, BEST = 768, 64, 8


def projection_data(batch: int) -> tuple[Arrays, Arrays]:
    """The matrix and the vectors."""
    rng = np.random.default_rng(0)
    return [normal(rng, WIDTH, WIDTH, fan=WIDTH)], [normal(rng, batch, WIDTH)]


def projection_tensorflow() -> tuple[Fn, Fn]:
    """One vector, and all."""
    import tensorflow as tf

    return lambda w, x: tf.linalg.matvec(w[0], x, transpose_a=True), lambda w, x: x @ w[0]


PROJECTION = Work(
    "linear projection", "batch", "GFLOP", (1, 16, 256), (1, 4, 16, 64, 256, 1024),
    projection_data, projection_tensorflow,
    jax=lambda: lambda w, x: x @ w[0],
    torch=lambda: (lambda w, x: x @ w[0], {}),
    amount=lambda batch, _: 2e-9 * batch * WIDTH**2,
)  # fmt: skip


def numbers_data(rows: int) -> tuple[Arrays, Arrays]:
    """Rows of numbers, and no weights."""
    return [], [normal(np.random.default_rng(0), rows, NUMBERS)]


def numbers_tensorflow() -> tuple[Fn, Fn]:
    """The sum of squares of the eight largest numbers of a row, in its deviations."""
    import tensorflow as tf

    def row(_: Any, x: Any) -> Any:
        x = (x - tf.reduce_mean(x)) / tf.math.reduce_std(x)
        best = tf.math.top_k(tf.where(x > 0.0, x, 0.1 * x), BEST).values
        return tf.reduce_sum(best**2)

    def rows(_: Any, x: Any) -> Any:
        mean, deviation = (
            f(x, 1, keepdims=True) for f in (tf.reduce_mean, tf.math.reduce_std)
        )  # fmt: skip
        x = (x - mean) / deviation
        best = tf.math.top_k(tf.where(x > 0.0, x, 0.1 * x), BEST).values
        return tf.reduce_sum(best**2, 1)

    return row, rows


def numbers_jax() -> Fn:
    """The same in JAX."""
    import jax
    import jax.numpy as jnp

    def row(_: Any, x: Any) -> Any:
        x = (x - x.mean()) / x.std()
        return (jax.lax.top_k(jnp.where(x > 0.0, x, 0.1 * x), BEST)[0] ** 2).sum()

    return row


def numbers_torch() -> tuple[Fn, dict[str, Fn]]:
    """The same in torch."""
    import torch

    def row(_: Any, x: Any) -> Any:
        x = (x - x.mean()) / x.std(correction=0)
        return (torch.topk(torch.where(x > 0.0, x, 0.1 * x), BEST)[0] ** 2).sum()

    return row, {}


NUMBERS_WORK = Work(
    "map function", "rows", "rows", (1000,), (10, 100, 1000, 10_000),
    numbers_data, numbers_tensorflow, numbers_jax, numbers_torch,
)  # fmt: skip
