"""The outcome of a case: in a map, with a gradient, under XLA, and on a RaggedTensor."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor.reports.explain import explain
from tools.ragged_table.cases import LENGTHS, RaggedCase

YES, LOOP, NO, NONE = "yes", "loop", "no", ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
      kind: the heading under which it stands.
      name: the name of the operation.
      forward, gradient, xla: what becomes of it here, one of the signs.
      ragged_tensor, torch: whether these take it.
      why: the first line of what went wrong.
      op_types: the op types that ran on ragged rows, in one op.
    """

    kind: str
    name: str
    forward: str
    gradient: str
    xla: str
    ragged_tensor: str
    torch: str
    why: str = ""
    op_types: frozenset[str] = frozenset()

    @property
    def line(self) -> str:
        """The outcome as Markdown."""
        signs = (self.forward, self.gradient, self.xla, self.ragged_tensor, self.torch)
        return f"| {' | '.join((self.name, *signs))} |"


def outcome(case: RaggedCase) -> Row:
    """Runs a case in all ways."""
    why: list[str] = []
    forward, op_types = _forward(case, why)
    return Row(
        case.kind, case.name, forward, _gradient(case, why), _under_xla(case, why),
        _on_ragged_tensor(case), YES if case.torch else NO, "; ".join(why), op_types,
    )  # fmt: skip


def _one(case: RaggedCase) -> Any:
    return lambda e: case.row(case.cut(e[0], e[1]))


def _rows(case: RaggedCase, data: tf.Tensor) -> list[Any]:
    return [case.row(case.cut(x, k)) for x, k in zip(tf.unstack(data), LENGTHS, strict=True)]


def _sign(run: Any, why: list[str]) -> str:
    """The sign of ``run(fallback)`` with the fallback off, else with the fallback on."""
    for fallback in ("error", "loop"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
                run(fallback)
            return YES if fallback == "error" else LOOP
        except AssertionError as error:
            why.append("WRONG: " + " ".join(str(error).split())[:150])
            return "wrong"
        except Exception as error:  # any error is an answer here
            why.append(f"{fallback}: " + " ".join(str(error).split())[:200])
    return NO


def _forward(case: RaggedCase, why: list[str]) -> tuple[str, frozenset[str]]:
    def run(fallback: str) -> None:
        found = tf_pfor.vectorized_map(_one(case), (case.data, LENGTHS), fallback=fallback)
        for got, want in zip(found, _rows(case, case.data), strict=True):
            _same(got, want)

    sign = _sign(run, why)
    if sign != YES:
        return sign, frozenset()
    records = explain(_one(case), (case.data, LENGTHS)).records
    if any(r.outcome.value == "looped" for r in records):
        return LOOP, frozenset()
    forms = ("packed", "padded")
    return sign, frozenset(r.op_type for r in records if any(f in r.reason for f in forms))


def _same(got: Any, want: Any) -> None:
    if isinstance(got, tf.RaggedTensor) or isinstance(want, tf.RaggedTensor):
        lists = [x.to_list() if hasattr(x, "to_list") else x.numpy().tolist() for x in (got, want)]
        assert str(lists[0]).count("[") == str(lists[1]).count("["), "other shapes"
        got, want = (getattr(x, "flat_values", x) for x in (got, want))
        got, want = tf.reshape(got, [-1]), tf.reshape(want, [-1])
    assert got.dtype == want.dtype, f"{got.dtype}, not {want.dtype}"
    if got.dtype.is_floating or got.dtype.is_complex:
        np.testing.assert_allclose(got, want, 1e-3, 1e-4)
    else:
        np.testing.assert_array_equal(got, want)


def _weighted(x: Any) -> tf.Tensor:
    """A number that hangs on all elements, each in its own way."""
    x = tf.reshape(getattr(x, "flat_values", x), [-1])
    x = tf.cast(x, tf.float32)
    return tf.reduce_sum(x * tf.cos(tf.range(tf.cast(tf.size(x), tf.float32))))


def _gradient(case: RaggedCase, why: list[str]) -> str:
    if not case.data.dtype.is_floating:
        return NONE
    try:
        with tf.GradientTape() as tape:
            tape.watch(case.data)
            rows = _rows(case, case.data)
            if not (rows[0].dtype.is_floating or rows[0].dtype.is_complex):
                return NONE
            total = _weighted(tf.concat([tf.reshape(r, [-1]) for r in rows], 0))
        expected = tape.gradient(total, case.data)
    except (LookupError, ValueError):
        return NONE
    if expected is None:
        return NONE

    def run(fallback: str) -> None:
        with tf.GradientTape() as tape:
            tape.watch(case.data)
            y = tf_pfor.vectorized_map(_one(case), (case.data, LENGTHS), fallback=fallback)
            total = _weighted(y)
        np.testing.assert_allclose(tape.gradient(total, case.data), expected, 1e-3, 1e-3)

    return _sign(run, why)


def _under_xla(case: RaggedCase, why: list[str]) -> str:
    if case.data.dtype == tf.string:  # of which XLA knows nothing
        return NONE

    def total(x: Any, k: Any) -> tf.Tensor:
        y = case.row(case.cut(x, k))
        return tf.reduce_sum(tf.cast(y, tf.float32))

    x = case.data
    try:
        # XLA compiles for one length of a row alone.
        one = tf.function(lambda x: total(x, 3), jit_compile=True)
        one(x[0])
        expected = tf.stack([total(r, k) for r, k in zip(tf.unstack(x), LENGTHS, strict=True)])
    except Exception:  # a row by itself has no such form
        return NONE

    def run(fallback: str) -> None:
        def body(e: Any) -> Any:
            return total(*e)

        fn = tf.function(
            lambda x, k: tf_pfor.vectorized_map(body, (x, k), fallback=fallback), jit_compile=True
        )
        np.testing.assert_allclose(fn(x, tf.constant(LENGTHS)), expected, 1e-3, 1e-3)

    return _sign(run, why)


def _on_ragged_tensor(case: RaggedCase) -> str:
    if case.ragged is None:
        return NO
    try:
        found = case.ragged(case.elements())
        return YES if found is not NotImplemented else NO
    except Exception:  # refused
        return NO
