"""Rows of different lengths: tf_pfor, packed and padded by hand, ``tf.map_fn``, in one run.

    python -m benchmarks.ragged [--work "dense layers" attention] [--sizes 0 2] [--seconds 0.5]
        [--no-map-fn] [--memory]

Lengths uniform from 1. Forward, and with the gradient of the weights; medians in ms, and the ratios
of tf_pfor to the others. ``--memory`` gives the peak of TensorFlow's allocator in a forward and
backward pass in place of times, each contender in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

Run = Callable[[], Any]
Size = tuple[int, int, int]  # rows, the largest length, width
SIZES: tuple[Size, ...] = ((4096, 10, 16), (1024, 50, 64), (256, 100, 128))


class Data:
    """Rows of one size, and weights."""

    def __init__(self, size: Size, *, outlier: bool = False, axes: int = 1):
        n, longest, width = size
        rng = np.random.default_rng(0)
        lengths = rng.integers(1, longest + 1, [n, axes])
        if outlier:
            longest *= 20
            lengths[n // 2] = longest
        self.lengths = tf.constant(lengths[:, 0], tf.int32)
        self.sizes = tf.constant(lengths, tf.int32)
        self.x = tf.constant(rng.normal(size=[n, *[longest] * axes, width]), tf.float32)
        self.rows = tf.RaggedTensor.from_tensor(self.x, self.lengths) if axes == 1 else None
        masks = [tf.sequence_mask(self.sizes[:, k], longest) for k in range(axes)]
        self.mask = masks[0] if axes == 1 else masks[0][:, :, None] & masks[1][:, None]
        self.mask = self.mask[..., None]
        scale = width**-0.5
        self.w = [
            tf.Variable(rng.normal(size=[width, width]) * scale, dtype=tf.float32) for _ in range(6)
        ]
        self.gains = [tf.Variable(tf.ones([width])) for _ in range(2)]
        window = [3] * axes
        self.kernel = tf.Variable(
            rng.normal(size=[*window, width, width]) * scale / 3, dtype=tf.float32
        )

    @property
    def weights(self) -> list[tf.Variable]:
        """All that has a gradient."""
        return [*self.w, *self.gains, self.kernel]


def over_rows(d: Data, row: Callable[[Any], Any]) -> dict[str, Run]:
    """A function of one row, of rows that are cut from a dense tensor."""
    given = (d.x, d.lengths)
    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(lambda e: row(e[0][: e[1]]), given),
        "map_fn": lambda: tf.map_fn(
            lambda e: row(e[0][: e[1]]), given, fn_output_signature=tf.float32
        ),
    }


def layers(d: Data, h: Any) -> Any:
    """Three Dense layers."""
    for w in d.w[:3]:
        h = tf.nn.relu(h @ w)
    return h


def dense_layers(d: Data) -> dict[str, Run]:
    """relu(x @ w) three times and a sum over the row, of a RaggedTensor."""
    rows: Any = d.rows

    def row(x: Any) -> Any:
        return tf.reduce_sum(layers(d, x), 0)

    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(row, rows),
        "packed": lambda: tf.math.segment_sum(layers(d, rows.values), rows.value_rowids()),
        "padded": lambda: tf.reduce_sum(tf.where(d.mask, layers(d, d.x), 0.0), 1),
        "map_fn": over_rows(d, row)["map_fn"],
    }


def cut_layers(d: Data) -> dict[str, Run]:
    """The same, of rows that are cut from a dense tensor."""

    def packed() -> Any:
        flat = tf.boolean_mask(d.x, d.mask[..., 0])
        rows = tf.repeat(tf.range(tf.size(d.lengths)), d.lengths)
        return tf.math.segment_sum(layers(d, flat), rows)

    return {
        "tf_pfor": over_rows(d, lambda x: tf.reduce_sum(layers(d, x), 0))["tf_pfor"],
        "packed": packed,
        "padded": lambda: tf.reduce_sum(tf.where(d.mask, layers(d, d.x), 0.0), 1),
    }


def example_1(d: Data) -> dict[str, Run]:
    """A convolution over the row, and a product (Agarwal, 2019, Example 1)."""

    def row(x: Any) -> Any:
        return tf.nn.conv1d(x[None], d.kernel, 1, "SAME")[0] @ d.w[0]

    def padded() -> Any:
        x = tf.where(d.mask, d.x, 0.0)
        return tf.where(d.mask, tf.nn.conv1d(x, d.kernel, 1, "SAME") @ d.w[0], 0.0)

    found = over_rows(d, row)
    return {
        "tf_pfor": lambda: found["tf_pfor"]().flat_values,
        "padded": padded,
        "map_fn": over_rows(d, lambda x: tf.reduce_sum(row(x)))["map_fn"],
    }


def attention(d: Data, scale: float = 1.0) -> dict[str, Run]:
    """softmax(scale q k^T) v over the row, summed."""

    def row(r: Any) -> Any:
        scores = tf.matmul(r @ d.w[0], r @ d.w[1], transpose_b=True)
        scores = scores if scale == 1.0 else scores * scale
        return tf.reduce_sum(tf.nn.softmax(scores) @ (r @ d.w[2]), 0)

    def padded() -> Any:
        scores = tf.matmul(d.x @ d.w[0], d.x @ d.w[1], transpose_b=True)
        scores = scores if scale == 1.0 else scores * scale
        scores += tf.where(tf.transpose(d.mask, [0, 2, 1]), 0.0, -1e9)
        return tf.reduce_sum(tf.where(d.mask, tf.nn.softmax(scores) @ (d.x @ d.w[2]), 0.0), 1)

    return {**over_rows(d, row), "padded": padded}


def scaled_attention(d: Data) -> dict[str, Run]:
    """The same with the usual scale of scores, one by the root of the width."""
    return attention(d, d.w[0].shape[-1] ** -0.5)


def normalized(x: Any, gain: Any) -> Any:
    """Layer normalization."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-5) * gain


