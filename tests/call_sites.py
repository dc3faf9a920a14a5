"""The origin of a map's invariants, and the site of its call: two axes of the tests.

``run`` maps a body at a site, with invariants of an origin; ``cover`` spreads all pairs of the two
over samples or programs. A body is ``body(row, shared)``: lists of the tensors that differ between
iterations, and of those that do not. Everything goes through the public functions.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_pfor
from tests.sample import stacked

Tensors = list[Any]
Body = Callable[[Tensors, Tensors], Any]

ORIGINS = ("argument", "captured", "constant", "numpy", "outer", "variable")
SITES = (
    "all None", "compiled", "dataset", "eager", "fit", "fixed", "functional", "None", "saved",
    "thread",
)  # fmt: skip
# An outer graph has a graph around it; a call that stands in none has no tensor of one.
IMPOSSIBLE = frozenset([("outer", "eager"), ("outer", "thread")])
PAIRS = tuple(p for p in itertools.product(ORIGINS, SITES) if p not in IMPOSSIBLE)
COSTLY = ("fit", "functional", "saved")
UNKNOWN_N = ("all None", "dataset", "fit", "functional", "None", "saved")
APIS = ("vectorized_map", "vmap", "pfor")


def turn(*words: str) -> int:
    """A number for a choice that stays when others come and go."""
    return zlib.crc32("-".join(words).encode())


def cover(
    names: Sequence[str], fits: Callable[[str, str, str], bool], least: int = 2
) -> list[tuple[str, str, str]]:
    """Pairs of an origin and a site for names, as (name, origin, site).

    Every pair occurs where it fits one name; each name gets at least ``least`` pairs, of the sites
    that cost little. A new name takes over some pairs, and leaves all others where they are.
    """
    chosen: dict[tuple[str, str, str], None] = {}
    for pair in PAIRS:
        able = [name for name in names if fits(name, *pair)]
        if able:
            chosen[(min(able, key=lambda name: turn(name, *pair)), *pair)] = None
    load = collections.Counter(name for name, *_ in chosen)
    cheap = [pair for pair in PAIRS if pair[1] not in COSTLY]
    for name in names:
        for pair in sorted(cheap, key=lambda pair: turn(name, *pair)):
            if load[name] < least and (name, *pair) not in chosen and fits(name, *pair):
                chosen[(name, *pair)] = None
                load[name] += 1
    return sorted(chosen)


def run(
    body: Body, rows: Tensors, shared: Tensors, origin: str, site: str, *,
    api: str = "vectorized_map", fallback: Any = "error", state: Sequence[tf.Variable] = (),
) -> list[np.ndarray]:  # fmt: skip
    """The results of ``body`` mapped over arrays ``rows``, at a site, as arrays [n, ...].

    Args:
      body: the function of one iteration.
      rows: arrays [n, ...].
      shared: arrays that all iterations share, in the form that ``origin`` says.
      origin: one of ORIGINS.
      site: one of SITES.
      api: the public function; what comes as an argument of the map needs ``vmap``.
      fallback: whether ops may run in a sequential loop.
      state: variables that the body changes, which a saved module has to have.
    """
    mapped = _mapped(body, shared, origin, "vmap" if origin == "argument" else api, fallback)
    given = [tf.constant(x) for x in shared] if origin in ("argument", "outer") else []
    at = functools.partial(_saved, state=state) if site == "saved" else _AT[site]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
        found = at(mapped, [tf.constant(x) for x in rows], given)
    return [np.asarray(x) for x in found]


def _mapped(body: Body, shared: Tensors, origin: str, api: str, fallback: Any) -> Body:
    """``mapped(rows, given)``: the map, where ``given`` are tensors that come from its site."""
    read = _reader(shared, origin)

    def mapped(rows: Tensors, given: Tensors) -> Tensors:
        k = len(rows)
        if origin == "argument":
            axes = (0,) * k + (None,) * len(given)
            one = tf_pfor.vmap(
                lambda *a: body(a[:k], a[k:]), axes, fallback=fallback, out_shapes="dense"
            )
            return leaves(one(*rows, *given))
        if api == "pfor":
            n = rows[0].shape[0]
            found = tf_pfor.pfor(
                lambda i: body([tf.gather(x, i) for x in rows], read(given)),
                tf.shape(rows[0])[0] if n is None else n, warn=False, fallback=fallback,
                out_shapes="dense",
            )  # fmt: skip
        elif api == "vmap":
            one = tf_pfor.vmap(
                lambda *row: body(row, read(given)), fallback=fallback, out_shapes="dense"
            )
            found = one(*rows)
        else:
            found = tf_pfor.vectorized_map(
                lambda row: body(row, read(given)),
                rows,
                warn=False,
                fallback=fallback,
                out_shapes="dense",
            )
        return leaves(found)

    return _in_outer_graph(mapped) if origin == "outer" else mapped


def _reader(shared: Tensors, origin: str) -> Callable[[Tensors], Tensors]:
    """The function by which the body reads shared values; ``given`` is the site's arguments."""
    if origin == "constant":
        return lambda given: [tf.constant(x) for x in shared]
    if origin == "numpy":
        return lambda given: list(shared)
    if origin == "variable":
        variables = [tf.Variable(x, trainable=False) for x in shared]
        return lambda given: [tf.convert_to_tensor(v) for v in variables]
    if origin == "captured":
        captured = [tf.constant(x) for x in shared]
        return lambda given: captured
    return lambda given: given


