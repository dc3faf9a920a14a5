"""A batched SavedModel under concurrent requests of one example, against one at a time.

    python -m benchmarks.machines.serving [--clients 1 16 64] [--requests 100]

Clients are threads of one process, each with one request at a time. TensorFlow's
``nondifferentiable_batch_function`` gathers their rows. Ratios are of one run in which both
contenders take turns: throughput batched / one at a time (more is better), and latency (less is).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

ROUNDS = 5
LARGEST = 64


class Dense(tf.Module):
    """Layers of one size: a request reads all weights. A model of one example."""

    def __init__(self, width: int, layers: int):
        self.width = width
        self.weights = [
            tf.Variable(tf.random.stateless_normal([width, width], [i, 1]) / width**0.5)
            for i in range(layers)
        ]

    def score(self, x: tf.Tensor) -> tf.Tensor:
        """[width] -> []."""
        for w in self.weights:
            x = tf.tanh(tf.linalg.matvec(w, x))
        return tf.reduce_sum(x)


class Saliency(Dense):
    """The size of the gradient of a score by its input."""

    def score(self, x: tf.Tensor) -> tf.Tensor:
        """[width] -> []."""
        return tf.norm(tf_pfor.grad(super().score)(x))


class Recurrent(Dense):
    """Many steps with the same weights."""

    def score(self, x: tf.Tensor) -> tf.Tensor:
        """[width] -> []."""
        for _ in range(300):
            x = tf.tanh(tf.linalg.matvec(self.weights[0], x))
        return tf.reduce_sum(x)


class Features(Dense):
    """Hundreds of small ops."""

    def score(self, x: tf.Tensor) -> tf.Tensor:
        """[width] -> []."""
        for i in range(100):
            x = tf.where(x > 0.0, tf.sin(x) + i, x * 0.5)
        return tf.reduce_sum(x)


MODELS: dict[str, Callable[[], Dense]] = {
    "4 layers of 256": lambda: Dense(256, 4),
    "4 layers of 1024": lambda: Dense(1024, 4),
    "gradient, 4 layers of 1024": lambda: Saliency(1024, 4),
    "400 small ops": lambda: Features(16, 0),
    "300 steps of 128": lambda: Recurrent(128, 1),
}


def signatures(module: Dense, folder: str) -> tuple[Any, Any]:
    """The loaded model of one example and the loaded model of a batch."""
    spec = tf.TensorSpec([module.width], tf.float32, "x")
    one = tf.function(lambda x: {"score": module.score(x)}, input_signature=[spec])
    tf.saved_model.save(module, f"{folder}/one", signatures=one.get_concrete_function())
    tf_pfor.saved_model.batch(f"{folder}/one", f"{folder}/many")
    loaded = [tf.saved_model.load(f"{folder}/{name}") for name in ("one", "many")]
    found = [model.signatures["serving_default"] for model in loaded]
    for signature, model in zip(found, loaded):
        signature.of_model = model  # or its variables would be gone
    return found[0], found[1]


def gathering(many: Any, width: int, wait: int) -> Callable[[Any], Any]:
    """A function of one row that waits for the rows of other callers.

    The number of rows is unknown: the batch function would keep a known one.
    """

    @tf.nondifferentiable_batch_function(
        num_batch_threads=2,
        max_batch_size=LARGEST,
        batch_timeout_micros=wait,
        allowed_batch_sizes=[2**k for k in range(LARGEST.bit_length())],
        max_enqueued_batches=100,
    )
    def batched(rows: tf.Tensor) -> tf.Tensor:
        return many(x=rows)["score"]

    return tf.function(batched, input_signature=[tf.TensorSpec([None, width])])


def load(run: Callable[[], Any], clients: int, requests: int) -> tuple[float, list[float]]:
    """Requests a second, and the seconds of each request."""

    def client(_: int) -> list[float]:
        times = [time.perf_counter()]
        for _ in range(requests):
            run()
            times.append(time.perf_counter())
        return [b - a for a, b in itertools.pairwise(times)]

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        found = [t for times in pool.map(client, range(clients)) for t in times]
        return len(found) / (time.perf_counter() - start), found


def measured(name: str, clients: int, requests: int, wait: int) -> list[timing.Record]:
    """The records of one model with so many clients."""
    model = MODELS[name]()
    width = model.width
    with tempfile.TemporaryDirectory() as folder:
        one, many = signatures(model, folder)
    row = tf.constant(np.random.default_rng(0).normal(size=[width]), tf.float32)
    alone = row[tf.newaxis]
    gathered = gathering(many, width, wait)
    runs = {
        "one": lambda: one(x=row)["score"].numpy(),
        "batched": lambda: gathered(alone).numpy()[0],
    }
    np.testing.assert_allclose(runs["one"](), runs["batched"](), 1e-3, 1e-4)
    rows = tf.repeat(row[tf.newaxis], LARGEST, 0)
    limit = timing.interleaved({"limit": lambda: many(x=rows)["score"].numpy()}, seconds=0.5)
    rates: dict[str, list[float]] = {key: [] for key in runs}
    seconds: dict[str, list[float]] = {key: [] for key in runs}
    for run in runs.values():
        load(run, clients, 10)
    for _ in range(ROUNDS):
        for key, run in runs.items():
            rate, times = load(run, clients, requests)
            rates[key].append(rate)
            seconds[key] += times
    late = {key: sorted(times)[int(0.99 * len(times))] for key, times in seconds.items()}
    middle = {key: statistics.median(times) for key, times in seconds.items()}
    throughput = statistics.median(b / a for a, b in zip(rates["one"], rates["batched"]))
    at_best = 1e3 * LARGEST / timing.milliseconds(limit, "limit")
    workload, record = f"{name}, clients: {clients}", timing.record
    return [
        record(workload, "a second", statistics.median(rates["batched"]), better="higher"),
        record(workload, "a second, one", statistics.median(rates["one"]), better=None),
        record(workload, f"a second in batches of {LARGEST}", at_best, better="higher"),
        record(workload, "throughput", throughput, "one", better="higher"),
        record(workload, "latency", middle["batched"] / middle["one"], "one"),
        record(workload, "latency of 1 in 100", late["batched"] / late["one"], "one"),
        record(workload, "ms", 1e3 * middle["batched"]),
        record(workload, "ms, one", 1e3 * middle["one"], better=None),
    ]


def main() -> None:
    """Prints a table, and saves it."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.machines.serving", description=main.__doc__
    )
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--wait", type=int, default=500, help="microseconds")
    args = parser.parse_args()
    rows: list[timing.Record] = []
    for name in MODELS:
        for clients in args.clients:
            rows += measured(name, clients, args.requests, args.wait)
            print(f"{rows[-1]['workload']} done", flush=True)
    print(timing.overview(rows))
    if args.wait == parser.get_default("wait"):
        timing.save("serving", rows)


if __name__ == "__main__":
    main()
