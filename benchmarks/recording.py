"""Recursive models: ``tf_pfor.batched`` against eager TensorFlow, one example at a time.

The Tree-LSTM of Tai, Socher and Manning (2015) as plain recursion over random binary trees of 100
leaves, with a state of 128. ``python -m benchmarks.recording --trees 64`` prints CPU seconds of a
call, divided by the seconds of the eager calls: lower is better.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tf_pfor

STATE, LEAVES, WORDS = 128, 100, 1000
EAGER = 8  # examples that are run one by one


def tree(leaves: int, rng: random.Random) -> Any:
    """A random binary tree of numbers of words."""
    if leaves == 1:
        return rng.randrange(WORDS)
    left = rng.randrange(1, leaves)
    return tree(left, rng), tree(leaves - left, rng)


class TreeLSTM:
    """The cells, as functions of one node, and the recursion.

    Args:
      unit: a decorator of the cells, such as ``tf_pfor.cell``.
    """

    def __init__(self, unit: Callable[[Any], Any]) -> None:
        self.words = tf.Variable(tf.random.stateless_normal([WORDS, STATE], [1, 2]))
        self.of_leaf = tf.Variable(tf.random.stateless_normal([STATE, 3 * STATE], [3, 4]) * 0.05)
        self.of_node = tf.Variable(
            tf.random.stateless_normal([2 * STATE, 5 * STATE], [5, 6]) * 0.05
        )
        self.variables = [self.words, self.of_leaf, self.of_node]
        self.leaf, self.node = unit(self._leaf), unit(self._node)

    def _leaf(self, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = tf.linalg.matvec(self.of_leaf, tf.gather(self.words, word), transpose_a=True)
        i, o, u = tf.split(x, 3)
        c = tf.sigmoid(i) * tf.tanh(u)
        return c, tf.sigmoid(o) * tf.tanh(c)

    def _node(self, left: Any, right: Any) -> tuple[tf.Tensor, tf.Tensor]:
        both = tf.concat([left[1], right[1]], 0)
        i, f, g, o, u = tf.split(tf.linalg.matvec(self.of_node, both, transpose_a=True), 5)
        c = tf.sigmoid(i) * tf.tanh(u) + tf.sigmoid(f) * left[0] + tf.sigmoid(g) * right[0]
        return c, tf.sigmoid(o) * tf.tanh(c)

    def state(self, of: Any) -> Any:
        """(c, h) of a tree."""
        if isinstance(of, tuple):
            return self.node(self.state(of[0]), self.state(of[1]))
        return self.leaf(tf.constant(of))

    def loss(self, of: Any) -> tf.Tensor:
        """A number for a tree."""
        return tf.reduce_sum(self.state(of)[1])

    def gradient(self, losses: Callable[[], tf.Tensor]) -> Any:
        """The gradient of the sum of losses."""
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(losses())
        return tape.gradient(total, self.variables)


def seconds(call: Callable[[Any], Any], inputs: list[Any]) -> float:
    """CPU seconds of the fastest of some calls, after a warm-up by the first input."""
    call(inputs[0])
    found = []
    for one in inputs[1:]:
        began = time.process_time()
        call(one)
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser("python -m benchmarks.recording")
    parser.add_argument("--trees", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rng = random.Random(0)
    batches = [[tree(LEAVES, rng) for _ in range(given.trees)] for _ in range(given.rounds + 1)]
    model = TreeLSTM(tf_pfor.cell)
    print(f"| Tree-LSTM, {given.trees} trees | of eager | seconds |\n|---|---:|---:|")
    few = batches[0][:EAGER]

    def one_by_one(trees: list[Any]) -> tf.Tensor:
        return tf.stack([*map(model.loss, trees)])

    for name, run in (("forward", lambda fn: fn()), ("with gradients", model.gradient)):
        of_eager = seconds(lambda x, run=run: run(lambda: one_by_one(x)), [few, few])
        of_eager *= given.trees / len(few)
        for schedule in ("agenda", "depth"):
            batch = tf_pfor.batched(model.loss, schedule=schedule)
            for kind, inputs in (
                ("new trees", batches),
                ("same trees", batches[:1] * len(batches)),
            ):
                ours = seconds(lambda x, run=run, batch=batch: run(lambda: batch(x)), inputs)
                row = f"{name}, {schedule}, {kind}"
                print(f"| {row} | {ours / of_eager:.3f} | {ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
