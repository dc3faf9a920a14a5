"""How a program ends: its map against a loop over the rows, with gradients around both."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_pfor
from tf_pfor.core.errors import ConversionError, PforError
from tools.nested.programs import (
    COUNTS,
    DENSE,
    FLAT,
    LENGTHS,
    SIGNS,
    WEIGHTS,
    WORDS,
    N,
    Row,
    program,
)


def outcome(seed: int) -> tuple[str, str]:
    """How it ends, and why: yes, loop, refused, WRONG, RAW; nothing where one row fails."""
    _, body = program(seed)
    one = tf.function(body, reduce_retracing=True, autograph=False)
    expected, with_gradients, why = None, True, ""
    for with_gradients in (True, False):  # TensorFlow has no gradient of some for one row, too
        try:
            expected = _results(
                lambda rows: tf.stack([one(_row(rows, i)) for i in range(N)]), with_gradients
            )
            break
        except Exception as error:  # a loop over the rows fails by itself
            why = _line(error)
    if expected is None:
        return "", why
    for fallback in ("error", "loop"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = _results(
                    lambda rows, fallback=fallback: tf_pfor.vectorized_map(
                        body, rows, fallback=fallback
                    ),
                    with_gradients,
                )
            except PforError as error:
                why = _line(error)
                if isinstance(error, ConversionError) or fallback == "loop":
                    return "RAW" if isinstance(error, ConversionError) else "refused", why
                continue
            except Exception as error:
                return "RAW", f"{fallback}: {type(error).__name__}: {_line(error)}"
        for x, y in zip(found, expected):
            if not np.allclose(x, y, rtol=1e-6, atol=1e-9):
                return "WRONG", f"{fallback}: {np.round(x, 5)} {np.round(y, 5)}"
        return ("yes", "") if fallback == "error" else ("loop", why)
    raise AssertionError("both ways of the fallback return")


def _results(run: Callable[[Row], tf.Tensor], with_gradients: bool) -> list[np.ndarray]:
    """The numbers of the rows, and gradients of their weighted sum."""
    given = [DENSE, FLAT, WEIGHTS]
    with tf.GradientTape() if with_gradients else contextlib.nullcontext() as tape:
        if tape is not None:
            tape.watch(given)
        x, flat, w = map(tf.identity, given)
        rows = {
            "x": x,
            "r": tf.RaggedTensor.from_row_lengths(flat, LENGTHS),
            "w": tf.tile(w[None], [N, 1]),
            "k": COUNTS,
            "sign": SIGNS,
            "text": WORDS,
        }
        found = run(rows)
        total = tf.reduce_sum(found * tf.range(1.0, N + 1.0, dtype=found.dtype))
    slopes: list[Any] = []
    if tape is not None:
        slopes = tape.gradient(total, given, unconnected_gradients="zero")
    return [np.asarray(tf.convert_to_tensor(t)) for t in (found, *slopes)]


def _row(rows: Row, i: int) -> Row:
    return {name: x[i] for name, x in rows.items()}


def _line(error: Any) -> str:
    return " ".join(str(error).split())[:300]
