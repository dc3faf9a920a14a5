"""The outcome of a program: its map against a loop over rows, with gradients around both."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor.core.errors import ConversionError, FallbackWarning, PforError
from tools.nested import programs
from tools.nested.programs import (
    COUNTS,
    DENSE,
    FLAT,
    GROUP_FLAT,
    GROUP_LENGTHS,
    GROUPS,
    LENGTHS,
    MATRICES,
    SHARED,
    SIGNS,
    TABLE,
    WEIGHTS,
    WORDS,
    N,
    Row,
    program,
)

# Where a program is differentiated, and how often around the map; the first is the most frequent.
MODES = {"around": 1, "inside": 0, "around twice": 2, "inside and around": 1}
_WEIGHTS = (3, 1, 1, 1)


def mode_of(seed: int) -> str:
    """The mode in which the program of a seed is differentiated."""
    return random.Random(f"mode {seed}").choices([*MODES], _WEIGHTS)[0]


def outcome(
    seed: int, depth: int = 3, maps: bool = False, numbered: bool = False, ops: bool = False
) -> tuple[str, str]:
    """The outcome, with its reason: yes, loop, refused, WRONG, RAW; empty where one row fails.

    Where TensorFlow has no derivatives of some order for one row, the order below counts. Where
    ``numbered`` is given, the count of a row is its number, which a map asks ``axis_index`` for.
    Gradients are also by what bodies capture: a tensor and a variable.
    """
    plain = program(seed, depth, maps, ops)[1]
    mode, why = mode_of(seed), ""
    body = _with_slope(plain) if "inside" in mode else plain
    counts = tf.range(N) if numbered else COUNTS
    mapped = _by_number(body) if numbered else body
    for order in range(MODES[mode], -1, -1):
        try:
            expected = _of_each_row(body, order, counts)
        except Exception as error:
            why = _line(error)
            continue
        sign, why, is_loop = _compared(mapped, order, expected)
        if sign != "RAW" or _runs_as_a_function(body, order, is_loop, counts):
            return sign, why
    return "", why


def _by_number(body: Callable[[Row], tf.Tensor]) -> Callable[[Row], tf.Tensor]:
    """The body whose count is the number of the row."""
    return lambda row: body({**row, "k": tf_pfor.axis_index("rows")})


def _of_each_row(
    body: Callable[[Row], tf.Tensor], order: int, counts: tf.Tensor
) -> list[np.ndarray]:
    """The results of one row after the other; without a graph, which takes a tenth of the time."""

    def run(rows: Row) -> tf.Tensor:
        return tf.stack([body(_row(rows, i)) for i in range(N)])

    with programs.reference():
        return _results(run, order, counts)


def _runs_as_a_function(
    body: Callable[[Row], tf.Tensor], order: int, is_loop: bool, counts: tf.Tensor
) -> bool:
    """Whether TensorFlow has the derivatives of one row in a graph; of a loop over rows as well.

    The loop reads its rows by their number. TensorFlow has no second derivatives of a loop that is
    given variable-length rows. Its constant folding makes some second derivatives of a ``Case``
    fail, for one row too.
    """

    def loop(rows: Row) -> tf.Tensor:
        return tf.map_fn(lambda i: body(_row(rows, i)), tf.range(N), fn_output_signature=tf.float64)

    try:
        if is_loop:
            with programs.reference():
                _results(tf.function(loop, autograph=False), order, counts)
        _of_each_row(tf.function(body, reduce_retracing=True, autograph=False), order, counts)
    except Exception:
        return False
    return True


def _compared(
    body: Callable[[Row], tf.Tensor], order: int, expected: list[np.ndarray]
) -> tuple[str, str, bool]:
    """The outcome of the map, where this is expected; its reason; whether a loop over rows ran."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = _results(tf_pfor.vmap(body, axis_name="rows"), order)
        except Exception as error:
            is_refused = isinstance(error, PforError) and not isinstance(error, ConversionError)
            sign = "refused" if is_refused else "RAW"
            why = f"{type(error).__name__}: {_line(error)}"
        else:
            sign, why = "yes", ""
            for x, y in zip(found, expected):
                if not np.allclose(x, y, rtol=1e-6, atol=1e-9):
                    sign, why = "WRONG", f"{np.round(x, 5)} {np.round(y, 5)}"
    loops = [w.message for w in said if issubclass(w.category, FallbackWarning)]
    if sign == "yes" and loops:
        sign, why = "loop", _line(loops[0])
    return sign, why, bool(loops)


def _with_slope(plain: Callable[[Row], tf.Tensor]) -> Callable[[Row], tf.Tensor]:
    """The program with its own derivatives by two parts of the row."""

    @tf.autograph.experimental.do_not_convert
    def body(row: Row) -> tf.Tensor:
        parts = [row["x"], row["r"], SHARED]
        with tf.GradientTape() as tape:
            tape.watch(parts)
            found = plain(row)
        slopes = tape.gradient(found, parts, unconnected_gradients="zero")
        return found + sum(tf.reduce_sum(tf.sin(tf.convert_to_tensor(t))) for t in slopes)

    return body


def _results(
    run: Callable[[Row], tf.Tensor], order: int, counts: tf.Tensor = COUNTS
) -> list[np.ndarray]:
    """The numbers of the rows; gradients of their weighted sum, and gradients of those."""
    given = [DENSE, FLAT, WEIGHTS, SHARED]
    with contextlib.ExitStack() as stack:
        tapes = [stack.enter_context(tf.GradientTape()) for _ in range(order)]
        for tape in tapes:
            tape.watch(given)
        x, flat, w, _ = map(tf.identity, given)
        rows = {
            "x": x,
            "r": tf.RaggedTensor.from_row_lengths(flat, LENGTHS),
            "w": tf.tile(w[None], [N, 1]),
            "m": MATRICES * w[0],
            "rr": tf.RaggedTensor.from_nested_row_lengths(
                GROUP_FLAT * w[1], [GROUPS, GROUP_LENGTHS]
            ),
            "k": counts,
            "sign": SIGNS,
            "text": WORDS,
        }
        results = [run(rows)]
        total = tf.reduce_sum(results[0] * tf.range(1.0, N + 1.0, dtype=results[0].dtype))
        while tapes:
            slopes = tapes.pop().gradient(total, [*given, TABLE], unconnected_gradients="zero")
            results += [tf.convert_to_tensor(t) for t in slopes]
            total = tf.add_n([tf.reduce_sum(tf.sin(t) * 0.5) for t in results[-len(slopes) :]])
    return [np.asarray(t) for t in results]


def _row(rows: Row, i: Any) -> Row:
    return {name: x[i] for name, x in rows.items()}


def _line(error: Any) -> str:
    return " ".join(str(error).split())[:300]
