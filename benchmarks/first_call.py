"""The cost of a first call: to trace and vectorize a map, against tracing one example.

Each program has two ratios, with the gradients that it takes. One is the CPU seconds to trace and
vectorize, divided by the seconds to trace the same function for one example. The other is the ops
of the map, divided by the ops of one example (constants do not count). ``twice`` is the time for a
body that is twice as long, divided by the time for the body: 2 is linear.

``bound`` is the least time, divided by the time of one example. It is the time to trace one
example, and to create the finished ops of the map once more, one by one. No rule is asked for them
then, no layout is tried, and no branch or loop is built of them.

``--programs`` measures the programs of ``tests/programs`` as well, plain and with a tape in the
body. The programs here are those that cost most; those there are what users write.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing
from tests.program_modes import with_gradients
from tests.programs import ALL
from tf_pfor import _tf
from tf_pfor._tf import _graphs

Fn = Callable[..., Any]
RNG = np.random.default_rng(0)
LENGTHS = [3, 5, 4]


def normal(*shape: int) -> tf.Tensor:
    return tf.constant(RNG.normal(size=shape), tf.float32)


EMBEDDING, W1, W2 = (tf.Variable(normal(*shape) * 0.3) for shape in ((4, 4), (8, 16), (16, 1)))
ROWS, FORCES = (tf.RaggedTensor.from_row_lengths(normal(12, 3), LENGTHS) for _ in range(2))
KINDS = tf.RaggedTensor.from_row_lengths(tf.constant(RNG.integers(0, 4, 12)), LENGTHS)
DENSE = normal(4, 3)


def energy(places: tf.Tensor, kinds: tf.Tensor) -> tf.Tensor:
    """The energy of a molecule: sums over pairs of atoms, and a layer for each atom."""
    apart = places[:, None] - places[None]
    same = tf.eye(tf.shape(places)[0])
    r = tf.sqrt(tf.reduce_sum(apart * apart, -1) + same)
    near = tf.where(r < 2.5, 0.5 * (tf.cos(np.pi * r / 2.5) + 1), tf.zeros_like(r)) * (1 - same)
    shells = tf.exp(-4.0 * tf.square(r[..., None] - tf.linspace(0.5, 2.5, 4))) * near[..., None]
    atoms = tf.gather(EMBEDDING, kinds)
    around = tf.reduce_sum(tf.einsum("ijk,jl->ikl", shells, atoms), 1)
    return tf.reduce_sum(tf.tanh(tf.concat([atoms, around], 1) @ W1) @ W2)


def force_error(row: Any) -> tf.Tensor:
    places, kinds, forces = row
    with tf.GradientTape() as tape:
        tape.watch(places)
        total = energy(places, kinds)
    return tf.reduce_sum((tape.gradient(total, places) + forces) ** 2) + total * total


def pairs(places: tf.Tensor) -> tf.Tensor:
    apart, same = places[:, None] - places[None], tf.eye(tf.shape(places)[0])
    return tf.reduce_sum(tf.exp(-tf.reduce_sum(apart * apart, -1) - same) * (1 - same))


def conditionals(depth: int) -> Fn:
    def body(x: tf.Tensor, k: int = depth) -> Any:
        if not k:
            return x * 2.0
        return tf.cond(x[k % 3] > 0, lambda: tf.sin(body(x, k - 1)), lambda: tf.cos(x) * k)

    return body


def steps(x: tf.Tensor) -> tf.Tensor:
    """A conditional in a loop."""

    def step(i: Any, y: Any) -> Any:
        return i + 1, 0.1 * x + tf.cond(y[0] > 0, lambda: tf.sin(y) * y, lambda: tf.cos(y))

    return tf.reduce_sum(tf.while_loop(lambda i, _: i < 3, step, (0, x))[1])


def curvature(x: tf.Tensor) -> Any:
    """The gradient of the squared gradient."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = steps(x)
        total = tf.reduce_sum(inner.gradient(y, x) ** 2)
    return outer.gradient(total, x)


def chain(count: int, tape: bool) -> Fn:
    def body(x: tf.Tensor) -> Any:
        for k in range(count):
            x = tf.sin(x) * (0.9 + k) + tf.reduce_mean(x)
        return x

    def slope(x: tf.Tensor) -> Any:
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = body(x)
        return inner.gradient(y, x)

    return slope if tape else body


