"""Random bodies with several stateful ops on two variables, against a lock-step interpreter.

The interpreter runs the body's graph op by op, each op over all iterations before the next op. Two
kinds of ops run iteration by iteration. One is a run of ops that reads a variable, computes,
assigns it, and reads the new value. (It may also assign the variable several times, and do nothing
else with it.) The other kind is all ops that touch a variable for which lock-step does not say
which iteration's value is meant. With two such variables that is the plain loop. A body may be
refused with an error; it must never differ.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_pfor
from tf_pfor import NotVectorizableError
from tf_pfor.core.accesses import Accesses, handle_key
from tf_pfor.fallback import ordered_updates as ordered
from tf_pfor.tracing.trace import trace
from tf_pfor.tracing.user_code import autographed

N = 3
SIZE = 4

VALUES = ("call_read", "combine", "gather", "read")
WRITES = (
    "add", "assign", "assign_invariant", "branch", "call_add", "call_own", "own", "own_of",
    "scatter_add", "scatter_max", "scatter_update", "sub",
)  # fmt: skip

NO_ACCESS = ("check", "combine", "print")


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
        *["call_add", "call_own", "call_read"],
    ]
    for _ in range(rng.integers(3, 8)):
        kind = str(rng.choice(kinds))
        v = int(rng.integers(2))
        a, b = (str(rng.choice(names)) for _ in range(2))
        steps.append(Step(kind, v, a, b, int(rng.integers(1, 4))))
        if kind in VALUES:
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
        elif s.kind == "call_read":
            env[f"t{k}"] = tf.function(v.read_value)()
        elif s.kind == "call_add":
            tf.function(v.assign_add)(a)
        elif s.kind == "call_own":
            tf.function(lambda a, v=v, c=s.constant: v.assign(v * c + a))(a)
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


class Undefined(Exception):
    """Lock-step gives the body no meaning: it must be refused."""


class Reference:
    """The lock-step interpreter: every value on demand, row by row.

    ``state(v, k)`` is variable v after k writes. When write k is a read-modify-write, the reads of
    version k see ``rows(v, k, r)``, one state for each iteration. A variable in ``ordered`` has
    the states ``seq(v, k, r)``: after k writes of iteration r, and all writes of those before.
    """

    def __init__(self, steps, start, xs, ordered=()):
        self.steps, self.start, self.xs, self.ordered = steps, start, xs, ordered
        self.writes = [[s for s in steps if s.kind in WRITES and s.target == v] for v in (0, 1)]
        self.made, count = {}, [0, 0]
        for k, s in enumerate(steps):
            self.made[f"t{k}"] = (s, count[s.target])
            count[s.target] += s.kind in WRITES
        self.memo = {}
        self.chained = {v for v in (0, 1) if v not in ordered and self.is_chain(v)}

    def is_chain(self, v):
        """Whether the body only reads and assigns a variable, more than once."""
        kinds = {s.kind for s in self.steps if s.target == v and s.kind not in NO_ACCESS}
        plain = {"assign", "assign_invariant", "own", "own_of", "read"}
        return len(self.writes[v]) > 1 and kinds <= plain

    def results(self):
        names = [n for n, (s, _) in self.made.items() if s.kind in VALUES]
        for v in (0, 1):
            last = len(self.writes[v]) - 1
            for k in [last] if v in self.chained else range(last + 1):
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

    # What depends on what --------------------------------------------------

    def reads(self, name):
        """The versions (v, k) that a name depends on."""
        if name not in self.made:
            return set()
        s, k = self.made[name]
        if s.kind == "combine":
            return self.reads(s.a) | self.reads(s.b)
        return self.seen(s.target, k)

    def seen(self, v, k):
        """The versions that a read of version k depends on."""
        if k == 0 or k == len(self.writes[v]) or v not in self.chained:
            return {(v, k)}
        return self.made_of(v, k - 1)

    def made_of(self, v, k):
        """The versions that what write k assigns depends on."""
        s = self.writes[v][k]
        if s.kind == "assign_invariant":
            return set()
        names = {"own": [s.a], "own_of": [s.a, s.b]}.get(s.kind, [s.a])
        own = self.seen(v, k) if s.kind in ("own", "own_of") else set()
        return own.union(*(self.reads(name) for name in names))

    def is_own(self, v, k):
        """Whether write k is a read-modify-write whose reads see their own iteration's value."""
        if k >= len(self.writes[v]) or v in self.ordered:
            return False
        s = self.writes[v][k]
        if v in self.chained:
            return k == 0 and (v, 0) in self.made_of(v, len(self.writes[v]) - 1)
        if s.kind in ("call_own", "own", "own_of"):
            return True
        return s.kind in ("add", "assign", "sub") and (v, k) in self.reads(s.a)

    def varies(self, name):
        if name in ("x", "c"):
            return name == "x"
        s, k = self.made[name]
        if s.kind == "combine":
            return self.varies(s.a) or self.varies(s.b)
        if s.target in self.chained and k:
            return self.assigns_varying(s.target, k - 1)
        is_own = self.is_own(s.target, k) or (k > 0 and self.is_own(s.target, k - 1))
        return s.kind == "gather" or s.target in self.ordered or is_own

    def assigns_varying(self, v, k):
        """Whether what write k of a chain assigns differs between iterations."""
        s = self.writes[v][k]
        names = {"assign_invariant": [], "own_of": [s.a, s.b]}.get(s.kind, [s.a])
        if any(self.varies(name) for name in names):
            return True
        if s.kind not in ("own", "own_of"):
            return False
        return self.is_own(v, 0) if k == 0 else self.assigns_varying(v, k - 1)

    # Values ----------------------------------------------------------------

    def value(self, name, r):
        if name == "x":
            return np.full([SIZE], self.xs[r], np.int32)
        if name == "c":
            return np.ones([SIZE], np.int32)
        return self.once((name, r), lambda: self._value(*self.made[name], r))

    def _value(self, s, k, r):
        if s.kind == "combine":
            return self.value(s.a, r) * np.int32(s.constant) + self.value(s.b, r)
        if s.target in self.ordered:
            seen = self.seq(s.target, k, r)
        elif s.target in self.chained:
            seen = self.chain(s.target, k, r)
        elif k and self.is_own(s.target, k - 1):
            seen = self.left(s.target, k - 1, r)
        elif self.is_own(s.target, k):
            seen = self.rows(s.target, k, r)
        else:
            seen = self.state(s.target, k)
        return np.full([SIZE], seen[r], np.int32) if s.kind == "gather" else seen

    def rows(self, v, k, r):
        if r == 0:
            return self.state(v, k)
        before = (v, k, r - 1)
        return self.once(("rows", v, k, r), lambda: self._next(self.rows(*before), *before))

    def left(self, v, k, r):
        """The value of variable v after write k of iteration r."""
        return self.once(("left", v, k, r), lambda: self._next(self.rows(v, k, r), v, k, r))

    def chain(self, v, k, r):
        """Variable v after k of several assignments in iteration r."""
        if k == 0 and (r == 0 or not self.is_own(v, 0)):
            return self.start[v]
        if k == 0:
            return self.chain(v, len(self.writes[v]), r - 1)
        before = (v, k - 1, r)
        return self.once(("chain", v, k, r), lambda: self._next(self.chain(*before), *before))

    def seq(self, v, k, r):
        if k == 0:
            return self.seq(v, len(self.writes[v]), r - 1) if r else self.start[v]
        return self.once(("seq", v, k, r), lambda: self._next(self.seq(v, k - 1, r), v, k - 1, r))

    def _next(self, now, v, k, r):
        """Variable v after its write k in iteration r."""
        s = self.writes[v][k]
        a, c, new = self.value(s.a, r), np.int32(s.constant), now.copy()
        if s.kind in ("call_own", "own"):
            return now * c + a
        if s.kind == "own_of":
            return now * a % np.int32(7) + self.value(s.b, r)
        if s.kind == "assign_invariant":
            return np.full([SIZE], c, np.int32)
        if s.kind == "branch":
            return now + a if self.xs[r] > c else now
        if s.kind == "scatter_add":
            np.add.at(new, [r, 0], a[:2])
        elif s.kind == "scatter_max":
            new[r] = max(new[r], a[0])
        elif s.kind == "scatter_update":
            new[r] = a[0]
        else:
            return {"assign": a, "sub": now - (a + c)}.get(s.kind, now + a)
        return new

    def state(self, v, k):
        if k == 0:
            return self.start[v]
        if v in self.ordered:
            return self.seq(v, k, N - 1)
        if v in self.chained:
            if not self.is_own(v, 0) and self.assigns_varying(v, k - 1):
                raise Undefined("a value that differs between iterations is assigned")
            return self.chain(v, k, N - 1)
        return self.once(("state", v, k), lambda: self._write(v, k - 1))

    def _write(self, v, k):
        s, now = self.writes[v][k], self.state(v, k)
        if self.is_own(v, k):
            return self._next(self.rows(v, k, N - 1), v, k, N - 1)
        c = np.int32(s.constant)
        if s.kind == "assign_invariant":
            return np.full([SIZE], c, np.int32)
        a = np.stack([self.value(s.a, r) for r in range(N)])
        if s.kind == "assign":
            if self.varies(s.a):
                raise Undefined("a value that differs between iterations is assigned")
            return a[0]
        if s.kind in ("add", "call_add"):
            return now + a.sum(0, dtype=np.int32)
        if s.kind == "sub":
            return now - (a + c).sum(0, dtype=np.int32)
        if s.kind == "branch":
            return now + a[self.xs > c].sum(0, dtype=np.int32)
        for r in range(N):  # scatters, to places that differ or in any order
            now = self._next(now, v, k, r)
        return now


