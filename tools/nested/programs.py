"""Random programs for one row: control flow in control flow, that reads the row in many forms.

A program is a function from a row and a number to a number. Numbers stay in (-1, 1), so that the
order of additions does not matter much. A program depends on its seed alone. Inner maps are of
``tf.map_fn`` in a reference, so that it uses nothing of tf_pfor.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
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
MATRICES = tf.constant(_RNG.normal(size=[N, 3, 4]), tf.float64)
GROUPS = [2, 1, 3, 1]  # the number of variable-length rows in each row
GROUP_LENGTHS = [1, 2, 3, 2, 1, 2, 4]
GROUP_FLAT = tf.constant(_RNG.normal(size=[sum(GROUP_LENGTHS)]), tf.float64)
TABLE = tf.Variable(_RNG.normal(size=[6]), dtype=tf.float64)
SHARED = tf.constant(_RNG.normal(size=[3]), tf.float64)  # bodies capture it
_FILTER = tf.constant(_RNG.normal(size=[2, 1, 1]), tf.float64)
_reference = False


class _Choices(random.Random):
    """The choices of a program.

    Attributes:
      ops: the choices of ops of vectors that it reads; None for programs without them.
    """

    def __init__(self, seed: int, ops: bool):
        super().__init__(seed)
        self.ops = random.Random(f"ops {seed}") if ops else None


@contextlib.contextmanager
def reference() -> Iterator[None]:
    """Inner maps are loops over their rows meanwhile."""
    global _reference  # what is traced here calls no other thread
    _reference = True
    try:
        yield
    finally:
        _reference = False


def _mapped(function: Callable[[Any], tf.Tensor], rows: Any) -> tf.Tensor:
    """A number or a vector of each inner row."""
    if _reference:
        return tf.map_fn(function, rows, fn_output_signature=tf.float64)
    return tf_pfor.vectorized_map(function, rows)


def _reads(rng: _Choices) -> tuple[str, Callable[[Row], tf.Tensor]]:
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
        "variable": lambda row: tf.gather(TABLE, [0, 2]) * row["sign"],
        "assigned indices": lambda row: tf.gather(TABLE, tf.range(row["k"])),
        "list": _through_a_list,
        "inner map": lambda row: _mapped(lambda e: e * row["sign"], row["x"]),
        "ragged inner map": lambda row: _mapped(tf.sin, row["r"]),
    }
    name = rng.choice(list(found))
    return _with_ops(rng, name, found[name])


def _vector_ops() -> dict[str, Callable[[tf.Tensor], tf.Tensor]]:
    """Vectors of vectors of any length, as bodies make them."""
    return {
        "softmax": tf.nn.softmax,
        "sorted": tf.sort,
        "sorted down": lambda v: tf.sort(v, direction="DESCENDING"),
        "sums": tf.cumsum,
        "products": lambda v: tf.math.cumprod(tf.cos(v), exclusive=True),
        "reversed": lambda v: v[::-1],
        "rest": lambda v: v[1:],
        "last two": lambda v: v[-2:],
        "every second": lambda v: v[::2],
        "with shared": lambda v: tf.concat([v, SHARED], 0),
        "with itself": lambda v: tf.concat([v[::-1], v * 0.5], 0),
        "by the table": lambda v: v * tf.gather(TABLE, tf.range(tf.size(v)) % 6),
        "padded": lambda v: tf.pad(v, [[1, 2]], constant_values=0.3),
        "positive": lambda v: tf.boolean_mask(v, v > 0.0),
        "outer": lambda v: tf.reduce_sum(tf.sin(v[:, None] - v[None, :]), 1),
        "matrix": lambda v: tf.reshape(v[:, None] @ SHARED[None, :], [-1]),
        "rows of a matrix": lambda v: tf.linalg.matvec(v[:, None] * SHARED, SHARED),
        "segments": lambda v: tf.math.unsorted_segment_sum(v, tf.range(tf.size(v)) % 2, 2),
        "largest": lambda v: tf.nn.top_k(v, tf.minimum(2, tf.size(v)))[0],
        "centered": lambda v: v - tf.reduce_sum(v) / (1.0 + tf.cast(tf.size(v), v.dtype)),
        "where": lambda v: tf.where(v > 0.1, v, TABLE[2] * v),
        "scan": lambda v: tf.scan(lambda a, e: tf.sin(a) + e, v, tf.constant(0.1, v.dtype)),
        "repeated": lambda v: tf.repeat(v, 2),
        "tiled": lambda v: tf.tile(v, [2]) * TABLE[0],
        "rolled": lambda v: tf.roll(v, 1, 0),
        "unit": lambda v: tf.math.l2_normalize(v, epsilon=0.1),
        "largest so far": lambda v: tf.reduce_max(tf.concat([v, [0.05]], 0))[None],
        "convolved": lambda v: tf.nn.conv1d(v[None, :, None], _FILTER, 1, "SAME")[0, :, 0],
        "in order": lambda v: tf.gather(v, tf.argsort(tf.abs(v))),
        "placed": lambda v: tf.scatter_nd(2 * tf.range(tf.size(v))[:, None], v, [2 * tf.size(v)]),
        "cut or not": lambda v: tf.cond(tf.size(v) > 2, lambda: v[:2], lambda: v),
        "solved": lambda v: tf.linalg.solve(
            tf.eye(tf.size(v), dtype=v.dtype) + 0.1 * v[:, None] * v, v[:, None]
        )[:, 0],
        "differences": lambda v: v[1:] - v[:-1],
        "one hot": lambda v: tf.reshape(
            tf.one_hot(tf.range(tf.size(v)) % 2, 2, dtype=v.dtype) * v[:, None], [-1]
        ),
        "squares": lambda v: tf.einsum("i,j->ij", v, SHARED)[:, 1],
        "steps": lambda v: v * tf.cast(tf.range(tf.size(v)), v.dtype),
        "diagonal": lambda v: tf.linalg.diag_part(tf.linalg.diag(v) * 2.0),
        "two rows": lambda v: tf.reduce_sum(tf.stack([v, tf.sin(v)]), 0),
        "halves": lambda v: tf.concat([v[: tf.size(v) // 2], v[tf.size(v) // 2 :] * 2.0], 0),
    }


def _with_ops(
    rng: _Choices, name: str, read: Callable[[Row], tf.Tensor]
) -> tuple[str, Callable[[Row], tf.Tensor]]:
    """The name and the vector that a program reads, after up to three ops."""
    if rng.ops is None:
        return name, read
    known = _vector_ops()
    chosen = [rng.ops.choice([*known]) for _ in range(rng.ops.choice([0, 1, 1, 2, 2, 3]))]

    def found(row: Row) -> tf.Tensor:
        v = read(row)
        for op in chosen:
            v = known[op](v)
        return v

    return " ".join([name, *(f".{x}" for x in chosen)]), found


def _through_a_list(row: Row) -> tf.Tensor:
    array = tf.TensorArray(tf.float64, 4, element_shape=[], clear_after_read=False)
    array = array.unstack(row["x"])
    return tf.stack([array.read(row["k"]), array.read(1)])


def _step(rng: _Choices, depth: int) -> tuple[str, Step]:
    """One statement, and its description."""
    kinds = ["read", "read", "if", "elif", "case", "for", "while", "break", "return", "map_fn"]
    kinds += ["carry", "array", "sequence", "map"]
    kind = rng.choice(kinds if depth > 0 else ["read", "carry"])
    return _MAKERS[kind](rng, depth - 1)


def _steps(rng: _Choices, depth: int, count: int) -> list[tuple[str, Step]]:
    """Statements, of which one is nested; else programs grow with the power of their depth."""
    nested = rng.randrange(count)
    return [_step(rng, depth if k == nested else 0) for k in range(count)]


def _read(rng: _Choices, depth: int) -> tuple[str, Step]:
    del depth
    (name, read), a = _reads(rng), rng.uniform(-1, 1)
    return name, lambda row, s: tf.tanh(s * 0.7 + a * tf.reduce_sum(tf.sin(read(row))))


def _predicate(rng: _Choices) -> tuple[str, Callable[[Row, tf.Tensor], tf.Tensor]]:
    return rng.choice([
        ("s > 0", lambda row, s: s > 0.0),
        ("k > 1", lambda row, s: row["k"] > 1),
        ("sign > 0", lambda row, s: row["sign"] > 0.0),
        ("sum(r) > 0", lambda row, s: tf.reduce_sum(row["r"]) > 0.0),
    ])  # fmt: skip


def _if(rng: _Choices, depth: int) -> tuple[str, Step]:
    (said, holds), ((a, yes), (b, no)) = _predicate(rng), _steps(rng, depth, 2)
    return f"if {said}: [{a}] else [{b}]", lambda row, s: tf.cond(
        holds(row, s), lambda: yes(row, s), lambda: no(row, s)
    )


def _elif(rng: _Choices, depth: int) -> tuple[str, Step]:
    (p, first), (q, second) = _predicate(rng), _predicate(rng)
    (a, one), (b, two), (c, three) = _steps(rng, depth, 3)

    def run(row: Row, s: tf.Tensor) -> tf.Tensor:
        def rest() -> tf.Tensor:
            return tf.cond(second(row, s), lambda: two(row, s), lambda: three(row, s))

        return tf.cond(first(row, s), lambda: one(row, s), rest)

    return f"if {p}: [{a}] elif {q}: [{b}] else [{c}]", run


def _case(rng: _Choices, depth: int) -> tuple[str, Step]:
    parts = _steps(rng, depth, 3)
    said = " | ".join(name for name, _ in parts)
    return f"case [{said}]", lambda row, s: tf.switch_case(
        row["k"] % 3, [lambda f=f: f(row, s) for _, f in parts]
    )


def _for(rng: _Choices, depth: int) -> tuple[str, Step]:
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


def _while(rng: _Choices, depth: int) -> tuple[str, Step]:
    name, inside = _step(rng, depth)
    return f"while: [{name}]", lambda row, s: tf.while_loop(
        lambda t, s: (t < 3) & (tf.abs(s) < 0.6), lambda t, s: (t + 1, inside(row, s)), (0, s)
    )[1]


def _break(rng: _Choices, depth: int) -> tuple[str, Step]:
    """A loop that a row leaves between two statements, as AutoGraph writes it."""
    (said, leaves), ((a, first), (b, second)) = _predicate(rng), _steps(rng, depth, 2)

    def once(row: Row, t: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        s = first(row, s)
        gone = leaves(row, s) & (t > 0)
        return t + 1, gone, tf.cond(gone, lambda: s, lambda: second(row, s))

    return f"for 3: [{a}; if {said}: break; {b}]", lambda row, s: tf.while_loop(
        lambda t, gone, s: (t < 3) & ~gone,
        lambda t, gone, s: once(row, t, s),
        (0, tf.constant(False), s),
    )[2]


def _return(rng: _Choices, depth: int) -> tuple[str, Step]:
    """A loop that may give the result of the statement; else what follows it does."""
    (said, holds), ((a, inside), (b, after)) = _predicate(rng), _steps(rng, depth, 2)

    def once(row: Row, t: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        done = holds(row, s)
        return t + 1, done, tf.cond(done, lambda: tf.sin(s), lambda: inside(row, s))

    def run(row: Row, s: tf.Tensor) -> tf.Tensor:
        _, done, s = tf.while_loop(
            lambda t, done, s: (t < row["k"]) & ~done,
            lambda t, done, s: once(row, t, s),
            (0, tf.constant(False), s),
        )
        return tf.cond(done, lambda: s, lambda: after(row, s))

    return f"for k: [if {said}: return; {a}]; {b}", run


def _map(rng: _Choices, depth: int) -> tuple[str, Step]:
    """A map in the map: a statement for each inner row, which takes the place of a part."""
    name, inside = _step(rng, depth)
    kind = rng.choice(["x", "m", "rr", "r", "range", "w and x"])

    def run(row: Row, s: tf.Tensor) -> tf.Tensor:
        def each(rows: Any, **parts: Callable[[Any], Any]) -> tf.Tensor:
            def function(e: Any) -> tf.Tensor:
                inner = {**row, **{key: part(e) for key, part in parts.items()}}
                return inside(inner, s * inner["sign"])

            return _mapped(function, rows)

        found = {
            "x": lambda: each(row["x"], sign=lambda e: tf.sin(e)),
            "r": lambda: each(row["r"], sign=lambda e: tf.sin(e)),
            "m": lambda: each(row["m"], x=lambda e: e),
            "rr": lambda: each(row["rr"], r=lambda e: e),
            "range": lambda: each(tf.range(row["k"]), k=lambda e: e),
            "w and x": lambda: each((row["w"], row["x"]), sign=lambda e: tf.sin(e[0] * e[1])),
        }[kind]()
        return tf.tanh(tf.reduce_sum(found * 0.7))

    return f"map over {kind}: [{name}]", run


def _map_fn(rng: _Choices, depth: int) -> tuple[str, Step]:
    (name, inside), (said, read) = _step(rng, depth), _reads(rng)
    return f"map_fn {said}: [{name}]", lambda row, s: tf.tanh(
        tf.reduce_sum(tf.map_fn(lambda e: inside(row, s * e), read(row)))
    )


def _carry(rng: _Choices, depth: int) -> tuple[str, Step]:
    """A loop whose variable is a vector of the row."""
    del depth
    name, read = _reads(rng)

    def run(row: Row, s: tf.Tensor) -> tf.Tensor:
        start = read(row)
        shapes = (tf.TensorShape([]), start.shape)
        v = tf.while_loop(
            lambda t, v: t < row["k"], lambda t, v: (t + 1, tf.sin(v) * s + v * start), (0, start),
            shape_invariants=shapes,
        )[1]  # fmt: skip
        return tf.tanh(tf.reduce_sum(v))

    return f"carry {name}", run


def _array(rng: _Choices, depth: int) -> tuple[str, Step]:
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


def _sequence(rng: _Choices, depth: int) -> tuple[str, Step]:
    (a, first), (b, second) = _steps(rng, depth, 2)
    return f"{a}; {b}", lambda row, s: second(row, first(row, s))


_MAKERS: dict[str, Callable[[_Choices, int], tuple[str, Step]]] = {
    "read": _read, "if": _if, "elif": _elif, "case": _case, "break": _break, "return": _return,
    "map": _map, "for": _for, "while": _while, "map_fn": _map_fn,
    "carry": _carry, "array": _array, "sequence": _sequence,
}  # fmt: skip


def program(
    seed: int, depth: int = 3, maps: bool = False, ops: bool = False
) -> tuple[str, Callable[[Row], tf.Tensor]]:
    """The program of a seed, and its description.

    Args:
      seed: says which program.
      depth: the number of statements within each other.
      maps: whether it is a map in the map.
      ops: whether ops of vectors follow what it reads.
    """
    rng = _Choices(seed, ops)
    kinds = ["if", "elif", "case", "for", "while", "break", "return", "map_fn", "array"]
    kind = "map" if maps else rng.choice(kinds)
    name, step = _MAKERS[kind](rng, depth - 1)
    start = tf.constant(0.2, tf.float64)

    @tf.autograph.experimental.do_not_convert
    def body(row: Row) -> tf.Tensor:
        return step(row, start * row["sign"])

    return name, body
