"""Sparse and ragged code in the body: tf_pfor, TensorFlow's own map, ``tf.map_fn``, in one run.

    python -m benchmarks.sparse

1,000 rows of 50 entries in [40, 40]; medians in ms and the ratios of tf_pfor to the others.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tf_pfor
from benchmarks import timing

ROWS, ENTRIES, SIZE = 1000, 50, 40
Rows = tuple[tf.Tensor, ...]


def _sparse(indices: tf.Tensor, values: tf.Tensor) -> tf.SparseTensor:
    return tf.SparseTensor(indices, values, [SIZE, SIZE])


WORK: dict[str, Callable[[Rows], tf.Tensor]] = {
    "to_dense": lambda e: tf.sparse.to_dense(_sparse(e[0], e[1])),
    "sparse_dense_matmul": lambda e: tf.sparse.sparse_dense_matmul(_sparse(e[0], e[1]), e[2]),
    "sparse.reduce_sum": lambda e: tf.sparse.reduce_sum(_sparse(e[0], e[1]), 1),
    "to_tensor(shape)": lambda e: tf.RaggedTensor.from_row_lengths(e[1], e[3]).to_tensor(
        shape=[10, 20]
    ),
    "sum of boolean_mask": lambda e: tf.reduce_sum(tf.boolean_mask(e[1], e[1] > 0)),
}


def data() -> Rows:
    """Indices [n, 50, 2] in order, values, a dense matrix, and 10 lengths that add up to 50."""
    rng = np.random.default_rng(0)
    flat = np.stack([rng.choice(SIZE * SIZE, ENTRIES, replace=False) for _ in range(ROWS)])
    indices = np.stack(np.divmod(np.sort(flat), SIZE), -1).astype(np.int64)
    values = rng.normal(size=[ROWS, ENTRIES]).astype(np.float32)
    dense = rng.normal(size=[ROWS, SIZE, 8]).astype(np.float32)
    lengths = rng.multinomial(ENTRIES, [0.1] * 10, ROWS).astype(np.int64)
    return tuple(map(tf.constant, (indices, values, dense, lengths)))


def run(name: str, rows: Rows) -> list[timing.Record]:
    """The records of one work."""
    one = WORK[name]
    contenders: dict[str, Callable[[Rows], Any]] = {
        "tf_pfor": lambda e: tf_pfor.vectorized_map(one, e),
        "TensorFlow's": lambda e: tf.vectorized_map(one, e, warn=False),
        "map_fn": lambda e: tf.map_fn(one, e, fn_output_signature=tf.float32),
    }
    compiled: dict[str, Callable[[], Any]] = {}
    results: dict[str, np.ndarray] = {}
    for who, mapped in contenders.items():
        function = tf.function(mapped, autograph=False)
        try:
            results[who] = function(rows).numpy()
        except (ValueError, tf.errors.OpError):
            continue
        compiled[who] = lambda f=function: f(rows).numpy()
    for found in results.values():
        np.testing.assert_allclose(results["tf_pfor"], found, 1e-4, 1e-4)
    times = timing.interleaved(compiled, seconds=1.0)
    return timing.records(name, times, contenders)


def main() -> None:
    """Prints the table and saves it."""
    warnings.simplefilter("ignore", tf_pfor.FallbackWarning)
    rows = data()
    found = [record for name in WORK for record in run(name, rows)]
    timing.save("sparse", found)
    print(timing.overview(found))


if __name__ == "__main__":
    main()
