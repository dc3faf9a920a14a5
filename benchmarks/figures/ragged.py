"""Three dense layers over rows of different lengths, and a sum over each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.figures.work import Arrays, Fn, Work, normal

WIDTH, LONGEST = 64, 50


def data(rows: int) -> tuple[Arrays, Arrays]:
    """Matrices; rows that are padded, and their lengths."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, LONGEST + 1, rows).astype(np.int32)
    weights = [normal(rng, WIDTH, WIDTH, fan=WIDTH) for _ in range(3)]
    return weights, [normal(rng, rows, LONGEST, WIDTH), lengths]


def to_tensorflow(rows: Arrays) -> list[Any]:
    """A RaggedTensor."""
    import tensorflow as tf

    return [tf.RaggedTensor.from_tensor(*rows)]


def tensorflow() -> tuple[Fn, Fn]:
    """One row [length, 64]; by hand on the values of all."""
    import tensorflow as tf

    def layers(w: Any, x: Any) -> Any:
        for matrix in w:
            x = tf.nn.relu(x @ matrix)
        return x

    def by_hand(w: Any, x: Any) -> Any:
        found = layers(w, x.flat_values)
        return tf.math.segment_sum(found, x.value_rowids())

    return lambda w, x: tf.reduce_sum(layers(w, x), 0), by_hand


def jax() -> Fn:
    """One row, padded and masked: JAX has no rows of different lengths."""
    import jax as library
    import jax.numpy as jnp

    def one(w: Any, x: Any, length: Any) -> Any:
        for matrix in w:
            x = library.nn.relu(x @ matrix)
        return jnp.where((jnp.arange(LONGEST) < length)[:, None], x, 0.0).sum(0)

    return one


def torch() -> tuple[Fn, dict[str, Fn]]:
    """One row, padded and masked, and a nested tensor."""
    import torch as library

    def one(w: Any, x: Any, length: Any) -> Any:
        for matrix in w:
            x = library.relu(x @ matrix)
        mask = (library.arange(LONGEST, device=x.device) < length)[:, None]
        return library.where(mask, x, 0.0).sum(0)

    def nested(w: Any, x: Any, lengths: Any) -> Fn:
        rows = [row[:k] for row, k in zip(x, lengths.tolist())]
        made = library.nested.nested_tensor(rows, layout=library.jagged)

        def call() -> Any:
            found = made
            for matrix in w:
                found = library.relu(found @ matrix)
            return found.sum(1)

        return call

    return one, {"torch nested": nested}


ROWS = Work(
    "rows of 1 to 50, dense layers", "rows", "items", (256,), (16, 64, 256, 1024), data,
    tensorflow, jax, torch, amount=lambda _, rows: float(rows[1].sum()),
    to_tensorflow=to_tensorflow,
)  # fmt: skip