def _in_outer_graph(mapped: Body) -> Body:
    """The map in a function of its own, whose invariants are tensors of the graph around it."""

    def outer(rows: Tensors, given: Tensors) -> Tensors:
        shared = [tf.identity(x) for x in given]
        return tf.function(lambda *r: mapped(list(r), shared), autograph=False)(*rows)

    return outer


def leaves(nest: Any) -> Tensors:
    """The tensors of a nest."""
    return [tf.convert_to_tensor(x) for x in tf.nest.flatten(nest, expand_composites=True)]


# ---------------------------------------------------------------------------
# Sites
# ---------------------------------------------------------------------------


def _specs(tensors: Tensors, hidden: Callable[[int], Iterable[int]]) -> list[tf.TensorSpec]:
    """Specs of tensors; ``hidden(rank)`` are the axes whose size is not told."""
    return [
        tf.TensorSpec(
            [None if k in hidden(x.shape.rank) else d for k, d in enumerate(x.shape)], x.dtype
        )
        for x in tensors
    ]


def _function(mapped: Body, rows: Tensors, given: Tensors, hidden: Any, **options: Any) -> Any:
    of_given = range if hidden is range else _none_hidden
    signature = [_specs(rows, hidden), _specs(given, of_given)]
    return tf.function(mapped, input_signature=signature, autograph=False, **options)


def _first(rank: int) -> tuple[int, ...]:
    return (0,)


def _none_hidden(rank: int) -> tuple[int, ...]:
    return ()


