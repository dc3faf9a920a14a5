"""AutoGraph loops as people write them, beside the same functions under ``tf_pfor.optimize``.

python -m benchmarks.optimized_loops
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import tf_pfor
from benchmarks import timing

ROWS = 1000
W = tf.Variable(tf.random.stateless_normal([16, 8], [1, 2]))


def softmax_of_rows(xs: Any) -> Any:
    """``for x in xs``, a product and a softmax, a counter by hand."""
    out = tf.TensorArray(tf.float32, size=len(xs))
    i = 0
    for x in xs:
        out = out.write(i, tf.nn.softmax(tf.linalg.matvec(W, x, transpose_a=True)))
        i += 1  # noqa: SIM113  (AutoGraph has no enumerate)
    return out.stack()


def branches(xs: Any) -> Any:
    """``for i in tf.range(n)`` with an ``if`` on the row."""
    n = tf.shape(xs)[0]
    out = tf.TensorArray(tf.float32, n)
    for i in tf.range(n):
        x = xs[i]
        if tf.reduce_sum(x) > 0.0:
            x = x / (tf.norm(x) + 1e-6)
        out = out.write(i, x)
    return out.stack()


def mapped(xs: Any) -> Any:
    """``tf.map_fn`` of a standardized row."""

    def one(x: Any) -> Any:
        mean = tf.reduce_mean(x)
        return (x - mean) / (tf.math.reduce_std(x) + 1e-6)

    return tf.map_fn(one, xs)


def training_step(xs: Any) -> Any:
    """A loop over rows under a tape: the gradient of a variable."""
    with tf.GradientTape() as tape:
        losses = tf.TensorArray(tf.float32, len(xs))
        for i in tf.range(len(xs)):
            hidden = tf.nn.relu(tf.linalg.matvec(W, xs[i], transpose_a=True))
            losses = losses.write(i, tf.reduce_sum(hidden**2))
        loss = tf.reduce_mean(losses.stack())
    return tape.gradient(loss, W)


def main() -> None:
    """Prints the table and saves it."""
    xs = tf.random.stateless_normal([ROWS, 16], [3, 4])
    found: list[timing.Record] = []
    for fn in (softmax_of_rows, branches, mapped, training_step):
        loop, fast = tf.function(fn), tf_pfor.optimize(fn)
        difference = float(tf.reduce_max(tf.abs(loop(xs) - fast(xs))))
        assert not fast.report.kept, fast.report
        runs = {"loop": lambda f=loop: f(xs), "optimized": lambda f=fast: f(xs)}
        times = timing.interleaved(runs, seconds=1.5)
        name = fn.__name__.replace("_", " ")
        found += timing.records(name, times, ours="optimized")
        found.append(timing.record(name, "difference", difference, better=None))
    print(timing.overview(found))
    timing.save("optimized_loops", found)


if __name__ == "__main__":
    main()
