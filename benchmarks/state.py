"""State and randomness in a map of 1,000 rows: the sequential loop, TensorFlow's own map, tf_pfor.

    python -m benchmarks.state [--rows 1000] [--only stateless_normal]

Times are ratios within one run. The table also says whether the results, and the state afterwards,
equal the loop's, and which ops tf_pfor loops over.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing
from tf_pfor.reports.explain import explain


@dataclasses.dataclass
class Case:
    """A body with its state and its rows.

    Attributes:
      body: a function of one row.
      rows: [n, ...].
      state: the variables that it may change.
    """

    body: Callable[[tf.Tensor], tf.Tensor]
    rows: tf.Tensor
    state: tuple[Any, ...] = ()


def _seeds(n: int) -> tf.Tensor:
    rng = np.random.default_rng(0)
    return tf.constant(rng.integers(-(2**31), 2**31, [n, 2]), tf.int32)


def _stateless(draw: Callable[..., tf.Tensor]) -> Callable[[int], Case]:
    return lambda n: Case(lambda seed: draw([8], seed), _seeds(n))


def _generator(n: int) -> Case:
    generator = tf.random.Generator.from_seed(1)
    return Case(lambda x: x + generator.normal([8]), tf.zeros([n]), (generator.state,))


def _dropout(n: int) -> Case:
    layer = keras.layers.Dropout(0.5, seed=1)
    state = tuple(v.value for v in layer.variables)
    return Case(lambda x: layer(x, training=True), tf.ones([n, 64]), state)


def _scatter_add(n: int) -> Case:
    table = tf.Variable(tf.zeros([100, 8]))

    def body(k: tf.Tensor) -> tf.Tensor:
        table.scatter_add(tf.IndexedSlices(tf.ones([8]) * tf.cast(k, tf.float32), k))
        return k

    rows = np.random.default_rng(0).integers(0, 100, [n])
    return Case(body, tf.constant(rows, tf.int32), (table,))


CASES: dict[str, Callable[[int], Case]] = {
    "stateless_uniform": _stateless(tf.random.stateless_uniform),
    "stateless_normal": _stateless(tf.random.stateless_normal),
    "stateless_truncated_normal": _stateless(tf.random.stateless_truncated_normal),
    "stateless_gamma": _stateless(lambda s, k: tf.random.stateless_gamma(s, k, 1.5)),
    "Generator.normal": _generator,
    "Dropout": _dropout,
    "scatter_add": _scatter_add,
}


def _contenders(case: Case) -> dict[str, Callable[[tf.Tensor], Any]]:
    body, rows = case.body, case.rows
    spec = tf.TensorSpec(rows.shape[1:], rows.dtype)
    made = tf.function(body).get_concrete_function(spec).structured_outputs
    out = tf.TensorSpec(made.shape, made.dtype)
    functions = {
        "loop": lambda x: tf.map_fn(body, x, fn_output_signature=out, parallel_iterations=1),
        "TensorFlow's": lambda x: tf.vectorized_map(body, x),
        "tf_pfor": lambda x: tf_pfor.vectorized_map(body, x),
    }
    return {k: tf.function(f) for k, f in functions.items()}


def measure(name: str, n: int, seconds: float) -> list[timing.Record]:
    """The records of one case; who agrees with the loop is printed as well."""
    case = CASES[name](n)
    start = [v.numpy() for v in case.state]
    found: dict[str, list[Any]] = {}
    runs: dict[str, Callable[[], Any]] = {}
    failed: dict[str, str] = {}
    for key, run in _contenders(case).items():
        for v, old in zip(case.state, start):
            v.assign(old)
        try:
            result = run(case.rows)
        except Exception as why:
            failed[key] = type(why).__name__
            continue
        found[key] = [result.numpy(), *(v.numpy() for v in case.state)]
        runs[key] = lambda run=run: run(case.rows)
    times = timing.interleaved(runs, seconds=seconds)
    report = explain(case.body, case.rows)
    looped = sorted({op.op_type for op in report.records if op.outcome.name == "LOOPED"})
    agree = {k: _agree(found[k], found["loop"]) for k in found}
    said = [*(f"{k} {word}" for k, word in (agree | failed).items()), *looped]
    print(f"{name}: {', '.join(said)}", flush=True)
    return [
        *timing.records(name, times, [*runs, *failed]),
        timing.record(name, "as the loop", agree["tf_pfor"] != "WRONG", better="higher"),
        timing.record(name, "looped ops", len(looped)),
    ]


def _agree(found: list[Any], wanted: list[Any]) -> str:
    if all(np.array_equal(a, b) for a, b in zip(found, wanted)):
        return "equal"
    return "close" if all(np.allclose(a, b) for a, b in zip(found, wanted)) else "WRONG"


def main() -> None:
    """Measures all cases and prints the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", choices=sorted(CASES), action="append")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[timing.Record] = []
    for name in options.only or CASES:
        found += measure(name, options.rows, options.seconds)
    print(timing.overview(found))
    if not options.only and options.rows == parser.get_default("rows"):
        timing.save("state", found)


if __name__ == "__main__":
    main()
