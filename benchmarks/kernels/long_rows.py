"""Few long rows of numbers: slices, differences and sums, against ``tf.map_fn``.

    python -m benchmarks.kernels.long_rows

32 rows of 2,600 to 3,000 floats. Ratios of CPU times, of one run: lower is better.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

LENGTHS = np.random.default_rng(0).integers(2600, 3000, 32)
NUMBERS = tf.random.stateless_normal([int(LENGTHS.sum())], [1, 2])
ROWS = tf.RaggedTensor.from_row_lengths(NUMBERS, LENGTHS)
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "w[1:]": lambda w: w[1:],
    "w[1:] - w[:-1]": lambda w: w[1:] - w[:-1],
    "w[::-1]": lambda w: w[::-1],
    "emphasis": lambda w: tf.concat([w[:1], w[1:] - 0.97 * w[:-1]], 0),
}
OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "sum": tf.reduce_sum,
    "mean": tf.reduce_mean,
    "maximum": tf.reduce_max,
    "sum of differences": lambda w: tf.reduce_sum(tf.abs(w[1:] - w[:-1])),
}


def ratio(body: Callable[[Any], Any], spec: Any) -> float:
    """The time of the map divided by the time of ``tf.map_fn``, whose results have this spec."""
    ours = tf.function(lambda w: tf_pfor.vectorized_map(body, w))
    other = tf.function(lambda w: tf.map_fn(body, w, fn_output_signature=spec))
    for a, b in zip(*(tf.nest.flatten(f(ROWS), expand_composites=True) for f in (ours, other))):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)
    contenders = {"ours": lambda: ours(ROWS), "other": lambda: other(ROWS)}
    times = timing.interleaved(contenders, clock=time.process_time)
    return timing.ratio(times, "ours", "other")


def main() -> None:
    """Prints a table."""
    of_rows = tf.RaggedTensorSpec([None], tf.float32, 0)
    found = [(name, ratio(body, of_rows)) for name, body in OF_ROWS.items()]
    found += [(name, ratio(body, tf.float32)) for name, body in OF_NUMBERS.items()]
    print(timing.table([[name, f"{r:.2f}"] for name, r in found], ["row", "to tf.map_fn"]))


if __name__ == "__main__":
    main()
