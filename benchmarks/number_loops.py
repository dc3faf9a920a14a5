"""Loops over a few numbers for each row, whose trip count differs, by strategy, in one run.

    python -m benchmarks.number_loops

The programs are Newton's square root and the trips of Collatz' sequence. The package runs as it
chooses, compacted and masked, beside a loop by hand with ``tf.where``. Numbers are medians in ms,
and ratios.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing


def newton(x: Any) -> Any:
    """The square root of a number."""
    start = tf.maximum(x, 1.0)
    return tf.while_loop(
        lambda y: tf.abs(y * y - x) > 1e-5 * x, lambda y: (0.5 * (y + x / y),), (start,)
    )[0]


def newton_by_hand(x: Any) -> Any:
    """The same of all rows."""

    def body(y: Any, goes_on: Any) -> Any:
        y = tf.where(goes_on, 0.5 * (y + x / y), y)
        return y, tf.abs(y * y - x) > 1e-5 * x

    y = tf.maximum(x, 1.0)
    start = (y, tf.abs(y * y - x) > 1e-5 * x)
    return tf.while_loop(lambda _, goes_on: tf.reduce_any(goes_on), body, start)[0]


def collatz(x: Any) -> Any:
    """The number of trips to 1."""
    return tf.while_loop(
        lambda _, x: x > 1,
        lambda k, x: (k + 1, tf.where(x % 2 == 0, x // 2, 3 * x + 1)),
        (0, x),
    )[0]


def collatz_by_hand(x: Any) -> Any:
    """The same of all rows."""

    def body(k: Any, x: Any) -> Any:
        goes_on = x > 1
        step = tf.where(x % 2 == 0, x // 2, 3 * x + 1)
        return tf.where(goes_on, k + 1, k), tf.where(goes_on, step, x)

    start = (tf.zeros(tf.shape(x), tf.int32), x)
    return tf.while_loop(lambda _, x: tf.reduce_any(x > 1), body, start)[0]


def mapped(body: Callable[[Any], Any], strategy: str) -> Callable[[Any], Any]:
    """The map of a body."""
    return lambda x: tf_pfor.vectorized_map(body, x, while_strategy=strategy)


def timed(fn: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    """A function that runs ``fn`` once."""
    compiled = tf.function(fn, autograph=False)
    return lambda: compiled(x).numpy()


def main() -> None:
    """Prints the table."""
    rng, rows = np.random.default_rng(0), list[list[str]]()
    for name, body, by_hand in (
        ("newton", newton, newton_by_hand),
        ("collatz", collatz, collatz_by_hand),
    ):
        for n in (1_000, 10_000, 100_000):
            values = rng.uniform(0.1, 100.0, n).astype(np.float32)
            x = tf.constant(values if name == "newton" else rng.integers(1, 1000, n))
            fns = {s: mapped(body, s) for s in ("auto", "compact", "mask")} | {"by hand": by_hand}
            runs = {k: timed(f, x) for k, f in fns.items()}
            times = timing.interleaved(runs, seconds=1.5)
            ratios = [f"{timing.ratio(times, k, 'by hand'):.2f}" for k in list(runs)[:3]]
            rows.append([name, str(n), f"{timing.milliseconds(times, 'by hand'):.2f}", *ratios])
    print(timing.table(rows, ["work", "n", "by hand, ms", "auto", "compact", "mask"]))


if __name__ == "__main__":
    main()
