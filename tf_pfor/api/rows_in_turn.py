"""Blocks of rows, or single ones, that run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_pfor import _tf
from tf_pfor.core.emit import Dim
from tf_pfor.core.values import dims
from tf_pfor.layouts.row_shapes import stacked_rows


def several(tensor: tf.Tensor, block: int | None) -> tf.TensorSpec:
    """What ``block`` iterations give of an output; one iteration if None."""
    shape: Any = tensor.shape
    if block is not None:
        shape = None if shape.rank is None else [block, *shape]
    return tf.TensorSpec(shape, tensor.dtype)


def split(x: tf.Tensor, full: Dim, block: int) -> tf.Tensor:
    """The rows of the full blocks: [n, ...] -> [full, block, ...]."""
    shape = dims(x)
    inner: Any = tf.shape(x)[1:]
    if shape is not None and None not in shape[1:]:
        inner = tf.constant(np.asarray(shape[1:], np.int32))
    out = tf.reshape(x[: full * block], tf.concat([[full, block], inner], 0))
    if shape is not None:
        out.set_shape([full if isinstance(full, int) else None, block, *shape[1:]])
    return out


def join(x: tf.Tensor, block: int) -> tf.Tensor:
    """[full, block, ...] -> [full * block, ...]."""
    shape = dims(x)
    if shape is not None and None not in shape:
        return tf.reshape(x, [shape[0] * block, *shape[2:]])  # type: ignore[operator]
    dynamic = tf.shape(x)
    out = tf.reshape(x, tf.concat([dynamic[:1] * block, dynamic[2:]], 0))
    if shape is not None:
        out.set_shape([None, *shape[2:]])
    return out


def in_turn(
    fn: Callable[[list[tf.Tensor], list[tf.Tensor]], tuple[Sequence[tf.Tensor], Any]],
    rows: Sequence[tf.Tensor],
    signature: Sequence[tf.TensorSpec],
    trips: Dim,
    carried: Sequence[tf.Tensor] = (),
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """``tf.map_fn``, also where there are no rows and the shapes of results are not known.

    Args:
      fn: from a row and what is carried to the results for the row and what is carried on.
      rows: tensors [trips, ...].
      signature: of the results for one row.
      trips: how many rows.
      carried: what the first call is given.

    Returns:
      The results [trips, ...], and what the last call carries on.
    """
    size = _at_least_one(trips)
    if size is not trips:
        rows = [readable(x, trips)[:size] for x in rows]
    given = [tf.TensorArray(x.dtype, size).unstack(x) for x in rows]
    empty = [
        tf.TensorArray(s.dtype, size, element_shape=s.shape, infer_shape=False) for s in signature
    ]

    def step(i: tf.Tensor, arrays: list[Any], carried: list[tf.Tensor]) -> Any:
        made, carried = fn([a.read(i) for a in given], carried)
        return i + 1, [a.write(i, x) for a, x in zip(arrays, made)], carried

    _, arrays, last = tf.while_loop(
        lambda i, *_: i < trips, step, (tf.constant(0), empty, list(carried)),
        parallel_iterations=1, maximum_iterations=size,
    )  # fmt: skip
    made = [stacked_rows(a, s, size) for a, s in zip(arrays, signature)]
    return made if size is trips else [x[:trips] for x in made], last


def _at_least_one(n: Dim) -> Dim:
    """``n``; under XLA, which compiles reads that do not run, one where it may be zero."""
    is_known = isinstance(n, int) or not _tf.in_xla_context(tf.compat.v1.get_default_graph())
    return n if is_known else tf.maximum(n, 1)


def readable(x: tf.Tensor, n: Dim) -> tf.Tensor:
    """[n, ...]; with a row of zeros more where XLA could not compile a read of it."""
    if _at_least_one(n) is n:
        return x
    return tf.concat([x, tf.zeros(tf.concat([[1], tf.shape(x)[1:]], 0), x.dtype)], 0)


def followed_by(x: tf.Tensor, rest: tf.Tensor) -> tf.Tensor:
    """The rows of all blocks, and the rest; without blocks x does not know its shape."""
    if not x.shape[1:].is_fully_defined():
        x = tf.reshape(x, tf.concat([tf.shape(x)[:1], tf.shape(rest)[1:]], 0))
    return tf.concat([x, rest], 0)


def sized(x: tf.Tensor, n: Dim) -> tf.Tensor:
    """Sets that there are n rows, where that is known."""
    if isinstance(n, int):
        x.set_shape([n, *x.shape[1:]] if x.shape.rank is not None else None)
    return x
