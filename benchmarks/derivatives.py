"""Per-example gradients and jacobians: by hand, a loop over rows, TensorFlow's own, tf_pfor.

    python -m benchmarks.derivatives [--only lstm_unrolled] [--batch 64 256] [--seconds 3]

Times are ratios within one run: tf_pfor's time divided by the time of each contender. Beside them
stand the ratio of the times to trace and vectorize, and the relative difference from the loop (of
norms). A contender that fails is named with its error.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
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


def conv_mnist(batch: int) -> tuple[Fn, list[tf.Variable], tuple[tf.Tensor, ...]]:
    """Two convolutions of 5x5 and two dense layers: loss of an example, weights, examples."""
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
    return lambda x: tf.reduce_sum(model(x[None]) ** 2), weights, data


def conv_mnist_case(batch: int) -> Case:
    """ConvMNIST; by hand: im2col."""
    loss, weights, data = conv_mnist(batch)

    def by_hand(x: tf.Tensor) -> list[tf.Tensor]:
        """im2col: one batched product of the patches and the gradients of the sums."""
        k1, b1, k2, b2, w3, b3, w4, b4 = weights
        with tf.GradientTape() as tape:
            sums = [tf.nn.conv2d(x, k1, 1, "SAME") + b1]
            inputs = [x, tf.nn.max_pool2d(tf.nn.relu(sums[0]), 2, 2, "VALID")]
            sums.append(tf.nn.conv2d(inputs[1], k2, 1, "SAME") + b2)
            pooled = tf.nn.max_pool2d(tf.nn.relu(sums[1]), 2, 2, "VALID")
            inputs.append(tf.reshape(pooled, [batch, -1]))
            sums.append(inputs[2] @ w3 + b3)
            inputs.append(tf.nn.relu(sums[2]))
            sums.append(inputs[3] @ w4 + b4)
            loss = tf.reduce_sum(sums[3] ** 2)
        found: list[tf.Tensor] = []
        for a, dz in zip(inputs, tape.gradient(loss, sums)):
            if dz.shape.rank == 2:
                found += [a[:, :, None] * dz[:, None, :], dz]
                continue
            patches = tf.image.extract_patches(a, [1, 5, 5, 1], [1] * 4, [1] * 4, "SAME")
            flat = tf.reshape(patches, [batch, -1, patches.shape[-1]])
            dz = tf.reshape(dz, [batch, -1, dz.shape[-1]])
            product = tf.matmul(flat, dz, transpose_a=True)
            found += [tf.reshape(product, [batch, 5, 5, a.shape[-1], -1]), tf.reduce_sum(dz, 1)]
        return found

    return Case({**mapped_gradients(loss, weights, data), "by hand": by_hand}, data)


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
    weights, step = lstm()

    def by_hand(x: tf.Tensor) -> tf.Tensor:
        """The backward pass of 256 cotangents, as one would write it."""
        h = c = tf.zeros([1, STATE])
        saved: list[tuple[tf.Tensor, ...]] = []
        for t in range(STEPS):
            before = c
            h, c, z = step(x[t][None], h, c)
            i, f, g, o = tf.split(z, 4, 1)
            saved.append((tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o), before, c))
        dh, dc = tf.eye(STATE), tf.zeros([1, STATE])
        rows: list[tf.Tensor] = []
        for i, f, g, o, before, c in reversed(saved):
            tc = tf.tanh(c)
            dc += dh * (o * (1 - tc * tc))
            di, df = dc * (g * i * (1 - i)), dc * (before * f * (1 - f))
            dz = tf.concat([di, df, dc * (i * (1 - g * g)), dh * (tc * o * (1 - o))], 1)
            rows.append(tf.matmul(dz, weights[0], transpose_b=True))
            dh, dc = tf.matmul(dz, weights[1], transpose_b=True), dc * f
        return tf.stack(rows[::-1], 1)

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

    found = jacobian_contenders(model)
    return Case({**found, "by hand": by_hand}, (normal(STEPS, INPUTS),))


def vgg(outputs: int = 128) -> tuple[Fn, tuple[tf.Tensor, ...], Any]:
    """VGG16 at 48x48 with random weights and a dense layer: model of an image, data, layers."""
    keras.utils.set_random_seed(0)
    base = keras.applications.VGG16(include_top=False, weights=None, input_shape=(48, 48, 3))
    head = keras.layers.Dense(outputs)
    head.build([None, 512])
    data = (normal(48, 48, 3),)
    return lambda x: head(tf.reshape(base(x[None]), [-1, 512]))[0], data, (base, head)


def vgg_case(outputs: int = 128) -> Case:
    """By hand: one forward pass, then all cotangents back at once."""
    model, data, (base, head) = vgg(outputs)

    def by_hand(x: tf.Tensor) -> tf.Tensor:
        kept = [x[None]]
        for layer in base.layers[1:]:
            kept.append(layer(kept[-1]))
        back = tf.reshape(tf.transpose(head.kernel), [outputs, 1, 1, 512])
        for layer, before, after in reversed([*zip(base.layers[1:], kept, kept[1:])]):
            if isinstance(layer, keras.layers.MaxPooling2D):
                before, after = tf.repeat(before, outputs, 0), tf.repeat(after, outputs, 0)
                back = tf.raw_ops.MaxPoolGrad(
                    orig_input=before, orig_output=after, grad=back, ksize=[1, 2, 2, 1],
                    strides=[1, 2, 2, 1], padding="VALID",
                )  # fmt: skip
            else:
                back = tf.raw_ops.Conv2DBackpropInput(
                    input_sizes=[outputs, *before.shape[1:]], filter=layer.kernel.value,
                    out_backprop=tf.where(after > 0, back, 0.0), strides=[1] * 4, padding="SAME",
                )  # fmt: skip
        return back

    return Case({**jacobian_contenders(model), "by hand": by_hand}, data)


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


def traced(case: Case) -> tuple[dict[str, Fn], dict[str, float]]:
    """Compiled contenders, and the seconds that took; those that fail are not among them."""
    compiled: dict[str, Fn] = {}
    for name, fn in case.contenders.items():
        try:
            concrete = tf.function(fn, autograph=False).get_concrete_function(*case.data)
            concrete(*case.data)
        except Exception as why:
            print(f"{name} fails: {type(why).__name__}")
            continue
        compiled[name] = lambda f=concrete: f(*case.data)
    rounds: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in range(3):  # after the first time, taking turns
        for name, times in rounds.items():
            function = tf.function(case.contenders[name], autograph=False)
            began = time.perf_counter()
            function.get_concrete_function(*case.data)
            times.append(time.perf_counter() - began)
    return compiled, {name: statistics.median(times) for name, times in rounds.items()}


def difference(found: list[tf.Tensor], truth: list[tf.Tensor]) -> float:
    """The norm of the difference, relative; rounding may change which of two pixels is larger."""
    return max(float(tf.norm(a - b) / tf.norm(b)) for a, b in zip(found, truth))


def run(name: str, batch: int, duration: float) -> list[timing.Record]:
    """The records of one case."""
    case, title = CASES[name](batch), f"{name} {batch or ''}".strip()
    compiled, seconds = traced(case)
    truth = tf.nest.flatten(compiled["loop"]())
    errors = {name: difference(tf.nest.flatten(fn()), truth) for name, fn in compiled.items()}
    assert max(errors.values()) < 1e-3, errors  # all contenders compute the same
    times = timing.interleaved(compiled, seconds=duration)
    tracing = [
        timing.record(title, "tracing", seconds["tf_pfor"] / seconds[other], other)
        for other in compiled
        if other != "tf_pfor"
    ]
    error = timing.record(title, "relative difference", errors["tf_pfor"], better=None)
    return [*timing.records(title, times, case.contenders), *tracing, error]


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=sorted(CASES), nargs="*")
    parser.add_argument("--batch", type=int, nargs="*", default=[64])
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
    found: list[timing.Record] = []
    for name in given.only or CASES:
        for batch in [0] if "jacobian" in name else given.batch:
            found += run(name, batch, given.seconds)
            print(f"{found[-1]['workload']} done", flush=True)
    print(timing.overview(found))
    if not given.only:
        timing.save("derivatives", found)


if __name__ == "__main__":
    main()
