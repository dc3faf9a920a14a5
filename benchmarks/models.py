"""An MLP, a CNN and a transformer block: hand-batched, TensorFlow's own map, tf_pfor.

    python -m benchmarks.models [--batch 64]

For each model: ops of the traced graph, run time and time to trace and vectorize, as ratios
within one run. Each model runs in a child process, since TensorFlow's own map can crash it; then
the child runs again without it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import timing

MODELS = ("mlp", "cnn", "transformer", "mlp_gradients", "cnn_gradients")
LOOPS = ("While", "StatelessWhile", "MapDefun")


def build(name: str, batch: int) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """The hand-batched function, the function of one example, and a batch."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    base, *gradients = name.split("_")
    layers = keras.layers
    if base == "mlp":
        shape: tuple[int, ...] = (128,)
        model: Any = keras.Sequential(
            [layers.Dense(256, activation="relu") for _ in range(3)] + [layers.Dense(10)]
        )
    elif base == "cnn":
        shape = (28, 28, 1)
        model = keras.Sequential([
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10),
        ])  # fmt: skip
    else:
        shape = (32, 128)
        inputs = keras.Input(shape)
        x = layers.MultiHeadAttention(4, 32)(inputs, inputs)
        x = y = layers.LayerNormalization()(inputs + x)
        x = layers.Dense(256, activation="gelu")(x)
        x = layers.Dense(128)(x)
        model = keras.Model(inputs, layers.LayerNormalization()(x + y))
    rng = np.random.default_rng(0)
    data = tf.constant(rng.normal(size=(batch, *shape)), tf.float32)
    model(data)
    if not gradients:
        return model, lambda x: model(x[tf.newaxis])[0], data

    def one(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x[tf.newaxis]) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    def summed(x: tf.Tensor) -> list[tf.Tensor]:
        """The sum over the batch: less work than per-example gradients."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    return summed, one, data


def child(name: str, batch: int, with_tensorflow: bool) -> list[timing.Record]:
    """Measures one model in this process."""
    import tensorflow as tf

    import tf_pfor

    hand, one, data = build(name, batch)
    functions: dict[str, Callable[..., Any]] = {
        "by hand": hand,
        "tf_pfor": lambda x: tf_pfor.vectorized_map(one, x, fallback_to_while_loop=False),
    }
    if with_tensorflow:
        functions["TensorFlow's"] = lambda x: tf.vectorized_map(one, x)

    def traced(key: str) -> Any:
        return tf.function(functions[key], autograph=False).get_concrete_function(data)

    traces = timing.interleaved(
        {key: lambda key=key: traced(key) for key in functions}, seconds=2.0, least=7
    )
    graphs = {key: traced(key) for key in functions}
    runs = timing.interleaved(
        {key: lambda g=g: tf.nest.map_structure(lambda t: t.numpy(), g(data))
         for key, g in graphs.items()}, seconds=3.0,
    )  # fmt: skip
    types = {key: [op.type for op in g.graph.get_operations()] for key, g in graphs.items()}
    counts = {key: sum(t != "Const" for t in found) for key, found in types.items()}
    expected = tf.nest.flatten(graphs["by hand"](data))
    found = tf.nest.flatten(graphs["tf_pfor"](data))
    if name.endswith("gradients"):
        found = [tf.reduce_sum(t, 0) for t in found]
    difference = max(float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(expected, found))
    workload, all_contenders = f"{name} {batch}", ("by hand", "TensorFlow's")
    return [
        *timing.amounts(workload, "ops", counts),
        timing.record(workload, "loops", sum(t in LOOPS for t in types["tf_pfor"])),
        timing.record(workload, "difference", difference, better=None),
        *timing.records(workload, runs, all_contenders),
        *timing.records(workload, traces, all_contenders, clock="tracing "),
    ]


def in_child(name: str, batch: int, with_tensorflow: bool) -> list[timing.Record] | None:
    """Runs ``child`` in a process of its own; None if it crashed."""
    command = [sys.executable, "-m", "benchmarks.models", "--child", name, "--batch", str(batch)]
    command += ["--with-tensorflow"] if with_tensorflow else []
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    for line in done.stdout.splitlines():
        if line.startswith("[{"):
            return json.loads(line)
    if not with_tensorflow:
        raise RuntimeError(done.stderr[-2000:])
    return None


def main() -> None:
    """Measures all models and prints the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--child", choices=MODELS)
    parser.add_argument("--only", choices=MODELS, action="append")
    parser.add_argument("--with-tensorflow", action="store_true")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.batch, options.with_tensorflow)))
        return
    results: list[timing.Record] = []
    started = time.perf_counter()
    for name in options.only or MODELS:
        found = in_child(name, options.batch, True)
        results += found or in_child(name, options.batch, False) or []
        print(f"{name}: measured ({time.perf_counter() - started:.0f} s)", flush=True)
    if not options.only:
        timing.save("models", results)
    print(timing.overview(results))


if __name__ == "__main__":
    main()
