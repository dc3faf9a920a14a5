"""Recording: ``tf_pfor.batched`` and ``tf_pfor.lazy`` against eager TensorFlow.

Recursive models run one example at a time, or by ``batched``.

There are two models with a state of 128. One is the Tree-LSTM of Tai, Socher and Manning (2015)
over random binary trees of 100 leaves. The other is a tagger with LSTMs over letters and words.
``python -m benchmarks.recording --examples 64`` prints CPU seconds of a call, divided by the
seconds of the eager calls: lower is better. A second table has the time that recording takes for
an op. Two more tables have the programs of ``eager_programs.py`` under ``lazy``, and as a
``tf.function`` by hand. ``--lazy`` prints the last three only.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import tf_pfor
from benchmarks import eager_programs

STATE, LEAVES, WORDS, LETTERS, TAGS = 128, 100, 1000, 27, 10
EAGER = 6  # examples that are run one by one
CALLS = 200  # of each op
STEPS = 50  # of an eager program
ROUNDS = 6

VECTOR = tf.random.stateless_normal([4], [1, 2])
MATRIX = tf.random.stateless_normal([4, 4], [3, 4])
OPS = {
    "tanh": tf.tanh,
    "add": lambda x: x + x,
    "multiply": lambda x: x * 2.0,
    "reduce_sum": tf.reduce_sum,
    "relu": tf.nn.relu,
    "concat": lambda x: tf.concat([x, x], 0),
    "matvec": lambda x: tf.linalg.matvec(MATRIX, x),
    "reshape": lambda x: tf.reshape(x, [2, 2]),
    "slice": lambda x: x[1:3],
    "where": lambda x: tf.where(x > 0.0, x, x),
}


class Model:
    """A model with variables.

    Args:
      unit: a decorator of the cells, such as ``tf_pfor.cell``.
    """

    def __init__(self, unit: Callable[[Any], Any]) -> None:
        self.unit = unit
        self.variables: list[tf.Variable] = []

    def example(self, rng: random.Random) -> Any:
        """A random example."""
        raise NotImplementedError

    def loss(self, example: Any) -> tf.Tensor:
        """A number for an example."""
        raise NotImplementedError

    def weights(self, *shape: int) -> tf.Variable:
        """A new variable."""
        seed = [len(self.variables), 7]
        self.variables.append(tf.Variable(tf.random.stateless_normal(shape, seed) * 0.05))
        return self.variables[-1]

    def gradient(self, losses: Callable[[], tf.Tensor]) -> Any:
        """The gradient of the sum of losses."""
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(losses())
        return tape.gradient(total, self.variables)


class TreeLSTM(Model):
    """The cells, as functions of one node, and the recursion."""

    def __init__(self, unit: Callable[[Any], Any]) -> None:
        super().__init__(unit)
        self.words = self.weights(WORDS, STATE)
        self.of_leaf = self.weights(STATE, 3 * STATE)
        self.of_node = self.weights(2 * STATE, 5 * STATE)
        self.leaf, self.node = unit(self._leaf), unit(self._node)

    def example(self, rng: random.Random) -> Any:
        """A random binary tree of numbers of words."""
        return self._tree(LEAVES, rng)

    def _tree(self, leaves: int, rng: random.Random) -> Any:
        if leaves == 1:
            return rng.randrange(WORDS)
        left = rng.randrange(1, leaves)
        return self._tree(left, rng), self._tree(leaves - left, rng)

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

    def loss(self, example: Any) -> tf.Tensor:
        """A number for a tree."""
        return tf.reduce_sum(self.state(example)[1])


class Tagger(Model):
    """LSTMs over the letters of rare words, and over words in both directions."""

    def __init__(self, unit: Callable[[Any], Any]) -> None:
        super().__init__(unit)
        self.letter = self._embedding(LETTERS)
        self.word = self._embedding(WORDS)
        self.over_letters, self.onward, self.back = (self._lstm() for _ in range(3))
        of_tag = self.weights(2 * STATE, TAGS)

        def loss(first: tf.Tensor, second: tf.Tensor, tag: tf.Tensor) -> tf.Tensor:
            logits = tf.linalg.matvec(of_tag, tf.concat([first, second], 0), transpose_a=True)
            return tf.nn.sparse_softmax_cross_entropy_with_logits(tag, logits)

        self.of_word = unit(loss)

    def example(self, rng: random.Random) -> Any:
        """Pairs of a word and a tag; a word is a number, or the numbers of its letters."""
        return [(self._word(rng), rng.randrange(TAGS)) for _ in range(rng.randint(5, 30))]

    def _word(self, rng: random.Random) -> Any:
        if rng.random() < 0.7:
            return rng.randrange(WORDS)
        return tuple(rng.randrange(LETTERS) for _ in range(rng.randint(3, 9)))

    def _embedding(self, count: int) -> Any:
        table = self.weights(count, STATE)
        return self.unit(lambda number: tf.gather(table, number))

    def _lstm(self) -> Any:
        matrix = self.weights(2 * STATE, 4 * STATE)

        def step(c: tf.Tensor, h: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            both = tf.concat([x, h], 0)
            i, f, o, u = tf.split(tf.linalg.matvec(matrix, both, transpose_a=True), 4)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(u)
            return c, tf.sigmoid(o) * tf.tanh(c)

        return self.unit(step)

    def _run(self, step: Any, inputs: list[Any]) -> list[Any]:
        c = h = tf.zeros([STATE])
        found = []
        for x in inputs:
            c, h = step(c, h, x)
            found.append(h)
        return found

    def _vector(self, word: Any) -> tf.Tensor:
        if isinstance(word, int):
            return self.word(tf.constant(word))
        return self._run(self.over_letters, [self.letter(tf.constant(x)) for x in word])[-1]

    def loss(self, example: Any) -> tf.Tensor:
        """The loss of a sentence."""
        vectors = [self._vector(word) for word, _ in example]
        onward = self._run(self.onward, vectors)
        back = self._run(self.back, vectors[::-1])[::-1]
        tags = [tf.constant(tag) for _, tag in example]
        return tf.add_n(list(map(self.of_word, onward, back, tags)))


def seconds(call: Callable[[Any], Any], inputs: list[Any]) -> float:
    """CPU seconds of the fastest of some calls, after a warm-up by the first input."""
    call(inputs[0])
    found = []
    for one in inputs[1:]:
        began = time.process_time()
        call(one)
        found.append(time.process_time() - began)
    return min(found)


def compare(name: str, model: Model, examples: int, rounds: int) -> None:
    """Prints rows of a table: a model on new and on the same examples."""
    rng = random.Random(0)
    lists = [[model.example(rng) for _ in range(examples)] for _ in range(rounds + 1)]
    few = lists[0][:EAGER]

    def one_by_one(of: list[Any]) -> tf.Tensor:
        return tf.stack([*map(model.loss, of)])

    for what, run in (("forward", lambda fn: fn()), ("with gradients", model.gradient)):
        of_eager = seconds(lambda x, run=run: run(lambda: one_by_one(x)), [few, few])
        of_eager *= examples / len(few)
        for schedule in ("agenda", "depth"):
            batch = tf_pfor.batched(model.loss, schedule=schedule)
            for kind, inputs in (("new", lists), ("same", lists[:1] * len(lists))):
                ours = seconds(lambda x, run=run, batch=batch: run(lambda: batch(x)), inputs)
                row = f"{name}, {what}, {schedule}, {kind} examples"
                print(f"| {row} | {ours / of_eager:.3f} | {ours:.2f} |", flush=True)


def record(name: str, op: Callable[[Any], Any]) -> None:
    """Prints a row of a table: microseconds that it takes to record an op, and to run it.

    ``batched`` and ``lazy`` record it. Nobody wants the results, so ``lazy`` does not run them.
    """
    took: list[float] = []

    def calls(x: Any) -> Any:
        began = time.thread_time()
        for _ in range(CALLS):
            op(x)
        took.append((time.thread_time() - began) / CALLS * 1e6)
        return tf.constant(0.0)

    batch = tf_pfor.batched(calls)
    lazy = tf_pfor.lazy(lambda x: calls(x * 1.0))
    best = []
    for run in (lambda: batch([VECTOR]), lambda: lazy(VECTOR), lambda: calls(VECTOR)):
        took.clear()
        for _ in range(6):
            run()
        best.append(min(took[2:]))
    ratios = f"{best[0] / best[2]:.2f} | {best[1] / best[2]:.2f}"
    print(f"| {name} | {ratios} | {best[1]:.1f} | {best[2]:.1f} |", flush=True)


def run_program(
    program: eager_programs.Program, step: Callable[..., Any], *, marks: bool = False
) -> float:
    """CPU seconds of some steps; ``marks``: whether the program marks the end of each step."""
    state = program.start()
    began = time.process_time()
    for _ in range(STEPS):
        state = step(*state)
        if marks:
            tf_pfor.mark_step()
    float(tf.reduce_sum(state[-1]))
    return time.process_time() - began


def compare_programs(programs: list[Callable[[], Any]], *, jit: bool) -> None:
    """Prints a table: programs under ``lazy``, and as a ``tf.function``, divided by eager ones.

    Args:
      programs: the programs.
      jit: whether XLA compiles them. Then each step is marked, and is a function of its own.
    """
    print(f"\n| program{', by XLA' if jit else ''} | lazy | tf.function | eager, us a step |")
    print("|---|---:|---:|---:|")
    for make in programs:
        program = make()
        compiled = tf.function(program.step, jit_compile=jit, autograph=False)
        lazy = tf_pfor.lazy(jit_compile=jit)(run_program)
        contenders = (
            lambda p=program: run_program(p, p.step),
            lambda p=program, lazy=lazy: lazy(p, p.step, marks=jit),
            lambda p=program, compiled=compiled: run_program(p, compiled),
        )
        best = [float("inf")] * 3
        for turn in range(ROUNDS):
            for k, run in enumerate(contenders):
                took = run()
                best[k] = min(best[k], took) if turn else best[k]
        eager, ours, other = best
        name = make.__name__.replace("_", " ")
        row = f"{ours / eager:.2f} | {other / eager:.2f} | {eager / STEPS * 1e6:.0f}"
        print(f"| {name} | {row} |", flush=True)


def main() -> None:
    """Prints four tables."""
    parser = argparse.ArgumentParser("python -m benchmarks.recording")
    parser.add_argument("--examples", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lazy", action="store_true")
    given = parser.parse_args()
    if not given.lazy:
        print(f"| {given.examples} examples | of eager | seconds |\n|---|---:|---:|")
        for name, unit in (("Tree-LSTM", TreeLSTM), ("tagger", Tagger)):
            compare(name, unit(tf_pfor.cell), given.examples, given.rounds)
    print("\n| op | batched, of eager | lazy, of eager | lazy, us | eager, us |")
    print("|---|---:|---:|---:|---:|")
    for name, op in OPS.items():
        record(name, op)
    compare_programs(eager_programs.SMALL_PROGRAMS, jit=False)
    compare_programs(eager_programs.LARGE_PROGRAMS, jit=True)


if __name__ == "__main__":
    main()