def in_order(fn, variables):
    """The variables whose ops run in the order of the loop."""
    graph = tf.__internal__.FuncGraph("body")
    with graph.as_default():
        body = trace(fn, [tf.TensorSpec([], tf.int32)] * 2)
    known = Accesses(body.placeholders[0].graph)
    inside = {key for group in ordered.groups(known, frozenset()) for key in group.handles}
    return {
        k
        for k, v in enumerate(variables)
        for outer, inner in body.captures
        if handle_key(inner) in inside and outer is _captured(graph, v)
    }


def _captured(graph, v):
    return next((inner for outer, inner in graph.captures if outer is v.handle), v.handle)


def check(seed):
    """The outcome of the body of a seed; fails if its results are wrong."""
    rng = np.random.default_rng(seed)
    steps = program(rng)
    xs = rng.integers(-3, 4, [N]).astype(np.int32)
    start = [rng.integers(-3, 4, [SIZE]).astype(np.int32) for _ in range(2)]
    variables = [tf.Variable(s, name=f"v{k}") for k, s in enumerate(start)]
    names = sorted(["c", "x", *(f"t{k}" for k, s in enumerate(steps) if s.kind in VALUES)])
    what = f"seed {seed}: {steps}"

    def run(fallback):
        return tf_pfor.vectorized_map(
            lambda e: run_body(steps, variables, *e), (tf.constant(xs), tf.range(N)),
            fallback_to_while_loop=fallback,
        )  # fmt: skip

    found, outcome, ordered_ones = None, "refused", set()
    try:
        found, outcome = run(False), "vectorized"
    except NotVectorizableError:
        _unchanged(variables, start)
        ordered_ones = in_order(autographed(lambda *e: run_body(steps, variables, *e)), variables)
        if ordered_ones:
            try:
                found, outcome = run(True), "in order"
            except NotVectorizableError:
                _unchanged(variables, start)
    reference = Reference(steps, start, xs, ordered_ones)
    if found is None:
        return outcome
    try:
        expected, states = reference.results()
    except Undefined as why:
        raise AssertionError(f"{what}: should have been refused: {why}") from why
    for v, s in zip(variables, states):
        np.testing.assert_array_equal(v, s, err_msg=f"{what}: {v.name}")
    for name, value in zip(names, found):
        if name in expected:
            np.testing.assert_array_equal(value, expected[name], err_msg=f"{what}: {name}")
    return outcome


def _unchanged(variables, start):
    for v, s in zip(variables, start):
        np.testing.assert_array_equal(v, s, err_msg="refused, but the state has changed")


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("block", range(4))
def test_random_bodies(block):
    done = [check(seed) for seed in range(10 * block, 10 * block + 10)]
    assert "vectorized" in done


@pytest.mark.filterwarnings("ignore::tf_pfor.FallbackWarning")
@pytest.mark.parametrize("block", range(10))
def test_many_random_bodies(block):
    """600 bodies in all; most of them have a meaning, and get it."""
    done = [check(seed) for seed in range(1000 + 60 * block, 1060 + 60 * block)]
    counts = {kind: done.count(kind) for kind in ("in order", "refused", "vectorized")}
    assert counts["vectorized"] >= 12, counts  # many reset a variable and sum into it: in order
    assert counts["refused"] <= 9, counts
