"""Contexts of a map: where rows come from, and what stands around the map.

A context runs a body on its rows, and says what a loop over them gives.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tools.contexts.bodies import D, Row

N, T = 4, 3
_RNG = np.random.default_rng(7)
X = tf.constant(_RNG.uniform(-1.0, 1.0, [N, T, D]), tf.float32)
LENGTHS = tf.constant([3, 1, 2, 3])
PAIRS = tf.reshape(tf.concat([X, X[::-1] * 0.9], 0), [2, N, T, D])

ALL = [x for x in X]
CUT = [x[:k] for x, k in zip(X, LENGTHS)]
CHOSEN = [r if k > 2 else r * 0.5 for r, k in zip(CUT, LENGTHS)]
NUMBERED = [x[: (i + 2) % T + 1] for i, x in enumerate(X)]

Options = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Context:
    """One context.

    Attributes:
      name: its name on the page.
      run: the map of a body, with the options that say what may loop.
      rows: the rows as a loop takes them; in maps of maps the first outer row's come first.
      nests: the number of maps.
      tape: whether ``run`` gives gradients by the rows ("", "around", "body", "twice": both).
      is_compiled: whether XLA compiles it.
      pads: whether results whose shape differs between rows are padded with zeros.
      branches: whether rows choose between branches: the rows of one draw before the next.
    """

    name: str
    run: Callable[[Row, Options], Any]
    rows: list[tf.Tensor]
    nests: int = 1
    tape: str = ""
    is_compiled: bool = False
    pads: bool = False
    branches: bool = False


def _ragged(rows: list[tf.Tensor]) -> Any:
    lengths = [r.shape[0] for r in rows]
    return tf.RaggedTensor.from_row_lengths(tf.concat(rows, 0), lengths)


def _map(body: Row, elems: Any, options: Options) -> Any:
    return tf_pfor.vectorized_map(body, elems, **options)


def _of_cut(body: Row, options: Options) -> Any:
    return _map(lambda e: body(e[0][: e[1]]), (X, LENGTHS), options)


def _of_number(body: Row, options: Options) -> Any:
    def row(_: Any) -> Any:
        i = tf_pfor.axis_index()
        return body(X[i][: (i + 2) % T + 1])

    return tf_pfor.vmap(row, **options)(X)


def _in_branch_of_cut(body: Row, options: Options) -> Any:
    def row(e: Any) -> Any:
        x, k = e
        return tf.cond(k > 2, lambda: body(x[:k]), lambda: body(x[:k] * 0.5))

    return _map(row, (X, LENGTHS), options)


def _of_sparse(body: Row, options: Options) -> Any:
    rows = tf.sparse.from_dense(_ragged(CUT).to_tensor())
    return _map(lambda s: body(tf.reshape(s.values, [-1, D])), rows, options)


def _in_dense(body: Row, options: Options) -> Any:
    return _map(lambda xs: _map(body, xs, options), PAIRS, options)


def _in_ragged(body: Row, options: Options) -> Any:
    outer = tf.RaggedTensor.from_row_lengths(X, [3, 1])
    return _map(lambda xs: _map(body, xs, options), outer, options)


def _in_cut(body: Row, options: Options) -> Any:
    def outer(e: Any) -> Any:
        xs, k = e
        return _map(lambda x: body(x[:k]), xs, options)

    return _map(outer, (PAIRS, tf.constant([3, 2])), options)


def _chunks(rows: Any) -> Callable[[Row, Options], Any]:
    return lambda body, options: _map(body, rows, {**options, "chunk_size": 3})


def _compiled(body: Row, options: Options) -> Any:
    return tf.function(lambda x: _map(body, x, options), jit_compile=True)(X)


def _compiled_cut(body: Row, options: Options) -> Any:
    def total(e: Any) -> Any:
        made = tf.nest.flatten(body(e[0][: e[1]]), expand_composites=True)
        return [tf.reduce_sum(tf.cast(t, tf.float32)) for t in made]

    run = tf.function(lambda x, k: _map(total, (x, k), options), jit_compile=True)
    return run(X, LENGTHS)


def _unknown(body: Row, options: Options) -> Any:
    spec = [tf.TensorSpec([None, None, D])]
    return tf.function(lambda x: _map(body, x, options), input_signature=spec)(X)


def _saved(body: Row, options: Options) -> Any:
    module = tf.Module()
    spec = [tf.TensorSpec([None, T, D])]
    module.run = tf.function(lambda x: _map(body, x, options), input_signature=spec)
    module.held = _held(body)
    module.of_keras = [v.value for v in _of_keras(body)]
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
    made = loaded.run(X)
    held = [*module.held, *module.of_keras]
    for mine, theirs in zip(held, [*loaded.held, *loaded.of_keras]):
        if isinstance(mine, tf.Variable):
            mine.assign(theirs)
    return made


def _held(body: Row) -> list[Any]:
    """Variables and tables of a body."""
    return [v for v in getattr(body, "held", ()) if isinstance(v, tf.Variable) or _is_table(v)]


def _of_keras(body: Row) -> list[Any]:
    return [v for v in getattr(body, "held", ()) if isinstance(v, tf.keras.Variable)]


def _is_table(x: Any) -> bool:
    return hasattr(x, "lookup")


def _dataset(body: Row, options: Options) -> Any:
    rows = tf.data.Dataset.from_tensor_slices(X)
    run = tf_pfor.data.map_and_batch(body, N, fallback=options["fallback"])
    return next(iter(rows.apply(run)))


def _dataset_of_ragged(body: Row, options: Options) -> Any:
    rows = tf.data.Dataset.from_tensor_slices((X, LENGTHS)).map(lambda x, k: x[:k])
    run = tf_pfor.data.map_and_batch(body, N, fallback=options["fallback"])
    return next(iter(rows.apply(run)))


def _keras(body: Row, options: Options) -> Any:
    uses = _of_keras(body)
    layer = tf_pfor.keras.Vectorized(body, uses=uses, fallback=options["fallback"])
    return tf.function(lambda x: layer(x))(X)


def _replicas(body: Row, options: Options) -> Any:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    run = tf.function(lambda: strategy.run(lambda: _map(body, X, options)))
    return run()


def _branch(body: Row, options: Options) -> Any:
    @tf.function
    def run(flag: Any) -> Any:
        return tf.cond(flag, lambda: _map(body, X, options), lambda: _map(body, X + 1.0, options))

    return run(tf.constant(True))


def _thread(body: Row, options: Options) -> Any:
    made: list[Any] = []

    def target() -> None:
        try:
            made.append(_map(body, _ragged(CUT), options))
        except Exception as why:
            made.append(why)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if isinstance(made[0], Exception):
        raise made[0]
    return made[0]


def _other_axis(body: Row, options: Options) -> Any:
    run = tf_pfor.vmap(body, in_axes=1, fallback=options["fallback"])
    return run(tf.transpose(X, [1, 0, 2]))


def weighted(result: Any) -> tf.Tensor:
    """A number that each float element moves in its own way."""
    total = tf.constant(0.0)
    for tensor in tf.nest.flatten(result):
        tensor = getattr(tensor, "flat_values", tensor)
        if not tensor.dtype.is_floating:
            continue
        flat = tf.reshape(tensor, [-1])
        total += tf.reduce_sum(flat * tf.cos(tf.range(tf.cast(tf.size(flat), tf.float32))))
    return total


def gradient(body: Row) -> Row:
    """The body whose result is the gradient of a weighted sum of its results by the row."""

    def row(r: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(r)
            total = weighted(body(r))
        return tape.gradient(total, r, unconnected_gradients="zero")

    return row


def _around(elems: Any) -> Callable[[Row, Options], Any]:
    def run(body: Row, options: Options) -> Any:
        flat = getattr(elems, "flat_values", elems)
        with tf.GradientTape() as tape:
            tape.watch(flat)
            rows = elems if flat is elems else elems.with_flat_values(flat)
            sums = _map(lambda r: weighted(body(r)), rows, options)
            total = tf.reduce_sum(sums)
        made = tape.gradient(total, flat, unconnected_gradients="zero")
        return made if flat is elems else elems.with_flat_values(tf.convert_to_tensor(made))

    return run


def _twice(elems: Any) -> Callable[[Row, Options], Any]:
    return lambda body, options: _around(elems)(gradient(body), options)


def _around_compiled(body: Row, options: Options) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(X)
        sums = tf_pfor.vmap(lambda r: weighted(body(r)), jit_compile=True, **options)(X)
        total = tf.reduce_sum(sums)
    return tape.gradient(total, X, unconnected_gradients="zero")


def _of(elems: Any) -> Callable[[Row, Options], Any]:
    return lambda body, options: _map(body, elems, options)


def _in_body(elems: Any) -> Callable[[Row, Options], Any]:
    return lambda body, options: _map(gradient(body), elems, options)


@functools.cache
def contexts() -> dict[str, Context]:
    """All contexts, by name."""
    both = [x for xs in PAIRS for x in xs]
    in_cut = [x[:k] for xs, k in zip(PAIRS, [3, 2]) for x in xs]
    found = [
        Context("dense rows", _of(X), ALL),
        Context("ragged rows", _of(_ragged(CUT)), CUT),
        Context("x[:k]", _of_cut, CUT),
        Context("x[:k] in a branch", _in_branch_of_cut, CHOSEN, branches=True),
        Context("x[:k], by axis_index", _of_number, NUMBERED),
        Context("sparse rows", _of_sparse, CUT),
        Context("map in map", _in_dense, both, nests=2),
        Context("ragged inner axis", _in_ragged, ALL, nests=2),
        Context("map in map, x[:k]", _in_cut, in_cut, nests=2),
        Context("chunks", _chunks(X), ALL),
        Context("chunks of ragged rows", _chunks(_ragged(CUT)), CUT),
        Context("one row", _of(X[:1]), ALL[:1]),
        Context("no rows", _of(X[:0]), []),
        Context("unknown sizes", _unknown, ALL),
        Context("vmap, axis 1", _other_axis, ALL),
        Context("tape in body", _in_body(X), ALL, tape="body"),
        Context("tape in body, ragged", _in_body(_ragged(CUT)), CUT, tape="body"),
        Context("tape around", _around(X), ALL, tape="around"),
        Context("tape around, ragged", _around(_ragged(CUT)), CUT, tape="around"),
        Context("tapes in body and around, ragged", _twice(_ragged(CUT)), CUT, tape="twice"),
        Context("jit_compile", _compiled, ALL, is_compiled=True),
        Context("tape around, jit_compile", _around_compiled, ALL, tape="around", is_compiled=True),
        Context("jit_compile, x[:k]", _compiled_cut, CUT, is_compiled=True),
        Context("in a branch", _branch, ALL),
        Context("in a thread, ragged", _thread, CUT),
        Context("SavedModel", _saved, ALL),
        Context("tf.data", _dataset, ALL),
        Context("tf.data, ragged", _dataset_of_ragged, CUT),
        Context("Keras", _keras, ALL, pads=True),
        Context("strategy", _replicas, ALL),
    ]
    return {c.name: c for c in found}
