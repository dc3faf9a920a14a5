"""Per-example gradients and jacobians: by hand, a loop over rows, TensorFlow's own, tf_pfor.

    python -m benchmarks.derivatives [--only lstm_unrolled] [--batch 64] [--seconds 3]

Times are ratios within one run, tf_pfor's time to that of each contender; beside them the ratio of
the times to trace and vectorize, and the largest relative difference from the loop. A contender
that fails is named with its error.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

STEPS, INPUTS, STATE = 10, 128, 256
Fn = Callable[..., Any]


@dataclasses.dataclass
class Case:
    """Contenders, functions of the same tensors: "tf_pfor", "loop", and others by name."""

    contenders: dict[str, Fn]
    data: tuple[tf.Tensor, ...]


def normal(*shape: int, scale: float = 1.0) -> tf.Tensor:
    """Random numbers, the same in every run."""
    return tf.constant(np.random.default_rng(0).normal(size=shape) * scale, tf.float32)


# ---------------------------------------------------------------------------
# Per-example gradients
# ---------------------------------------------------------------------------


def lstm() -> tuple[list[tf.Variable], Fn]:
    """The weights of an LSTM and its step, of a batch."""
    weights = [
        tf.Variable(normal(INPUTS, 4 * STATE, scale=0.1)),
        tf.Variable(normal(STATE, 4 * STATE, scale=0.1)),
        tf.Variable(tf.zeros([4 * STATE])),
    ]

    def step(x: tf.Tensor, h: tf.Tensor, c: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        z = x @ weights[0] + h @ weights[1] + weights[2]
        i, f, g, o = tf.split(z, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c, z

    return weights, step


def mapped_gradients(loss: Fn, weights: Any, data: tuple[tf.Tensor, ...]) -> dict[str, Fn]:
    """The gradients of ``loss`` of one example in all ways that need no thought."""

    def one(*example: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            value = loss(*example)
        return tape.gradient(value, weights)

    dtypes = [tf.float32] * len(weights)
    return {
        "tf_pfor": lambda *xs: tf_pfor.vectorized_map(lambda e: one(*e), xs),
        "loop": lambda *xs: tf.map_fn(lambda e: one(*e), xs, fn_output_signature=dtypes),
        "TensorFlow's": lambda *xs: tf.vectorized_map(
            lambda e: one(*e), xs, fallback_to_while_loop=False
        ),
    }


def lstm_case(kind: str, batch: int) -> Case:
    """An LSTM of ten steps, unrolled or in a loop, or over the true length of each row."""
    weights, step = lstm()
    longest = 20 if kind == "true_length" else STEPS
    data: tuple[tf.Tensor, ...] = (normal(batch, longest, INPUTS),)

    def unrolled(x: tf.Tensor) -> tf.Tensor:
        h = c = tf.zeros([1, STATE])
        for t in range(STEPS):
            h, c, _ = step(x[t][None], h, c)
        return tf.reduce_sum(h**2)

    def looped(x: tf.Tensor, length: Any = STEPS) -> tf.Tensor:
        def body(t: Any, h: tf.Tensor, c: tf.Tensor) -> tuple[Any, ...]:
            return (t + 1, *step(x[t][None], h, c)[:2])

        zero = tf.zeros([1, STATE])
        return tf.reduce_sum(tf.while_loop(lambda t, *_: t < length, body, (0, zero, zero))[1] ** 2)

    def by_hand(x: tf.Tensor) -> list[tf.Tensor]:
        """One batched product over time."""
        h = c = tf.zeros([batch, STATE])
        before: list[tf.Tensor] = []
        sums: list[tf.Tensor] = []
        with tf.GradientTape() as tape:
            for t in range(STEPS):
                before.append(h)
                h, c, z = step(x[:, t], h, c)
                sums.append(z)
            loss = tf.reduce_sum(h**2)
        dz = tf.stack(tape.gradient(loss, sums), 1)
        return [
            tf.matmul(x, dz, transpose_a=True),
            tf.matmul(tf.stack(before, 1), dz, transpose_a=True),
            tf.reduce_sum(dz, 1),
        ]

    if kind == "true_length":
        lengths = np.random.default_rng(1).integers(1, longest + 1, [batch])
        data += (tf.constant(lengths, tf.int32),)
        return Case(mapped_gradients(looped, weights, data), data)
    found = mapped_gradients(unrolled if kind == "unrolled" else looped, weights, data)
    return Case({**found, "by hand": by_hand}, data)


def conv_mnist_case(batch: int) -> Case:
    """Two convolutions of 5x5 and two dense layers."""
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([
        keras.Input([28, 28, 1]),
        layers.Conv2D(32, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 5, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(512, activation="relu"), layers.Dense(10),
    ])  # fmt: skip
    weights = [v.value for v in model.trainable_variables]
    data = (normal(batch, 28, 28, 1),)
    return Case(mapped_gradients(lambda x: tf.reduce_sum(model(x[None]) ** 2), weights, data), data)


# ---------------------------------------------------------------------------
# Jacobians
# ---------------------------------------------------------------------------


def jacobian_contenders(model: Fn) -> dict[str, Fn]:
    """The jacobian of a vector by its input."""

    def by_tape(x: tf.Tensor, ours: bool, **options: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
        return tf_pfor.tape_jacobian(tape, y, x) if ours else tape.jacobian(y, x, **options)

    return {
        "tf_pfor": lambda x: by_tape(x, True),
        "loop": lambda x: by_tape(x, False, experimental_use_pfor=False),
        "TensorFlow's": lambda x: by_tape(x, False),
    }


def lstm_jacobian_case(kind: str) -> Case:
    """The last state [256] of ten steps by the input [10, 128]."""
    _, step = lstm()

    def model(x: tf.Tensor) -> tf.Tensor:
        zero = tf.zeros([1, STATE])
        if kind == "while":
            return tf.while_loop(
                lambda t, *_: t < STEPS,
                lambda t, h, c: (t + 1, *step(x[t][None], h, c)[:2]),
                (0, zero, zero),
            )[1][0]
        h = c = zero
        for t in range(STEPS):
            h, c, _ = step(x[t][None], h, c)
        return h[0]

    return Case(jacobian_contenders(model), (normal(STEPS, INPUTS),))


def vgg_case(outputs: int = 128) -> Case:
    """VGG16 at 48x48 with random weights; by hand: the image and unit cotangents as a batch."""
    keras.utils.set_random_seed(0)
    base = keras.applications.VGG16(include_top=False, weights=None, input_shape=(48, 48, 3))
    head = keras.layers.Dense(outputs)
    head.build([None, 512])

    def model(x: tf.Tensor) -> tf.Tensor:
        return head(tf.reshape(base(x), [-1, 512]))

    def by_hand(x: tf.Tensor) -> tf.Tensor:
        many = tf.repeat(x[None], outputs, 0)
        with tf.GradientTape() as tape:
            tape.watch(many)
            y = model(many)
        return tape.gradient(y, many, output_gradients=tf.eye(outputs))

    found = jacobian_contenders(lambda x: model(x[None])[0])
    return Case({**found, "by hand": by_hand}, (normal(48, 48, 3),))


CASES: dict[str, Callable[[int], Case]] = {
    "lstm_unrolled": lambda batch: lstm_case("unrolled", batch),
    "lstm_while": lambda batch: lstm_case("while", batch),
    "lstm_true_length": lambda batch: lstm_case("true_length", batch),
    "conv_mnist": conv_mnist_case,
    "lstm_jacobian_unrolled": lambda _: lstm_jacobian_case("unrolled"),
    "lstm_jacobian_while": lambda _: lstm_jacobian_case("while"),
    "vgg_jacobian": lambda _: vgg_case(),
}


# ---------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------


def traced(case: Case) -> tuple[dict[str, Fn], dict[str, float], dict[str, str]]:
    """Compiled contenders, the seconds that took, and the errors of those that fail."""
    compiled: dict[str, Fn] = {}
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, fn in case.contenders.items():
        function = tf.function(fn, autograph=False)
        try:
            began = time.perf_counter()
            concrete = function.get_concrete_function(*case.data)
            seconds[name] = time.perf_counter() - began
            concrete(*case.data)
        except Exception as why:
            failed[name] = f"fails: {type(why).__name__}"
            continue
        compiled[name] = lambda f=concrete: [
            x.numpy().ravel()[:1] for x in tf.nest.flatten(f(*case.data))
        ]
        compiled[name].results = lambda f=concrete: f(*case.data)  # type: ignore[attr-defined]
    return compiled, seconds, failed


def run(name: str, batch: int, duration: float) -> list[list[str]]:
    """The lines of one case."""
    case = CASES[name](batch)
    compiled, seconds, failed = traced(case)
    own = tf.nest.flatten(compiled["tf_pfor"].results())  # type: ignore[attr-defined]
    truth = tf.nest.flatten(compiled["loop"].results())  # type: ignore[attr-defined]
    error = max(
        float(tf.reduce_max(tf.abs(a - b)) / tf.reduce_max(tf.abs(b))) for a, b in zip(own, truth)
    )
    times = timing.interleaved(compiled, seconds=duration)
    rows = []
    for other in case.contenders:
        if other == "tf_pfor":
            continue
        if other in failed:
            rows.append([name, other, failed[other], "-", "-"])
            continue
        ratio = timing.ratio(times, "tf_pfor", other)
        trace = seconds["tf_pfor"] / seconds[other]
        rows.append([name, other, f"{ratio:.2f}", f"{trace:.2f}", f"{error:.0e}"])
    return rows


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=sorted(CASES), nargs="*")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
    rows: list[list[str]] = []
    for name in given.only or CASES:
        rows += run(name, given.batch, given.seconds)
        print(f"{name} done", flush=True)
    head = ["case", "against", "tf_pfor's time to its", "tracing", "relative difference"]
    print(timing.table(rows, head))
    timing.save("derivatives", [dict(zip(head, row)) for row in rows])


if __name__ == "__main__":
    main()
