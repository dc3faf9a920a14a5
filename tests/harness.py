"""The op-sample harness (DESIGN 14): what it means that an op is vectorized correctly.

A ``Sample`` is an op with inputs. For every non-empty subset of the inputs that may vary, the
checks compare the vectorized op with a plain Python loop over the rows:

* ``check_values``: values, dtypes, static shapes, for n in {0, 1, 3} and n known only when
  running; with the fallback off; no loop hidden in the result; a bound on the emitted ops;
* ``check_gradients``: first gradients with respect to every float input that varies, and with
  respect to one that does not;
* ``check_xla``: values under ``jit_compile``, where the op itself compiles;
* ``check_nested``: a map in a map;
* ``check_folded``: values when the inputs come in folded form, as a MatMul or a Conv2D leaves them.

What is expected to loop or to be refused stands in ``tests/expectations.py``, sorted, and is
strict both ways.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

from tf_pfor import inputs as inputs_module
from tf_pfor import nests
from tf_pfor.convert import Settings
from tf_pfor.errors import NotVectorizableError
from tf_pfor.inputs import Element
from tf_pfor.registry import REGISTRY, Outcome
from tf_pfor.report import Recorder
from tf_pfor.run import convert_body
from tf_pfor.trace import trace
from tf_pfor.values import Folded, Layout, Value

LOOP_OPS = ("While", "StatelessWhile", "MapDefun", "PartitionedCall", "Enter")


@dataclasses.dataclass(frozen=True)
class In:
    """One input of a sample: its inner shape, and how to draw a value.

    Attributes:
      shape: the inner shape.
      draw: ``draw(rng, full_shape)`` gives an array.
      varies: whether it may differ between iterations.
    """

    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Any]
    varies: bool = True

    @property
    def fixed(self) -> In:
        """The same input, never varied."""
        return dataclasses.replace(self, varies=False)

    def make(self, rng: np.random.Generator, n: int | None) -> Any:
        if n is None:
            return self.draw(rng, self.shape)
        rows = [self.draw(rng, self.shape) for _ in range(n)]
        if rows:
            return np.stack(rows)
        one = np.asarray(self.draw(rng, self.shape))
        return np.zeros((0, *one.shape), one.dtype)


def normal(*shape: int, dtype: Any = np.float32) -> In:
    """Normal floats (complex when the dtype is)."""

    def draw(rng: np.random.Generator, full: tuple[int, ...]) -> Any:
        x = rng.normal(size=full)
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 1j * rng.normal(size=full)
        return np.asarray(x).astype(dtype)

    return In(shape, draw)


def uniform(*shape: int, low: float = 0.1, high: float = 0.9, dtype: Any = np.float32) -> In:
    """Floats in [low, high)."""
    return In(shape, lambda rng, full: np.asarray(rng.uniform(low, high, full)).astype(dtype))


def ints(*shape: int, low: int = 0, high: int = 5, dtype: Any = np.int32) -> In:
    """Integers in [low, high)."""
    return In(shape, lambda rng, full: np.asarray(rng.integers(low, high, full)).astype(dtype))


def bools(*shape: int) -> In:
    return In(shape, lambda rng, full: np.asarray(rng.random(full) < 0.5))


def drawn(shape: tuple[int, ...], draw: Callable[[np.random.Generator], Any]) -> In:
    """An input of one's own: ``draw(rng)`` gives one row's value."""
    return In(shape, lambda rng, _: np.asarray(draw(rng)))


def fixed(value: Any) -> In:
    """A constant input that never varies."""
    array = np.asarray(value)
    return In(array.shape, lambda rng, full: array, varies=False)


@dataclasses.dataclass(frozen=True)
class Sample:
    """An op with inputs.

    Attributes:
      op_type: the op type that this is a sample of.
      fn: ``fn(*tensors)``, one iteration; emits the op.
      inputs: its inputs.
      label: tells samples of one op type apart.
      grad: whether to check gradients.
      xla: whether to check under jit_compile; for ops that XLA cannot compile, False.
      rtol, atol: tolerances, absolute and relative, with a reason beside any that is larger.
      max_ops: how many ops may be emitted at most, constants not counted.
      more_ops: other op types of the body that may loop without failing the sample.
      random: outputs are random: check shapes and dtypes, and that rows differ.
      unknown: whether to check with n unknown.
    """

    op_type: str
    fn: Callable[..., Any]
    inputs: tuple[In, ...]
    label: str = ""
    grad: bool = True
    xla: bool = True
    rtol: float = 1e-5
    atol: float = 1e-5
    max_ops: int = 12
    random: bool = False
    unknown: bool = True

    @property
    def name(self) -> str:
        return f"{self.op_type}-{self.label}" if self.label else self.op_type

    def subsets(self) -> list[tuple[int, ...]]:
        """The sets of inputs to vary: all non-empty ones; singles, pairs and all when many."""
        may = [i for i, x in enumerate(self.inputs) if x.varies]
        sizes = range(1, len(may) + 1) if len(may) <= 4 else (1, 2, len(may))
        return [s for k in sizes for s in itertools.combinations(may, k)]

    def arguments(self, subset: Iterable[int], n: int) -> list[Any]:
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        chosen = set(subset)
        return [x.make(rng, n if i in chosen else None) for i, x in enumerate(self.inputs)]


def sample(op_type: str, fn: Callable[..., Any], *inputs: In, **options: Any) -> Sample:
    """Shorthand: ``sample("Add", tf.add, normal(2), normal(2))``."""
    return Sample(op_type, fn, inputs, **options)


def case(name: str, subset: Iterable[int]) -> str:
    """How expectation lists name a sample with a subset of varying inputs: ``MatMul[0,1]``."""
    return f"{name}[{','.join(map(str, subset))}]"


# ---------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------


class Run:
    """One vectorization of a sample: outputs as leaves, records, emitted op types."""

    def __init__(
        self, s: Sample, subset: tuple[int, ...], policy: Any = "error", folded: bool = False
    ):
        self.sample, self.subset, self.folded = s, subset, folded
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
        values = _folded_value if self.folded else inputs_module._element_value
        with mock.patch.object(inputs_module, "_element_value", values):
            leaves = convert_body(
                traced, [Element(x) for x in rows], n, self.settings, self.recorder
            )
        self.emitted = [o.type for o in graph.get_operations()[before:]]
        return [x for x in leaves if isinstance(x, tf.Tensor)]


def _folded_value(element: Element, loop: Any) -> Value:
    """An element that has only its folded form: the loop merged with its first inner axis."""
    value = Value.stacked(element.tensor)
    shape = value.inner_shape
    if not shape or None in shape or value.dtype == tf.variant:
        return value
    lead = loop.length * shape[0] if isinstance(loop.length, int) else -1
    folded = loop.emit("Reshape", value.tensor, np.asarray([lead, *shape[1:]], np.int32))
    stacked = value.tensor
    return Value.deferred(
        Layout.STACKED, lambda: stacked, shape, value.dtype, folded=Folded(folded, 1)
    )


def reference(s: Sample, subset: tuple[int, ...], args: list[Any], n: int) -> list[Any]:
    """A plain Python loop over the rows, and np.stack."""
    rows: list[list[Any]] = []
    for r in range(n):
        row = [tf.constant(x[r] if i in subset else x) for i, x in enumerate(args)]
        rows.append([x.numpy() for x in nests.flatten(_traced(s)(*row))])
    return [np.stack(column) for column in zip(*rows)]


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


def _compile(run: Run, args: list[Any], unknown: bool, **options: Any) -> Any:
    function = tf.function(lambda *a: run(*a), autograph=False, **options)
    return function.get_concrete_function(*_specs(args, run.subset, unknown))


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


def outcome_of(s: Sample, subset: tuple[int, ...]) -> str:
    """ "ok" when vectorized with the fallback off, else why not."""
    run = Run(s, subset)
    try:
        _compile(run, s.arguments(subset, 3), unknown=False)
    except NotVectorizableError as why:
        return f"refused: {why.failures}"
    mine = [o for op, o, _ in run.recorder.entries if op.type == s.op_type]
    inlined = any(r.family == "inline" for r in REGISTRY.rules(s.op_type))  # leaves no record
    if not mine and not inlined:
        found = sorted({op.type for op, _, _ in run.recorder.entries})
        return f"the body has no {s.op_type} that was converted; it has {found}"
    bad = [
        f"{op.type}: {o.value}"
        for op, o, _ in run.recorder.entries
        if o in (Outcome.LOOPED, Outcome.REJECTED)
    ]
    hidden = [t for t in run.emitted if t in LOOP_OPS and not s.op_type.endswith("While")]
    if bad or hidden:
        return f"loops: {bad + hidden}"
    return "ok"


def check_outcome(s: Sample, expected_to_loop: set[str]) -> None:
    """Vectorized with the fallback off, exactly when the expectation list does not name it."""
    for subset in s.subsets():
        found, name = outcome_of(s, subset), case(s.name, subset)
        if name in expected_to_loop:
            assert found != "ok", f"{name} is vectorized now: take it from the expectation list"
        else:
            assert found == "ok", f"{name}: {found}"


def check_values(s: Sample) -> None:
    """Values, dtypes and static shapes equal to the Python loop."""
    for subset in s.subsets():
        shapes: list[Any] = []
        for n, unknown in ((3, False), (1, False), (0, False), (3, True), (0, True)):
            if unknown and not s.unknown:
                continue
            what = f"{case(s.name, subset)}, n={n}{' unknown' if unknown else ''}"
            args = s.arguments(subset, n)
            run = Run(s, subset, "loop")
            concrete = _compile(run, args, unknown)
            found = [x.numpy() for x in concrete(*[tf.constant(a) for a in args])]
            static = [x.shape for x in concrete.outputs]
            if n:
                expected = reference(s, subset, args, n)
                assert len(found) == len(expected), what
                for f, e in zip(found, expected):
                    assert_close(s, what, f, e)
                shapes = shapes or [e.shape[1:] for e in expected]
            for f, st, e in zip(found, static, shapes):
                assert f.shape[0] == n, f"{what}: {f.shape[0]} rows"
                assert st.rank is not None, what
                assert st[0] == (None if unknown else n), f"{what}: {st}"
                if not s.random:
                    assert f.shape[1:] == e or n == 0, f"{what}: {f.shape}"
            if not unknown and n == 3:
                emitted = [t for t in run.emitted if t != "Const"]
                assert len(emitted) <= s.max_ops, f"{what}: {len(emitted)} ops: {emitted}"
                _check_static(s, subset, static, what)


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
    for subset in s.subsets():
        args = s.arguments(subset, 3)
        run = Run(s, subset, "loop")
        concrete = _compile(run, args, unknown=False, jit_compile=True)
        found = concrete(*[tf.constant(a) for a in args])
        for f, e in zip(found, reference(s, subset, args, 3)):
            assert_close(s, f"{case(s.name, subset)} under jit_compile", f.numpy(), e)


def check_folded(s: Sample) -> None:
    """Values when all varying inputs come in folded form."""
    for subset in s.subsets():
        for n in (3, 1):
            args = s.arguments(subset, n)
            run = Run(s, subset, "loop", folded=True)
            concrete = _compile(run, args, unknown=False)
            found = concrete(*[tf.constant(a) for a in args])
            for f, e in zip(found, reference(s, subset, args, n)):
                assert_close(s, f"{case(s.name, subset)} folded, n={n}", f.numpy(), e)


def check_nested(s: Sample) -> None:
    """A map in a map: the outer over 2 rows of 3; all varying inputs vary in both."""
    subset = s.subsets()[-1]
    args = s.arguments(subset, 6)
    expected = reference(s, subset, args, 6)

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