def _eager(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    return mapped(rows, given)


def _fixed(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    return _function(mapped, rows, given, _none_hidden)(rows, given)


def _none(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    return _function(mapped, rows, given, _first)(rows, given)


def _all_none(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    return _function(mapped, rows, given, range)(rows, given)


def _compiled(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    return _function(mapped, rows, given, _none_hidden, jit_compile=True)(rows, given)


def _thread(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(mapped, rows, given).result()


def _dataset(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    """Batches of two rows: the last one is smaller."""

    def whole(rows: Tensors, given: Tensors) -> Tensors:
        batches = tf.data.Dataset.from_tensor_slices(tuple(rows)).batch(2)
        made = iter(batches.map(lambda *batch: tuple(mapped(list(batch), given))))
        pieces = [next(made) for _ in range(0, rows[0].shape[0], 2)]
        return [tf.concat(column, 0) for column in zip(*pieces)]

    return tf.function(whole, autograph=False)(rows, given) if given else whole(rows, given)


def _saved(mapped: Body, rows: Tensors, given: Tensors, state: Sequence[tf.Variable]) -> Tensors:
    """A method of a module, after saving and loading."""
    module = tf.Module()
    module.call = _function(mapped, rows, given, _first)
    module.state = [*module.call.get_concrete_function().graph.variables, *state]
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
        return loaded.call(rows, given)


class MapLayer(keras.layers.Layer):
    """A map as a user's layer has it; invariants may be attributes."""

    def __init__(self, mapped: Body, given: Tensors, then: Any = None) -> None:
        super().__init__(autocast=False)
        self.mapped, self.given, self.then = mapped, given, then
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, *rows: Any) -> Any:
        if self.then is None:
            return self.mapped(list(rows), list(self.given))
        return self.scale * self.then(self.mapped(list(rows), list(self.given)))


def _model(mapped: Body, rows: Tensors, given: Tensors, then: Any = None) -> keras.Model:
    inputs = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in rows]
    return keras.Model(inputs, MapLayer(mapped, given, then)(*inputs))


def _functional(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    return tf.nest.flatten(_model(mapped, rows, given)(rows))


def sums(results: Tensors) -> Any:
    """One number for each row: all of its numbers with factors, [n]."""
    total: Any = 0.0
    for x in results:
        x = tf.math.real(x) + 2.0 * tf.math.imag(x) if x.dtype.is_complex else x
        flat = tf.cast(tf.reshape(x, [tf.shape(x)[0], tf.size(x[0])]), tf.float32)
        total += tf.reduce_sum(flat * tf.cos(tf.range(tf.shape(flat)[1], dtype=tf.float32)), 1)
    return total


def _fit(mapped: Body, rows: Tensors, given: Tensors) -> Tensors:
    """A step of training: the loss, [1]."""
    model = _model(mapped, rows, given, sums)
    model.compile("sgd", lambda y_true, y_pred: tf.reduce_mean(y_pred), jit_compile=False)
    n = rows[0].shape[0]
    history = model.fit(rows, tf.zeros([n]), n, verbose=0)
    return [np.float32(history.history["loss"])]


_AT: dict[str, Callable[[Body, Tensors, Tensors], Tensors]] = {
    "all None": _all_none,
    "compiled": _compiled,
    "dataset": _dataset,
    "eager": _eager,
    "fit": _fit,
    "fixed": _fixed,
    "functional": _functional,
    "None": _none,
    "thread": _thread,
}


def wanted(rows: Iterable[list[Any]], site: str) -> list[np.ndarray]:
    """The results that ``run`` must find, from the results of each row."""
    whole = [stacked(column) for column in zip(*rows)]
    if site == "fit":
        return [np.asarray(tf.reduce_mean(sums([tf.constant(x) for x in whole])))[None]]
    return whole


def traces(body: Body, rows: Tensors, shared: Tensors, origin: str, site: str) -> bool:
    """Whether one iteration alone can be traced with invariants of an origin, as it is at a site.

    Some bodies ask for sizes, which nobody has at "all None"; some ask an array what only a tensor
    can tell.
    """
    hidden = range if site == "all None" else _none_hidden
    from_outside = origin in ("argument", "outer")
    specs = _specs([tf.constant(x[0]) for x in rows], hidden)
    given = _specs([tf.constant(x) for x in shared], hidden) if from_outside else []
    read = _reader(shared, origin)
    one = tf.function(lambda row, given: leaves(body(row, read(given))))
    try:
        one.get_concrete_function(specs, given)
    except (AssertionError, AttributeError, NotImplementedError, TypeError, ValueError):
        return False
    return True


def possible(body: Body, rows: Tensors, shared: Tensors, origin: str, site: str) -> tuple[str, str]:
    """An origin and a site, or those nearest to them that one iteration alone bears."""
    if origin == "numpy" and not traces(body, rows, shared, origin, "None"):
        origin = "constant"
    if site == "all None" and not traces(body, rows, shared, origin, site):
        site = "None"
    return origin, site
