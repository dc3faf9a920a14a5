"""The op-sample harness: the checks that an op is vectorized correctly.

A ``Sample`` is an op with inputs. For every non-empty subset of the inputs that may vary, the
checks compare the vectorized op with a plain Python loop over the rows:

* ``check_values``: values, dtypes, static shapes, for n = 3; where all inputs vary, also for n
  in {0, 1} and unknown n. The fallback is off, no loop is hidden in the result, and the number of
  emitted ops has a bound.
* ``check_sizes``: the same for n in {0, 1} and unknown n, whichever inputs vary;
* ``check_gradients``: first gradients with respect to every float input that varies, and with
  respect to one that does not;
* ``check_xla``: values under ``jit_compile``, where the op itself compiles;
* ``check_nested``: a map in a map;
* ``check_folded``: values when the inputs come in folded form, as a MatMul or a Conv2D leaves them.

Samples that are expected to loop or to be refused stand in ``tests/expectations.py``, sorted. The
lists are strict both ways.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf

from tests.sample import Sample, case, stacked
from tf_pfor import _tf
from tf_pfor.api import inputs as inputs_module
from tf_pfor.api.bodies import convert_body
from tf_pfor.api.inputs import Element
from tf_pfor.core import nests
from tf_pfor.core.errors import NotVectorizableError
from tf_pfor.core.registry import REGISTRY, Outcome
from tf_pfor.core.report import Recorder
from tf_pfor.core.values import Folded, Stacked, Value
from tf_pfor.tracing.trace import trace
from tf_pfor.walker import checked
from tf_pfor.walker.walker import Settings

LOOP_OPS = ("While", "StatelessWhile", "MapDefun", "PartitionedCall", "Enter")


# ---------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------


class Run:
    """One vectorization of a sample: outputs as leaves, records, emitted op types."""

    def __init__(self, s: Sample, subset: tuple[int, ...], policy: Any = "error", folds: Any = ()):
        self.sample, self.subset, self.folds = s, subset, folds
        self.settings = Settings(policy)
        self.recorder = Recorder()
        self.emitted: list[str] = []

    def __call__(self, *args: Any) -> list[tf.Tensor]:
        """Vectorizes the sample on ``args`` in the current graph."""
        rows = [args[i] for i in self.subset]
        n = rows[0].shape[0]
        n = tf.shape(rows[0])[0] if n is None else n

        def body(*given: tf.Tensor) -> Any:
            full = list(args)
            for i, x in zip(self.subset, given):
                full[i] = x
            return self.sample.fn(*full)

        traced = trace(body, [Element(x).spec for x in rows])
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        self.recorder = Recorder()
        folds = itertools.cycle(self.folds or (0,))  # over how many axes each is

        def values(element: Element, loop: Any) -> Value:
            return _folded_value(element, loop, next(folds))

        with mock.patch.object(inputs_module, "_element_value", values):
            leaves = convert_body(
                traced, [Element(x) for x in rows], n, self.settings, self.recorder
            )
        self.emitted = [_emitted_type(o) for o in graph.get_operations()[before:]]
        return [x for x in leaves if isinstance(x, tf.Tensor)]


def _emitted_type(op: tf.Operation) -> str:
    """The type of an op; a call of a function without loops has a name of its own."""
    if op.type != "PartitionedCall":
        return op.type
    inner = {_emitted_type(o) for g in _tf.functions_of(op) for o in g.get_operations()}
    return op.type if inner & {*LOOP_OPS} else "a call"


def _folded_value(element: Element, loop: Any, axes: int) -> Value:
    """An element that has only its folded form: the loop merged with its first inner axes."""
    value = Value.stacked(element.tensor)
    shape, stacked = value.inner_shape, value.tensor
    if axes == 0 or not shape or None in shape or value.dtype == tf.variant:
        return value
    axes = min(axes, len(shape))
    lead = loop.length * math.prod(shape[:axes]) if isinstance(loop.length, int) else -1
    folded = loop.emit("Reshape", stacked, np.asarray([lead, *shape[axes:]], np.int32))
    return Stacked.deferred(lambda: stacked, shape, value.dtype, folded=Folded(folded, axes))


@functools.lru_cache(maxsize=64)
def reference(s: Sample, subset: tuple[int, ...], n: int) -> list[Any]:
    """A plain Python loop over the rows, and np.stack."""
    args = s.arguments(subset, n)
    rows: list[list[Any]] = []
    for r in range(n):
        row = [tf.constant(x[r] if i in subset else x) for i, x in enumerate(args)]
        rows.append([x.numpy() for x in nests.flatten(_traced(s)(*row))])
    return [stacked(column) for column in zip(*rows)]


@functools.lru_cache(maxsize=64)
def _traced(s: Sample) -> Any:
    """One iteration in a graph, as the body is: some kernels differ from eager ones."""
    return tf.function(lambda *args: nests.flatten(s.fn(*args)), reduce_retracing=False)


def _specs(args: list[Any], subset: tuple[int, ...], unknown: bool) -> list[tf.TensorSpec]:
    specs: list[tf.TensorSpec] = []
    for i, x in enumerate(args):
        tensor = tf.constant(x)
        shape = tensor.shape.as_list()
        if unknown and i in subset:
            shape = [None, *shape[1:]]
        specs.append(tf.TensorSpec(shape, tensor.dtype))
    return specs


class Compiled(NamedTuple):
    """The results of one run: static shapes, and a function of n that gives the values."""

    static: list[tf.TensorShape]
    values: Callable[[int], list[Any]]


def compiled(runs: list[Run], n: int, unknown: bool = False, **options: Any) -> list[Compiled]:
    """Several runs in one function; each in its own where that fails, so that it is known which."""
    try:
        return _together(runs, n, unknown, **options)
    except Exception:
        if len(runs) == 1:
            raise
        return [one for run in runs for one in _together([run], n, unknown, **options)]


def function_of(runs: list[Run], n: int, unknown: bool = False, **options: Any) -> Any:
    """Several runs in one function, traced but not run."""
    args = [run.sample.arguments(run.subset, n) for run in runs]
    specs = [_specs(a, run.subset, unknown) for a, run in zip(args, runs)]
    return tf.function(
        lambda *given: [run(*a) for run, a in zip(runs, given)], autograph=False, **options
    ).get_concrete_function(*specs)


def _together(runs: list[Run], n: int, unknown: bool, **options: Any) -> list[Compiled]:
    function = function_of(runs, n, unknown, **options)
    called = functools.lru_cache(maxsize=1)(lambda n: _call(function, runs, n))
    called(n)
    return [
        Compiled([x.shape for x in static], functools.partial(lambda k, n: called(n)[k], k))
        for k, static in enumerate(function.structured_outputs)
    ]


def _call(function: Any, runs: list[Run], n: int) -> list[list[Any]]:
    args = [run.sample.arguments(run.subset, n) for run in runs]
    found = function(*[[tf.constant(x) for x in a] for a in args])
    return [[x.numpy() for x in results] for results in found]


def assert_close(s: Sample, what: str, found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, f"{what}: dtype {found.dtype}, not {expected.dtype}"
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}"
    if s.random:
        return
    if found.dtype.kind in "fc" or "float" in found.dtype.name:
        wide = np.complex128 if found.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            found.astype(wide), expected.astype(wide), s.rtol, s.atol, err_msg=what
        )
    else:
        np.testing.assert_array_equal(found, expected, err_msg=what)


# ---------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def _outcomes(s: Sample) -> tuple[list[Run], list[str], list[Compiled]]:
    """For each subset: "ok" when vectorized with the fallback off, else why not."""
    runs = [Run(s, subset) for subset in s.subsets()]
    found = ["ok"] * len(runs)
    made: list[Compiled] = []
    try:
        made = compiled(runs, 3)
    except NotVectorizableError:
        for k, run in enumerate(runs):
            try:
                compiled([run], 3)
            except NotVectorizableError as why:
                found[k] = f"refused: {why.failures}"
    return runs, [_recorded(run) if f == "ok" else f for run, f in zip(runs, found)], made


def _recorded(run: Run) -> str:
    """ "ok" when the records of a run have its op and no loop."""
    op_type, entries = run.sample.op_type, run.recorder.entries
    mine = [o for op, o, _ in entries if op.type == op_type]
    inlined = any(r.family == "inline" for r in REGISTRY.rules(op_type))  # leaves no record
    if not mine and not inlined:
        found = sorted({op.type for op, _, _ in entries})
        return f"the body has no {op_type} that was converted; it has {found}"
    bad = [
        f"{op.type}: {o.value}" for op, o, _ in entries if o in (Outcome.LOOPED, Outcome.REJECTED)
    ]
    hidden = [t for t in run.emitted if t in LOOP_OPS and not op_type.endswith("While")]
    if run.sample.steps:  # through something else, all rows at once
        hidden = [t for t in hidden if t not in ("While", "StatelessWhile")]
    return f"loops: {bad + hidden}" if bad or hidden else "ok"


def forget() -> None:
    """Forgets what is kept from one check to the next: for who changes rules."""
    _outcomes.cache_clear()


def check_outcome(s: Sample, expected_to_loop: set[str]) -> None:
    """Vectorized with the fallback off, exactly when the expectation list does not name it."""
    runs, outcomes, _ = _outcomes(s)
    for run, found in zip(runs, outcomes):
        name = case(s.name, run.subset)
        if name in expected_to_loop:
            assert found != "ok", f"{name} is vectorized now: take it from the expectation list"
        else:
            assert found == "ok", f"{name}: {found}"


def check_values(s: Sample) -> None:
    """Values, dtypes and static shapes equal to the Python loop."""
    runs, outcomes, made = _outcomes(s)
    if set(outcomes) != {"ok"} or not made:
        runs = [Run(s, subset, "loop") for subset in s.subsets()]
        made = compiled(runs, 3)
    _check_rows(made, runs, 3, unknown=False)
    for run, one in zip(runs, made):
        what = case(s.name, run.subset)
        emitted = [t for t in run.emitted if t != "Const"]
        assert len(emitted) <= s.max_ops, f"{what}: {len(emitted)} ops: {emitted}"
        _check_static(s, run.subset, one.static, what)
    _check_sizes(s, s.subsets()[-1:])


def check_sizes(s: Sample) -> None:
    """Values, dtypes and static shapes for one row, no rows, and an unknown number of rows."""
    _check_sizes(s, s.subsets())


def _check_sizes(s: Sample, subsets: list[tuple[int, ...]]) -> None:
    runs = [Run(s, subset, "loop") for subset in subsets]
    for n in (1, 0):
        _check_rows(compiled(runs, n), runs, n, unknown=False)
    if s.unknown:
        made = compiled(runs, 3, unknown=True)
        for n in (3, 0):
            _check_rows(made, runs, n, unknown=True)


def _check_rows(made: list[Compiled], runs: list[Run], n: int, unknown: bool) -> None:
    """Checks the results of several runs for n rows against a Python loop; for n = 0 shapes."""
    for run, one in zip(runs, made, strict=True):
        s = run.sample
        what = f"{case(s.name, run.subset)}, n={n}{' unknown' if unknown else ''}"
        found, expected = one.values(n), reference(s, run.subset, n or 1)
        assert len(found) == len(expected) == len(one.static), what
        for f, static, e in zip(found, one.static, expected):
            if n:
                assert_close(s, what, f, e)
            assert f.shape[0] == n, f"{what}: {f.shape[0]} rows"
            assert f.dtype == e.dtype, f"{what}: {f.dtype}"
            assert static.rank is not None, what
            assert static[0] == (None if unknown else n), f"{what}: {static}"
            assert s.random or n == 0 or f.shape[1:] == e.shape[1:], f"{what}: {f.shape}"


def _check_static(s: Sample, subset: tuple[int, ...], static: list[Any], what: str) -> None:
    """The vectorized op must know its static shape as well as the op of one row does."""
    args = s.arguments(subset, 1)
    row = [tf.TensorSpec(a.shape[1:] if i in subset else np.shape(a), tf.constant(a).dtype)
           for i, a in enumerate(args)]  # fmt: skip
    one = _traced(s).get_concrete_function(*row)
    for found, inner in zip(static, one.outputs):
        if inner.shape.rank is not None:
            one_row = inner.shape.as_list()
            known = [
                None if i is None else f for f, i in zip(found.as_list()[1:], one_row, strict=True)
            ]
            assert known == one_row, f"{what}: static shape {found}, one row has {inner.shape}"


def check_gradients(s: Sample) -> None:
    """First gradients with respect to every float input, varying or not."""
    for subset in s.subsets():
        args = [tf.constant(a) for a in s.arguments(subset, 3)]
        floats = [i for i, a in enumerate(args) if a.dtype.is_floating or a.dtype.is_complex]
        if not floats:
            return
        run = Run(s, subset, "loop")

        def vectorized(*given: tf.Tensor, run: Run = run) -> list[tf.Tensor]:
            return run(*given)

        def looped(*given: tf.Tensor, subset: tuple[int, ...] = subset) -> list[tf.Tensor]:
            rows = [
                nests.flatten(s.fn(*[x[r] if i in subset else x for i, x in enumerate(given)]))
                for r in range(3)
            ]
            return [tf.stack(c) for c in zip(*rows)]

        found = _gradients(vectorized, args, floats)
        expected = _gradients(looped, args, floats)
        for i, f, e in zip(floats, found, expected):
            what = f"gradient of {case(s.name, subset)} with respect to input {i}"
            assert (f is None) == (e is None), f"{what}: {f} and {e}"
            if f is not None:
                assert_close(s, what, f.numpy(), e.numpy())


def _gradients(fn: Any, args: list[tf.Tensor], floats: list[int]) -> list[Any]:
    present: list[bool] = []

    @tf.function(autograph=False)
    def run(*given: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([given[i] for i in floats])
            total = tf.constant(0.0, tf.float64)
            for k, out in enumerate(fn(*given)):
                if not (out.dtype.is_floating or out.dtype.is_complex):
                    continue
                weight = tf.cos(tf.range(tf.size(out), dtype=tf.float64) + float(k))
                flat = tf.reshape(out, [-1])
                if out.dtype.is_complex:
                    flat = tf.math.real(flat) + 2.0 * tf.math.imag(flat)
                total += tf.reduce_sum(tf.cast(flat, tf.float64) * weight)
        grads = tape.gradient(total, [given[i] for i in floats])
        present.extend(g is not None for g in grads)
        return [tf.convert_to_tensor(g) for g in grads if g is not None]

    outputs = iter(run.get_concrete_function(*args)(*args))
    return [next(outputs) if p else None for p in present]


def check_xla(s: Sample) -> None:
    """Values under jit_compile, for every subset."""
    runs = [Run(s, subset, "loop") for subset in s.subsets()]
    _check_against_loop(s, runs, 3, "under jit_compile", jit_compile=True)


FOLDS = ((1,), (2,), (2, 0), (0, 2), (1, 2))
"""Over how many first inner axes the varying inputs are folded, in turn."""


def check_folded(s: Sample) -> None:
    """Values when varying inputs come in folded form, and each form is what it says to be."""
    runs: dict[int, dict[Any, Run]] = {3: {}, 1: {}}
    for subset, folds, n in itertools.product(s.subsets(), FOLDS, (3, 1)):
        ranks = [len(s.inputs[i].shape) for i in subset]
        axes = tuple(min(k, r) for k, r in zip(itertools.cycle(folds), ranks))
        if any(axes) and (n == 3 or folds == FOLDS[0]):
            runs[n].setdefault((subset, axes), Run(s, subset, "loop", axes))
    with forms_made():
        for n, some in runs.items():
            _check_against_loop(s, list(some.values()), n, f"folded, n={n}")


@contextlib.contextmanager
def forms_made() -> Iterator[None]:
    """In the ``with`` block folded forms are made, and so held against the shape of the value."""
    kept = checked.shaped

    def shaped(call: Any, rule: Any, value: Value, inner: Any) -> Value:
        if isinstance(value, Stacked) and value.folded is not None:
            assert value.folded.tensor is not None
        return kept(call, rule, value, inner)

    with mock.patch.object(checked, "shaped", shaped):
        yield


def _check_against_loop(s: Sample, runs: list[Run], n: int, how: str, **options: Any) -> None:
    for run, one in zip(runs, compiled(runs, n, **options) if runs else ()):
        for f, e in zip(one.values(n), reference(s, run.subset, n), strict=True):
            assert_close(s, f"{case(s.name, run.subset)} {how} {run.folds}", f, e)


def check_nested(s: Sample) -> None:
    """A map in a map: the outer over 2 rows of 3; all varying inputs vary in both."""
    subset = s.subsets()[-1]
    args = s.arguments(subset, 6)
    expected = reference(s, subset, 6)

    def outer(*rows: tf.Tensor) -> list[tf.Tensor]:
        full: list[Any] = [tf.constant(a) if i not in subset else None for i, a in enumerate(args)]
        for i, x in zip(subset, rows):
            full[i] = x
        return Run(s, subset, "loop")(*full)

    @tf.function(autograph=False)
    def run(*given: tf.Tensor) -> list[tf.Tensor]:
        body = trace(outer, [Element(x).spec for x in given])
        leaves = convert_body(body, [Element(x) for x in given], 2, Settings("loop"), Recorder())
        return [x for x in leaves if isinstance(x, tf.Tensor)]

    rows = [tf.reshape(args[i], [2, 3, *args[i].shape[1:]]) for i in subset]
    for f, e in zip(run(*rows), expected):
        assert_close(s, f"{case(s.name, subset)} nested", tf.reshape(f, e.shape).numpy(), e)
