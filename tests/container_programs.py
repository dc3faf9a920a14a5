"""Random programs that keep their state in arrays, lists and matrices, in control flow.

A program is a list of statements:
  ("step", which, c)                  the state becomes STEPS[which](state, c)
  ("while", bound, leaves early, program)
  ("cond", predicate, program, program)
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

D = tf.float64
W = tf.Variable(np.random.default_rng(0).normal(size=[3, 3]) * 0.5)
FACTORS = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0], D)
Statement = tuple[Any, ...]
Program = list[Statement]


@dataclasses.dataclass(frozen=True)
class State:
    """The state that a program changes.

    Attributes:
      s: [3].
      i: an int32 scalar.
      a: a TensorArray of five [3].
      q: a list of [3] that grows and shrinks.
      m: [4, 3].
    """

    s: Any
    i: Any
    a: Any
    q: Any
    m: Any

    @classmethod
    def start(cls, x: tf.Tensor, i: tf.Tensor) -> State:
        array = tf.TensorArray(D, 5, element_shape=[3], clear_after_read=False)
        first = tf.stack([x * c for c in (0.0, 0.1, 0.2, 0.3, 0.4)])
        empty = tf.raw_ops.EmptyTensorList(element_shape=[3], max_num_elements=-1, element_dtype=D)
        return cls(x, i, array.unstack(first), empty, tf.stack([x, x * 0.5, x * 0.25, -x]))

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.s, self.i, self.a, self.q, self.m

    def but(self, **changes: Any) -> State:
        return dataclasses.replace(self, **changes)

    def moved(self, by: Any) -> State:
        return self.but(s=tf.tanh(self.s + by))

    @property
    def length(self) -> tf.Tensor:
        return tf.raw_ops.TensorListLength(input_handle=self.q)

    @property
    def sum_of_list(self) -> tf.Tensor:
        count = self.length

        def body(j: tf.Tensor, z: tf.Tensor) -> Any:
            item = tf.raw_ops.TensorListGetItem(
                input_handle=self.q, index=j, element_shape=[3], element_dtype=D
            )
            item.set_shape([3])
            return j + 1, z * 0.5 + item

        return tf.while_loop(lambda j, _: j < count, body, (0, tf.zeros([3], D)))[1]


def _pop(state: State) -> State:
    def some() -> Any:
        handle, item = tf.raw_ops.TensorListPopBack(
            input_handle=state.q, element_shape=[3], element_dtype=D
        )
        item.set_shape([3])
        return handle, item

    q, item = tf.cond(state.length > 0, some, lambda: (state.q, tf.zeros([3], D)))
    return state.but(q=q).moved(item)


def _swap(state: State) -> State:
    at = state.i % 5
    return state.but(a=state.a.write(0, state.a.read(at)).write(at, state.s))


def _cell(row: tf.Tensor) -> tf.Tensor:
    return tf.tanh(tf.linalg.matvec(W, row))


STEPS: dict[str, Callable[[State, float], State]] = {
    "a gather": lambda t, c: t.moved(tf.reduce_sum(t.a.gather([t.i % 3, 3]) * [[1.0], [0.5]], 0)),
    "a read": lambda t, c: t.moved(t.a.read(t.i % 5)),
    "a read at 2": lambda t, c: t.moved(t.a.read(2)),
    "a scatter": lambda t, c: t.but(a=t.a.scatter([t.i % 5], t.s[None] * c)),
    "a stack": lambda t, c: t.moved(tf.linalg.matvec(t.a.stack(), FACTORS[:5], True)),
    "a swap": lambda t, c: _swap(t),
    "a write": lambda t, c: t.but(a=t.a.write(t.i % 5, t.s + c)),
    "a write at 1": lambda t, c: t.but(a=t.a.write(1, t.s * c)),
    "cell": lambda t, c: t.but(s=_cell(t.s) + c),
    "cosine": lambda t, c: t.but(s=t.s * tf.cos(t.s) + c),
    "i + 1": lambda t, c: t.but(i=t.i + 1),
    "i by value": lambda t, c: t.but(i=tf.cast(tf.floor(tf.abs(t.s[1]) * 3), tf.int32)),
    "i by sign": lambda t, c: t.but(i=(t.i * 3 + tf.cast(t.s[0] > 0, tf.int32)) % 7),
    "m at i": lambda t, c: t.moved(t.m[t.i % 4]),
    "m fold": lambda t, c: t.but(s=tf.foldl(lambda z, e: tf.sin(z + e * c), t.m, t.s)),
    "m map": lambda t, c: t.but(m=tf.map_fn(lambda e: _cell(e) + c * t.s, t.m)),
    "m roll": lambda t, c: t.but(m=tf.concat([t.m[1:], t.s[None]], 0)),
    "m scan": lambda t, c: t.but(m=tf.scan(lambda z, e: tf.sin(z + e * c), t.m, t.s)),
    "m set": lambda t, c: t.but(m=tf.tensor_scatter_nd_update(t.m, [[t.i % 4]], [t.s])),
    "m slice": lambda t, c: t.moved(tf.reduce_sum(tf.slice(t.m, [t.i % 3, 0], [2, 3]), 0)),
    "m sorted": lambda t, c: t.but(m=tf.gather(t.m, tf.argsort(t.m[:, 0]))),
    "q length": lambda t, c: t.but(s=t.s + c * tf.cast(t.length, D)),
    "q length as i": lambda t, c: t.but(i=t.length),
    "q pop": lambda t, c: _pop(t),
    "q push": lambda t, c: t.but(q=tf.raw_ops.TensorListPushBack(input_handle=t.q, tensor=t.s + c)),
    "q sum": lambda t, c: t.moved(c * t.sum_of_list),
    "where": lambda t, c: t.but(s=tf.where(t.s > 0, t.s * c, tf.sin(t.s))),
}
PREDICATES: dict[str, Callable[..., tf.Tensor]] = {
    "i is odd": lambda t, k, m, trip: t.i % 2 == 1,
    "k + trip is even": lambda t, k, m, trip: (k + trip) % 2 == 0,
    "k > m": lambda t, k, m, trip: k > m,
    "length > 1": lambda t, k, m, trip: t.length > 1,
    "m > s": lambda t, k, m, trip: t.m[0, 0] > t.s[1],
    "s > 0.1": lambda t, k, m, trip: t.s[0] > 0.1,
    "trip > 0": lambda t, k, m, trip: trip > 0,
}
BOUNDS: dict[str, Callable[..., tf.Tensor]] = {
    "i": lambda t, k, m, trip: t.i % 3,
    "k": lambda t, k, m, trip: k,
    "k - trip": lambda t, k, m, trip: k - trip,
    "length": lambda t, k, m, trip: tf.minimum(t.length, 3),
    "m - trip": lambda t, k, m, trip: m - trip,
    "two": lambda t, k, m, trip: tf.constant(2),
}


def program(choose: random.Random, depth: int, *, for_xla: bool = False) -> Program:
    """One to three random statements, nested at most so deep.

    For XLA loops are bounded ("for"), and no list is one that grows.
    """
    return [_statement(choose, depth, for_xla) for _ in range(choose.randint(1, 3))]


def _statement(choose: random.Random, depth: int, for_xla: bool) -> Statement:
    def pick(names: Iterable[str]) -> str:
        return choose.choice(sorted(n for n in names if not (for_xla and _is_of_list(n))))

    kind = choose.random()
    if depth == 0 or kind < 0.25:
        return "step", pick(STEPS), round(choose.uniform(-0.6, 0.6), 2)
    if kind < 0.65:
        bound, early = pick(BOUNDS), choose.random() < 0.25
        inner = program(choose, depth - 1, for_xla=for_xla)
        return "for" if for_xla else "while", bound, early, inner
    branches = [program(choose, depth - 1, for_xla=for_xla) for _ in range(2)]
    return "cond", pick(PREDICATES), *branches


def _is_of_list(name: str) -> bool:
    return name.startswith("q ") or "length" in name


def run(statements: Program, t: State, k: tf.Tensor, m: tf.Tensor, trip: tf.Tensor) -> State:
    """The state after a program."""
    for kind, *parts in statements:
        if kind == "step":
            t = STEPS[parts[0]](t, parts[1])
            continue
        if kind == "cond":
            taken = PREDICATES[parts[0]](t, k, m, trip)
            sides = [lambda p=p, t=t: run(p, t, k, m, trip).parts for p in parts[1:]]
            t = State(*tf.cond(taken, *sides))
            continue
        bound, early, inner = parts
        limit = BOUNDS[bound](t, k, m, trip)

        def goes_on(j: Any, s: Any, *_: Any, limit: Any = limit, early: bool = early) -> Any:
            return (j < limit) & (s[0] < 0.8) if early else j < limit

        def body(j: Any, *parts: Any, inner: Program = inner) -> Any:
            return j + 1, *run(inner, State(*parts), k, m, j).parts

        most = 4 if kind == "for" else None
        t = State(*tf.while_loop(goes_on, body, (0, *t.parts), maximum_iterations=most)[1:])
    return t


def value(statements: Program, *, for_xla: bool = False) -> Callable[..., tf.Tensor]:
    """A program as a function of a row (k, m, x): the sum of all that it leaves."""

    def one(k: tf.Tensor, m: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        t = run(statements, State.start(x, k), k, m, tf.constant(1))
        factors = tf.cos(tf.reshape(tf.range(15.0, dtype=D), [5, 3]))
        total = tf.reduce_sum(tf.sin(t.s) * [1.0, 2.0, 3.0]) + tf.reduce_sum(t.m * factors[:4])
        total += tf.reduce_sum(tf.sin(t.a.stack()) * factors) + tf.cast(t.i, D)
        if not for_xla:
            total += tf.reduce_sum(t.sum_of_list) + tf.cast(t.length, D)
        return total

    return one


def gradients(statements: Program, *, for_xla: bool = False) -> Callable[..., list[tf.Tensor]]:
    """The value of a program, and its gradients by x and W."""
    of_row = value(statements, for_xla=for_xla)

    def one(k: tf.Tensor, m: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = of_row(k, m, x)
        found = tape.gradient(y, [x, W], unconnected_gradients="zero")
        return [y, *map(tf.convert_to_tensor, found)]

    return one
