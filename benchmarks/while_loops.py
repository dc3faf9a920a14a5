"""While loops with a trip count for each row: tf_pfor beside its peers, in one run.

Contenders: TensorFlow's own ``tf.vectorized_map`` (a black box), the loop batched by hand (masked
to the longest row), and tf_pfor. Forward, and forward + backward. Prints one JSON line for
each workload and batch size; times are medians in ms, and the ratios of tf_pfor to each other.

    python benchmarks/while_loops.py --batch 1 16 64 256 --work lstm cheap fixed
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor

STEPS, INPUT, STATE = 100, 128, 256


def lstm_cell(x, h, c, kernel, bias):
    """One step on [..., input] and [..., state]."""
    z = tf.concat([x, h], -1) @ kernel + bias
    i, g, f, o = tf.split(z, 4, -1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def lstm(batch, rng, steps=STEPS, lengths=None):
    x = rng.normal(size=(batch, steps, INPUT)).astype(np.float32)
    if lengths is None:
        lengths = rng.integers(1, steps + 1, batch)
    kernel = tf.Variable(rng.normal(size=(INPUT + STATE, 4 * STATE)).astype(np.float32) * 0.05)
    bias = tf.Variable(tf.zeros([4 * STATE]))

    def one(args):
        x, k = args

        def body(t, h, c):
            h, c = lstm_cell(x[t][None], h[None], c[None], kernel, bias)
            return t + 1, h[0], c[0]

        zero = tf.zeros([STATE])
        return tf.while_loop(lambda t, *_: t < k, body, (0, zero, zero))[1]

    def by_hand(args):
        x, k = args
        steps = tf.TensorArray(tf.float32, x.shape[1], clear_after_read=False)
        steps = steps.unstack(tf.transpose(x, [1, 0, 2]))
        n = x.shape[0]

        def body(t, h, c):
            new_h, new_c = lstm_cell(steps.read(t), h, c, kernel, bias)
            active = (t < k)[:, None]
            return t + 1, tf.where(active, new_h, h), tf.where(active, new_c, c)

        zero = tf.zeros([n, STATE])
        longest = tf.reduce_max(k)
        return tf.while_loop(lambda t, *_: t < longest, body, (0, zero, zero))[1]

    return one, by_hand, (tf.constant(x), tf.constant(lengths, tf.int32)), [kernel, bias]


def fixed(batch, rng):
    """All rows make 50 trips: one loop for all."""
    _, _, args, weights = lstm(batch, rng, 50, np.full(batch, 50))

    def one(args):
        x, _ = args
        kernel, bias = weights

        def body(t, h, c):
            h, c = lstm_cell(x[t][None], h[None], c[None], kernel, bias)
            return t + 1, h[0], c[0]

        zero = tf.zeros([STATE])
        return tf.while_loop(lambda t, *_: t < 50, body, (0, zero, zero))[1]

    def by_hand(args):
        x, _ = args
        kernel, bias = weights
        steps = tf.TensorArray(tf.float32, 50, clear_after_read=False)
        steps = steps.unstack(tf.transpose(x, [1, 0, 2]))

        def body(t, h, c):
            return t + 1, *lstm_cell(steps.read(t), h, c, kernel, bias)

        zero = tf.zeros([x.shape[0], STATE])
        return tf.while_loop(lambda t, *_: t < 50, body, (0, zero, zero))[1]

    return one, by_hand, args, weights


def cheap(batch, rng):
    """tanh(s @ W) of width 16."""
    w = tf.Variable(rng.normal(size=(16, 16)).astype(np.float32) * 0.3)
    s = tf.constant(rng.normal(size=(batch, 16)).astype(np.float32))
    k = tf.constant(rng.integers(1, STEPS + 1, batch), tf.int32)

    def one(args):
        s, k = args
        body = lambda t, s: (t + 1, tf.tanh(s[None] @ w)[0])  # noqa: E731
        return tf.while_loop(lambda t, s: t < k, body, (0, s))[1]

    def by_hand(args):
        s, k = args

        def body(t, s):
            return t + 1, tf.where((t < k)[:, None], tf.tanh(s @ w), s)

        longest = tf.reduce_max(k)
        return tf.while_loop(lambda t, s: t < longest, body, (0, s))[1]

    return one, by_hand, (s, k), [w]


WORK = {"lstm": lstm, "fixed": fixed, "cheap": cheap}


def forward(run):
    return tf.function(lambda args: tf.reduce_sum(run(args) ** 2))


def backward(weights, with_input, run):
    @tf.function
    def go(args):
        with tf.GradientTape() as tape:
            tape.watch(args[0])
            loss = tf.reduce_sum(run(args) ** 2)
        return loss, tape.gradient(loss, [*([args[0]] if with_input else []), *weights])

    return go


def measure(contenders, args, seconds):
    """Medians in ms, the contenders taking turns; without those that cannot do it."""
    traced, times = {}, {}
    for name, fn in list(contenders.items()):
        begin = time.perf_counter()
        try:
            tf.nest.map_structure(lambda t: tf.convert_to_tensor(t).numpy(), fn(args))
        except (ValueError, tf.errors.OpError):
            del contenders[name]
            continue
        traced[name], times[name] = time.perf_counter() - begin, []
    end = time.perf_counter() + seconds * len(contenders)
    while time.perf_counter() < end or min(map(len, times.values())) < 3:
        for name, fn in contenders.items():
            begin = time.perf_counter()
            tf.nest.map_structure(lambda t: tf.convert_to_tensor(t).numpy(), fn(args))
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {k: statistics.median(v) for k, v in times.items()}, traced


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--work", nargs="+", default=list(WORK), choices=list(WORK))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", nargs="+", default=["tensorflow", "by_hand", "tf_pfor"])
    options = parser.parse_args()
    for work in options.work:
        for batch in options.batch:
            one, by_hand, args, weights = WORK[work](batch, np.random.default_rng(0))
            runs = {
                "tensorflow": lambda a, one=one: tf.vectorized_map(one, a),
                "by_hand": by_hand,
                "tf_pfor": lambda a, one=one: tf_pfor.vectorized_map(one, a),
            }
            runs = {k: v for k, v in runs.items() if k in options.only}
            kinds = (
                ("forward", forward),
                ("gradient of weights", functools.partial(backward, weights, False)),
                ("gradient of all", functools.partial(backward, weights, True)),
            )
            for kind, make in kinds:
                times, traced = measure(
                    {k: make(v) for k, v in runs.items()}, args, options.seconds
                )
                ours = times.get("tf_pfor", float("nan"))
                print(
                    json.dumps(
                        {
                            "work": work, "batch": batch, "kind": kind,
                            "ms": {k: round(v, 2) for k, v in times.items()},
                            "first_call_s": {k: round(v, 2) for k, v in traced.items()},
                            "ratio": {
                                k: round(ours / v, 3) for k, v in times.items() if k != "tf_pfor"
                            },
                        }
                    ),
                    flush=True,
                )  # fmt: skip


if __name__ == "__main__":
    main()
