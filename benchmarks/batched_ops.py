"""The time of the kernels alone: some everyday ops on a whole batch by hand, and mapped.

    python -m benchmarks.batched_ops [--seconds 1.2]

1,000 rows, all contenders in turn in one process, by the clock. The ratio of the hand-batched op to
``tf.map_fn`` is the least that a map of it can reach; ``benchmarks.ops`` has more ops.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

N = 1000


def work() -> dict[str, tuple[Any, tf.Tensor]]:
    """Ops that take a batch as they take a row, and their batches."""
    rng = np.random.default_rng(0)
    texts = tf.constant([[f"Word{k}" for k in rng.integers(0, 200, 8)] for _ in range(N)])
    numbers = tf.strings.as_string(tf.constant(rng.normal(size=(N, 8))))
    vectors = tf.constant(rng.normal(size=(N, 64)), tf.float32)
    matrices = tf.constant(rng.normal(size=(N, 16, 16)), tf.float32)
    images = tf.constant(rng.uniform(size=(N, 32, 32, 3)), tf.float32)
    return {
        "strings.lower": (tf.strings.lower, texts),
        "strings.length": (tf.strings.length, texts),
        "strings.to_number": (tf.strings.to_number, numbers),
        "sort": (tf.sort, vectors),
        "cumsum": (lambda x: tf.cumsum(x, -1), vectors),
        "linalg.svd": (lambda x: tf.linalg.svd(x, compute_uv=False), matrices),
        "image.resize": (lambda x: tf.image.resize(x, [16, 16]), images),
        "image.adjust_contrast": (lambda x: tf.image.adjust_contrast(x, 0.5), images),
        "image.adjust_hue": (lambda x: tf.image.adjust_hue(x, 0.1), images),
    }


def main() -> None:
    """Prints a row of a table for each op."""
    parser = argparse.ArgumentParser("python -m benchmarks.batched_ops", description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=1.2)
    seconds = parser.parse_args().seconds
    print("| op | by hand to `tf.map_fn` | tf_pfor to by hand |\n|---|---:|---:|")
    for name, (fn, x) in work().items():
        dtype = fn(x[:1]).dtype
        made = {
            "hand": fn,
            "ours": lambda x, fn=fn: tf_pfor.vectorized_map(fn, x, fallback="error"),
            "map": lambda x, fn=fn, d=dtype: tf.map_fn(fn, x, fn_output_signature=d),
        }
        runs = {k: tf.function(f, autograph=False) for k, f in made.items()}
        times = timing.interleaved(
            {k: lambda f=f, x=x: f(x).numpy() for k, f in runs.items()}, seconds=seconds
        )
        first, second = timing.ratio(times, "hand", "map"), timing.ratio(times, "ours", "hand")
        print(f"| {name} | {first:.2f} | {second:.2f} |", flush=True)


if __name__ == "__main__":
    main()
