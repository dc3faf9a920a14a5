"""Rows of different lengths: tf_pfor, packed and padded by hand, ``tf.map_fn``, in one run.

    python -m benchmarks.ragged

Lengths uniform from 1; three Dense layers and a sum per row, the first example of papers/001 (a
convolution over the row, a product), attention over own lengths, and a mask. Forward, and with the
gradient of the weights; medians in ms, and the ratios of tf_pfor to the others.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

SIZES = ((4096, 10, 16), (1024, 50, 64), (256, 100, 128))
Run = Callable[[], Any]


class Data:
    """Rows of one size, and weights."""

    def __init__(self, n: int, longest: int, width: int):
        rng = np.random.default_rng(0)
        self.lengths = tf.constant(rng.integers(1, longest + 1, n), tf.int32)
        self.x = tf.constant(rng.normal(size=[n, longest, width]), tf.float32)
        self.rows = tf.RaggedTensor.from_tensor(self.x, self.lengths)
        self.mask = tf.sequence_mask(self.lengths, longest)[..., None]
        scale = width**-0.5
        self.w = [
            tf.Variable(rng.normal(size=[width, width]) * scale, dtype=tf.float32) for _ in range(3)
        ]
        self.kernel = tf.Variable(rng.normal(size=[3, width, width]) * scale, dtype=tf.float32)


def dense_layers(d: Data) -> dict[str, Run]:
    """relu(x @ w) three times and a sum over the row."""

    def layers(h: Any) -> Any:
        for w in d.w:
            h = tf.nn.relu(h @ w)
        return h

    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(
            lambda e: tf.reduce_sum(layers(e[0][: e[1]]), 0), (d.x, d.lengths)
        ),
        "packed": lambda: tf.math.segment_sum(layers(d.rows.values), d.rows.value_rowids()),
        "padded": lambda: tf.reduce_sum(tf.where(d.mask, layers(d.x), 0.0), 1),
        "map_fn": lambda: tf.map_fn(
            lambda e: tf.reduce_sum(layers(e[0][: e[1]]), 0), (d.x, d.lengths),
            fn_output_signature=tf.float32,
        ),
    }  # fmt: skip


def example_1(d: Data) -> dict[str, Run]:
    """A convolution over the row, and a product; summed, so that all give one number."""

    def row(x: Any, length: Any) -> Any:
        return tf.nn.conv1d(x[:length][None], d.kernel, 1, "SAME")[0] @ d.w[0]

    def padded() -> Any:
        x = tf.where(d.mask, d.x, 0.0)
        return tf.where(d.mask, tf.nn.conv1d(x, d.kernel, 1, "SAME") @ d.w[0], 0.0)

    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(lambda e: row(*e), (d.x, d.lengths)).flat_values,
        "padded": padded,
        "map_fn": lambda: tf.map_fn(
            lambda e: tf.reduce_sum(row(*e)), (d.x, d.lengths), fn_output_signature=tf.float32
        ),
    }


def attention(d: Data) -> dict[str, Run]:
    """softmax(q k^T) v over the row, summed."""

    def row(x: Any, length: Any) -> Any:
        r = x[:length]
        scores = tf.matmul(r @ d.w[0], r @ d.w[1], transpose_b=True)
        return tf.reduce_sum(tf.nn.softmax(scores) @ (r @ d.w[2]), 0)

    def padded() -> Any:
        scores = tf.matmul(d.x @ d.w[0], d.x @ d.w[1], transpose_b=True)
        scores += tf.where(tf.transpose(d.mask, [0, 2, 1]), 0.0, -1e9)
        return tf.reduce_sum(tf.where(d.mask, tf.nn.softmax(scores) @ (d.x @ d.w[2]), 0.0), 1)

    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(lambda e: row(*e), (d.x, d.lengths)),
        "padded": padded,
        "map_fn": lambda: tf.map_fn(
            lambda e: row(*e), (d.x, d.lengths), fn_output_signature=tf.float32
        ),
    }


def mask(d: Data) -> dict[str, Run]:
    """boolean_mask to ragged."""
    first = d.x[..., 0]
    return {
        "tf_pfor": lambda: (
            tf_pfor.vectorized_map(lambda r: tf.boolean_mask(r, r > 0), first).flat_values
        ),
        "ragged": lambda: tf.ragged.boolean_mask(first, first > 0).flat_values,
    }


WORK = {"dense layers": dense_layers, "example 1": example_1, "attention": attention, "mask": mask}


def with_gradients(d: Data, run: Run) -> Run:
    """The gradient of the sum of squares by the weights."""

    def both() -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(run() ** 2)
        found = tape.gradient(total, [*d.w, d.kernel], unconnected_gradients="zero")
        return [tf.convert_to_tensor(g) for g in found]

    return both


def line(name: str, size: tuple[int, int, int], *, both: bool) -> list[str]:
    """One line of the table."""
    data = Data(*size)
    contenders = WORK[name](data)
    compiled: dict[str, Run] = {}
    for who, run in contenders.items():
        if who == "map_fn" and both:
            continue
        function = tf.function(with_gradients(data, run) if both else run, autograph=False)
        compiled[who] = lambda f=function: tf.nest.map_structure(lambda t: t.numpy(), f())
    times = timing.interleaved(compiled, seconds=1.5)
    others = [f"{timing.ratio(times, 'tf_pfor', w):.2f} {w}" for w in compiled if w != "tf_pfor"]
    sizes = " x ".join(map(str, size))
    what = f"{name}, gradient" if both else name
    return [what, sizes, f"{timing.milliseconds(times, 'tf_pfor'):.1f}", ", ".join(others)]


def main() -> None:
    """Prints the table."""
    warnings.simplefilter("error", tf_pfor.FallbackWarning)
    rows: list[list[str]] = []
    for name in WORK:
        for size in SIZES:
            rows += [
                line(name, size, both=both) for both in (False, True) if name != "mask" or not both
            ]
    print(timing.table(rows, ["work", "rows x longest x width", "tf_pfor ms", "tf_pfor / others"]))
    timing.save("ragged", rows)


if __name__ == "__main__":
    main()
