"""Comparisons of a program's map with a loop over rows: with tapes, compiled, in two maps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tests.programs.program import Program

Rows = dict[str, tf.Tensor]
RTOL, ATOL = 1e-8, 1e-9
HALF_RTOL = 2.0**-9  # two units in the last place


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way to run a program.

    Attributes:
      tape: where gradients by all float inputs and weights are taken: "", "body" or "around".
      n: the number of rows.
      known: whether n is known when the map is traced.
      compiled: whether ``jit_compile`` is on.
      maps: the number of maps; of two, the outer one has two rows of the inner one's n / 2.
    """

    tape: str = ""
    n: int = 6
    known: bool = False
    compiled: bool = False
    maps: int = 1


MODES = {
    "values": Mode(),
    "gradients": Mode("body"),
    "tape around": Mode("around"),
    "one row": Mode("body", n=1, known=True),
    "no rows": Mode("body", n=0),
    "two maps": Mode(maps=2),
    "gradients in two maps": Mode("body", maps=2),
    "compiled": Mode(known=True, compiled=True),
    "compiled gradients": Mode("body", known=True, compiled=True),
    "compiled, tape around": Mode("around", known=True, compiled=True),
}


def is_float(x: tf.Tensor) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def leaves(nest: Any) -> list[tf.Tensor]:
    """Tensors; ragged results, of rows whose shape is not known before, are of one shape here."""
    found = [x.to_tensor() if isinstance(x, tf.RaggedTensor) else x for x in tf.nest.flatten(nest)]
    return [tf.convert_to_tensor(x) for x in tf.nest.flatten(found, expand_composites=True)]


def total(outputs: list[tf.Tensor]) -> tf.Tensor:
    """A sum of all numbers, each with a factor of its own."""
    result = tf.constant(0.0, tf.float64)
    for k, x in enumerate(outputs):
        if is_float(x):
            x = tf.math.real(x) + 0.5 * tf.math.imag(x) if x.dtype.is_complex else x
            factors = tf.cos(tf.range(tf.size(x), dtype=tf.float64) + float(k))
            result += tf.reduce_sum(tf.cast(tf.reshape(x, [-1]), tf.float64) * factors)
    return result


def with_gradients(
    run: Callable[[Rows], Any], variables: list[tf.Variable]
) -> Callable[[Rows], list[tf.Tensor]]:
    """Gradients by all float inputs and variables, then the results."""

    def gradients(rows: Rows) -> list[tf.Tensor]:
        sources = [*filter(is_float, rows.values()), *variables]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = leaves(run(rows))
            loss = total(outputs)
        if sources and any(is_float(x) for x in outputs):
            slopes = tape.gradient(loss, sources, unconnected_gradients="zero")
            outputs = [*map(tf.convert_to_tensor, slopes), *outputs]
        return outputs

    return gradients


def body_of(program: Program, mode: Mode) -> tuple[Callable[[Rows], Any], list[tf.Variable]]:
    one, variables = program.body()
    return (with_gradients(one, variables) if mode.tape == "body" else one), variables


def looped(program: Program, mode: Mode) -> list[tf.Tensor]:
    """A Python loop over the rows; of no rows, the first of one."""
    body, variables = body_of(program, mode)
    one = tf.function(body)
    n = mode.n or 1

    def run(rows: Rows) -> list[tf.Tensor]:
        outputs = [leaves(one({k: x[i] for k, x in rows.items()})) for i in range(n)]
        return [tf.stack(column) for column in zip(*outputs)]

    run = with_gradients(run, variables) if mode.tape == "around" else run
    results = run(program.rows(n))
    return results if mode.n else [x[:0] for x in results]


def map_of(program: Program, mode: Mode, fallback: bool) -> tuple[Any, Rows]:
    """A map, or two, as a ``tf.function``, and the rows that it is called with."""
    body, variables = body_of(program, mode)
    vectorized = functools.partial(tf_pfor.vectorized_map, fallback_to_while_loop=fallback)
    rows = program.rows(mode.n)
    if mode.maps == 2:
        rows = {k: tf.reshape(x, [2, mode.n // 2, *x.shape[1:]]) for k, x in rows.items()}

    def run(rows: Rows) -> list[tf.Tensor]:
        if mode.maps == 2:
            return leaves(vectorized(lambda row: vectorized(body, row), rows))
        return leaves(vectorized(body, rows))

    run = with_gradients(run, variables) if mode.tape == "around" else run
    specs = {
        k: tf.TensorSpec(x.shape if mode.known else [None, *x.shape[1:]], x.dtype)
        for k, x in rows.items()
    }
    options = {"jit_compile": True} if mode.compiled else {}
    return tf.function(run, autograph=False, input_signature=[specs], **options), rows


def mapped(program: Program, mode: Mode, fallback: bool) -> list[tf.Tensor]:
    """The results of a map, or of two, one behind the other."""
    function, rows = map_of(program, mode, fallback)
    found = function(rows)
    return [tf.reshape(x, [mode.n, *x.shape[2:]]) for x in found] if mode.maps == 2 else found


def compare(program: Program, mode: Mode, fallback: bool = False) -> None:
    """Fails where a map of a program is not what a loop over its rows is."""
    found = mapped(program, mode, fallback)
    wanted = looped(program, mode)
    for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
        assert (f.dtype, f.shape) == (w.dtype, w.shape), f"result {k}"
        # XLA may round once what kernels round after each op.
        rtol = HALF_RTOL if mode.compiled and f.dtype == tf.float16 else RTOL
        if f.dtype in (tf.float16, tf.bfloat16):
            f, w = tf.cast(f, tf.float32), tf.cast(w, tf.float32)
        if is_float(f):
            np.testing.assert_allclose(f, w, rtol, ATOL, err_msg=f"result {k}")
        else:
            np.testing.assert_array_equal(f, w, err_msg=f"result {k}")
