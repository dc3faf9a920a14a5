"""The time of an eager call: ours, a plain tf.function of the same graph, TensorFlow's own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tf_pfor
from benchmarks import timing


def two_ops(k: tf.Tensor) -> Callable[[Any], Any]:
    return lambda x: tf.reduce_sum(x * k)


def five_steps(k: tf.Tensor) -> Callable[[Any], Any]:
    def step(i: Any, x: Any) -> Any:
        return i + 1, tf.tanh(x * k)

    return lambda x: tf.while_loop(lambda i, _: i < 5, step, (0, x))[1]


def closure_over_a_model(k: tf.Tensor) -> Callable[[Any], Any]:
    del k
    return lambda x: MODEL(x[None])[0]


MODEL: Any = None
BODIES = {"two ops": two_ops, "five steps": five_steps, "a Keras model": closure_over_a_model}


def contenders(
    make: Callable[[tf.Tensor], Callable[[Any], Any]], x: tf.Tensor, k: tf.Tensor
) -> Any:
    """Each call makes its body anew, except calls of ``vmap`` and ``tf.function``."""
    mapped = tf_pfor.vmap(make(k))
    compiled = tf.function(lambda x: tf_pfor.vectorized_map(make(k), x))
    return {
        "tf.function": lambda: compiled(x),
        "vectorized_map": lambda: tf_pfor.vectorized_map(make(k), x),
        "vmap": lambda: mapped(x),
        "TensorFlow's": lambda: tf.vectorized_map(make(k), x),
    }


def main() -> None:
    global MODEL
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    import keras

    x, k = tf.ones([8, 3]), tf.constant(2.0)
    MODEL = keras.Sequential([keras.layers.Dense(16, "relu") for _ in range(3)])
    MODEL(x)
    found: list[timing.Record] = []
    for name, make in BODIES.items():
        runs = contenders(make, x, k)
        times = timing.interleaved(runs, seconds=options.seconds, least=20)
        for ours in ("vectorized_map", "vmap"):
            compared = {who: times[who] for who in (ours, "tf.function", "TensorFlow's")}
            found += timing.records(f"{name}, {ours}", compared, ours=ours)
    print(timing.overview(found))
    timing.save("eager_calls", found)


if __name__ == "__main__":
    main()