def encoder(d: Data) -> dict[str, Run]:
    """A transformer encoder block: attention, two Dense layers, two normalizations; summed."""
    q, k, v, o, up, down = d.w
    first, second = d.gains

    def block(x: Any, allowed: Any) -> Any:
        scores = tf.matmul(x @ q, x @ k, transpose_b=True)
        scores = scores if allowed is None else scores + allowed
        x = normalized(x + (tf.nn.softmax(scores) @ (x @ v)) @ o, first)
        return normalized(x + tf.nn.relu(x @ up) @ down, second)

    def padded() -> Any:
        allowed = tf.where(tf.transpose(d.mask, [0, 2, 1]), 0.0, -1e9)
        return tf.reduce_sum(tf.where(d.mask, block(d.x, allowed), 0.0), 1)

    return {**over_rows(d, lambda x: tf.reduce_sum(block(x, None), 0)), "padded": padded}


def images(d: Data) -> dict[str, Run]:
    """Images of different sizes: convolution, max pool, global mean."""
    given = (d.x, d.sizes)

    def one(e: Any) -> Any:
        image, size = e
        own = image[: size[0], : size[1]]
        made = tf.nn.relu(tf.nn.conv2d(own[None], d.kernel, 1, "SAME"))
        return tf.reduce_mean(tf.nn.max_pool2d(made, 2, 1, "SAME")[0], [0, 1])

    def padded() -> Any:
        made = tf.nn.conv2d(tf.where(d.mask, d.x, 0.0), d.kernel, 1, "SAME")
        made = tf.where(d.mask, tf.nn.relu(made), -np.inf)
        made = tf.where(d.mask, tf.nn.max_pool2d(made, 2, 1, "SAME"), 0.0)
        count = tf.cast(tf.reduce_prod(d.sizes, 1), tf.float32)
        return tf.reduce_sum(made, [1, 2]) / count[:, None]

    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(one, given),
        "padded": padded,
        "map_fn": lambda: tf.map_fn(one, given, fn_output_signature=tf.float32),
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


def emphasis(d: Data) -> dict[str, Run]:
    """x[t] - 0.97 x[t - 1] of a RaggedTensor, summed: three slices and a join."""
    rows = d.rows

    def row(x: Any) -> Any:
        x *= d.gains[0]
        return tf.reduce_sum(tf.concat([x[:1], x[1:] - 0.97 * x[:-1]], 0))

    return {
        "tf_pfor": lambda: tf_pfor.vectorized_map(row, rows),
        "map_fn": lambda: tf.map_fn(row, rows, fn_output_signature=tf.float32),
    }


