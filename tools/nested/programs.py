"""Random programs for one row: control flow in control flow, that reads the row in many forms.

A program is a function from a row and a number to a number. Numbers stay in (-1, 1), so that the
order of additions does not matter much. A program depends on its seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor

Row = dict[str, Any]
Step = Callable[[Row, tf.Tensor], tf.Tensor]

_RNG = np.random.default_rng(5)
LENGTHS = [3, 1, 4, 2]
N = len(LENGTHS)
DENSE = tf.constant(_RNG.normal(size=[N, 4]), tf.float64)
FLAT = tf.constant(_RNG.normal(size=[sum(LENGTHS)]), tf.float64)
COUNTS = tf.constant([2, 0, 3, 1])
SIGNS = tf.constant([0.5, -0.3, 0.9, -0.7], tf.float64)
WORDS = tf.constant(["a bb c", "dd", "e f gg h", "i jjj"])
WEIGHTS = tf.constant([0.3, -0.8, 0.5, 0.1], tf.float64)


def _reads(rng: random.Random) -> tuple[str, Callable[[Row], tf.Tensor]]:
    """A vector that a program reads of the row, or of what all rows share."""
    f8 = tf.float64
    found: dict[str, Callable[[Row], tf.Tensor]] = {
        "dense": lambda row: row["x"],
        "ragged": lambda row: row["r"],
        "cut": lambda row: row["x"][: row["k"]],
        "rest": lambda row: row["r"][1:],
        "sparse": lambda row: tf.sparse.to_dense(tf.sparse.from_dense(row["x"]))[1:4],
        "text": lambda row: tf.cast(tf.strings.length(tf.strings.split(row["text"])), f8),
        "shared": lambda row: row["w"],
        "draw": lambda row: tf.random.stateless_uniform([3], [row["k"], 3], dtype=f8),
        "inner map": lambda row: tf_pfor.vectorized_map(lambda e: e * row["sign"], row["x"]),
        "ragged inner map": lambda row: tf_pfor.vectorized_map(lambda e: tf.sin(e), row["r"]),
    }
    name = rng.choice(list(found))
    return name, found[name]


def _step(rng: random.Random, depth: int) -> tuple[str, Step]:
    """One statement, and its description."""
    kinds = ["read", "read", "if", "case", "for", "while", "map_fn", "carry", "array", "sequence"]
    kind = rng.choice(kinds if depth else ["read", "carry"])
    return _MAKERS[kind](rng, depth - 1)


def _read(rng: random.Random, depth: int) -> tuple[str, Step]:
    del depth
    (name, read), a = _reads(rng), rng.uniform(-1, 1)
    return name, lambda row, s: tf.tanh(s * 0.7 + a * tf.reduce_sum(tf.sin(read(row))))


def _predicate(rng: random.Random) -> tuple[str, Callable[[Row, tf.Tensor], tf.Tensor]]:
    return rng.choice([
        ("s > 0", lambda row, s: s > 0.0),
        ("k > 1", lambda row, s: row["k"] > 1),
        ("sign > 0", lambda row, s: row["sign"] > 0.0),
        ("sum(r) > 0", lambda row, s: tf.reduce_sum(row["r"]) > 0.0),
    ])  # fmt: skip


def _if(rng: random.Random, depth: int) -> tuple[str, Step]:
    (said, holds), (a, yes), (b, no) = _predicate(rng), _step(rng, depth), _step(rng, depth)
    return f"if {said}: [{a}] else [{b}]", lambda row, s: tf.cond(
        holds(row, s), lambda: yes(row, s), lambda: no(row, s)
    )


def _case(rng: random.Random, depth: int) -> tuple[str, Step]:
    parts = [_step(rng, depth) for _ in range(3)]
    said = " | ".join(name for name, _ in parts)
    return f"case [{said}]", lambda row, s: tf.switch_case(
        row["k"] % 3, [lambda f=f: f(row, s) for _, f in parts]
    )


def _for(rng: random.Random, depth: int) -> tuple[str, Step]:
    name, inside = _step(rng, depth)
    counts: list[tuple[str, Callable[[Row], Any]]] = [
        ("k", lambda row: row["k"]),
        ("2", lambda row: 2),
        ("size(r)", lambda row: tf.size(row["r"])),
    ]
    what, count = rng.choice(counts)
    return f"for {what}: [{name}]", lambda row, s: tf.while_loop(
        lambda t, s: t < count(row), lambda t, s: (t + 1, inside(row, s)), (0, s)
    )[1]


def _while(rng: random.Random, depth: int) -> tuple[str, Step]:
    name, inside = _step(rng, depth)
    return f"while: [{name}]", lambda row, s: tf.while_loop(
        lambda t, s: (t < 3) & (tf.abs(s) < 0.6), lambda t, s: (t + 1, inside(row, s)), (0, s)
    )[1]


def _map_fn(rng: random.Random, depth: int) -> tuple[str, Step]:
    (name, inside), (said, read) = _step(rng, depth), _reads(rng)
    return f"map_fn {said}: [{name}]", lambda row, s: tf.tanh(
        tf.reduce_sum(tf.map_fn(lambda e: inside(row, s * e), read(row)))
    )


def _carry(rng: random.Random, depth: int) -> tuple[str, Step]:
    """A loop whose variable is a vector of the row."""
    del depth
    name, read = _reads(rng)

    def run(row: Row, s: tf.Tensor) -> tf.Tensor:
        start = read(row)
        shapes = (tf.TensorShape([]), tf.TensorShape([None]))
        v = tf.while_loop(
            lambda t, v: t < row["k"], lambda t, v: (t + 1, tf.sin(v) * s + v * start), (0, start),
            shape_invariants=shapes,
        )[1]  # fmt: skip
        return tf.tanh(tf.reduce_sum(v))

    return f"carry {name}", run


def _array(rng: random.Random, depth: int) -> tuple[str, Step]:
    name, inside = _step(rng, depth)

    def run(row: Row, s: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float64, row["k"] + 1, element_shape=[])
        array = array.write(0, s)
        array = tf.while_loop(
            lambda t, _: t < row["k"],
            lambda t, a: (t + 1, a.write(t + 1, inside(row, s * tf.cast(t, s.dtype)))),
            (0, array),
        )[1]
        return tf.tanh(tf.reduce_sum(array.stack()))

    return f"array of [{name}]", run


def _sequence(rng: random.Random, depth: int) -> tuple[str, Step]:
    (a, first), (b, second) = _step(rng, depth), _step(rng, depth)
    return f"{a}; {b}", lambda row, s: second(row, first(row, s))


_MAKERS: dict[str, Callable[[random.Random, int], tuple[str, Step]]] = {
    "read": _read, "if": _if, "case": _case, "for": _for, "while": _while, "map_fn": _map_fn,
    "carry": _carry, "array": _array, "sequence": _sequence,
}  # fmt: skip


def program(seed: int, depth: int = 3) -> tuple[str, Callable[[Row], tf.Tensor]]:
    """The program of a seed, and its description."""
    rng = random.Random(seed)
    kind = rng.choice(["if", "case", "for", "while", "map_fn", "array"])
    name, step = _MAKERS[kind](rng, depth - 1)
    start = tf.constant(0.2, tf.float64)

    @tf.autograph.experimental.do_not_convert
    def body(row: Row) -> tf.Tensor:
        return step(row, start * row["sign"])

    return name, body