def in_training(fn: Fn) -> Fn:
    """The function with the gradients of the weights, as a step of training takes them."""

    def step(*args: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(fn(*args))
        return tape.gradient(loss, [EMBEDDING, W1, W2])

    return step


def mapped(body: Fn) -> Fn:
    return lambda x: tf_pfor.vectorized_map(body, x, warn=False)


def row_specs(elems: Any) -> Any:
    def of(x: Any) -> tf.TensorSpec:
        is_ragged = isinstance(x, tf.RaggedTensor)
        return tf.TensorSpec([None, *x.shape[2:]] if is_ragged else x.shape[1:], x.dtype)

    return tf.nest.map_structure(of, elems)


# Name: the map, the function of one example, elements.
PROGRAMS: dict[str, tuple[Fn, Fn, Any]] = {
    "molecules, a training step": (
        in_training(mapped(force_error)), in_training(force_error), (ROWS, KINDS, FORCES)
    ),
    "hessians of different sizes": (
        tf_pfor.vmap(tf_pfor.hessian(pairs)), tf_pfor.hessian(pairs), ROWS
    ),
    "six conditionals": (mapped(conditionals(6)), conditionals(6), DENSE),
    "second derivatives": (mapped(curvature), curvature, DENSE),
    "40 steps": (mapped(chain(40, tape=False)), chain(40, tape=False), DENSE),
    "40 steps, tape": (mapped(chain(40, tape=True)), chain(40, tape=True), DENSE),
    "40 steps, ragged": (mapped(chain(40, tape=False)), chain(40, tape=False), ROWS),
}  # fmt: skip
# Maps of bodies that are twice as long.
TWICE: dict[str, Fn] = {
    "six conditionals": mapped(conditionals(12)),
    "40 steps": mapped(chain(80, tape=False)),
    "40 steps, tape": mapped(chain(80, tape=True)),
    "40 steps, ragged": mapped(chain(80, tape=False)),
}


def of_users() -> dict[str, tuple[Fn, Fn, Any]]:
    """The programs of ``tests/programs``, as ``PROGRAMS``."""
    found: dict[str, tuple[Fn, Fn, Any]] = {}
    for name, program in ALL.items():
        body, variables = program.body()
        for one, kind in (body, ""), (with_gradients(body, variables), ", tape"):
            found[name + kind] = (mapped(one), one, program.rows(4))
    return found


def measured(
    name: str, programs: dict[str, tuple[Fn, Fn, Any]], rounds: int
) -> list[timing.Record]:
    """The records of a program."""
    many, one, elems = programs[name]
    autograph = name not in PROGRAMS
    graphs: dict[str, tf.Graph] = {}  # of the last round

    def keeping(key: str, fn: Fn, args: Any, autograph: bool = False) -> Fn:
        def run() -> None:
            graphs[key] = traced(fn, args, autograph)

        return run

    contenders = {
        "map": keeping("map", many, elems, autograph),
        "one": keeping("one", one, row_specs(elems), autograph),
        "bare": lambda: created(nodes),
        **({"twice": keeping("twice", TWICE[name], elems)} if name in TWICE else {}),
    }
    contenders["map"]()
    nodes = nodes_of(graphs["map"])
    times = timing.interleaved(contenders, seconds=0, least=rounds, clock=time.process_time)
    ops = {key: count(graphs[key]) for key in ("map", "one")}
    found = [
        timing.record(name, "time", timing.ratio(times, "map", "one"), "one example"),
        timing.record(name, "ops", ops["map"] / ops["one"], "one example"),
        timing.record(name, "bound", 1 + timing.ratio(times, "bare", "one"), better=None),
    ]
    if name in TWICE:
        twice = timing.ratio(times, "twice", "map")
        found.append(timing.record(name, "time of a body twice as long", twice, "the body"))
    return found


def traced(fn: Fn, args: Any, autograph: bool = False) -> tf.Graph:
    """The graph of a function that is traced anew."""
    made = tf.function(lambda *a: fn(*a), autograph=autograph)
    return made.get_concrete_function(args).graph


Node = tuple[str, list[Any], dict[str, Any], str, list[Any]]
"""The op type, inputs, attributes, name and outputs of an op."""


def nodes_of(graph: tf.Graph) -> list[list[Node]]:
    """The ops of a graph and of all functions that it calls, each function once."""
    graphs: dict[str, tf.Graph] = {"": graph}
    found: list[list[Node]] = []
    for g in (todo := [graph]):  # grows
        found.append([])
        for op in g.get_operations():
            attrs = dict(_tf.attr_map(op))
            keys = [(t.op.name, t.value_index) for t in op.inputs]
            made = [(op.name, k) for k in range(len(op.outputs))]
            found[-1].append((op.type, keys, attrs, op.name, made))
            for name in _tf.function_names(attrs):
                if name not in graphs:
                    graphs[name] = _tf.function_graph(g, name)
                    todo.append(graphs[name])
    return found


def created(functions: list[list[Node]]) -> None:
    """Creates ops as the package does, in a graph for each function."""
    for nodes in functions:
        graph, known = tf.__internal__.FuncGraph("bare"), dict[Any, tf.Tensor]()
        with graph.as_default():
            for op_type, inputs, attrs, name, made in nodes:
                op = _graphs.add_op(graph, op_type, [known[k] for k in inputs], attrs, name)
                known.update(zip(made, op.outputs))


def count(graph: tf.Graph) -> int:
    """The number of ops, constants apart: a function counts once, however often it is called."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return sum(node.op != "Const" for node in nodes)


def all_measured(programs: dict[str, tuple[Fn, Fn, Any]], rounds: int) -> list[timing.Record]:
    """The records of some programs, printed as a table with their medians."""
    found = [record for name in programs for record in measured(name, programs, rounds)]
    print(timing.overview(found))
    for key in ("time", "ops", "bound"):
        values = [r["value"] for r in found if r["measure"] == key and r["value"] is not None]
        print(f"{key}: median {statistics.median(values):.1f}, worst {max(values):.1f}")
    return found


def main() -> None:
    """Prints a table, and saves it."""
    parser = argparse.ArgumentParser("python -m benchmarks.first_call", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", action="store_true", help="those of tests/programs, too")
    args = parser.parse_args()
    found = all_measured(PROGRAMS, args.rounds)
    if args.programs:
        found += all_measured(of_users(), args.rounds)
    timing.save("first_call", found)


if __name__ == "__main__":
    main()
