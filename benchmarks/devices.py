"""The models and a recurrent layer on the device that TensorFlow takes: a GPU where there is one.

    python -m benchmarks.devices [--batch 256] [--seconds 1]

Ratios of run times within one process: tf_pfor to the hand-batched function, and to TensorFlow's
own map. ``benchmarks.models`` measures more of each, and takes longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import models, timing

NAMES = (*models.MODELS, "lstm", "sequences")


def build(name: str, batch: int) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """The hand-batched function, the function of one example, and a batch."""
    if name in models.MODELS:
        return models.build(name, batch)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=[batch, 64, 64]), tf.float32)
    if name == "lstm":  # cuDNN's on a GPU
        layer = tf.keras.layers.LSTM(128)
        layer(x)
        return layer, lambda row: layer(row[tf.newaxis])[0], x
    lengths = tf.constant(rng.integers(1, 65, batch), tf.int32)
    dense = tf.keras.layers.Dense(256, activation="relu")
    dense(x)

    def padded(elements: Any) -> tf.Tensor:
        rows, sizes = elements
        mask = tf.sequence_mask(sizes, 64, dtype=tf.float32)[..., tf.newaxis]
        return tf.reduce_sum(dense(rows) * mask, 1)

    def one(element: Any) -> tf.Tensor:
        row, size = element
        return tf.reduce_sum(dense(row[:size]), 0)

    return padded, one, (x, lengths)


def main() -> None:
    """Prints a row of a table for each model."""
    parser = argparse.ArgumentParser("python -m benchmarks.devices", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
    known = tf.config.experimental.get_device_details(devices[0]).get("device_name", "CPU")
    print(f"device: {known}; batch {args.batch}\n")
    print("| model | by hand, ms | tf_pfor to it | tf_pfor to TensorFlow's own | difference |")
    print("|---|---|---|---|---|")
    for name in args.names or NAMES:
        print(measured(name, args.batch, args.seconds), flush=True)


def measured(name: str, batch: int, seconds: float) -> str:
    """A row of the table."""
    hand, one, data = build(name, batch)
    made: dict[str, Any] = {
        "hand": tf.function(hand, autograph=False),
        "ours": tf.function(
            lambda x: tf_pfor.vectorized_map(one, x, fallback="error"), autograph=False
        ),
        "theirs": tf.function(lambda x: tf.vectorized_map(one, x, warn=False), autograph=False),
    }

    def run(key: str) -> None:
        tf.nest.map_structure(lambda t: tf.reshape(t, [-1])[:1].numpy(), made[key](data))

    for key in ("ours", "theirs"):
        try:
            run(key)
        except Exception as error:
            del made[key]
            print(f"{name}: {key} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
    times = timing.interleaved({k: lambda k=k: run(k) for k in made}, seconds=seconds)
    a, b = (tf.nest.flatten(made[k](data)) if k in made else [] for k in ("hand", "ours"))
    b = [tf.reduce_sum(t, 0) for t in b] if name.endswith("gradients") else b
    most = max((float(tf.reduce_max(tf.abs(x - y))) for x, y in zip(a, b)), default=float("nan"))

    def ratio(base: str) -> str:
        return (
            f"{timing.ratio(times, 'ours', base):.2f}" if {base, "ours"} <= {*times} else "failed"
        )

    by_hand = timing.milliseconds(times, "hand")
    return f"| {name} | {by_hand:.2f} | {ratio('hand')} | {ratio('theirs')} | {most:.1e} |"


if __name__ == "__main__":
    main()