Work = tuple[Callable[[Data], dict[str, Run]], Sequence[Size], dict[str, Any]]
WORK: dict[str, Work] = {
    "dense layers": (dense_layers, SIZES, {}),
    "dense layers of cut rows": (cut_layers, SIZES, {}),
    "example 1": (example_1, SIZES, {}),
    "attention": (attention, SIZES, {}),
    "scaled attention": (scaled_attention, (*SIZES, (128, 118, 64)), {}),
    "scaled attention, one long row": (scaled_attention, ((32, 50, 64),), {"outlier": True}),
    "encoder block": (encoder, SIZES, {}),
    "images": (images, ((4096, 6, 8), (512, 16, 16), (64, 32, 32)), {"axes": 2}),
    "one long row": (dense_layers, ((512, 10, 16), (256, 50, 64)), {"outlier": True}),
    "emphasis": (emphasis, ((32, 2800, 1), (1000, 20, 1), (4096, 10, 16)), {}),
    "mask": (mask, ((10_000, 100, 1), *SIZES), {}),
}
"""By name: the contenders, the sizes, and what else is said of the data."""


def contenders(name: str, size: Size, *, both: bool) -> dict[str, Run]:
    """Compiled functions."""
    make, _, options = WORK[name]
    data = Data(size, **options)
    found = make(data)
    return {
        who: tf.function(with_gradients(data, run) if both else run, autograph=False)
        for who, run in found.items()
    }


def with_gradients(d: Data, run: Run) -> Run:
    """The gradient of the sum of squares by the weights."""

    def both() -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(run() ** 2)
        found = tape.gradient(total, d.weights, unconnected_gradients="zero")
        return [tf.convert_to_tensor(g) for g in found]

    return both


def title(name: str, size: Size) -> str:
    """The work with its rows, longest row and width."""
    return f"{name}, {' x '.join(map(str, size))}"


def measured(
    name: str, size: Size, *, both: bool, seconds: float, by_map_fn: bool
) -> list[timing.Record]:
    """The records of one work."""
    compiled = contenders(name, size, both=both)
    if not by_map_fn:
        compiled.pop("map_fn", None)
    runs = {
        who: lambda f=f: tf.nest.map_structure(lambda t: t.numpy(), f())
        for who, f in compiled.items()
    }
    workload = f"{title(name, size)}, gradient" if both else title(name, size)
    try:
        times = timing.interleaved(runs, seconds=seconds)
    except tf_pfor.FallbackWarning as why:
        print(f"{workload}: {why}")
        return [timing.record(workload, "ms", None)]
    return timing.records(workload, times)


# ---------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------


def peak(name: str, at: int, who: str) -> float:
    """MB of a forward and backward pass beyond what there was before, by TensorFlow's allocator."""
    run = contenders(name, WORK[name][1][at], both=True)[who]
    run()  # kernels are compiled, and weights packed, once
    device = "CPU:0"
    tf.config.experimental.reset_memory_stats(device)
    before = tf.config.experimental.get_memory_info(device)["current"]
    kept = run()
    found = (tf.config.experimental.get_memory_info(device)["peak"] - before) / 1e6
    del kept
    return found


def memory(name: str, at: int) -> list[timing.Record]:
    """The memory of one work, forward and backward."""
    found: dict[str, float | None] = {}
    for who in contenders(name, (2, 2, 2), both=True):
        if who == "map_fn":
            continue
        command = [sys.executable, "-m", "benchmarks.ragged", "--child", name, str(at), who]
        # without oneDNN the allocator of TensorFlow keeps no statistics
        known = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=known)
        lines = [x for x in done.stdout.splitlines() if x.startswith("{")]
        found[who] = json.loads(lines[-1])["MB"] if lines else None
    return timing.amounts(title(name, WORK[name][1][at]), "MB", found)


def main() -> None:
    """Prints the table and saves it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", nargs="*", choices=list(WORK), default=list(WORK))
    parser.add_argument("--sizes", nargs="*", type=int, help="which ones, from 0")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each contender")
    parser.add_argument("--no-map-fn", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        name, at, who = given.child
        print(json.dumps({"MB": peak(name, int(at), who)}))
        return
    warnings.simplefilter("error", tf_pfor.FallbackWarning)
    found: list[timing.Record] = []
    for name in given.work:
        sizes = WORK[name][1]
        for at in range(len(sizes)) if given.sizes is None else given.sizes:
            if at >= len(sizes) or (given.memory and name == "mask"):
                continue
            if given.memory:
                found += memory(name, at)
                print(f"{found[-1]['workload']} done", flush=True)
                continue
            for both in (False, True) if name != "mask" else (False,):
                options = {"seconds": given.seconds, "by_map_fn": not given.no_map_fn}
                found += measured(name, sizes[at], both=both, **options)
                print(f"{found[-1]['workload']} done", flush=True)
    print(timing.overview(found))
    if given.sizes is None and len(given.work) == len(WORK):
        timing.save("ragged_memory" if given.memory else "ragged", found)


if __name__ == "__main__":
    main()
