"""Sweep of tf.sparse and tf.sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tools.sweep.cases import Case, Rows, body, call, floats, integers


def _sparse(values: Any, shape: tuple[int, ...] = (3, 4)) -> tf.SparseTensor:
    return tf.SparseTensor(tf.constant([[0, 1], [1, 0], [2, 3]], tf.int64), values, list(shape))


def _other(values: Any) -> tf.SparseTensor:
    return tf.SparseTensor(tf.constant([[0, 1], [1, 2], [2, 0]], tf.int64), values, [3, 4])


def _elements(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A call on a sparse tensor whose number of entries differs per row."""
    return lambda x, *rest: fn(tf.sparse.from_dense(x), *rest)


def _some(*shape: int) -> Rows:
    x = np.random.default_rng(3).integers(0, 3, (3, *shape))
    return Rows((x * (x > 1)).astype(np.float32))


_UNARY: dict[str, Callable[..., Any]] = {
    "abs": tf.abs,
    "cast": lambda s: tf.sparse.cast(s, tf.float64),
    "expand_dims": lambda s: tf.sparse.expand_dims(s, 0),
    "eye": lambda s: tf.sparse.to_dense(tf.sparse.eye(3)) + s.values[0],
    "fill_empty_rows": lambda s: tf.sparse.fill_empty_rows(s, 1.0),
    "map_values": lambda s: tf.sparse.map_values(tf.square, s),
    "mask": lambda s: tf.sparse.retain(s, s.values > 0),
    "maximum": lambda s: tf.sparse.maximum(s, _other(tf.reduce_sum(s.values) * tf.ones([3]))),
    "minimum": lambda s: tf.sparse.minimum(s, _other(tf.reduce_sum(s.values) * tf.ones([3]))),
    "add": lambda s: tf.sparse.add(s, _other(tf.reduce_sum(s.values) * tf.ones([3]))),
    "add dense": lambda s: tf.sparse.add(s, tf.ones([3, 4])),
    "concat": lambda s: tf.sparse.concat(1, [s, s]),
    "multiply dense": lambda s: s * tf.ones([3, 4]),
    "divide dense": lambda s: s / tf.fill([3, 4], 2.0),
    "reduce_max": tf.sparse.reduce_max,
    "reduce_max axis": lambda s: tf.sparse.reduce_max(s, 1),
    "reduce_max sparse": lambda s: tf.sparse.reduce_max(s, 1, output_is_sparse=True),
    "reduce_sum": tf.sparse.reduce_sum,
    "reduce_sum axis": lambda s: tf.sparse.reduce_sum(s, 1),
    "reduce_sum sparse": lambda s: tf.sparse.reduce_sum(s, 1, output_is_sparse=True),
    "reorder": tf.sparse.reorder,
    "reset_shape": lambda s: tf.sparse.reset_shape(s, [4, 4]),
    "reshape": lambda s: tf.sparse.reshape(s, [4, 3]),
    "segment_sum": lambda s: tf.sparse.segment_sum(tf.ones([5, 2]) * s.values[0], [0, 1, 4],
        [0, 0, 1]),
    "slice": lambda s: tf.sparse.slice(s, [0, 1], [3, 2]),
    "softmax": tf.sparse.softmax,
    "split": lambda s: tf.sparse.split(s, 2, 1),
    "sparse_dense_matmul": lambda s: tf.sparse.sparse_dense_matmul(s, tf.ones([4, 2])),
    "to_dense": tf.sparse.to_dense,
    "sparse_dense_matmul adjoint": lambda s: tf.sparse.sparse_dense_matmul(s, tf.ones([3, 2]),
        adjoint_a=True),
    "to_indicator": lambda s: tf.sparse.to_indicator(tf.sparse.map_values(lambda v:
        tf.cast(tf.abs(v), tf.int64), s), 4),
    "transpose": tf.sparse.transpose,
    "bincount": lambda s: tf.sparse.bincount(tf.sparse.map_values(lambda v: tf.cast(tf.abs(v),
        tf.int64), s), minlength=4, maxlength=4, axis=-1),
    "cross_hashed": lambda s: tf.sparse.cross_hashed([tf.sparse.map_values(lambda v: tf.cast(v,
        tf.int64), s)] * 2, 7),
    "to_ragged": lambda s: tf.RaggedTensor.from_sparse(tf.sparse.from_dense(tf.ones([2,
        3]) * s.values[0])),
}  # fmt: skip
_SETS = ("difference", "intersection", "union")

SPARSE: list[Case] = [
    call("tf.sparse.from_dense", _some(3, 4)),
    *[body(f"tf.sparse.{k.split()[0]}", lambda v, f=f: f(_sparse(v)), floats(3),
        label=f"{k}, fixed places") for k, f in _UNARY.items()
        if k != "abs" and hasattr(tf.sparse, k.split()[0])],
    *[body(f"tf.sparse.{k.split()[0]}", _elements(f), _some(3, 4), label=f"{k}, places of the row")
        for k, f in _UNARY.items() if k != "abs" and hasattr(tf.sparse, k.split()[0])],
    call("tf.sets.size", tf.sparse.from_dense([[1, 2], [3, 0]]), label="shared"),
    body("tf.sets.size", lambda v: tf.sets.size(_sparse(v)), integers(3)),
    *[call(f"tf.sets.{k}", integers(2, 4), integers(2, 3)) for k in _SETS],
    *[body(f"tf.sets.{k}",
        lambda v, x, k=k: getattr(tf.sets,
        k)(tf.SparseTensor(tf.constant([[0, 1], [1, 0], [1, 3]], tf.int64), v, [2, 4]),
        tf.sparse.from_dense(x)), integers(3), integers(2, 3), label="sparse") for k in _SETS],
    *[body(f"tf.sets.{k}",
        lambda v, x, k=k: getattr(tf.sets, k)(x,
        tf.SparseTensor(tf.constant([[0, 1], [1, 0], [1, 3]], tf.int64), v, [2, 4])), integers(3),
        integers(2, 3), label="dense and sparse") for k in ("difference", "intersection")],
    body("tf.edit_distance", lambda v, w: tf.edit_distance(_sparse(v), _other(w), normalize=False),
        integers(3), integers(3), label="of the row"),
    body("tf.edit_distance",
        lambda v, w: tf.edit_distance(tf.sparse.from_dense(v), tf.sparse.from_dense(w)),
        integers(2, 4, low=0), integers(2, 4, low=1), label="places of the row"),
    body("tf.nn.embedding_lookup_sparse",
        lambda x: tf.nn.embedding_lookup_sparse(tf.reshape(tf.sin(tf.range(12.0)), [6, 2]),
        tf.sparse.from_dense(x), None, combiner="mean"),
        Rows(np.asarray([[[1, 2], [0, 3]], [[0, 4], [5, 0]], [[1, 1], [2, 2]]], np.int64)),
        label="places of the row"),
]  # fmt: skip
