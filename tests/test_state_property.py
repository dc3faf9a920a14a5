"""Random bodies with several stateful ops on two variables, against a lock-step interpreter.

The interpreter runs the body's graph op by op, each op over all iterations before the next one
(DESIGN 9), except that a run of ops that reads, computes and assigns a variable from its own value
is done iteration by iteration. Where the plain Python loop gives the same, that is compared too.
A body may be refused with an error; it must never differ.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor import NotVectorizableError

N = 3
SIZE = 4


@dataclasses.dataclass(frozen=True)
class Step:
    """One statement of a body: ``target`` is a local name or a variable, 0 or 1."""

    kind: str
    target: int
    a: str = ""
    b: str = ""
    constant: int = 0


def program(rng: np.random.Generator) -> list[Step]:
    """Three to seven statements over two variables and the locals made so far."""
    steps: list[Step] = []
    names = ["x", "c"]
    kinds = [
        *["read", "read", "read", "add", "add", "sub", "assign", "assign_invariant"],
        *["own", "own", "own_of", "scatter_add", "scatter_max", "scatter_update"],
        *["gather", "branch", "combine", "combine", "print", "check"],
    ]
    for _ in range(rng.integers(3, 8)):
        kind = str(rng.choice(kinds))
        v = int(rng.integers(2))
        a, b = (str(rng.choice(names)) for _ in range(2))
        steps.append(Step(kind, v, a, b, int(rng.integers(1, 4))))
        if kind in ("read", "gather", "combine"):
            names.append(f"t{len(steps) - 1}")
    return steps


def run_body(steps, variables, x, i):
    """The body, in TensorFlow; integers in int32, so that all orders of sums agree."""
    env = {"x": x + tf.zeros([SIZE], tf.int32), "c": tf.ones([SIZE], tf.int32)}
    for k, s in enumerate(steps):
        v, a, b = variables[s.target], env[s.a], env[s.b]
        if s.kind == "read":
            env[f"t{k}"] = v.read_value()
        elif s.kind == "combine":
            env[f"t{k}"] = a * s.constant + b
        elif s.kind == "gather":
            env[f"t{k}"] = tf.zeros([SIZE], tf.int32) + v.sparse_read(i)
        elif s.kind == "add":
            v.assign_add(a)
        elif s.kind == "sub":
            v.assign_sub(a + s.constant)
        elif s.kind == "assign":
            v.assign(a)
        elif s.kind == "assign_invariant":
            v.assign(tf.fill([SIZE], s.constant))
        elif s.kind == "own":
            v.assign(v * s.constant + a)
        elif s.kind == "own_of":
            v.assign(v * a % 7 + b)
        elif s.kind == "scatter_add":
            v.scatter_add(tf.IndexedSlices(a[:2], tf.stack([i, 0])))
        elif s.kind == "scatter_max":
            v.scatter_max(tf.IndexedSlices(a[0], i))
        elif s.kind == "scatter_update":
            v.scatter_update(tf.IndexedSlices(a[0], i))
        elif s.kind == "branch":
            if x > s.constant:
                v.assign_add(a)
        elif s.kind == "print":
            tf.print(a, output_stream=QUIET)
        elif s.kind == "check":
            tf.debugging.Assert(tf.reduce_all(a < 2**30), [a])
    return [env[k] for k in sorted(env)]


QUIET = tf.compat.v1.logging.info


WRITES = (
    "add", "assign", "assign_invariant", "branch", "own", "own_of", "scatter_add", "scatter_max",
    "scatter_update", "sub",
)  # fmt: skip


class Undefined(Exception):
    """Lock-step gives the body no meaning: it must be refused."""


class Reference:
    """The lock-step interpreter: every value on demand, row by row.

    ``state(v, k)`` is variable v after k writes. When write k is a read-modify-write, the reads of
    version k see ``rows(v, k, r)``, one state for each iteration.
    """

    def __init__(self, steps, start, xs):
        self.steps, self.start, self.xs = steps, start, xs
        self.writes = [[s for s in steps if s.kind in WRITES and s.target == v] for v in (0, 1)]
        self.made, count = {}, [0, 0]
        for k, s in enumerate(steps):
            self.made[f"t{k}"] = (s, count[s.target])
            count[s.target] += s.kind in WRITES
        self.memo = {}

    def results(self):
        names = [n for n, (s, _) in self.made.items() if s.kind in ("combine", "gather", "read")]
        for v in (0, 1):
            for k in range(len(self.writes[v])):
                self.state(v, k + 1)
        outputs = {n: np.stack([self.value(n, r) for r in range(N)]) for n in names}
        return outputs, [self.state(v, len(self.writes[v])) for v in (0, 1)]

    def once(self, key, make):
        if key not in self.memo:
            self.memo[key] = None
            self.memo[key] = make()
        if self.memo[key] is None:
            raise Undefined(f"{key} depends on itself")
        return self.memo[key]

    def reads(self, name):
        """The versions (v, k) that a name depends on."""
        if name not in self.made:
            return set()
        s, k = self.made[name]
        if s.kind == "combine":
            return self.reads(s.a) | self.reads(s.b)
        return {(s.target, k)}

    def is_ordered(self, v, k):
        if k >= len(self.writes[v]):
            return False
        s = self.writes[v][k]
        if s.kind in ("own", "own_of"):
            return True
        return s.kind in ("add", "assign", "sub") and (v, k) in self.reads(s.a)

    def varies(self, name):
        if name in ("x", "c"):
            return name == "x"
        s, k = self.made[name]
        if s.kind == "combine":
            return self.varies(s.a) or self.varies(s.b)
        return s.kind == "gather" or self.is_ordered(s.target, k)

    def value(self, name, r):
        if name == "x":
            return np.full([SIZE], self.xs[r], np.int32)
        if name == "c":
            return np.ones([SIZE], np.int32)
        return self.once((name, r), lambda: self._value(*self.made[name], r))

    def _value(self, s, k, r):
        if s.kind == "combine":
            return self.value(s.a, r) * np.int32(s.constant) + self.value(s.b, r)
        seen = self.rows(s.target, k, r) if self.is_ordered(s.target, k) else None
        seen = self.state(s.target, k) if seen is None else seen
        return seen if s.kind == "read" else np.full([SIZE], seen[r], np.int32)

    def rows(self, v, k, r):
        if r == 0:
            return self.state(v, k)
        before = (v, k, r - 1)
        return self.once(("rows", v, k, r), lambda: self._next(self.rows(*before), *before))

    def _next(self, now, v, k, r):
        s = self.writes[v][k]
        a = self.value(s.a, r)
        c = np.int32(s.constant)
        if s.kind == "own":
            return now * c + a
        if s.kind == "own_of":
            return now * a % np.int32(7) + self.value(s.b, r)
        return {"add": now + a, "assign": a, "sub": now - (a + c)}[s.kind]

    def state(self, v, k):
        if k == 0:
            return self.start[v]
        return self.once(("state", v, k), lambda: self._write(v, k - 1))

    def _write(self, v, k):
        s, now = self.writes[v][k], self.state(v, k)
        if self.is_ordered(v, k):
            return self._next(self.rows(v, k, N - 1), v, k, N - 1)
        c = np.int32(s.constant)
        if s.kind == "assign_invariant":
            return np.full([SIZE], c, np.int32)
        a = np.stack([self.value(s.a, r) for r in range(N)])
        if s.kind == "assign":
            if self.varies(s.a):
                raise Undefined("a value that differs between iterations is assigned")
            return a[0]
        new, every = now.copy(), np.arange(N)
        if s.kind == "add":
            return now + a.sum(0, dtype=np.int32)
        if s.kind == "sub":
            return now - (a + c).sum(0, dtype=np.int32)
        if s.kind == "branch":
            return now + a[self.xs > c].sum(0, dtype=np.int32)
        if s.kind == "scatter_max":
            np.maximum.at(new, every, a[:, 0])
        elif s.kind == "scatter_update":
            new[every] = a[:, 0]
        else:
            for r in every:
                np.add.at(new, [r, 0], a[r, :2])
        return new


def check(seed):
    """Whether the body of a seed was vectorized; fails if it was, and wrongly."""
    rng = np.random.default_rng(seed)
    steps = program(rng)
    xs = rng.integers(-3, 4, [N]).astype(np.int32)
    start = [rng.integers(-3, 4, [SIZE]).astype(np.int32) for _ in range(2)]
    variables = [tf.Variable(s, name=f"v{k}") for k, s in enumerate(start)]
    names = sorted(["c", "x", *(f"t{k}" for k, s in enumerate(steps)
                                if s.kind in ("combine", "gather", "read"))])  # fmt: skip
    try:
        found = tf_pfor.vectorized_map(
            lambda e: run_body(steps, variables, *e), (tf.constant(xs), tf.range(N))
        )
    except NotVectorizableError:
        for v, s in zip(variables, start):
            np.testing.assert_array_equal(v, s, err_msg="refused, but the state has changed")
        return False
    what = f"seed {seed}: {steps}"
    try:
        expected, states = Reference(steps, start, xs).results()
    except Undefined as why:
        raise AssertionError(f"{what}: should have been refused: {why}") from why
    for v, s in zip(variables, states):
        np.testing.assert_array_equal(v, s, err_msg=f"{what}: {v.name}")
    for name, value in zip(names, found):
        if name in expected:
            np.testing.assert_array_equal(value, expected[name], err_msg=f"{what}: {name}")
    return True


@pytest.mark.parametrize("block", range(4))
def test_random_bodies(block):
    done = [check(seed) for seed in range(10 * block, 10 * block + 10)]
    assert any(done)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_many_random_bodies(block):
    """600 bodies in all; at least a third of them have a meaning, and get it."""
    done = [check(seed) for seed in range(1000 + 60 * block, 1060 + 60 * block)]
    assert sum(done) >= 20, f"{sum(done)} of 60 were vectorized"
